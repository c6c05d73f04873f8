"""Writing that leaves no partial file, and never replaces one by accident."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from benchsuite.errors import OutputError, one_line, reason
from benchsuite.files import look

_TAKEN = "exists already and is not overwritten"
_NO_FOLDER = "cannot be written: no such folder"


def write_aside(folder: Path, content: bytes) -> Path:
    """A new, flushed, hidden file in `folder`, to be linked or renamed to its name.

    Raises:
        OSError: the disk is full or the folder cannot be written; nothing is left behind.
    """
    path = folder / f".{secrets.token_hex(8)}.tmp"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)  # the umask has its say
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            sync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return path


def open_own(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open a file that benchsuite itself made or makes. A link is refused: in a folder that others can write, it may
    lead to a file of the user's.

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(error.errno, "it is a symbolic link", str(path)) from None
        raise


def sync(fd: int) -> None:
    """Flush a file to the disk, if its file system knows how to.

    Raises:
        OSError: the file's content could not be written.
    """
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise


def take(aside: Path, path: Path) -> None:
    """Give a finished file its name, in one step even between hosts.

    File systems refuse hard links with many errors: EPERM, EACCES, EXDEV, EINVAL, ENOTSUP. After any of them, an empty
    file reserves the name, and the finished file replaces it.

    Raises:
        FileExistsError: the name is taken.
        OSError: the name cannot be given; nothing is left behind.
    """
    try:
        os.link(aside, path)
    except FileExistsError:
        if not _same(aside, path):  # NFS repeats a call whose answer was lost: then the link is there, and ours
            raise
    except OSError:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        try:
            aside.replace(path)
        except OSError:
            path.unlink(missing_ok=True)
            raise


def _same(one: Path, other: Path) -> bool:
    """Are both names of one file?"""
    try:
        return one.samefile(other)
    except OSError:
        return False


def write_new(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, never over an existing one.

    Raises:
        FileExistsError: the name is taken.
        OSError: it cannot be written; nothing is left behind.
    """
    aside = write_aside(path.parent, content)
    try:
        take(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def check_place(path: Path, option: str) -> None:
    """Can a user's file be written here later? `option` is the one that names the file.

    Raises:
        OutputError: the file exists, or its folder does not.
    """
    if look(path):
        raise OutputError(_refusal(path, _TAKEN, option))
    if look(path.parent) != "folder":
        raise OutputError(_refusal(path, _NO_FOLDER, option))


def write_for_user(path: Path, content: bytes, option: str) -> None:
    """Write a new file that a user named with `option`.

    Raises:
        OutputError: the file exists, or it cannot be written.
    """
    try:
        write_new(path, content)
    except FileExistsError:
        raise OutputError(_refusal(path, _TAKEN, option)) from None
    except OSError as error:
        why = _NO_FOLDER if error.errno == errno.ENOENT else f"cannot be written: {reason(error)}"
        raise OutputError(_refusal(path, why, option)) from None


def _refusal(path: Path, why: str, option: str) -> str:
    return f"{one_line(str(path))}: {why}; name another file with {option}"


def replace(path: Path, content: bytes) -> None:
    """Put new content in place of a file in one step; for the run's own state only, never for a result.

    Raises:
        OSError: it cannot be written; the old content stays.
    """
    aside = write_aside(path.parent, content)
    try:
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
