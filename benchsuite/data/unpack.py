"""Unpacks archives from elsewhere: only plain files, only below the given folder, only up to a plausible size."""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, cast

from benchsuite.data import DataError
from benchsuite.data.descriptor import Source
from benchsuite.data.manifest import CHUNK_BYTES, Entry
from benchsuite.data.store import human

# How many times its size an archive may unpack to without a limit in its descriptor: data sets compress by less.
LEAST_BYTES = 1 << 30
RATIO = 20
MOST_FILES = 5_000_000


_DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    gzip.BadGzipFile,
    NotImplementedError,
)


class BadArchive(DataError):
    """The archive is damaged: another copy of it is needed."""


@dataclass
class _Unpacking:
    source: Source
    archive: Path
    tree: Path
    limit_bytes: int
    report: Callable[[int], None]
    done_bytes: int = 0
    entries: list[Entry] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def refuse(self, reason: str) -> BadArchive:
        return BadArchive(f"{self.archive.name}: {reason}; nothing of it is used")

    def path(self, member: str) -> str:
        """The path of a member below the tree.

        Raises:
            DataError: its name leads out of the tree or is not plain.
        """
        pure = PurePosixPath(member)
        if pure.is_absolute() or ".." in pure.parts or "\\" in member or ":" in (pure.parts or ("",))[0]:
            raise self.refuse(f"the member {member!r} leads out of the folder")
        if not member.isprintable() or not pure.parts:
            raise self.refuse(f"the member {member!r} has no plain name")
        path = (PurePosixPath(self.source.into) / pure).as_posix()
        if path in self.seen:
            raise self.refuse(f"the member {member!r} is there twice")
        self.seen.add(path)
        if len(self.seen) > MOST_FILES:
            raise self.refuse(f"it holds over {MOST_FILES:,} files")
        return path

    def wanted(self, member: str) -> bool:
        parts = PurePosixPath(member.replace("\\", "/")).parts
        if any(part == "__MACOSX" or (part.startswith(".") and part != "..") for part in parts):
            return False  # files that an operating system added to the archive
        return not self.source.keep or any(fnmatch.fnmatchcase(member, pattern) for pattern in self.source.keep)

    def take(self, member: str, content: IO[bytes]) -> None:
        """Write one member."""
        path = self.path(member)
        digest, size = hashlib.sha256(), 0
        target = self.tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            while chunk := content.read(CHUNK_BYTES):
                size += len(chunk)
                self.done_bytes += len(chunk)
                if self.done_bytes > self.limit_bytes:
                    raise self.refuse(f"it unpacks to over {human(self.limit_bytes)}")
                digest.update(chunk)
                file.write(chunk)
                self.report(self.done_bytes)
        self.entries.append(Entry(path=path, size_bytes=size, sha256=digest.hexdigest()))

    def fits(self, size_bytes: int) -> None:
        """Raises DataError: the archive would unpack to more than it may, or than the disk has room for."""
        if size_bytes > self.limit_bytes:
            raise self.refuse(f"it unpacks to {human(size_bytes)}, over {human(self.limit_bytes)}")
        free = shutil.disk_usage(self.tree).free
        if size_bytes > free:
            raise DataError(f"{self.tree}: {human(size_bytes)} are needed and {human(free)} are free; make room")


def unpack(source: Source, archive: Path, tree: Path, report: Callable[[int], None]) -> list[Entry]:
    """Unpack a source's file into a tree; the entries of the files written.

    Raises:
        BadArchive: the archive is damaged or of another format.
        DataError: the disk has no room for it.
        OSError: a file cannot be written.
    """
    tree.mkdir(parents=True, exist_ok=True)
    size = archive.stat().st_size
    limit = source.unpacked_bytes or max(LEAST_BYTES, RATIO * size)
    job = _Unpacking(source, archive, tree, limit, report)
    try:
        {"zip": _zip, "tar": _tar, "gz": _gz, "none": _plain}[source.unpack](job)
    except _DAMAGED as error:
        raise BadArchive(f"{archive.name}: the archive is damaged ({str(error) or 'cut'})") from None
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise job.refuse("a member is a file and a folder at once") from None
    except OSError as error:
        if error.errno is not None:
            raise
        # bz2 raises it without an errno.
        raise BadArchive(f"{archive.name}: the archive is damaged ({error})") from None
    if not job.entries:
        raise job.refuse("no file in it is of the data set")
    return job.entries


def _zip(job: _Unpacking) -> None:
    with zipfile.ZipFile(job.archive) as archive:
        members = [m for m in archive.infolist() if not m.is_dir() and job.wanted(m.filename)]
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG):
                raise job.refuse(f"the member {member.filename!r} is a link or a device")
            if member.flag_bits & 1:
                raise job.refuse(f"the member {member.filename!r} is encrypted")
        job.fits(sum(member.file_size for member in members))
        for member in members:
            with archive.open(member) as content:
                job.take(member.orig_filename, content)


def _tar(job: _Unpacking) -> None:
    with ExitStack() as stack:
        archive = stack.enter_context(tarfile.open(job.archive))
        for member in _members(archive):
            if member.isdir() or not job.wanted(member.name):
                continue
            if not member.isreg():
                raise job.refuse(f"the member {member.name!r} is a link or a device")
            job.fits(job.done_bytes + member.size)
            content = archive.extractfile(member)
            if content is not None:
                job.take(member.name, content)
        # The checksums of the compressed data follow the last member; they are checked only when they are read.
        packed, behind_bytes = cast(IO[bytes], archive.fileobj), 0
        while chunk := packed.read(CHUNK_BYTES):
            behind_bytes += len(chunk)
            if behind_bytes > job.limit_bytes:
                raise job.refuse(f"behind its last member come over {human(job.limit_bytes)}")


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while member := archive.next():
        yield member
        archive.members = []  # type: ignore[attr-defined]  # each is needed once


def _gz(job: _Unpacking) -> None:
    with gzip.open(job.archive) as content:
        job.take(job.archive.name.removesuffix(".gz"), cast(IO[bytes], content))


def _plain(job: _Unpacking) -> None:
    with job.archive.open("rb") as content:
        job.take(job.archive.name, content)
