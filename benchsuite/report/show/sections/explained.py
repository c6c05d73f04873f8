"""Why jobs are slower or faster than in a baseline."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchsuite.report.format import count, few, one_line, percent, ratio, share, signed
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell, Column, Fact, Part, Section, sentence, table
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.explain import CAUSES, Cause, Explained, explain

_LEGEND = (
    "In percent of the baseline's time an item; the parts add up to the change. kernels, host: the change of the time "
    "with and without a kernel on the GPU, beyond clocks and input. ±: error of these two; what is smaller is not "
    "explained. share: of what is not explained, in the sizes of all parts."
)
# The facts of the machine and the software that most often explain a ratio.
_FACTS = ("CPU", "CPUs", "driver", "GPUs", "GPU limits", "Python", "package torch", "benchsuite")
_NAMED = 8


def explained_section(summary: Summary, comparison: Comparison) -> Section:
    """The split of each job whose ratio lies outside the margin, then the counters that differ."""
    return Section(f"Why: against {comparison.name}", tuple(_parts(summary, comparison)))


def _parts(summary: Summary, comparison: Comparison) -> Iterator[Part]:
    found = explain(summary, comparison)
    if not found:
        yield sentence(f"No job with a ratio differs by more than {percent(comparison.margin, 0)}.")
        return
    if any(one.error is not None for one in found):
        yield table(_columns(found), found, _LEGEND)
    else:
        yield sentence(f"No ratio can be split: {count(len(found), 'job')} without the counters of both runs.", "warn")
    others = [one for one in comparison.differences.found if one.what in _FACTS and not one.jobs]
    differs = [f"{one.what} {one_line(one.base, 60)} -> {one_line(one.here, 60)}" for one in others]
    if differs:
        yield sentence(f"Machine and software, baseline -> this run: {'; '.join(few(differs, _NAMED))}.", "quiet")
    unknown = sum(of.ratio is None for of in comparison.jobs)
    if unknown:
        yield sentence(f"Without a ratio, so not explained: {count(unknown, 'job')}.", "quiet")
    for why in dict.fromkeys(why for one in found for why in one.missing):
        names = [one_line(one.job) for one in found if why in one.missing]
        yield sentence(f"{why[:1].upper()}{why[1:]}: {', '.join(few(names, _NAMED))}.", "warn")
    facts = tuple(Fact(one.job, sentence(one_line("; ".join(one.signs), 400))) for one in found if one.signs)
    if facts:
        yield sentence("Counters that differ, baseline -> this run:", strong=True)
        yield facts


def _columns(found: list[Explained]) -> Iterator[Column[Explained]]:
    yield Column("job", lambda one: one.job)
    yield Column("x", lambda one: one.ratio, ratio, right=True)
    yield Column("time %", lambda one: one.change, signed, right=True)
    for cause in CAUSES:
        if any(cause in one.parts for one in found):
            yield Column(cause, partial(_part, cause), right=True)
    yield Column("±", lambda one: one.error, share, right=True, rank=1)
    yield Column("not explained", lambda one: one.rest, signed, right=True)
    yield Column("share", lambda one: Cell(percent(one.rest_share, 0), one.rest_share), right=True)


def _part(cause: Cause, one: Explained) -> Cell:
    part = one.parts.get(cause)
    return Cell("") if part is None else Cell(signed(part), part)
