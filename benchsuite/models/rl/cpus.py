"""The number of CPUs that the environments may share."""

from __future__ import annotations

import os


def usable_cpus() -> int:
    """The number of CPUs that this process may use; isolation can reduce it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
