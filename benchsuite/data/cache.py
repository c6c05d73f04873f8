"""The kernel's page cache: how much of a data set's files it holds, and how to empty or fill it without root.

Emptying needs the right to read only: POSIX_FADV_DONTNEED drops pages that are clean and not mapped. Pages that are not
yet on the disk are therefore written first. On a file system in memory nothing can be dropped.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchsuite.data.manifest import CHUNK_BYTES

# This many files, evenly chosen, stand for all: 100,000 questions would take seconds.
_LOOKED_AT = 2000
_FAILED = ctypes.c_void_p(-1).value


def drop(paths: Sequence[Path]) -> None:
    """Drop these files from the page cache.

    Writing a file out takes 50 us even if it is clean. It is therefore done only for files of which pages stayed, or
    of which that is unknown.

    Raises:
        OSError: a file cannot be opened.
    """
    _let_go(paths, write_out=False)
    if held(paths) != 0.0:
        _let_go(paths, write_out=True)


def _let_go(paths: Sequence[Path], *, write_out: bool) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if write_out:
                with contextlib.suppress(OSError):  # a read-only file system, for example: nothing is to be written
                    os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def fill(paths: Iterable[Path], asked_to_stop: Callable[[], bool] = lambda: False) -> None:
    """Read all of these files, so that the cache holds them as far as it has room.

    Raises:
        OSError: a file cannot be read.
    """
    for path in paths:
        if asked_to_stop():
            return
        with path.open("rb", buffering=0) as file:
            while file.read(CHUNK_BYTES):
                pass


def held(paths: Sequence[Path]) -> float | None:
    """The share of these files' bytes that the cache holds, from 0 to 1; None if the kernel does not report it.

    It is reported only for files that this user owns or may write (mincore(2), since Linux 5.2). For other files every
    page would count as present.

    Raises:
        OSError: a file cannot be opened.
    """
    chosen = paths[:: max(1, len(paths) // _LOOKED_AT)]
    if not chosen or not all(_may_ask(path) for path in chosen):
        return None
    pages = present = 0
    for path in chosen:
        there, of = _pages(path)
        present += there
        pages += of
    return round(present / pages, 4) if pages else None


def _may_ask(path: Path) -> bool:
    return path.stat().st_uid == os.geteuid() or os.access(path, os.W_OK)


def _pages(path: Path) -> tuple[int, int]:
    """The number of a file's pages in the cache, and the number of its pages."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            return 0, 0
        count = -(-size // mmap.PAGESIZE)
        # Python's own mmap does not give its address unless it is writable.
        where = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        if where == _FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
        try:
            flags = (ctypes.c_ubyte * count)()
            if libc.mincore(where, size, flags):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
        finally:
            libc.munmap(where, size)
    return sum(flag & 1 for flag in bytes(flags)), count
