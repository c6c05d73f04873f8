"""Why a task cannot run in its place, found before anything starts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from benchsuite.describe import entries
from benchsuite.describe.containers import missing_engine
from benchsuite.describe.tasks import Gpu, Job


def missing_packages(job: Job) -> str | None:
    """Why a job's model cannot be imported here, with the command that installs what is missing; None if it can.

    A job in a container needs an engine instead.
    """
    if job.container:
        return missing_engine(job.container)
    missing = entries.declared(job.model, job.entry).missing()
    wanted = " ".join(shlex.quote(package) for package in missing)
    return f"a package is missing: pip install {wanted}" if missing else None


def apart(gpus: Sequence[Gpu]) -> str | None:
    """Why no group of ranks can train on these GPUs; None if one can."""
    if len(gpus) > 1 and any(gpu.parent for gpu in gpus):
        return "a process sees one MIG instance, so that no group of ranks can train"
    return None


def too_few(job: Job, visible: int) -> str | None:
    """Why a job cannot use this number of visible GPUs; None if it can."""
    least = job.placement.at_least
    if visible >= least:
        return None
    return f"the job's placement asks for at least {least} GPUs, and {visible} are visible"


def too_small(job: Job, gpus: Sequence[Gpu]) -> str | None:
    """Why a job does not fit in the memory of its GPUs, with a remedy; None if it fits, or if its need is not known."""
    if job.gpu_memory_gib is None or job.params.get("batch_size") == "auto":
        return None
    for gpu in gpus:
        if gpu.memory_bytes is not None and gpu.memory_bytes < job.gpu_memory_gib * 2**30:
            has = f"GPU {gpu.visible_index} has {gpu.memory_bytes / 2**30:.1f} GiB"
            remedy = "lower its batch size (-- --batch-size N), or leave the job out (--exclude)"
            return f"the job needs {job.gpu_memory_gib:g} GiB of GPU memory, and {has}: {remedy}"
    return None
