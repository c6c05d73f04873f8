"""Words for failures: of a job, of a place where a job never succeeds, and of both sides of a comparison."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from benchsuite.report.format import count, one_line
from benchsuite.report.read.summary import Summary
from benchsuite.report.stats.failures import FailureTest, Never
from benchsuite.report.stats.score import Score
from benchsuite.report.stats.verdict import FAMILY_ERROR


def never_label(score: Score) -> str:
    """What `never_words` stand under."""
    return "Not ok so far" if score.unfinished else "Never ok"


def never_words(nevers: Iterable[Never], summary: Summary) -> list[str]:
    """ "vae on GPU 3 (3 of 3 tasks fail)", for each job.

    A job that succeeds nowhere stands without its GPUs. Hosts are named if the run has several.
    """
    by_job: dict[str, list[Never]] = defaultdict(list)
    for never in nevers:
        by_job[never.job].append(never)
    return [_never(job, places, several=len(summary.machines) > 1) for job, places in by_job.items()]


def _never(job: str, places: list[Never], several: bool) -> str:
    n = sum(place.n for place in places)
    where = ""
    if places[0].others_ok:
        where = f" on {', '.join(one_line(place.place if several else _gpus(place)) for place in places)}"
    return f"{one_line(job)}{where} ({n} of {count(n, 'task')} {'fails' if n == 1 else 'fail'})"


def never_place(never: Never, summary: Summary) -> str:
    """ "on GPU 3", or "on" host and GPU if the run has several hosts."""
    return f"on {one_line(never.place if len(summary.machines) > 1 else _gpus(never))}"


def _gpus(never: Never) -> str:
    indices = ", ".join(str(gpu.index) for gpu in never.gpus)
    return f"GPU{'s' if len(never.gpus) > 1 else ''} {indices}" if indices else "the CPU"


def differs(test: FailureTest) -> bool:
    """Whether the failures of both sides differ by the exact test."""
    return test.p <= FAMILY_ERROR


def failure_words(test: FailureTest) -> str:
    """The failures of both sides with the exact test; empty without a failure."""
    if not test.fail + test.base_fail:
        return ""
    p = f"p {test.p:.2g}" if test.p >= 1e-4 else "p < 0.0001"
    here_more = test.fail * test.base_n > test.base_fail * test.n
    more = "this run fails more often" if here_more else "the baseline fails more often"
    result = more if differs(test) else "no proof of a difference"
    here = f"{test.fail} of {test.n} tasks here"
    return f"{here}, {test.base_fail} of {test.base_n} in the baseline: {result} (exact test, {p})"
