"""End processes that left their session, parent and environment behind, after the kernel made them our children."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Collection, Iterator

import psutil

from benchsuite.host.kernel_files import children, descendants

_PR_SET_CHILD_SUBREAPER = 36


@contextlib.contextmanager
def adopted(spared: Callable[[], Collection[int]] = tuple) -> Iterator[Callable[[], list[str]]]:
    """While entered, orphans among our descendants become our children instead of init's.

    The function that it yields kills the children that were not there before, and returns a line for each. Call it
    only while no task and no other child of ours runs.

    Args:
        spared: the children that it does not kill.
    """
    before = set(children(os.getpid()))
    _adopt(1)
    try:
        yield lambda: _end(before.union(spared()))
    finally:
        _adopt(0)


def _adopt(on: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, on, 0, 0, 0)


def _end(before: set[int]) -> list[str]:
    lines = []
    for pid in set(children(os.getpid())) - before:
        with contextlib.suppress(psutil.Error):
            child = psutil.Process(pid)
            if child.status() != psutil.STATUS_ZOMBIE:
                for process in [*map(psutil.Process, descendants(pid)), child]:
                    process.kill()
                lines.append(f"process {pid} ({child.name()}) had left its task and has been killed")
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).wait(2.0)
    return lines
