"""GPUs side by side, each job in percent of the row's best, with the outliers; and throughput over their number."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell, Column, Part, Section, Sentence, Table, sentence, table
from benchsuite.report.show.format import NONE, count, number, one_line, share
from benchsuite.report.stats import gpus as stats
from benchsuite.report.stats.gpus import MIN_EFFECT, Deviation, GpuComparison, GpuKey, Outlier
from benchsuite.report.stats.scaling import Curve, Point, curves

Figure = Literal["mean", "min", "max"]
_TITLES: Mapping[Figure, str] = {
    "mean": "Mean over repeats",
    "min": "Lowest of the repeats",
    "max": "Highest of the repeats",
}
# The number of GPUs that fit side by side in 120 columns of text.
_SIDE_BY_SIDE = 8
_Job = tuple[str, Mapping[GpuKey, stats.Cell]]


def gpus_section(found: GpuComparison | None) -> Section | None:
    """The matrices, then the test's findings; None unless the user asks for a comparison."""
    return Section("GPUs side by side (% of the row's best)", tuple(_parts(found))) if found else None


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
    """Each outlier with its likely cause, or a sentence that no GPU is one; then the jobs that are not tested."""
    for outlier in found.outliers:
        yield sentence(one_line(_outlier(outlier), 2000), "warn")
    if found.tests and not found.outliers:
        yield sentence(
            f"No GPU is an outlier: in {count(found.tests, 'test')} no GPU differs from the median GPU by "
            f"{MIN_EFFECT:.0%} or more (family-wise error 5 %)."
        )
    for why in dict.fromkeys(found.untested.values()):
        names = [one_line(name) for name, reason in found.untested.items() if reason == why]
        yield sentence(f"Not tested: {', '.join(names)} ({why}).", "quiet")


def percent_of_best(cells: Mapping[GpuKey, stats.Cell], which: Figure, gpu: GpuKey) -> float | None:
    """A GPU's share of the best of its row; None without a figure."""
    best = max((value for cell in cells.values() if (value := getattr(cell, which)) is not None), default=None)
    own = getattr(cells[gpu], which) if gpu in cells else None
    return own / best if best and own is not None else None


def _matrix(found: GpuComparison, which: Figure, gpus: Sequence[GpuKey]) -> Table:
    cells = (Column[_Job](gpu.short, partial(_cell, which=which, gpu=gpu), right=True, prose=True) for gpu in gpus)
    return table((Column("job", lambda job: job[0]), *cells), found.cells.items())


def _cell(job: _Job, which: Figure, gpu: GpuKey) -> Cell:
    _, cells = job
    cell = cells.get(gpu)
    if cell is None:
        return Cell(NONE)
    part = percent_of_best(cells, which, gpu)
    texts = [share(part)] if part is not None else []
    texts += [f"fail {cell.fail}/{cell.n}"] if cell.fail else []
    texts += [f"not run {cell.not_run}/{cell.n}"] if cell.not_run else []
    return Cell(" ".join(texts) or NONE, part, "bad" if cell.fail else "")


def _outlier(outlier: Outlier) -> str:
    jobs = ", ".join(_deviation(one) for one in outlier.deviations)
    slower = any(one.effect < 0 for one in outlier.deviations)
    cause = f" Likely cause: {'; '.join(outlier.causes)}." if outlier.causes else ""
    return f"{outlier.gpu} is {'slower' if slower else 'faster'}: {jobs}.{cause}"


def _deviation(one: Deviation) -> str:
    p = f"p {one.p:.2g}" if one.p >= 1e-4 else "p < 0.0001"
    return f"{one_line(one.job)} {100 * one.effect:+.1f} % ({p}, {count(one.repeats, 'repeat')})"


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
