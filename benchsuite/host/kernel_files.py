"""Read and write the kernel's small files, parse the lists of CPUs in them, and identify a process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection
from pathlib import Path

# Far more CPUs than Linux supports: a larger number is no CPU.
_MOST_CPUS = 1 << 16


def read(file: Path) -> str | None:
    """The text of a small file; None if it does not exist or cannot be read. Bytes that are not UTF-8 are replaced."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):  # ValueError: the path holds a NUL
        return None


def lines(file: Path) -> list[str]:
    """The lines of a small file; empty if it does not exist or cannot be read. Only a line feed ends a line."""
    text = read(file)
    return text.split("\n") if text else []


def write(file: Path, text: str) -> None:
    """Write one value to a file of the kernel.

    Raises:
        OSError: the kernel refuses it; `filename` is set.
    """
    try:
        handle = os.open(file, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None


def make(folder: Path) -> None:
    """Make a group's folder, if it does not exist.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(exist_ok=True)


def number(file: Path, key: str = "") -> int | None:
    """A number in a file.

    Args:
        key: the word before the number; if empty, the number is the file's first word.

    Returns:
        The number; None if the file has none, or has "max" instead.
    """
    words = (read(file) or "").split()
    word = dict(zip(words[::2], words[1::2], strict=False)).get(key) if key else (words or [""])[0]
    return whole(word or "")


def whole(word: str) -> int | None:
    """The number that a word of ASCII digits stands for; None for any other word, and over 20 digits (64 bits)."""
    return int(word) if word.isascii() and word.isdecimal() and len(word) <= 20 else None


def parse_cpus(text: str) -> tuple[int, ...]:
    """The CPUs of a list such as "0-3,8"; empty if it is malformed."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        bounds = whole(first), whole(last if dash else first)
        if bounds[0] is None or bounds[1] is None or max(bounds[0], bounds[1]) >= _MOST_CPUS:
            return ()
        found.update(range(bounds[0], bounds[1] + 1))
    return tuple(sorted(found))


def render_cpus(cpus: Collection[int]) -> str:
    """A list such as "0-3,8"."""
    runs = itertools.groupby(enumerate(sorted(cpus)), key=lambda pair: pair[1] - pair[0])
    parts = [[cpu for _, cpu in run] for _, run in runs]
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def started_ticks(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; with the pid, its identity. None if it is not alive."""
    words = _stat(pid)
    return whole(words[19]) if len(words) > 19 and words[0] not in "ZX" else None


def pid_namespace() -> int | None:
    """The inode of this process's pid namespace, in which alone its pid counts; None if the kernel hides it."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return None


def children(pid: int) -> list[int]:
    """The children of a process, zombies included. psutil needs /proc/stat for this, which a container may hide."""
    return sorted(child for child, parent in _parents().items() if parent == pid)


def descendants(pid: int) -> list[int]:
    """The children of a process, theirs, and so on, in this order; zombies included."""
    parents = _parents()
    found, row = [], {pid}
    while row := {child for child, parent in parents.items() if parent in row and child not in found}:
        found += sorted(row)
    return found


def _parents() -> dict[int, int | None]:
    """The parent of each process."""
    try:
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    except OSError:
        return {}
    return {pid: whole(words[1]) for pid in pids if len(words := _stat(pid)) > 1}


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the program's name, see proc(5); empty if there is no such process."""
    return (read(Path(f"/proc/{pid}/stat")) or "").rpartition(")")[2].split()
