"""The ratios to a baseline as bars on a logarithmic axis: the smallest ratio first, jobs without a ratio last."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchsuite.report.format import NONE, bounds, number, one_line, ratio
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.show.document import Cell
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.overall import Ratio
from benchsuite.report.stats.ratios import JobRatio
from benchsuite.report.stats.samples import repeat_rates
from benchsuite.report.stats.verdict import Verdict

# Word of the verdict -> class of the style sheet, mark.
_LOOKS: Mapping[str | None, tuple[str, str]] = {
    "FASTER": ("faster", "▲"),
    "SLOWER": ("slower", "▼"),
    "SAME": ("same", "="),
    "AMBIGUOUS": ("unsure", "?"),
    "FAILS": ("fails", "✕"),
    "BASE FAILS": ("none", "✕"),
    None: ("none", "○"),
}
_UNDECIDED = ("none", "unlike")
# Steps of an axis of ratios that spans less than `_ADDITIVE`; above it, factors between ticks.
_STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
_FACTORS = (2.0, 4.0, 10.0, 100.0)
_ADDITIVE, _MOST_TICKS = 5.0, 6
# An interval may widen the axis by this factor beyond all ratios; a whisker that reaches further ends at the edge.
_BEYOND = 1.5
_LONGEST_WHY = 200


@dataclass(frozen=True)
class Bar:
    """A row of the chart. Places are percent of the axis' width.

    Attributes:
        look: class of the style sheet; colour never stands without `mark` and `word`.
        place, low, high: of the ratio and of its 95 % interval; `place` is None without a ratio.
        points, base_points: of the single repeats of this run and of the baseline.
        why: the reason why there is no ratio or no verdict, or the difference of the workloads.
    """

    name: str
    look: str
    mark: str
    word: str
    ratio: Cell
    interval: Cell
    note: str
    place: float | None = None
    low: float | None = None
    high: float | None = None
    points: tuple[float, ...] = ()
    base_points: tuple[float, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Bars:
    """The chart of one comparison.

    Attributes:
        ticks: (place, label) of the axis.
        one: the place of ratio 1.
        repeats: single repeats are drawn.
        cut: an interval reaches beyond the axis.
        only_here, only_base: the jobs that the other side lacks.
        shared: the reason why rows have no verdict, if most rows share it; these rows do not repeat it.
    """

    name: str
    ticks: tuple[tuple[float, str], ...]
    one: float
    overall: tuple[Bar, ...]
    jobs: tuple[Bar, ...]
    repeats: bool
    cut: bool
    shared: str
    only_here: tuple[str, ...]
    only_base: tuple[str, ...]


class Axis:
    """A logarithmic axis that includes 1."""

    def __init__(self, ratios: Sequence[float], ends: Sequence[float]) -> None:
        low, high = min([1.0, *ratios]), max([1.0, *ratios])
        low = min([low, *(max(end, low / _BEYOND) for end in ends if end < low)])
        high = max([high, *(min(end, high * _BEYOND) for end in ends if end > high)])
        margin = max(0.04 * math.log(high / low), 0.01)
        self._low, self._high = math.log(low) - margin, math.log(high) + margin

    def place(self, value: float) -> float:
        """Percent of the width, within 0 to 100."""
        at = (math.log(value) - self._low) / (self._high - self._low) if value > 0 else 0.0
        return round(100 * min(1.0, max(0.0, at)), 2)

    def shows(self, value: float) -> bool:
        """Whether a ratio above 0 lies on the axis."""
        return self._low <= math.log(value) <= self._high

    def ticks(self) -> tuple[tuple[float, str], ...]:
        """The ticks around 1 with their labels."""
        low, high = math.exp(self._low), math.exp(self._high)
        found = [self._added(low, high, step) for step in _STEPS] if high / low < _ADDITIVE else []
        found += [self._multiplied(factor) for factor in _FACTORS]
        values = next((values for values in found if len(values) <= _MOST_TICKS), [1.0])
        return tuple((self.place(value), f"{value:.4g}x") for value in values)

    @staticmethod
    def _added(low: float, high: float, step: float) -> list[float]:
        first, last = math.ceil((low - 1) / step), math.floor((high - 1) / step)
        return [1 + step * at for at in range(first, last + 1)]

    def _multiplied(self, factor: float) -> list[float]:
        first, last = (edge / math.log(factor) for edge in (self._low, self._high))
        return [factor**at for at in range(math.ceil(first), math.floor(last) + 1)]


def bars(summary: Summary, comparison: Comparison) -> Bars:
    """The overall ratios, then jobs that fail here only, then ratios from the smallest, then jobs without a ratio."""
    here, there = ({job.name: job for job in of.jobs} for of in (summary, comparison.base))
    whole = [
        ("Per GPU" if any(comparison.overall.gpus) else "Per task", comparison.overall.per_gpu),
        ("Whole machine", comparison.overall.machine),
    ]
    whole += [(of.difference.words, of.ratio) for of in comparison.settings]
    ratios = [*((found.value, found.verdict) for _, found in whole if found)]
    ratios += [(job.ratio, job.verdict) for job in comparison.jobs if job.ratio is not None]
    ends = [end for _, verdict in ratios for end in (verdict.low, verdict.high) if end is not None and _drawn(end)]
    repeats = (
        dot
        for job in comparison.jobs
        if _drawn(job.ratio)
        for dot in (*_spread(here[job.name], job.ratio), *_spread(there[job.name], 1.0))
    )
    axis = Axis([value for value, _ in ratios if _drawn(value)], [*ends, *repeats])
    ordered = sorted(comparison.jobs, key=_order)
    rows = [_job(job, here.get(job.name), there.get(job.name), axis) for job in ordered]
    above = [_overall(name, found, axis) for name, found in whole if found]
    shared = _shared([*above, *rows])
    rows = [_without(row, shared) for row in rows]
    return Bars(
        name=one_line(comparison.name),
        ticks=axis.ticks(),
        one=axis.place(1.0),
        overall=tuple(_without(row, shared) for row in above),
        jobs=tuple(rows),
        repeats=any(len(row.points) > 1 for row in rows),
        cut=any(not axis.shows(end) for end in ends),
        shared=shared,
        only_here=tuple(map(one_line, comparison.only_here)),
        only_base=tuple(map(one_line, comparison.only_base)),
    )


def _shared(rows: Sequence[Bar]) -> str:
    """The reason that more than half of the rows with a ratio have in common; empty without one."""
    drawn = [row.why for row in rows if row.place is not None and row.look in _UNDECIDED]
    why, times = Counter(drawn).most_common(1)[0] if drawn else ("", 0)
    return why if times > max(1, len(drawn) // 2) else ""


def _without(row: Bar, shared: str) -> Bar:
    return replace(row, why="") if row.place is not None and row.why == shared else row


def look(verdict: Verdict) -> tuple[str, str]:
    """The class and the mark of a verdict."""
    return _LOOKS[verdict.word]


def _drawn(value: float | None) -> bool:
    """Whether a ratio has a place on a logarithmic axis."""
    return value is not None and 0 < value < math.inf


def _order(job: JobRatio) -> tuple[int, float]:
    if job.verdict.word == "FAILS":
        return 0, 0.0
    return (1, job.ratio or 0.0) if _drawn(job.ratio) else (2, 0.0)


def _overall(name: str, found: Ratio, axis: Axis) -> Bar:
    note = f"{name}: {ratio(found.value)}x"
    return _bar(name, found.value, found.verdict, axis, look(found.verdict), note, found.verdict.reason or "")


def _job(job: JobRatio, here: JobSummary | None, there: JobSummary | None, axis: Axis) -> Bar:
    unlike = job.same_workload is False and job.difference is None
    shown = ("unlike", "○") if unlike else look(job.verdict)
    why = one_line(_why(job), _LONGEST_WHY) if _why(job) else ""
    unit = f" {here.unit}/s" if here and here.unit else ""
    note = f"{one_line(job.name)}: {number(job.perf)}{unit} against {number(job.base_perf)}"
    found = _bar(one_line(job.name), job.ratio, job.verdict, axis, shown, note, why)
    if not _drawn(job.ratio) or here is None or there is None:
        return found
    assert job.ratio is not None
    return replace(
        found, points=_places(_spread(here, job.ratio), axis), base_points=_places(_spread(there, 1.0), axis)
    )


def _bar(
    name: str, value: float | None, verdict: Verdict, axis: Axis, shown: tuple[str, str], note: str, why: str
) -> Bar:
    css, mark = shown
    drawn = value if _drawn(value) else None
    has_interval = drawn is not None and bool(verdict.low) and verdict.high is not None and not verdict.identical
    interval = Cell(bounds(verdict.low, verdict.high), verdict.low) if has_interval else Cell(NONE)
    lines = [note, f"95 %: {interval.text}" if has_interval else "", verdict.words, why]
    return Bar(
        name=name,
        look=css,
        mark=mark,
        word=verdict.words or ("no verdict" if drawn is not None else "no ratio"),
        ratio=Cell(f"{ratio(value)}x" if value is not None else NONE, value),
        interval=interval,
        note="\n".join(line for line in lines if line),
        place=None if drawn is None else axis.place(drawn),
        low=axis.place(verdict.low) if has_interval and verdict.low else None,
        high=axis.place(verdict.high) if has_interval and verdict.high else None,
        why=why,
    )


def _spread(job: JobSummary, around: float | None) -> list[float]:
    """The ratios of the repeats of a job, whose geometric mean is `around`; none of a single repeat."""
    rates = [rate for rate in repeat_rates(job).values() if rate > 0]
    if len(rates) < 2 or not around:
        return []
    middle = math.fsum(map(math.log, rates)) / len(rates)
    return [around * math.exp(math.log(rate) - middle) for rate in rates]


def _places(ratios: Sequence[float], axis: Axis) -> tuple[float, ...]:
    """The places of the ratios that lie on the axis."""
    return tuple(axis.place(value) for value in ratios if axis.shows(value))


def _why(job: JobRatio) -> str:
    """Why a job has no ratio or no verdict, and how its workload differs."""
    if job.excluded:
        return f"excluded: {job.excluded}"
    if job.difference and job.ratio is not None:
        return "; ".join(filter(None, (one_line(job.difference.words), job.verdict.reason)))
    if job.same_workload is False:
        return f"another workload: {'; '.join(job.fields) or 'the fields are not recorded'}"
    test = job.failures
    if job.verdict.word in ("FAILS", "BASE FAILS") or test is None or not test.fail + test.base_fail:
        return job.verdict.reason or ""
    failed = f"fails in {test.fail} of {test.n} tasks here, {test.base_fail} of {test.base_n} in the baseline"
    return "; ".join(filter(None, (failed, job.verdict.reason)))
