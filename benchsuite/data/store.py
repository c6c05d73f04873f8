"""The folder of a data set, `DATA/NAME`, and whether it is complete: its marker is written last."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from benchsuite.data import DataError, manifest
from benchsuite.data.descriptor import DataSet, Size, load
from benchsuite.errors import reason as words_of
from benchsuite.files import look as look_at
from benchsuite.files import shipped
from benchsuite.host.mounts import mounted
from benchsuite.provisions import DataUsed
from benchsuite.schema import SCHEMA, Record, from_json, to_json
from benchsuite.writing import replace

MARKER = "benchsuite-data.json"
MANIFEST = "benchsuite-files.txt"
WORK = ".prepare"
State = Literal["missing", "incomplete", "damaged", "ready"]


class Fetched(Record, frozen=True, kw_only=True):
    """One downloaded file."""

    url: str
    size_bytes: int
    sha256: str
    etag: str | None = None


class Marker(Record, frozen=True, kw_only=True):
    """The content of the folder. `size` is null for real data. `damage` is what a later check of all bytes found."""

    schema: int = SCHEMA
    kind: Literal["marker"] = "marker"
    name: str
    version: str
    real: bool
    size: Size | None = None
    files: int
    size_bytes: int
    manifest_sha256: str
    descriptor_sha256: str
    sources: tuple[Fetched, ...] = ()
    made_with: dict[str, str] = {}
    created: str
    damage: str | None = None


class Prepared(Record, frozen=True, kw_only=True):
    """A data set that is ready: its folder, its reader, and what a result records of it."""

    name: str
    path: str
    version: str
    real: bool
    size: Size | None
    sha256: str
    size_bytes: int
    files: int
    reader: str
    layout: dict[str, str]


class Standing(Record, frozen=True, kw_only=True):
    """The state of a data set: a reason in one line and, if it is not ready, the command that prepares it.

    `ours`: `prepare` may replace the folder, because it has a marker or does not exist.
    """

    name: str
    state: State
    reason: str
    command: str
    prepared: Prepared | None = None
    ours: bool = True


def folder(root: Path, name: str) -> Path:
    """The folder of a data set."""
    return root / name


def work(root: Path, name: str) -> Path:
    """The folder in which it is prepared. It is on the same file system, so that one rename moves it to its place."""
    return root / WORK / name


def look(root: Path, data: DataSet, *, every_byte: Callable[[int], None] | None = None) -> Standing:
    """Check marker, names and sizes; with `every_byte` (called with the bytes read so far) also the hashes."""
    place = folder(root, data.name)
    named = data.name if data.path == str(shipped("datasets").get(data.name)) else data.path
    command = f"benchsuite prepare {shlex.quote(named)} -d {shlex.quote(str(root))}"

    def standing(state: State, reason: str, *, ours: bool = True) -> Standing:
        return Standing(name=data.name, state=state, reason=reason, command=command, ours=ours)

    kind = look_at(place)
    if kind is None and not place.is_symlink():
        if (work(root, data.name) / "request.json").exists():
            return standing("incomplete", f"{place} is not finished: what is there can be completed")
        return standing("missing", f"nothing at {place}")
    if kind != "folder":
        return standing("damaged", f"{place} is not a folder that can be read", ours=False)
    if not (place / MARKER).exists():
        reason = f"{place} has no marker: 'benchsuite prepare' did not write it"
        return standing("incomplete", reason, ours=not any(place.iterdir()))
    try:
        marker = from_json((place / MARKER).read_bytes(), Marker)
        if not marker.real and marker.size:  # the replacement is of the same kind
            command += f"{' --synthetic' if data.has_real else ''} --size {marker.size}"
        if marker.name != data.name or marker.version != data.about.version:
            return standing("damaged", f"{marker.name} version {marker.version} is there, not {data.about.version}")
        damage = marker.damage or _damage(place, marker, every_byte)
    except (OSError, ValueError) as error:
        return standing("damaged", _unreadable(place, error))
    if damage:
        return standing("damaged", f"{place}: {damage}")
    return Standing(
        name=data.name,
        state="ready",
        reason=f"{in_words(marker)}, {marker.files:,} files, {human(marker.size_bytes)}",
        command=command,
        prepared=_prepared(place, marker, data),
    )


def _unreadable(place: Path, error: OSError | ValueError) -> str:
    return f"{error.filename or place}: {words_of(error)}" if isinstance(error, OSError) else f"{place}: {error}"


def _damage(place: Path, marker: Marker, every_byte: Callable[[int], None] | None) -> str | None:
    text = (place / MANIFEST).read_bytes()
    if sha256(text) != marker.manifest_sha256:
        return f"{MANIFEST} is not the one that its marker names"
    entries = manifest.parse(text)
    found = manifest.difference(place, entries, apart=(MARKER, MANIFEST))
    if found is None and every_byte is not None:
        found = manifest.changed(place, entries, every_byte)
    return found


def _prepared(place: Path, marker: Marker, data: DataSet) -> Prepared:
    return Prepared(
        name=data.name,
        path=str(place.resolve()),
        version=marker.version,
        real=marker.real,
        size=marker.size,
        sha256=marker.manifest_sha256,
        size_bytes=marker.size_bytes,
        files=marker.files,
        reader=data.about.reader,
        layout=data.about.layout,
    )


def find(root: Path | None, name: str, *, every_byte: bool = False) -> Prepared:
    """A data set that is ready to be read; None without a root.

    Raises:
        DataError: it is not ready; gives the reason and the command that prepares it.
        ProfileError: no such data set.
    """
    data = load(name)
    if root is None:
        raise DataError(
            f"data set '{name}' is missing: there is no data folder; bring it with 'benchsuite prepare {name}'"
        )
    found = look(root, data, every_byte=(lambda _: None) if every_byte else None)
    if found.prepared is None:
        raise DataError(f"data set '{name}' is {found.state}: {found.reason}; bring it with '{found.command}'")
    return found.prepared


def paths(prepared: Prepared) -> list[Path]:
    """The paths of all files of a data set.

    Raises:
        OSError, ValueError: its manifest cannot be read.
    """
    place = Path(prepared.path)
    return [place / entry.path for entry in manifest.parse((place / MANIFEST).read_bytes())]


def used(prepared: Prepared) -> DataUsed:
    """What a result records of a data set."""
    return DataUsed(
        name=prepared.name,
        real=prepared.real,
        size=prepared.size,
        version=prepared.version,
        sha256=prepared.sha256,
        size_bytes=prepared.size_bytes,
        file_system=file_system(Path(prepared.path)),
    )


def condemn(root: Path, name: str, reason: str) -> None:
    """Record in the marker what a check of all bytes found, so that later checks of names and sizes report it.

    Raises:
        OSError: the marker cannot be written.
        ValueError: it is not a marker.
    """
    path = folder(root, name) / MARKER
    marker = from_json(path.read_bytes(), Marker)
    replace(path, to_json(msgspec.structs.replace(marker, damage=reason), indent=2))


def file_system(path: Path) -> str | None:
    """The type of the file system that holds a path, such as ext4, nfs4 or tmpfs; None if it is unknown."""
    best: tuple[int, str] | None = None
    try:
        device = path.stat().st_dev
    except OSError:
        return None
    number = f"{os.major(device)}:{os.minor(device)}"
    for mount in mounted()[0]:
        inside = path.resolve().is_relative_to(mount.point)
        # On btrfs files have other device numbers than their mounts: then the longest mount point decides.
        rank = len(mount.point) + (10_000 if mount.device == number else 0)
        if inside and (best is None or rank >= best[0]):
            best = rank, mount.kind
    return best[1] if best else None


def in_words(marker: Marker) -> str:
    """ "real" or "synthetic, small"."""
    return "real" if marker.real else f"synthetic, {marker.size}"


def sha256(content: bytes) -> str:
    """The hash of a manifest, which identifies the content of the data set."""
    return hashlib.sha256(content).hexdigest()


def human(size_bytes: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size_bytes < 1024 or unit == "GiB":
            break
        size_bytes /= 1024
    return f"{size_bytes:,.0f} {unit}" if unit == "bytes" else f"{size_bytes:,.1f} {unit}"
