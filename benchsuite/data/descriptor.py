"""A data set's descriptor: a YAML file of `datasets/`, read as a typed record with unknown fields refused."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from benchsuite import files
from benchsuite.data import writers
from benchsuite.data.bpe import Conversion
from benchsuite.data.supply import Supplied
from benchsuite.errors import ProfileError, nearest
from benchsuite.schema import Record

Size = Literal["small", "full"]
Reader = Literal[
    "idx",
    "image_folder",
    "tfrecord",
    "cifar",
    "bsds",
    "coco",
    "shapenet",
    "bpe_ids",
    "tokens",
    "ratings",
    "series",
    "speech",
]
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_+-]*$"
_CHECKSUM = r"^(md5:[0-9a-f]{32}|sha256:[0-9a-f]{64})$"
_Bytes = Annotated[int, Meta(gt=0)]
_Text = Annotated[str, Meta(min_length=1)]


class Source(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file to download, and how it is unpacked.

    `size_bytes` and `checksum` are given if they are published; the hash of the download is always recorded. `keep`
    are patterns of the members to unpack (empty: all). `unpacked_bytes` is the most that it may unpack to.
    """

    url: _Text
    mirrors: tuple[_Text, ...] = ()
    size_bytes: _Bytes | None = None
    checksum: Annotated[str, Meta(pattern=_CHECKSUM)] | None = None
    unpack: Literal["zip", "tar", "gz", "none"]
    into: str = "."
    keep: tuple[_Text, ...] = ()
    unpacked_bytes: _Bytes | None = None

    @property
    def file(self) -> str:
        """The name of the downloaded file."""
        return PurePosixPath(urlsplit(self.url).path).name


class Generator(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The writer of data of the same shape, and its settings: `common`, overridden by those of a size."""

    writer: str
    common: dict[str, Any] = {}
    small: dict[str, Any] = {}
    full: dict[str, Any] = {}


class Expected(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Approximate size of the unpacked files, in bytes."""

    real: _Bytes | None = None
    small: _Bytes
    full: _Bytes


class Descriptor(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One data set. `layout`: role -> path below the data set's folder.

    Without `sources`, the real files are the user's own if it has `supplied`; else it is always generated.
    """

    schema: Annotated[int, Meta(ge=1, le=1)]
    version: Annotated[str, Meta(pattern=_NAME)]
    title: _Text
    item: _Text
    licence: _Text
    homepage: _Text | None = None
    expected_bytes: Expected
    sources: tuple[Source, ...] = ()
    conversion: Conversion | None = None
    supplied: Supplied | None = None
    reader: Reader
    layout: Annotated[dict[str, str], Meta(min_length=1)]
    generator: Generator


class DataSet(Record, frozen=True, kw_only=True):
    """A descriptor with the name of its file. `sha256` covers the content, not the form of the YAML."""

    name: Annotated[str, Meta(pattern=_NAME)]
    path: str
    sha256: str
    about: Descriptor

    @property
    def has_real(self) -> bool:
        """There are real files, to download or supplied by the user."""
        return bool(self.about.sources or self.about.supplied)

    def settings(self, size: Size) -> writers.Settings:
        """The writer's settings for a size."""
        generator = self.about.generator
        given = {**generator.common, **(generator.small if size == "small" else generator.full)}
        kind: type[writers.Settings] = writers.writer(generator.writer).Settings
        return msgspec.convert(given, kind)


def names() -> list[str]:
    """The shipped data sets."""
    return list(files.shipped("datasets"))


def load(name: str) -> DataSet:
    """Load a shipped data set by name, or a descriptor file of the user's own, such as a copy with a local mirror.

    Raises:
        ProfileError: no such data set, or a bad descriptor; names the file, the field and the remedy.
    """
    if "/" not in name and not name.endswith((".yaml", ".yml", ".json")) and name not in names():
        raise ProfileError(f"no data set '{name}'{nearest(name, names())}")
    return _read(files.find("datasets", name))


@functools.cache
def _read(path: Path) -> DataSet:
    content = files.read_mapping(path)
    about = _converted(content, path)
    try:
        found = msgspec.convert(
            {
                "name": path.stem,
                "path": str(path),
                "sha256": hashlib.sha256(msgspec.json.encode(about, order="deterministic")).hexdigest(),
                "about": msgspec.to_builtins(about),
            },
            DataSet,
        )
    except msgspec.ValidationError:
        raise ProfileError(f"{path}: rename the file to letters, digits and '_+-': it names the data set") from None
    _check(found)
    return found


def _converted(content: dict[str, Any], path: Path) -> Descriptor:
    try:
        return msgspec.convert(content, Descriptor)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        place = place.strip("`.")
        if "unknown field" in reason:
            field = reason.split("`")[1]
            kinds = {
                "": Descriptor,
                "sources": Source,
                "generator": Generator,
                "expected_bytes": Expected,
                "conversion": Conversion,
                "supplied": Supplied,
            }
            kind = kinds[place.partition("[")[0]]
            reason = f"unknown field '{field}'{nearest(field, kind.__struct_fields__)}"
        reader = content.get("reader")
        if place == "reader" and isinstance(reader, str):
            reason = f"unknown '{reader}'{nearest(reader, get_args(Reader))}"
        at = f"field '{place}': " if place else ""
        raise ProfileError(f"{path}: {at}{reason[0].lower()}{reason[1:].replace('`', chr(39))}") from None


def _check(found: DataSet) -> None:
    about, path = found.about, found.path
    for source in about.sources:
        for url in (source.url, *source.mirrors):
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
                raise ProfileError(f"{path}: field 'sources': {url!r} is no http or https address")
        if not source.file:
            raise ProfileError(f"{path}: field 'sources': {source.url} names no file")
        _below(source.into, "sources", path)
    kept = [source.file for source in about.sources]
    if len(set(kept)) < len(kept):
        raise ProfileError(f"{path}: field 'sources': two sources have the same file name; give one a mirror instead")
    for place in about.layout.values():
        _below(place, "layout", path)
    generator = about.generator
    if generator.writer not in writers.names():
        known = nearest(generator.writer, writers.names())
        raise ProfileError(f"{path}: field 'generator.writer': unknown '{generator.writer}'{known}")
    for size in get_args(Size):
        try:
            found.settings(size)
        except msgspec.ValidationError as error:
            reason = str(error).replace("`", "'")
            raise ProfileError(f"{path}: field 'generator.{size}': {reason[0].lower()}{reason[1:]}") from None


def _below(place: str, field: str, path: str) -> None:
    parts = PurePosixPath(place)
    if parts.is_absolute() or ".." in parts.parts or not place or not place.isprintable():
        raise ProfileError(f"{path}: field '{field}': {place!r} must be a path below the data set's folder")
