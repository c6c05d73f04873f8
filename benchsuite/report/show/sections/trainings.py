"""The section on trainings by epochs: time to the target, epochs, and the loss of each epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from benchsuite.report.format import NONE, count, number, one_line
from benchsuite.report.read.summary import Summary
from benchsuite.report.read.trainings import Training, highest_bleu, lowest_loss
from benchsuite.report.show.document import Cell, Column, Section, Sentence, Span, table

if TYPE_CHECKING:
    from benchsuite.measurement import Epoch

# Of a longer curve the first and the last epochs are shown, and those between them at equal distances.
_SHOWN = 12
_LEGEND = (
    "Trainings by epochs have no score. trained s: time of all steps. elapsed s: with checkpoints and BLEU between the "
    "epochs. loss: lowest mean of an epoch. items/s: over all steps; it enters no score."
)


def trainings_lead(summary: Summary) -> Sentence | None:
    """The first sentence of a report that holds trainings by epochs only; None for any other."""
    if summary.jobs or not summary.trainings:
        return None
    ok = sum(one.status == "ok" for one in summary.trainings)
    aims = [one for one in summary.trainings if one.target]
    met = f"; {sum(bool(one.met) for one in aims)} of {count(len(aims), 'target')} met" if aims else ""
    tone = "" if ok == len(summary.trainings) else "bad"
    words = f"{ok} of {count(len(summary.trainings), 'training')} by epochs ended{met}. Trainings have no score."
    return Sentence((Span(words, "bad" if tone else "", strong=True),))


def trainings_section(summary: Summary) -> Section | None:
    """A table of all trainings and the curve of each; None if there is none."""
    found = summary.trainings
    if not found:
        return None
    return Section("Trainings by epochs", (table(_COLUMNS, found, _LEGEND), *_sentences(found)))


def _result(one: Training) -> Cell:
    if one.status != "ok":
        return Cell(one.status, one.status, "bad")
    if one.met:
        return Cell("target met", "target met", "good")
    if one.stopped_by == "max_time":
        return Cell("out of time", "out of time", "warn")
    return Cell("target not met", "target not met", "warn") if one.target else Cell("ended", "ended")


_COLUMNS: tuple[Column[Training], ...] = (
    Column("task", lambda one: one.task, one_line),
    Column("end", _result),
    Column("target", lambda one: one.target or Cell(NONE), one_line, rank=2, optional=True),
    Column("epochs", lambda one: len(one.epochs), str, right=True),
    Column("trained s", lambda one: one.trained_s, number, right=True),
    Column("elapsed s", lambda one: one.elapsed_s, number, right=True, rank=1),
    Column("loss", lambda one: lowest_loss(one.epochs), number, right=True),
    Column("BLEU", lambda one: highest_bleu(one.epochs), number, right=True, optional=True),
    Column("items/s", lambda one: one.rate, number, right=True, rank=3),
)


def _sentences(found: Sequence[Training]) -> Iterator[Sentence]:
    for one in found:
        if one.status != "ok" and one.reason:
            yield Sentence((Span(f"{one.task}: {one_line(one.reason, 300)}", "bad"),))
        for note in one.notes:
            yield Sentence((Span(f"{one.task}: {one_line(note, 300)}.", "quiet"),))
        if one.met:
            last = one.epochs[-1]
            words = (
                f"{one.task}: {one.target} after {number(one.trained_s)} s of training, {count(last.epoch, 'epoch')}"
            )
            yield Sentence((Span(f"{words} ({number(one.elapsed_s)} s with checkpoints and BLEU).", strong=True),))
        yield from (_curve(one.task, what, values) for what, values in _curves(one.epochs))


def _curves(epochs: Sequence[Epoch]) -> Iterator[tuple[str, list[tuple[int, float]]]]:
    losses = [(one.epoch, one.loss) for one in epochs if one.loss is not None]
    scores = [(one.epoch, one.bleu) for one in epochs if one.bleu is not None]
    yield from ((what, values) for what, values in (("loss", losses), ("BLEU", scores)) if len(values) > 1)


def _curve(task: str, what: str, values: Sequence[tuple[int, float]]) -> Sentence:
    last = len(values) - 1
    places = sorted({round(step * last / (_SHOWN - 1)) for step in range(_SHOWN)})
    shown = ", ".join(f"{values[place][0]}: {number(values[place][1])}" for place in places)
    return Sentence((Span(f"{task}, {what} by epoch: {shown}.", "quiet"),))
