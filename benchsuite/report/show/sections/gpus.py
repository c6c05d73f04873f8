"""GPUs side by side, each job in percent from the row's median, with the outliers; and throughput over their number."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

from benchsuite.report.format import NONE, count, few, number, one_line, percent, share, signed
from benchsuite.report.measure.intervals import MIN_REPEATS
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell, Column, Part, Section, Sentence, Table, Tone, sentence, table
from benchsuite.report.stats.gpu_cells import Cell as GpuCell
from benchsuite.report.stats.gpu_cells import GpuKey
from benchsuite.report.stats.gpu_failures import FailingGpu, JobFailures
from benchsuite.report.stats.gpu_tests import MIN_EFFECT
from benchsuite.report.stats.gpus import ALL_JOBS, Deviation, GpuComparison, Outlier, Power
from benchsuite.report.stats.scaling import Curve, Point, curves
from benchsuite.report.stats.verdict import FAMILY_ERROR, MOST_REPEATS

Figure = Literal["mean", "min", "max"]
_TITLES: Mapping[Figure, str] = {
    "mean": "Mean over repeats",
    "min": "Lowest of the repeats",
    "max": "Highest of the repeats",
}
# The number of GPUs that fit side by side in 120 columns of text.
_SIDE_BY_SIDE = 8
# What one sentence, or one kind of sentence, names at most.
_MOST_JOBS = 3
_MOST_SENTENCES = 8
_Job = tuple[str, Mapping[GpuKey, GpuCell]]


def gpus_section(found: GpuComparison | None, brief: bool = False) -> Section | None:
    """The matrices, then the test's findings; None unless the user asks for a comparison.

    Args:
        brief: leave out the matrices if nothing can be tested.
    """
    if found and brief and found.cells and not (found.tests or found.outliers or found.failing or found.suspects):
        return Section("GPUs side by side", tuple(findings(found)))
    return Section("GPUs side by side (% from the row's median)", tuple(_parts(found))) if found else None


def _parts(found: GpuComparison) -> Iterator[Part]:
    if not found.cells:
        yield sentence("No job is placed on each GPU by itself (or the summary does not name its tasks' GPUs).")
        return
    repeated = any(len(cell.by_repeat) > 1 for cells in found.cells.values() for cell in cells.values())
    figures: Mapping[Figure, str] = _TITLES if repeated else {"mean": "One repeat"}
    for which, title in figures.items():
        yield sentence(title, strong=True)
        for host, gpus in itertools.groupby(found.gpus, key=lambda gpu: gpu.host):
            yield sentence(host, "quiet")
            in_order = list(gpus)
            for start in range(0, len(in_order), _SIDE_BY_SIDE):
                yield _matrix(found, which, in_order[start : start + _SIDE_BY_SIDE])
    yield from findings(found)


def findings(found: GpuComparison) -> Iterator[Sentence]:
    """The GPUs that differ, with likely causes; those that fail; the suspects; what is not tested; the tests' power."""
    for outlier in found.outliers:
        yield sentence(one_line(_outlier(outlier), 2000), "warn")
    for gpu in found.failing:
        yield sentence(one_line(_failing(gpu), 2000), "warn")
    suspects = sorted(found.suspects, key=lambda one: -max(abs(deviation.effect) for deviation in one.deviations))
    yield from _first(map(_suspect, suspects), "warn")
    if found.tests and not (found.outliers or found.failing or found.suspects):
        partly = " in the tests that could be made" if found.untested or found.untested_gpus else ""
        yield sentence(
            f"No GPU is an outlier{partly}: in {count(found.tests, 'test')} no GPU differs significantly from the "
            f"median GPU by {percent(MIN_EFFECT, 0)} or more, and none fails more often than the others (family-wise "
            "error 5 % each)."
        )
    for why in dict.fromkeys(found.untested.values()):
        names = [one_line(name) for name, reason in found.untested.items() if reason == why]
        yield sentence(f"Not tested: {', '.join(names)} ({why}).", "quiet")
    yield from _first((text for gpu in found.untested_gpus for text in _untested(found, gpu)), "quiet")
    if found.power:
        yield sentence(_power(found.power, found.tests), "quiet")


def _first(texts: Iterable[str], tone: Tone) -> Iterator[Sentence]:
    """The first sentences, then the number of the others."""
    for text in few(texts, _MOST_SENTENCES):
        yield sentence(text, tone)


def from_median(cells: Mapping[GpuKey, GpuCell], which: Figure, gpu: GpuKey) -> float | None:
    """A GPU's relative difference from the median GPU of its row; None without a number."""
    known = [value for cell in cells.values() if (value := getattr(cell, which)) is not None]
    middle = statistics.median(known) if known else None
    own = getattr(cells[gpu], which) if gpu in cells else None
    return own / middle - 1 if middle and own is not None else None


def _matrix(found: GpuComparison, which: Figure, gpus: Sequence[GpuKey]) -> Table:
    cells = (Column[_Job](gpu.short, partial(_cell, which=which, gpu=gpu), right=True, prose=True) for gpu in gpus)
    return table((Column("job", lambda job: job[0]), *cells), found.cells.items())


def _cell(job: _Job, which: Figure, gpu: GpuKey) -> Cell:
    _, cells = job
    cell = cells.get(gpu)
    if cell is None:
        return Cell(NONE)
    part = from_median(cells, which, gpu)
    texts = [signed(part)] if part is not None else []
    texts += [f"fail {cell.fail}/{cell.n}"] if cell.fail else []
    texts += [f"not run {cell.not_run}/{cell.n}"] if cell.not_run else []
    return Cell(" ".join(texts) or NONE, part, "bad" if cell.fail else "")


def _outlier(outlier: Outlier) -> str:
    jobs = ", ".join(_deviation(one) for one in outlier.deviations)
    slower = any(one.effect < 0 for one in outlier.deviations)
    return f"{outlier.gpu} is {'slower' if slower else 'faster'}: {jobs}.{_cause(outlier)}"


def _cause(outlier: Outlier) -> str:
    return f" Likely cause: {'; '.join(outlier.causes)}." if outlier.causes else ""


def _deviation(one: Deviation) -> str:
    return f"{one_line(one.job)} {100 * one.effect:+.1f} % ({_p(one.p)}, {count(one.repeats, 'repeat')})"


def _p(p: float | None) -> str:
    return f"p {p:.2g}" if p is not None and p >= 1e-4 else "p < 0.0001"


def _failing(gpu: FailingGpu) -> str:
    parts = [_never(one) for one in gpu.never]
    if gpu.adjusted <= FAMILY_ERROR and gpu.fail > sum(one.fail for one in gpu.never):
        tasks = f"{gpu.fail:,} of {count(gpu.ended, 'task')} fail"
        parts.insert(0, f"{tasks}; {gpu.others_fail:,} of {gpu.others_ended:,} on the others, {_p(gpu.p)}")
    return f"{gpu.gpu}: {'. '.join(parts)}."


def _never(one: JobFailures) -> str:
    return (
        f"{one_line(one.job)} fails in {one.fail:,} of {count(one.fail, 'task')}; {one.others_fail:,} of "
        f"{one.others_ended:,} on the others, {_p(one.p)}"
    )


def _suspect(suspect: Outlier) -> str:
    """The largest deviations first; that of all jobs stands before them."""
    in_order = sorted(suspect.deviations, key=lambda one: (one.job != ALL_JOBS, -abs(one.effect)))
    parts = few(map(_standing_out, in_order), _MOST_JOBS)
    return one_line(f"{suspect.gpu} is {'; '.join(parts)}.{_cause(suspect)}", 2000)


def _standing_out(one: Deviation) -> str:
    where = f"over {one.job}" if one.job == ALL_JOBS else f"in {one_line(one.job)}"
    effect = f"{100 * abs(one.effect):.1f} % {'slower' if one.effect < 0 else 'faster'} {where}"
    repeats = count(one.repeats, "repeat")
    if one.p is None:
        return f"{effect} ({repeats}): not tested, {MIN_REPEATS} repeats are needed"
    decides = f"about {one.decides:,} repeats" if one.decides else f"over {MOST_REPEATS:,} repeats"
    return f"{effect} ({_p(one.p)}, {repeats}): {decides} would decide if the difference holds"


def _untested(found: GpuComparison, gpu: GpuKey) -> Iterator[str]:
    """A sentence for each reason, with the jobs that it concerns."""
    reasons = found.untested_gpus[gpu]
    here = [name for name, cells in found.cells.items() if gpu in cells]
    for why in dict.fromkeys(reasons.values()):
        jobs = [one_line(name) for name, reason in reasons.items() if reason == why]
        names = ", ".join(few(jobs, _MOST_JOBS)) if len(jobs) < len(here) else "any job"
        yield f"{gpu}: not tested in {names} ({why})."


def _power(power: Power, tests: int) -> str:
    over_all = f"{percent(power.all_jobs)} slower over all jobs, or " if power.all_jobs is not None else ""
    return (
        f"With {count(power.repeats, 'repeat')}, the tests find in 80 % of cases a GPU that is {over_all}"
        f"{percent(power.one_job)} slower in one job (at the scatter of the median GPU). Each p is of one test alone; "
        f"what is significant follows from all {count(tests, 'test')} (Holm)."
    )


def scaling_section(summary: Summary) -> Section | None:
    """A row for each number of GPUs of each progression; None without a progression."""
    points = [(curve, point) for curve in curves(summary) for point in curve.points]
    if not points:
        return None
    many, each = ("ranks", "rank") if any("ranks" in job.axes for job in summary.jobs) else ("GPUs", "GPU")
    columns: tuple[Column[tuple[Curve, Point]], ...] = (
        Column("job", lambda at: at[0].job),
        Column(many, lambda at: at[1].gpus, right=True),
        Column("total", lambda at: at[1].total, number, right=True, rank=2),
        Column(f"per {each}", lambda at: at[1].per_gpu, number, right=True, rank=1),
        Column("unit", lambda at: f"{at[0].unit}/s", rank=4),
        Column("efficiency %", lambda at: at[1].efficiency, share, right=True),
        Column("95 %", lambda at: _efficiency_interval(at[1]), right=True, rank=3),
    )
    title = "Scaling (efficiency: the rate of a GPU in the group over that of one alone)"
    return Section(title, (table(columns, points),))


def _efficiency_interval(point: Point) -> Cell:
    if point.interval is None:
        return Cell(NONE)
    return Cell(f"{share(point.interval.low)} to {share(point.interval.high)}", point.interval.low)
