"""The probes that benchsuite ships, by which the result of `benchsuite run` is known without the name of a job."""

from __future__ import annotations

from functools import cache

from benchsuite.describe import profile
from benchsuite.describe.tasks import Job

QUICK, ACCEPT = "probes_quick", "probes"


@cache
def _shipped(name: str) -> dict[str, Job]:
    return {job.name: job for job in profile.load(name).jobs}


def quick_jobs() -> tuple[str, ...]:
    """The jobs of `benchsuite health --quick`."""
    return tuple(_shipped(QUICK))


def is_probe(job: Job, name: str, exactly: bool) -> bool:
    """Whether a job is the probe `name`: by its name, or because `benchsuite run` ran the same model.

    Args:
        exactly: parameters and precision must be the same, too, since the figure depends on them.
    """
    if job.name == name:
        return True
    probe = _shipped(ACCEPT).get(name)
    if probe is None or job.name != job.model or job.model != probe.model:
        return False
    same_place = (job.placement.devices == "none") == (probe.placement.devices == "none")
    return same_place and (not exactly or _settings(job) == _settings(probe))


def _settings(job: Job) -> tuple[object, ...]:
    return job.params, job.training.precision, job.training.compile
