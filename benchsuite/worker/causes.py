"""Word an error in one line that holds its cause, where torch puts the cause many lines below the first."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping

from benchsuite.errors import one_line

_LOADER = re.compile(r"Caught (?:\w+\.)*(\w+) in DataLoader worker process (\d+)\.")
_FULL = ("No space left on device", "Disk quota exceeded")
_SHARED = ("out of shared memory", "insufficient shared memory")
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where Linux and torch keep it
LONGEST = 500


def with_cause(message: str, environ: Mapping[str, str]) -> str:
    """The message of an error, in one line if torch has hidden the cause in it; else as it is.

    An error of a DataLoader's worker is named by its own last line. A full disk is named with the space that is free.

    Args:
        environ: the environment, which says where temporary files go.
    """
    lines = message.strip().splitlines()
    if not lines:
        return message
    loader = _LOADER.match(lines[0])
    of_worker = f"worker process {loader[2]} of the DataLoader: {_last_error(loader[1], lines)}" if loader else None
    line = of_worker or lines[0]
    full = [text for text in lines if any(words in text for words in _FULL)]
    if full and not any(words in line for words in _FULL):
        line = f"{line.rstrip(':')}: {full[-1].strip()}"
    shared = any(words in message for words in _SHARED)
    if not (loader or full or shared):
        return message
    if full or shared:
        in_memory = loader or shared or SHARED_MEMORY in message
        folders = [SHARED_MEMORY] if in_memory else _temporary(environ)
        line = "; ".join([line.rstrip("."), *filter(None, map(_room, folders))])
    return one_line(line)[:LONGEST]


def _last_error(kind: str, lines: list[str]) -> str:
    """The line of a traceback that names the error; the last line if none does."""
    named = [line for line in lines[1:] if re.match(rf"(\w+\.)*{kind}\b", line)]
    return (named or lines)[-1]


def _temporary(environ: Mapping[str, str]) -> list[str]:
    """The folders to which torch's compiler writes."""
    places = [environ.get("TMPDIR") or "/tmp", environ.get("TORCHINDUCTOR_CACHE_DIR", "")]  # noqa: S108
    return list(dict.fromkeys(filter(None, places)))


def _room(folder: str) -> str:
    """The space in a folder's file system, in words; empty if it is unknown."""
    try:
        usage = shutil.disk_usage(os.fspath(folder))
    except OSError:
        return ""
    return f"{folder} has {usage.free / 2**20:,.0f} MiB free of {usage.total / 2**20:,.0f} MiB"
