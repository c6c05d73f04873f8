"""The advice on sharing a GPU: what to choose, and a table of all choices."""

from __future__ import annotations

from collections.abc import Iterator

from benchsuite.report.format import number, ratio, whole
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell, Column, Document, Part, Section, Sentence, sentence, table
from benchsuite.report.stats.advice import Choice, best, choices, job_items
from benchsuite.report.stats.sharing import Shared, shared

_COLUMNS: tuple[Column[Choice], ...] = (
    Column("way", lambda choice: choice.line.words),
    Column("models", lambda choice: choice.point.copies, right=True),
    Column("jobs/hour", lambda choice: Cell(number(choice.per_hour), choice.per_hour), right=True),
    Column("jobs/kWh", lambda choice: choice.per_kwh, number, right=True, optional=True),
    Column("hours/job", lambda choice: choice.point.copies / choice.per_hour, number, right=True, rank=1),
    Column("GiB", lambda choice: _gib(choice), number, right=True, rank=2, optional=True),
    Column("W", lambda choice: choice.point.use.power_w, whole, right=True, rank=3, optional=True),
)


def advice(summary: Summary, title: str, items: float | None = None) -> Document:
    """The choices of each model that shares a GPU, the best first.

    Args:
        items: of one job; None: what one model alone trains on in an hour.
    """
    sections = [section for model in shared(summary) for section in _section(model, items)]
    return Document(
        title=title, intro=tuple(_lost(summary, bool(sections))), jobs=None, sections=tuple(sections), score=None
    )


def _lost(summary: Summary, any_choice: bool) -> Iterator[Sentence]:
    """The ways that could not be measured, each with its reason."""
    if not any_choice:
        yield sentence("No way of sharing has a number, so there is no advice.", "bad")
    seen = set()
    for job in summary.jobs:
        for task in job.tasks:
            why = (job.settings.get("sharing", "serial"), task.status, task.reason)
            if task.status != "ok" and why not in seen:
                seen.add(why)
                yield sentence(f"{job.name}: {task.status}: {(task.reason or '').splitlines()[0]}", "warn")


def _section(model: Shared, items: float | None) -> Iterator[Section]:
    of_job = items or job_items(model)
    if not of_job:
        return
    found = choices(model, of_job)
    parts: list[Part] = [sentence(words) for words in _words(model, found)]
    unit = f"{number(of_job)} {model.unit}s"
    in_an_hour = "" if items else f", which is what {model.alone}, does in an hour"
    legend = (
        f"A job: one model trained on {unit}{in_an_hour}. hours/job: from start to end of a job that shares the GPU "
        "with the others."
    )
    yield Section(f"Sharing a GPU: {model.name}", (*parts, table(_COLUMNS, found, legend)))


def _words(model: Shared, found: list[Choice]) -> Iterator[str]:
    fastest, frugal = best(found, lambda choice: choice.per_hour), best(found, lambda choice: choice.per_kwh)
    if fastest:
        up = model.speed_up(fastest.point.rate)
        yield (
            f"Most jobs per hour: {_choice(fastest)}, {number(fastest.per_hour)} jobs an hour on a GPU"
            f"{f', {ratio(up)} times one model alone' if up else ''}."
        )
    if frugal:
        yield f"Most jobs per kilowatt-hour: {_choice(frugal)}, {number(frugal.per_kwh)} jobs."
    else:
        yield "Jobs per kilowatt-hour are not known: there is no energy counter."


def _choice(choice: Choice) -> str:
    copies = choice.point.copies
    return f"{choice.line.words} with {copies} {'model' if copies == 1 else 'models'}"


def _gib(choice: Choice) -> float | None:
    return None if choice.point.memory_bytes is None else choice.point.memory_bytes / 2**30
