"""A report as one self-contained page, without network access or other files; all its text is escaped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchsuite.report.fleet.tournament import tournaments
from benchsuite.report.read.load import Loaded
from benchsuite.report.show.document import Document, Fact, Section
from benchsuite.report.show.html.bars import Bars, bars
from benchsuite.report.show.html.curves import Figures, telemetry, timelines
from benchsuite.report.show.html.environment import environment, gpu_table
from benchsuite.report.show.html.failures import MOST_FAILURES, troubles
from benchsuite.report.show.html.heat import heat_map, shade
from benchsuite.report.show.html.key_numbers import key_numbers
from benchsuite.report.show.html.pairs import pair_map
from benchsuite.report.show.html.roofline import roofline_figures
from benchsuite.report.show.html.scaling import scaling_figures
from benchsuite.report.show.html.scores import NARROW, score_table
from benchsuite.report.show.html.shell import render
from benchsuite.report.show.html.utilisation import utilisation
from benchsuite.report.show.report import Report, document
from benchsuite.report.show.sections.comparison import comparison_section
from benchsuite.report.show.sections.gpus import findings, gpus_section, scaling_section
from benchsuite.report.show.sections.limited import limited_section
from benchsuite.report.show.sections.tasks import failures_section

_MOST_TEXT = 200_000
# The facts about a score whose content the intro states.
_IN_INTRO = ("Incomplete", "No score", "Never ok", "Not ok so far", "No ratio", "Only a part")
# The columns of the table of jobs that a phone shows.
_NARROW_JOBS = ("job", "perf", "95 %", "fail")


@dataclass(frozen=True)
class Against:
    """The bars of a comparison, with the section that holds its table and the differences of both sides."""

    bars: Bars
    section: Section


@dataclass(frozen=True)
class Places:
    """The sections of a document by their places on the page; `rest` holds those that are folded at its end."""

    failures: Section | None
    scaling: Section | None
    comparisons: tuple[Section, ...]
    rest: tuple[Section, ...]


def page(report: Report, loaded: Loaded | None, file: Path | None = None) -> str:
    """The whole page.

    Args:
        loaded: the results folder; None for a summary or for several runs, which have no curves and no last lines.
        file: the file of the page, from which links lead to the logs.
    """
    shown = document(report)
    values = _values(report, loaded, shown, file)
    styles = ("fleet.css",) if values["pair_maps"] else ()
    return render("report.html", styles, title=shown.title, sections=tuple(_links(values)), **values)


def _values(report: Report, loaded: Loaded | None, shown: Document, file: Path | None) -> dict[str, Any]:
    """The values of the template."""
    summary, rows = report.summary, loaded.rows if loaded else ()
    failed = troubles(loaded, file) if loaded else []
    places = _places(report, shown)
    compared = zip(report.comparisons, places.comparisons, strict=True)
    return dict(
        document=shown,
        numbers=tuple(key_numbers(report, shown)),
        reservations=_reservations(shown),
        troubles=failed[:MOST_FAILURES],
        more_troubles=max(0, len(failed) - MOST_FAILURES),
        logs=report.logs,
        places=places,
        scores=score_table(report),
        narrow_scores=NARROW,
        narrow_jobs=_NARROW_JOBS,
        comparisons=tuple(Against(bars(summary, of), section) for of, section in compared),
        heat=heat_map(summary),
        shade=shade,
        utilisation=utilisation(summary),
        rooflines=roofline_figures(summary),
        findings=tuple(findings(report.gpus)) if report.gpus else (),
        scaling=scaling_figures(summary),
        pair_maps=tuple(pair_map(found) for found in tournaments(summary)),
        has_folder=loaded is not None,
        several=bool(summary.sessions),
        timelines=timelines(rows),
        telemetry=telemetry(loaded.path, rows) if loaded else Figures(()),
        environment=tuple(environment(summary, loaded)),
        machines=tuple((machine, gpu_table(machine)) for machine in summary.machines),
        profile_text=loaded.run.profile.text[:_MOST_TEXT] if loaded and loaded.run else None,
    )


def _links(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The id and the name of each section that the page has, in order."""
    places, comparisons = values["places"], values["comparisons"]
    against = [(f"against-{at}", f"Against {of.bars.name}") for at, of in enumerate(comparisons, start=1)]
    found = (
        ("failures", "Failures", values["troubles"] or places.failures),
        ("scores", "Scores", values["scores"]),
        *((target, name, True) for target, name in against),
        ("jobs", "Jobs", values["document"].jobs),
        ("limits", "Limits", values["utilisation"]),
        ("gpus", "GPUs", values["heat"] or values["findings"]),
        ("scaling", "Scaling", places.scaling),
        ("throughput", "Throughput", values["timelines"].groups),
        ("telemetry", "Telemetry", values["telemetry"].groups),
        ("details", "Details", True),
    )
    yield from ((target, name) for target, name, there in found if there)


def _places(report: Report, shown: Document) -> Places:
    """The sections that the page draws, or shows elsewhere than at its end."""
    by_title = {section.title: section for section in shown.sections}

    def taken(section: Section | None) -> Section | None:
        return by_title.pop(section.title, section) if section else None

    taken(gpus_section(report.gpus))  # the heat map shows it
    taken(limited_section(report.summary))  # a section with bars shows it
    failures = taken(failures_section(report.summary, None))
    scaling = taken(scaling_section(report.summary))
    jobs = len(report.summary.jobs)
    against = [comparison_section(comparison, jobs) for comparison in report.comparisons]
    comparisons = tuple(taken(section) or section for section in against)
    return Places(failures, scaling, comparisons, tuple(by_title.values()))


def _reservations(shown: Document) -> tuple[Fact, ...]:
    """The facts about the score that a reader must see, since they warn of something that the intro leaves out."""
    facts = (fact for fact in (shown.score.notes if shown.score else ()) if not fact.label.startswith(_IN_INTRO))
    return tuple(fact for fact in facts if any(span.tone in ("warn", "bad") for span in fact.sentence.spans))
