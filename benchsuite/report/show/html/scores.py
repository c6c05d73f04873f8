"""The table of scores: this run and each baseline, with this run's ratios to it."""

from __future__ import annotations

from dataclasses import dataclass

from benchsuite.report.format import NONE, bounds, number, one_line, ratio
from benchsuite.report.show.document import Cell, Column, Table, table
from benchsuite.report.show.report import Report
from benchsuite.report.show.sections.against import VERDICT_TONES, withheld_words
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.overall import Overall, Ratio
from benchsuite.report.stats.score import Score

_LEGEND = (
    "Ratios are this run over the baseline, of speeds without penalties, over the jobs that both have; above 1 this "
    "run is faster. Scores and speeds are over all jobs of their own side."
)
# The columns that a phone shows.
NARROW = ("system", "per GPU", "machine", "verdict")


@dataclass(frozen=True)
class _Line:
    """A row: this run, which has no ratio to itself, or a baseline."""

    name: str
    gpus: int
    score: Score
    comparison: Comparison | None = None

    @property
    def overall(self) -> Overall | None:
        return self.comparison.overall if self.comparison else None

    @property
    def per_gpu(self) -> Ratio | None:
        return self.overall.per_gpu if self.overall else None

    @property
    def machine(self) -> Ratio | None:
        return self.overall.machine if self.overall else None


def score_table(report: Report) -> Table | None:
    """One row a system; None without a baseline, or if no system has a score or a ratio."""
    lines = [_Line("this run", report.summary.gpus_used, report.score)]
    lines += [_Line(one_line(of.name), of.overall.gpus[1], of.base_score, of) for of in report.comparisons]
    if not report.comparisons or not any(line.score.value or line.per_gpu for line in lines):
        return None
    per = "per GPU" if any(line.gpus for line in lines) else "per task"
    columns: tuple[Column[_Line], ...] = (
        Column("system", lambda line: line.name),
        Column("GPUs", lambda line: line.gpus, right=True, rank=3),
        Column(per, lambda line: _ratio(line.per_gpu), right=True),
        Column(f"95 % {per}", lambda line: _interval(line.per_gpu), right=True, rank=4, optional=True),
        Column("machine", lambda line: _ratio(line.machine), right=True),
        Column("95 % machine", lambda line: _interval(line.machine), right=True, rank=4, optional=True),
        Column("verdict", _verdict, prose=True),
        Column("score", lambda line: _score(line.score), right=True, rank=1),
        Column(f"speed {per}", lambda line: line.score.speed, number, right=True, rank=2),
        Column("machine speed", lambda line: line.score.machine_speed, number, right=True, rank=2),
        Column("failed tasks", _failed, right=True, rank=1),
    )
    return table(columns, lines, _LEGEND)


def _ratio(found: Ratio | None) -> Cell:
    return Cell(f"{ratio(found.value)}x", found.value) if found else Cell("")


def _interval(found: Ratio | None) -> Cell:
    if found is None or found.verdict.low is None or found.verdict.identical:
        return Cell("")
    return Cell(bounds(found.verdict.low, found.verdict.high), found.verdict.low)


def _verdict(line: _Line) -> Cell:
    if line.overall is None:
        return Cell("")
    if line.overall.per_gpu is None:
        if line.comparison and any(of.ratio for of in line.comparison.settings):
            return Cell("other settings", note="The jobs differ in a setting; the bars below give its ratio.")
        return Cell("no ratio", tone="warn", note=withheld_words(line.overall, brief=True))
    own, machine = line.overall.per_gpu.verdict, line.machine.verdict if line.machine else None
    words = own.words or "no verdict"
    if machine is None or machine.words == own.words:
        return Cell(words, own.word, VERDICT_TONES.get(own.word or "", ""), own.reason or "")
    # The machine is what is bought, so its verdict gives the tone.
    both = f"{'per GPU' if any(line.overall.gpus) else 'per task'} {words}, machine {machine.words or 'no verdict'}"
    return Cell(both, both, VERDICT_TONES.get(machine.word or "", ""))


def _score(found: Score) -> Cell:
    return Cell(number(found.value), found.value) if found.value is not None else Cell("no score", None, "warn")


def _failed(line: _Line) -> Cell:
    found = line.score
    if not found.n:
        return Cell(NONE)
    return Cell(f"{found.fail:,} of {found.ended:,}", float(found.fail), "bad" if found.fail else "")
