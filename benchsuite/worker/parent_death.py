"""End a process when its parent ends, even if the parent is killed."""

from __future__ import annotations

import ctypes
import signal
import sys


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 = PR_SET_PDEATHSIG
