"""How many CPUs the environments may share."""

from __future__ import annotations

import os


def usable_cpus() -> int:
    """The CPUs that this process may use: a fence may have left it fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
