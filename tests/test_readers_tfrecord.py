"""TFRecord: the bytes of its records by hand, damaged records, shards shared by ranks and processes, and conversion."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from benchsuite import tfrecord
from benchsuite.data import descriptor
from benchsuite.describe.tasks import DataFolder
from benchsuite.errors import ModelError

pytest.importorskip("torch")
pytest.importorskip("torchvision")

import PIL.Image
import torch
from support import build, in_process, one_line_error

from benchsuite.models import Share, convnet
from benchsuite.models.readers.image_folder import augmentation
from benchsuite.models.readers.tfrecord import Shards, labelled
from benchsuite.worker.ways import make_step

pytestmark = pytest.mark.torch


def crc32c_bit_by_bit(data: bytes) -> int:
    """The definition: Castagnoli's polynomial, reflected; both ends inverted."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_a_record_has_these_bytes() -> None:
    """0xE3069283 is the published check value of CRC32C for 123456789.

    Rotated right by 15 bits it is 0x2507C60D, and 0xA282EAD8 more is 0xC78AB0E5.
    """
    assert crc32c_bit_by_bit(b"123456789") == 0xE3069283
    assert tfrecord.masked_crc(b"123456789") == 0xC78AB0E5
    length = bytes([9, 0, 0, 0, 0, 0, 0, 0])
    crc = crc32c_bit_by_bit(length)
    masked = ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32
    expected = length + struct.pack("<I", masked) + b"123456789" + bytes([0xE5, 0xB0, 0x8A, 0xC7])
    assert tfrecord.framed(b"123456789") == expected
    assert list(tfrecord.records(io.BytesIO(expected * 2))) == [(0, b"123456789"), (25, b"123456789")]


# Two features of an Example, written field by field: 0x0A is field 1 with bytes, 0x12 field 2, 0x1A field 3, 0x08 field
# 1 with a number. The first list of numbers is packed, the second is not; 300 is the varint AC 02.
LABEL = b"\x0a\x11image/class/label"
IMAGE = b"\x0a\x1b\x0a\x0dimage/encoded\x12\x0a\x0a\x08\x0a\x06pixels"
PACKED = b"\x0a\x1b" + LABEL + b"\x12\x06\x1a\x04\x0a\x02\xac\x02"
PLAIN = b"\x0a\x1a" + LABEL + b"\x12\x05\x1a\x03\x08\xac\x02"
OTHER = b"\x0a\x12\x0a\x06height\x12\x08\x12\x06\x0a\x04\x00\x00\x80\x3f"  # a float that is not read


@pytest.mark.parametrize("label", [PACKED, PLAIN], ids=["packed", "one by one"])
def test_an_example_is_read_whatever_else_it_holds(label: bytes) -> None:
    features = OTHER + label + IMAGE
    assert tfrecord.image_and_label(b"\x0a" + bytes([len(features)]) + features) == (b"pixels", 300)


def test_an_example_that_is_written_is_read() -> None:
    image = bytes(range(256)) * 5
    assert tfrecord.image_and_label(tfrecord.example(image, 1000)) == (image, 1000)
    assert tfrecord.example(b"pixels", 300) == b"\x0a" + bytes([len(PACKED + IMAGE)]) + PACKED + IMAGE


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "there is no image/encoded"),
        (b"\x0a" + bytes([len(IMAGE)]) + IMAGE, "there is no image/class/label"),
        (b"\x0a\x7fshort", "it is no Example: a field is cut"),
        (b"\xff" * 12, "it is no Example: a number is cut"),
        (b"\x0b", "it is no Example: a field of the unknown kind 3"),
    ],
    ids=range(5),
)
def test_data_that_are_no_example_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        tfrecord.image_and_label(data)


# --- shards -----------------------------------------------------------------------------------------------------------


def jpeg(shade: int) -> bytes:
    kept = io.BytesIO()
    PIL.Image.new("RGB", (40, 40), (shade, shade, shade)).save(kept, "JPEG")
    return kept.getvalue()


def shards(folder: Path, counts: list[int]) -> DataFolder:
    """Shards with this many records; the label of each image, from 1, is also its shade."""
    about = descriptor.load("imagenet_tfrecord").about
    train = folder / about.layout["train"]
    train.mkdir(parents=True)
    label = 0
    for shard, many in enumerate(counts):
        rows = [tfrecord.framed(tfrecord.example(jpeg(label + n + 1), label + n + 1)) for n in range(many)]
        label += many
        (train / f"train-{shard:05d}-of-{len(counts):05d}").write_bytes(b"".join(rows))
    return DataFolder(name="imagenet_tfrecord", path=str(folder), reader=about.reader, layout=about.layout)


def batches(data: DataFolder, rank: int = 0, ranks: int = 1, seed: int = 3, **changed: Any) -> Iterator[Any]:
    share = Share(rank=rank, ranks=ranks, seed=seed, data=data)
    return labelled(share, augmentation(32), **{"batch_size": 2, "workers": 0, "classes": 100, **changed})


def fails(make: Callable[[], Iterator[Any]], *parts: str) -> None:
    with pytest.raises(ModelError) as caught:
        list(islice(make(), 200))
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value), str(caught.value)


def test_labels_count_from_0_and_belong_to_their_images(tmp_path: Path) -> None:
    pixels, labels = next(batches(shards(tmp_path, [3, 3]), batch_size=6))
    assert pixels.shape == (6, 3, 32, 32) and labels.dtype == torch.int64
    shades = (pixels.mean((2, 3))[:, 0] * 0.229 + 0.485) * 255
    assert torch.allclose(shades, labels + 1.0, atol=1.5)
    assert set(labels.tolist()) <= set(range(6))


def test_ranks_and_their_processes_read_other_shards_and_together_all(tmp_path: Path) -> None:
    data = shards(tmp_path, [2, 3, 2, 2, 1, 2])
    seen = [
        {int(label) for _, labels in islice(batches(data, rank, 2, workers=rank), 150) for label in labels}
        for rank in range(2)
    ]
    assert seen[0] & seen[1] == set()
    assert seen[0] | seen[1] == set(range(12))
    assert seen[0] == {0, 1, 5, 6, 9}, "the shards 0, 2 and 4"


def test_processes_of_a_rank_have_no_shard_in_common(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = shards(tmp_path, [2, 2, 2])
    found = []
    for number in range(2):
        given = type("Worker", (), {"id": number, "num_workers": 2})
        monkeypatch.setattr("benchsuite.models.readers.tfrecord.get_worker_info", lambda given=given: given)
        files = sorted(str(path) for path in (tmp_path / "train").iterdir())
        stream = iter(Shards(files, lambda image, label: label, Share(data=data), 2))
        found.append({int(label) for labels in islice(stream, 300) for label in labels})
    assert found == [{0, 1, 4, 5}, {2, 3}]


def test_batches_are_a_function_of_the_share(tmp_path: Path) -> None:
    data = shards(tmp_path, [4, 4])
    one, again = ([labels.tolist() for _, labels in islice(batches(data), 5)] for _ in range(2))
    assert one == again != [labels.tolist() for _, labels in islice(batches(data, seed=4), 5)]
    workload = build(convnet, classes=100, image_size=32)
    pixels, labels = next(workload.batches(Share(data=data)))
    assert pixels.shape == (2, 3, 32, 32) and make_step(workload).run((pixels, labels)) == 2


def change(file: Path, at: int, to: bytes) -> None:
    content = bytearray(file.read_bytes())
    content[at : at + len(to)] = to
    file.write_bytes(content)


def test_damaged_records_are_named_with_file_and_offset(tmp_path: Path) -> None:
    data = shards(tmp_path, [2])
    file = tmp_path / "train" / "train-00000-of-00001"
    whole = file.read_bytes()
    second = list(tfrecord.records(io.BytesIO(whole)))[1][0]
    verify = "prepare imagenet_tfrecord --verify"
    for damaged, says in (
        (whole[:-3], f"the record at byte {second:,} is cut"),
        (whole[: second + 5], f"the record at byte {second:,} is cut"),
        (whole[: second + 2] + b"\x01" + whole[second + 3 :], f"byte {second:,} has a wrong length or checksum"),
        (whole[:300] + b"\x00\x01" + whole[302:], "the record at byte 0 has a wrong checksum of its data"),
        (tfrecord.framed(b"\x0b"), "the record at byte 0: it is no Example"),
        (tfrecord.framed(tfrecord.example(b"nothing", 1)), "the record at byte 0: is not an image"),
        (b"", "holds no record"),
    ):
        file.write_bytes(damaged)
        fails(lambda: batches(data), str(file), says, verify)
    file.write_bytes(tfrecord.framed(tfrecord.example(jpeg(9), 101)))
    fails(lambda: batches(data), str(file), "its label is 101, not 1 to classes 100")


def test_missing_shards_and_too_many_ranks_are_refused(tmp_path: Path) -> None:
    data = shards(tmp_path, [1, 1, 1])
    fails(lambda: batches(data, ranks=4), "3 shards are fewer than the 4 ranks")
    (tmp_path / "train" / "train-00001-of-00003").unlink()
    fails(lambda: batches(data), str(tmp_path / "train"), "2 shards are there, and their names give 3")
    for file in (tmp_path / "train").iterdir():
        file.unlink()
    fails(lambda: batches(data), "there are no shards such as train-00000-of-01024")


# --- a user's own files -----------------------------------------------------------------------------------------------


@pytest.fixture(name="own")
def own_fixture(tmp_path: Path) -> Path:
    """A folder of the user's own: classes of two images to train with, and one to validate."""
    for number, place in enumerate(["train/n02/a.JPEG", "train/n02/b.JPEG", "train/n01/c.JPEG", "val/n02/d.JPEG"]):
        file = tmp_path / "own" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(jpeg(50 * number))
    (tmp_path / "own" / "train" / "n01" / "notes.txt").write_text("no image")
    return tmp_path / "own"


def test_a_folder_of_images_becomes_shards(own: Path, tmp_path: Path) -> None:
    done = in_process("prepare", "imagenet_tfrecord", "--from", str(own), "-d", "data", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "imagenet_tfrecord: ready: real, 4 files" in done.stdout
    place = tmp_path / "data" / "imagenet_tfrecord"
    found = {}
    for file in sorted((place / "train").iterdir()):
        with file.open("rb") as content:
            for _, data in tfrecord.records(content):
                image, label = tfrecord.image_and_label(data)
                found[image] = label
    names = {"n02": ["a", "b"], "n01": ["c"]}
    assert found == {
        (own / "train" / name / f"{one}.JPEG").read_bytes(): 1 + (name == "n02")
        for name in names
        for one in names[name]
    }
    assert [file.name for file in (place / "validation").iterdir()] == ["validation-00000-of-00001"]
    again = in_process("prepare", "imagenet_tfrecord", "--from", str(place), "-d", "other", cwd=tmp_path)
    assert again.returncode == 0, "shards that exist are taken as they are"
    shard = "imagenet_tfrecord/train/train-00000-of-00003"
    assert (tmp_path / "other" / shard).samefile(tmp_path / "data" / shard)


def test_a_folder_of_images_is_linked(own: Path, tmp_path: Path) -> None:
    done = in_process("prepare", "imagenet", "--from", str(own), "-d", "data", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    place = tmp_path / "data" / "imagenet"
    assert (place / "train/n02/a.JPEG").samefile(own / "train/n02/a.JPEG")
    assert not (place / "train/n01/notes.txt").exists()
    again = in_process("prepare", "imagenet", "-d", "data", cwd=tmp_path)
    assert again.returncode == 0 and "ready: real, 4 files" in again.stdout


def test_what_may_not_be_downloaded_says_where_it_is(own: Path, tmp_path: Path) -> None:
    done = in_process("prepare", "imagenet", "-d", "data", cwd=tmp_path)
    assert done.returncode == 1
    assert "register at https://image-net.org" in done.stderr and "--from; or add --synthetic" in done.stderr
    (tmp_path / "empty").mkdir()
    done = in_process("prepare", "imagenet", "--from", "empty", "-d", "data", cwd=tmp_path)
    assert done.returncode == 1 and f"{tmp_path / 'empty'}: there are no images in train/CLASS" in done.stderr
    for arguments, says in (
        (["mnist", "--from", str(own)], "mnist takes no files of your own"),
        (["imagenet", "mnist", "--from", str(own)], "give one data set"),
        (["imagenet", "--from", str(own), "--synthetic"], "leave out --synthetic"),
    ):
        one_line_error(in_process("prepare", *arguments, "-d", "data", cwd=tmp_path), says)
