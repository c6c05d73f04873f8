"""Read and write the kernel's small files, parse the lists of CPUs in them, and identify a process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection
from pathlib import Path


def read(file: Path) -> str | None:
    """The text of a small file; None if it does not exist or cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


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
    return int(word) if word and word.isdecimal() else None


def parse_cpus(text: str) -> tuple[int, ...]:
    """The CPUs of a list such as "0-3,8"."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(sorted(found))


def render_cpus(cpus: Collection[int]) -> str:
    """A list such as "0-3,8"."""
    runs = itertools.groupby(enumerate(sorted(cpus)), key=lambda pair: pair[1] - pair[0])
    parts = [[cpu for _, cpu in run] for _, run in runs]
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def started_ticks(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; with the pid, its identity. None if it is not alive."""
    words = (read(Path(f"/proc/{pid}/stat")) or "").rpartition(")")[2].split()
    return int(words[19]) if len(words) > 19 and words[0] not in "ZX" else None
