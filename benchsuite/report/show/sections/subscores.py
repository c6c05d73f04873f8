"""Sub-scores by limit and by precision, with the job that moves the score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from benchsuite.report.format import NONE, bounds, number, percent, ratio, share
from benchsuite.report.show.document import Cell, Column, Part, Section, Sentence, sentence, table
from benchsuite.report.stats.influence import Influence
from benchsuite.report.stats.limits import NOT_KNOWN
from benchsuite.report.stats.subscores import GroupRatio, SubScore

_LEGEND = (
    "Sub-score: weighted geometric mean of perf over the group's jobs, ok tasks only, without penalty. The host limits "
    "a job whose GPU runs a kernel for under half of the time; a group of ranks counts as communication."
)
_LIMITS: Mapping[str, str] = {
    "GPU": "limited by the GPU",
    "host": "limited by the host",
    "CPU": "runs on the CPU",
    "communication": "communication",
    NOT_KNOWN: "limit not known",
}
# A job of more than this share of the variance is named alone.
_MOVES = 1 / 3
_NAMED = 3


@dataclass(frozen=True)
class _Row:
    """A sub-score with its ratio to each base."""

    of: SubScore
    ratios: tuple[GroupRatio, ...]

    @property
    def name(self) -> str:
        if self.of.kind == "limit":
            return _LIMITS[self.of.name]
        return "precision not known" if self.of.name == NOT_KNOWN else self.of.name


def subscores_section(
    found: Sequence[SubScore], moves: Sequence[Influence] = (), bases: Mapping[str, Sequence[GroupRatio]] | None = None
) -> Section | None:
    """The groups of each kind that splits the jobs; None without such a kind, or if no group has a value.

    A kind splits the jobs if at least two of its groups are known.

    Args:
        moves: the jobs by their influence on the score.
        bases: name of a base -> the ratio of each of `found`.
    """
    bases = bases or {}
    kinds = Counter(one.kind for one in found if one.name != NOT_KNOWN)
    rows = [
        _Row(one, tuple(ratios[i] for ratios in bases.values())) for i, one in enumerate(found) if kinds[one.kind] > 1
    ]
    if not any(row.of.value is not None for row in rows):
        return None
    return Section("Sub-scores", tuple(_parts(rows, moves, list(bases))))


def influence_words(moves: Sequence[Influence]) -> str:
    """The job that moves the score, or the three that move it most; empty without influences."""
    if not moves:
        return ""
    first, *others = moves
    if first.share > _MOVES:
        noise = f"weight {first.weight:g} of {first.total:g}, {percent(first.std)} between repeats"
        return f"{first.job} makes {percent(first.share, 0)} of the score's variance ({noise})."
    most = (f"{one.job} {percent(one.share, 0)}" for one in (first, *others[: _NAMED - 1]))
    return f"No job dominates the score's variance; most comes from {', '.join(most)}."


def _parts(rows: Sequence[_Row], moves: Sequence[Influence], bases: Sequence[str]) -> Iterator[Part]:
    legend = f"{_LEGEND} Ratio: over {' and '.join(bases)}; per task on a CPU." if bases else _LEGEND
    yield table(_columns(bases), rows, legend)
    for row in rows:
        if row.of.reason:
            yield sentence(f"No sub-score '{row.name}': {row.of.reason}.", "warn")
    for i, base in enumerate(bases):
        yield from _without_ratio(base, {row.name: row.ratios[i].reason for row in rows if row.of.value is not None})
    if words := influence_words(moves):
        yield sentence(words)


def _without_ratio(base: str, reasons: Mapping[str, str | None]) -> Iterator[Sentence]:
    """Why groups have no ratio to a base, or no interval of it.

    Args:
        reasons: of each group; None where nothing lacks.
    """
    for reason in dict.fromkeys(why for why in reasons.values() if why):
        groups = [name for name, why in reasons.items() if why == reason]
        of = f" ({', '.join(groups)})" if len(groups) < len(reasons) else ""
        yield sentence(f"Against {base}{of}: {reason}.", "quiet")


def _columns(bases: Sequence[str]) -> Iterator[Column[_Row]]:
    yield Column("group", lambda row: row.name)
    yield Column("weight %", lambda row: row.of.share, share, right=True, rank=2)
    yield Column("sub-score", lambda row: row.of.value, number, right=True)
    yield Column("95 %", _interval, right=True, rank=3, optional=True)
    for i, base in enumerate(bases):
        of = f" / {base}" if len(bases) > 1 else ""
        yield Column(f"ratio per GPU{of}", partial(_ratio, i), right=True)
        yield Column(f"95 % of ratio{of}", partial(_bounds, i), right=True, rank=1, optional=True)
    yield Column("n", lambda row: len(row.of.jobs), right=True)
    yield Column("jobs", _jobs, prose=True)


def _interval(row: _Row) -> Cell:
    around = row.of.interval
    return Cell(f"{number(around.low)} to {number(around.high)}", around.low) if around else Cell(NONE)


def _ratio(i: int, row: _Row) -> Cell:
    return Cell(ratio(row.ratios[i].value), row.ratios[i].value)


def _bounds(i: int, row: _Row) -> Cell:
    return Cell(bounds(row.ratios[i].low, row.ratios[i].high), row.ratios[i].low)


def _jobs(row: _Row) -> Cell:
    evidence = "; ".join(f"{job}: {why}" for job, why in zip(row.of.jobs, row.of.evidence, strict=True))
    return Cell(" ".join(row.of.jobs), note=evidence)
