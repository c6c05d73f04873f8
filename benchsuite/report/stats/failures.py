"""Exact tests of failures, and the places where a job never succeeds. Statistics only; no files.

Fisher's test compares two groups of tasks, given how many tasks fail in both together. Nothing is estimated, so the
error holds with few tasks, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from benchsuite.report.read.load import OPEN
from benchsuite.report.read.summary import Summary, TaskGpu, TaskSummary
from benchsuite.report.stats.verdict import holm

# Fail, n, and the same of the baseline or of the other group.
Counts = tuple[int, int, int, int]
# Two numbers of failures are equally likely if their probabilities differ by less than this, as in R.
_EQUAL = 1e-7


@dataclass(frozen=True)
class FailureTest:
    """The failures of a group of tasks against those of a baseline.

    Attributes:
        p: two-sided.
        p_more: one-sided: the group fails more often than the baseline.
        adjusted: `p` after Holm's adjustment over the family.
        adjusted_more: `p_more` after Holm's adjustment over the family.
    """

    fail: int
    n: int
    base_fail: int
    base_n: int
    p: float
    p_more: float
    adjusted: float
    adjusted_more: float


@dataclass(frozen=True)
class Never:
    """A job that fails in each of its ended tasks on a GPU, on a set of GPUs, or on a machine.

    Attributes:
        host: None if neither the tasks nor the run name one.
        gpus: empty for a job on the CPU.
        n: tasks that ended, none of them ok.
        statuses: the statuses of these tasks.
        others_ok: ok tasks of the job elsewhere.
        others_n: tasks of the job that ended elsewhere.
    """

    job: str
    host: str | None
    gpus: tuple[TaskGpu, ...]
    n: int
    statuses: tuple[str, ...]
    others_ok: int
    others_n: int

    @property
    def place(self) -> str:
        """ "GPU 3 on node1", "GPUs 0, 1 on node1" or, for a job on the CPU, "node1"."""
        where = self.host or "an unknown host"
        indices = ", ".join(str(gpu.index) for gpu in self.gpus)
        return f"GPU{'s' if len(self.gpus) > 1 else ''} {indices} on {where}" if indices else where


def fisher(fail: int, n: int, base_fail: int, base_n: int) -> float:
    """The two-sided p of Fisher's exact test: the probability of a table that is at most as likely as this one.

    It is 1 if a side has no tasks.

    Args:
        fail: failed tasks, of `n`.
        base_fail: failed tasks of the baseline, of `base_n`.

    Raises:
        ValueError: a number of failed tasks below 0 or above the number of tasks.
    """
    low, p = _hypergeometric(fail, n, base_fail, base_n)
    return min(1.0, float(p[p <= p[fail - low] * (1 + _EQUAL)].sum()))


def fails_more(tables: Iterable[Counts]) -> float:
    """The one-sided p of Fisher's exact test over strata: the group fails as often as here or more.

    Each stratum is conditioned on its own number of failures. Jobs or repeats that fail more often than others
    therefore cause no false alarm, even where the group has not the same share in each.

    Args:
        tables: the counts of each stratum, as `fisher` takes them.
    """
    least, observed, distribution = 0, 0, np.ones(1)
    for fail, n, base_fail, base_n in tables:
        # A stratum in which no task fails, or each, has one outcome only.
        if 0 < fail + base_fail < n + base_n:
            low, p = _hypergeometric(fail, n, base_fail, base_n)
            least, observed = least + low, observed + fail
            distribution = np.convolve(distribution, p)
    return min(1.0, float(distribution[observed - least :].sum()))


def _hypergeometric(fail: int, n: int, base_fail: int, base_n: int) -> tuple[int, NDArray[np.float64]]:
    """The least possible number of failures among the n tasks, and the probability of each number from there up."""
    if not (0 <= fail <= n and 0 <= base_fail <= base_n):
        raise ValueError(f"{fail} of {n} and {base_fail} of {base_n} tasks cannot have failed")
    failures = fail + base_fail
    low, high = max(0, failures - base_n), min(n, failures)
    k = np.arange(low, high + 1)
    logs = _log_choose(n, k) + _log_choose(base_n, failures - k)
    # The largest term is scaled to 1, so that no term overflows.
    p = np.exp(logs - logs.max())
    return low, p / p.sum()


def _log_choose(n: int, k: NDArray[np.int64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return found


def compare_failures(tables: Mapping[str, Counts]) -> dict[str, FailureTest]:
    """Fisher's exact test for each job of a family, with Holm's adjustment (1979) over the family.

    Jobs that cannot differ (no failure on either side, or no task on one) have p 1 and take no part in the adjustment:
    they are known before the failures are assigned to sides.

    Args:
        tables: name -> counts, as `fisher` takes them.
    """
    testable = [name for name, (fail, n, base_fail, base_n) in tables.items() if n and base_n and fail + base_fail]
    p = {name: fisher(*tables[name]) for name in testable}
    more = {name: fails_more([tables[name]]) for name in testable}
    adjusted, adjusted_more = _holm(p), _holm(more)
    return {
        name: FailureTest(
            *table,
            p=p.get(name, 1.0),
            p_more=more.get(name, 1.0),
            adjusted=adjusted.get(name, 1.0),
            adjusted_more=adjusted_more.get(name, 1.0),
        )
        for name, table in tables.items()
    }


def _holm(p: Mapping[str, float]) -> dict[str, float]:
    return dict(zip(p, holm(np.array(list(p.values()))).tolist(), strict=True)) if p else {}


def never_ok(summary: Summary) -> tuple[Never, ...]:
    """The jobs that fail in each ended task of a GPU, of a set of GPUs or, on the CPU, of a machine.

    Tasks without an outcome do not count. Copies that share a GPU are pooled. A summary without tasks gives nothing.
    """
    hosts = _hosts(summary)
    return tuple(never for job in summary.jobs for never in _never(job.name, _ended(job.tasks, hosts)))


_Place = tuple[str | None, tuple[TaskGpu, ...]]


def _hosts(summary: Summary) -> dict[tuple[TaskGpu, ...], str | None]:
    """The host of each set of GPUs, for tasks that name none: a lost result. The run's own host by default."""
    own = summary.machine.host if summary.machine else None
    tasks = [task for job in summary.jobs for task in job.tasks]
    found: dict[tuple[TaskGpu, ...], str | None] = dict.fromkeys((task.gpus for task in tasks), own)
    found.update((task.gpus, task.host) for task in tasks if task.host)
    return found


def _ended(tasks: Iterable[TaskSummary], hosts: Mapping[tuple[TaskGpu, ...], str | None]) -> dict[_Place, list[str]]:
    """The statuses of the ended tasks by host and GPUs."""
    found: dict[_Place, list[str]] = defaultdict(list)
    for task in tasks:
        if task.status not in OPEN:
            found[task.host or hosts[task.gpus], task.gpus].append(task.status)
    return found


def _never(job: str, places: Mapping[_Place, list[str]]) -> Iterable[Never]:
    everywhere = [status for statuses in places.values() for status in statuses]
    for (host, gpus), statuses in places.items():
        if "ok" not in statuses:
            ok, others = everywhere.count("ok"), len(everywhere) - len(statuses)
            yield Never(job, host, gpus, len(statuses), tuple(sorted(set(statuses))), ok, others)
