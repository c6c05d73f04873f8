"""A report, and its document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchsuite.report.fleet.tournament import tournaments
from benchsuite.report.format import one_line
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Document, ScoreBlock, Section, Sentence, sentence
from benchsuite.report.show.fleet.pairs import pairs_section
from benchsuite.report.show.sections.comparison import comparison_section
from benchsuite.report.show.sections.cost import cost_section
from benchsuite.report.show.sections.explained import explained_section
from benchsuite.report.show.sections.flops import mfu_section
from benchsuite.report.show.sections.gpus import gpus_section, scaling_section
from benchsuite.report.show.sections.headline import headline
from benchsuite.report.show.sections.jobs import jobs_section
from benchsuite.report.show.sections.lead import lead
from benchsuite.report.show.sections.limited import limited_section
from benchsuite.report.show.sections.origin import MIDDLE_DOT, about, progress, title
from benchsuite.report.show.sections.pipelines import pipelines_section
from benchsuite.report.show.sections.score import score_block
from benchsuite.report.show.sections.sharing import sharing_section
from benchsuite.report.show.sections.smoke import smoke_block
from benchsuite.report.show.sections.subscores import subscores_section
from benchsuite.report.show.sections.sweeps import sweeps_section
from benchsuite.report.show.sections.tasks import bad_files_section, failures_section, reruns_section, unsteady_section
from benchsuite.report.show.sections.trainings import trainings_section
from benchsuite.report.show.sections.use import slowed_section, use_section
from benchsuite.report.show.sections.wall import wall_section
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.gpus import GpuComparison
from benchsuite.report.stats.influence import influences
from benchsuite.report.stats.power import ScorePerWatt
from benchsuite.report.stats.score import Score
from benchsuite.report.stats.subscores import sub_scores


@dataclass(frozen=True)
class Report:
    """The content of a report.

    `title` names the folder or file. `logs` is the folder of the tasks' output, if it still exists. `price` is the
    machine's price in any currency. `gpus` and `power` are None unless the user asks for them. `resume` is the command
    that continues an unfinished run. `explain` adds the causes of the ratios. `traced` are sections on recordings of
    its jobs.
    """

    title: str
    summary: Summary
    score: Score
    comparisons: tuple[Comparison, ...] = ()
    logs: str | None = None
    price: float | None = None
    explain: bool = False
    gpus: GpuComparison | None = None
    power: ScorePerWatt | None = None
    resume: str | None = None
    traced: tuple[Section, ...] = ()

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each job, also of those that the run lacks."""
        return {**self.score.weighing.jobs, **self.score.weighing.missing}


def document(report: Report) -> Document:
    """All that a report shows; sections without content are left out."""
    summary = report.summary
    return Document(
        title=title(summary),
        intro=tuple(_intro(report)),
        jobs=jobs_section(summary, report.score) if summary.jobs else None,
        sections=tuple(section for section in _sections(report) if section),
        score=_block(report) if summary.jobs else None,
    )


def headline_text(report: Report) -> str:
    """The first sentence of the document, for renderers of data."""
    return one_line(headline(report.summary, report.score, report.comparisons).text, 1000)


def _intro(report: Report) -> Iterator[Sentence]:
    """The headline, what it cannot hold, and a quiet line about the run with its path."""
    summary = report.summary
    yield from lead(summary, report.score, report.comparisons)
    yield sentence(f"{about(summary)}{MIDDLE_DOT}{report.title}", "quiet")
    if summary.needs_more_gpus:
        needs = (f"{one_line(name, 40)} ({needed} GPUs)" for name, needed in summary.needs_more_gpus.items())
        yield sentence(f"Not run, since they need more GPUs than are visible: {', '.join(needs)}.", "quiet")
    if summary.in_progress:
        yield sentence(progress(summary), "quiet")
    elif report.resume:
        yield sentence(f"Continue: {report.resume}", "warn")


def _block(report: Report) -> ScoreBlock:
    block = score_block(report.summary, report.score, report.comparisons, report.price, report.power)
    return smoke_block(report.summary, block) or block


def _sub_scores(report: Report) -> Section | None:
    jobs = {job.name: job for job in report.summary.jobs}
    bases = {comparison.name: comparison.groups for comparison in report.comparisons}
    return subscores_section(sub_scores(jobs, report.weights), influences(jobs, report.weights), bases)


def _sections(report: Report) -> Iterator[Section | None]:
    summary = report.summary
    yield _sub_scores(report)
    yield mfu_section(summary)
    yield limited_section(summary)
    yield from report.traced
    yield use_section(summary)
    yield slowed_section(summary)
    yield gpus_section(report.gpus)
    yield scaling_section(summary)
    yield from (pairs_section(found) for found in tournaments(summary))
    yield pipelines_section(summary)
    yield sweeps_section(summary)
    yield sharing_section(summary)
    for comparison in report.comparisons:
        yield comparison_section(comparison, len(summary.jobs))
        if report.explain:
            yield explained_section(summary, comparison)
    yield trainings_section(summary)
    yield reruns_section(summary)
    yield failures_section(summary, report.logs)
    yield unsteady_section(summary)
    yield cost_section(summary)
    yield wall_section(summary)
    yield bad_files_section(summary)
