"""End processes that left their session, parent and environment behind, after the kernel made them our children."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterator

import psutil

_PR_SET_CHILD_SUBREAPER = 36


@contextlib.contextmanager
def adopted() -> Iterator[Callable[[], list[str]]]:
    """While entered, orphans among our descendants become our children instead of init's.

    The function that it yields kills the children that were not there before, and returns a line for each. Call it
    only while no task and no other child of ours runs.
    """
    before = {p.pid for p in psutil.Process().children()}
    _adopt(1)
    try:
        yield lambda: _end(before)
    finally:
        _adopt(0)


def _adopt(on: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, on, 0, 0, 0)


def _end(before: set[int]) -> list[str]:
    lines = []
    for child in psutil.Process().children():
        if child.pid in before:
            continue
        with contextlib.suppress(psutil.Error):
            if child.status() != psutil.STATUS_ZOMBIE:
                for process in [*child.children(recursive=True), child]:
                    process.kill()
                lines.append(f"process {child.pid} ({child.name()}) had left its task and has been killed")
        with contextlib.suppress(psutil.Error):
            child.wait(2.0)
    return lines
