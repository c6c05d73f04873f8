"""TFRecord files and the images in them, read and written without TensorFlow.

A file is a row of records: the length (8 bytes), its checksum (4), the data, and their checksum (4), all little-endian.
A checksum is a masked CRC32C (https://www.tensorflow.org/tutorials/load_data/tfrecord). The data are an Example in the
encoding of protocol buffers, whose fields are those of ImageNet's usual conversion: `image/encoded` is a JPEG file, and
`image/class/label` counts from 1, because 0 is the background.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

import google_crc32c

HEADER = struct.Struct("<QI")
CHECKSUM = struct.Struct("<I")
# A record holds one image. A damaged length that passes its checksum must not take all memory.
MOST_BYTES = 1 << 30

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def masked_crc(data: bytes) -> int:
    """The checksum of a record's part: its CRC32C, rotated right by 15 bits, plus a constant."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(data: bytes) -> bytes:
    """One record of a file."""
    length = struct.pack("<Q", len(data))
    return b"".join((length, CHECKSUM.pack(masked_crc(length)), data, CHECKSUM.pack(masked_crc(data))))


def records(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The records of a file that is open at its begin: the offset of each, and its data.

    Raises:
        ValueError: the file is cut, or a checksum is wrong; names the offset of the record.
    """
    at = 0
    while head := file.read(HEADER.size):
        if len(head) < HEADER.size:
            raise ValueError(f"the record at byte {at:,} is cut")
        length, checksum = HEADER.unpack(head)
        if masked_crc(head[:8]) != checksum or length > MOST_BYTES:
            raise ValueError(f"the record at byte {at:,} has a wrong length or checksum of its length")
        rest = file.read(length + CHECKSUM.size)
        if len(rest) < length + CHECKSUM.size:
            raise ValueError(f"the record at byte {at:,} is cut")
        data = rest[:length]
        if CHECKSUM.unpack_from(rest, length) != (masked_crc(data),):
            raise ValueError(f"the record at byte {at:,} has a wrong checksum of its data")
        yield at, data
        at += HEADER.size + len(rest)


def example(image: bytes, label: int) -> bytes:
    """The data of a record: an encoded image and its class, which counts from 1."""
    features = {
        b"image/class/label": _field(3, _field(1, _varint(label))),
        b"image/encoded": _field(1, _field(1, image)),
    }
    return _field(1, b"".join(_field(1, _field(1, name) + _field(2, value)) for name, value in features.items()))


def image_and_label(data: bytes) -> tuple[bytes, int]:
    """The encoded image and its class, which counts from 1, of a record's data.

    Raises:
        ValueError: the data are no Example, or lack one of both.
    """
    image: bytes | None = None
    label: int | None = None
    for features in _all(memoryview(data), 1):
        for entry in _all(features, 1):
            name = b"".join(_all(entry, 1))
            if name == b"image/encoded":
                image = next(
                    (bytes(one) for kind in _all(entry, 2) for many in _all(kind, 1) for one in _all(many, 1)), None
                )
            elif name == b"image/class/label":
                label = next((one for kind in _all(entry, 2) for many in _all(kind, 3) for one in _numbers(many)), None)
    if image is None or label is None:
        raise ValueError(f"there is no {'image/encoded' if image is None else 'image/class/label'}")
    return image, label


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _read_varint(message: memoryview, at: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("it is no Example: a number is cut")


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The number and the content of each field: a varint is a number, other content is bytes."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _read_varint(message, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(message, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"it is no Example: a field of the unknown kind {kind}")
        if at + size > len(message):
            raise ValueError("it is no Example: a field is cut")
        yield key >> 3, message[at : at + size]
        at += size


def _all(message: memoryview, number: int) -> Iterator[memoryview]:
    """The contents of the fields of a number that hold bytes."""
    for found, content in _fields(message):
        if found == number and isinstance(content, memoryview):
            yield content


def _numbers(message: memoryview) -> Iterator[int]:
    """The numbers of an Int64List, packed or not."""
    for found, content in _fields(message):
        if found != 1:
            continue
        if isinstance(content, int):
            yield content
            continue
        at = 0
        while at < len(content):
            value, at = _read_varint(content, at)
            yield value
