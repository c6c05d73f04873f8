"""What a report is made of, before anyone decides how it looks."""

from __future__ import annotations

from dataclasses import dataclass

from benchsuite.report.read.summary import Summary
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.gpus import GpuComparison
from benchsuite.report.stats.score import Score


@dataclass(frozen=True)
class Report:
    """All that is shown.

    `title` names the folder or file. `logs` is the folder of the tasks' output, if it is kept. `price` is that of the
    machine, in any currency. `gpus` is None unless the user asks to compare them.
    """

    title: str
    summary: Summary
    score: Score
    comparisons: tuple[Comparison, ...] = ()
    logs: str | None = None
    price: float | None = None
    gpus: GpuComparison | None = None
