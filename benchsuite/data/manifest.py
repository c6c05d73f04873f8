"""The list of a data set's files with sizes and hashes, one line a file, and the comparison of a folder with it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from benchsuite.files import of_data_set
from benchsuite.schema import Record

CHUNK_BYTES = 1 << 20


class Entry(Record, frozen=True, kw_only=True):
    """One file: its path below the data set's folder, size and hash."""

    path: str
    size_bytes: int
    sha256: str


def to_text(entries: Iterable[Entry]) -> bytes:
    """One line a file, sorted by path: hash, size, path."""
    ordered = sorted(entries, key=lambda e: e.path)
    return "".join(f"{e.sha256} {e.size_bytes} {e.path}\n" for e in ordered).encode()


def parse(text: bytes) -> list[Entry]:
    """Raises ValueError: a line is cut or malformed."""
    found = []
    for line in text.decode().split("\n")[: text.count(b"\n")]:
        sha256, size, path = line.split(" ", 2)
        if len(sha256) != 64:
            raise ValueError("a line without a hash")
        found.append(Entry(path=path, size_bytes=int(size), sha256=sha256))
    if text and not text.endswith(b"\n"):
        raise ValueError("the last line is cut")
    return found


def write(folder: Path, path: str, content: bytes) -> Entry:
    """Write one file below a folder; its entry.

    Raises:
        OSError: it cannot be written.
    """
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return Entry(path=path, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def file_sha256(path: Path) -> str:
    """The hash of a file's content."""
    digest = hashlib.sha256()
    for chunk in chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def chunks(path: Path) -> Iterator[bytes]:
    """A file's content, piece by piece."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def present(folder: Path) -> dict[str, int]:
    """Path -> size of the files of a data set below a folder, see `files.of_data_set`.

    Raises:
        OSError: a folder or a file cannot be read, or a link leads back to a folder around it.
    """
    return {path: entry.stat().st_size for path, entry in of_data_set(folder)}


def difference(folder: Path, entries: Iterable[Entry], *, apart: Iterable[str] = ()) -> str | None:
    """The first difference between a folder and its entries in names and sizes; None if there is none.

    Raises:
        OSError: the folder cannot be read.
    """
    here = present(folder)
    for name in apart:
        here.pop(name, None)
    for entry in entries:
        size = here.pop(entry.path, None)
        if size is None:
            return f"{entry.path} is missing"
        if size != entry.size_bytes:
            return f"{entry.path} has {size:,} bytes instead of {entry.size_bytes:,}"
    return f"{min(here)} is not of the data set" if here else None


def changed(folder: Path, entries: Iterable[Entry], report: Callable[[int], None]) -> str | None:
    """The first file whose content has changed; reads every byte. `report` is called with the bytes read so far.

    Raises:
        OSError: a file cannot be read.
    """
    done = 0
    for entry in entries:
        digest = hashlib.sha256()
        for chunk in chunks(folder / entry.path):
            digest.update(chunk)
            done += len(chunk)
            report(done)
        if digest.hexdigest() != entry.sha256:
            return f"the content of {entry.path} has changed"
    return None
