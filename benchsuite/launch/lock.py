"""Allow one run at a time in a folder, by a file lock that ends with its holder and names it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from benchsuite.errors import OutputError, ResultError, reason
from benchsuite.host.kernel_files import started_ticks
from benchsuite.measurement import read_boot_id, read_host
from benchsuite.rundir import LOCK
from benchsuite.schema import Record
from benchsuite.writing import open_own


class Holder(Record, frozen=True, kw_only=True):
    """The process that runs in a folder, identified by boot, pid and start time (`ticks`: clock ticks since boot)."""

    host: str
    boot_id: str
    pid: int
    ticks: int | None

    def process(self, folder: Path) -> psutil.Process | None:
        """The process, if it is alive, on this host, still the same one, and has the lock of `folder` open.

        Without the last condition, whoever can write the lock could name any process of the user's for `stop` to end.
        """
        if self.boot_id != read_boot_id() or self.ticks is None or started_ticks(self.pid) != self.ticks:
            return None
        if not _has_open(self.pid, folder / LOCK):
            return None
        with contextlib.suppress(psutil.Error):
            return psutil.Process(self.pid)
        return None


def _has_open(pid: int, path: Path) -> bool:
    """Has a process this file open? False for a process of another user, unless root asks."""
    with contextlib.suppress(OSError):
        own = path.stat()
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(link.stat(), own):
                    return True
    return False


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock.

    Raises:
        OutputError: another run holds it, or the folder cannot be written.
    """
    try:
        fd = open_own(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {reason(error)}") from None
    try:
        if not _take(fd, tries=5):
            who = _holder(fd)
            name = f" (process {who.pid} on {who.host})" if who else ""
            stop = f"benchsuite stop {shlex.quote(str(folder))}"
            raise OutputError(f"{folder}: a run is in progress here{name}; wait, or end it: {stop}")
        pid = os.getpid()
        me = Holder(host=read_host(), boot_id=read_boot_id(), pid=pid, ticks=started_ticks(pid))
        os.ftruncate(fd, 0)
        os.pwrite(fd, msgspec.json.encode(me), 0)
        yield
    finally:
        os.close(fd)


def holder(folder: Path) -> Holder | None:
    """Who runs in a folder; None if nobody does.

    Raises:
        ResultError: the lock cannot be read.
    """
    try:
        fd = open_own(folder / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ResultError(f"{folder}: its lock cannot be read: {reason(error)}") from None
    try:
        return None if _take(fd, fcntl.LOCK_SH) else _holder(fd)
    finally:
        os.close(fd)


def _take(fd: int, kind: int = fcntl.LOCK_EX, tries: int = 1) -> bool:
    """Take the lock; several tries outlast a reader, which holds it for an instant. False if another holds it."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            if tries > 1:
                time.sleep(0.05)
                return _take(fd, kind, tries - 1)
            return False
        if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL):
            return True  # a file system without locks: only the check for an empty folder protects a run
        raise
    return True


def _holder(fd: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(fd, 4096, 0), type=Holder)
    except msgspec.DecodeError:
        return None
