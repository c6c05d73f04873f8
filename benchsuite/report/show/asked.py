"""What a user asks of a report, and the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchsuite.describe.invocation import resume_command
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.report import Report
from benchsuite.report.sources import summary_of_runs
from benchsuite.report.stats.compare import compare, find_base
from benchsuite.report.stats.gpus import compare_gpus
from benchsuite.report.stats.power import score_per_watt
from benchsuite.report.stats.score import score, without_penalty
from benchsuite.report.stats.weights import weigh, weights_for


@dataclass(frozen=True)
class Asked:
    """The options of a report that change its numbers.

    Attributes:
        weights: a file of weights; None takes the profile's own.
        margin: the largest relative difference that counts as the same.
        penalized: lower perf_adj by the variance between tasks, on both sides of a comparison.
        partial: score and compare a part of the suite too.
        unlike: compare jobs of different workloads too.
        gpus: compare the GPUs of the run.
        power: relate the machine score to the power of its GPUs.
        price: of the machine, in any currency.
        explain: split the ratios to the baselines.
    """

    weights: str | None
    margin: float
    penalized: bool
    partial: bool
    unlike: bool
    gpus: bool
    power: bool
    price: float | None
    explain: bool = False

    @property
    def adjusted(self) -> Callable[[Summary], Summary]:
        """Takes the penalty off a summary if none is asked for."""
        return (lambda summary: summary) if self.penalized else without_penalty


def report_on(outs: Sequence[Path], bases: Sequence[str], asked: Asked) -> Report:
    """The report on one run, or on several runs of one machine as sessions.

    Args:
        bases: the baselines to compare with, as the user names them.

    Raises:
        BenchError: a run, a baseline or the file of weights cannot be read.
    """
    summary = asked.adjusted(summary_of_runs(outs))
    weighing = weigh(weights_for(summary.profile, asked.weights), summary)
    comparisons = tuple(
        compare(summary, asked.adjusted(find_base(base)), weighing, base, asked.margin, asked.unlike, asked.partial)
        for base in bases
    )
    jobs = {job.name: job for job in summary.jobs}
    weights = {**weighing.jobs, **weighing.missing}
    scored = score(summary, weighing, penalized=asked.penalized, partial=asked.partial)
    return Report(
        title=", ".join(map(str, outs)),
        summary=summary,
        score=scored,
        comparisons=comparisons,
        logs=", ".join(str(out / "logs") for out in outs if (out / "logs").is_dir()) or None,
        price=asked.price,
        explain=asked.explain,
        gpus=compare_gpus(summary) if asked.gpus else None,
        power=score_per_watt(jobs, weights, penalized=asked.penalized) if asked.power else None,
        resume=_resume(outs) if scored.unfinished and not scored.in_progress else None,
    )


def _resume(outs: Sequence[Path]) -> str | None:
    """The command that continues a run from its folder; None for a file, or for several runs."""
    one = outs[0] if len(outs) == 1 else None
    return resume_command(one) if one and (one / "plan.json").is_file() and (one / "run.json").is_file() else None
