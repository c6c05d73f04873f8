"""The machine score per watt of GPU power, by telemetry.

The rate of all GPUs together and their power are both means over the measured part, so each job has items per joule.
The power is that of the GPUs in use: an idle GPU, the CPUs and the rest of the machine are not in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from benchsuite.report.format import few
from benchsuite.report.measure.intervals import mean
from benchsuite.report.read.summary import JobSummary
from benchsuite.report.stats.limits import limited_by
from benchsuite.report.stats.score import geometric_mean, machine_throughput
from benchsuite.report.stats.subscores import without_figure

# The number of jobs that a reason names.
_NAMED = 5


@dataclass(frozen=True)
class ScorePerWatt:
    """The machine score over the GPU power, both over `jobs`.

    Attributes:
        value: None for the `reason`.
        machine: the weighted geometric mean of the rates of all GPUs together, items/s.
        watts: the weighted geometric mean of the power of the GPUs in use.
        jobs: the weighed jobs that run on GPUs.
        left_out: the weighed jobs that run on the CPU; they count neither in `machine` nor in `watts`.
    """

    value: float | None
    machine: float | None
    watts: float | None
    jobs: tuple[str, ...]
    left_out: tuple[str, ...]
    reason: str | None = None


def score_per_watt(
    jobs: Mapping[str, JobSummary], weights: Mapping[str, float], *, penalized: bool = True
) -> ScorePerWatt:
    """The machine score per watt; there is none unless every weighed job has a rate, and on GPUs a power.

    Args:
        jobs: the jobs of the run, by name.
        weights: also of the jobs that the run lacks.
        penalized: the machine score has the variance penalty.
    """
    weighed = {name: weight for name, weight in weights.items() if weight > 0}
    left_out = tuple(name for name in weighed if name in jobs and limited_by(jobs[name]).by == "CPU")
    on_gpus = tuple(name for name in weighed if name not in left_out)
    lost = {name: why for name in weighed if (why := without_figure(jobs.get(name)))}
    measured = [name for name in on_gpus if name not in lost]
    rates = {name: machine_throughput(jobs[name], penalized=penalized) for name in measured}
    watts = {name: gpu_power_w(jobs[name]) for name in measured}
    reasons = few((f"{name} {why}" for name, why in lost.items()), _NAMED)
    for what, known in (("GPU power", watts), ("machine throughput", rates)):
        if unknown := [name for name, value in known.items() if not value]:
            reasons.append(f"there is no {what} of {', '.join(few(unknown, _NAMED))}")
    if reasons or not on_gpus:
        why = "; ".join(reasons) or "no weighed job runs on a GPU"
        return ScorePerWatt(None, None, None, on_gpus, left_out, why)
    machine, power = (
        geometric_mean({name: value for name, value in of.items() if value}, weighed) for of in (rates, watts)
    )
    value = machine / power if machine and power else None
    return ScorePerWatt(value, machine, power, on_gpus, left_out)


def gpu_power_w(job: JobSummary) -> float | None:
    """Mean power of all GPUs that a job uses at the same time; None if it is not recorded.

    The tasks of a job run side by side in each repeat. A GPU that several tasks share counts once.
    """
    gpus: dict[tuple[int, int], set[str]] = defaultdict(set)
    for task in job.tasks:
        gpus[task.session, task.repeat] |= {gpu.uuid for gpu in task.gpus}
    at_once = mean(len(uuids) for uuids in gpus.values())
    each = job.use.power_w if job.use else None
    return each * at_once if each and at_once else None
