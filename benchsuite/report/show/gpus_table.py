"""GPUs side by side, as tables: each job on each GPU in percent of the row's best, and what falls out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from rich.console import RenderableType
from rich.text import Text

from benchsuite.report.show.format import NONE, count, one_line, share
from benchsuite.report.show.tables import Column, fitted, plain
from benchsuite.report.stats.gpus import MIN_EFFECT, Cell, Deviation, GpuComparison, GpuKey, Outlier

Figure = Literal["mean", "min", "max"]
_FIGURES: tuple[Figure, ...] = ("mean", "min", "max")
_TITLES = {"mean": "Mean over repeats", "min": "Lowest of the repeats", "max": "Highest of the repeats"}
# So many fit side by side in 120 columns.
_SIDE_BY_SIDE = 8


def gpus_tables(found: GpuComparison | None, width: int) -> Iterator[RenderableType]:
    """The matrices, then the test's findings; nothing where nobody asked."""
    if found is None:
        return
    if not found.cells:
        yield plain("No job is placed on each GPU by itself (or the summary does not name its tasks' GPUs).")
        return
    repeated = any(len(cell.by_repeat) > 1 for cells in found.cells.values() for cell in cells.values())
    for which in _FIGURES if repeated else _FIGURES[:1]:
        yield Text(_TITLES[which] if repeated else "One repeat", style="bold")
        for host, gpus in itertools.groupby(found.gpus, key=lambda gpu: gpu.host):
            yield plain(Text(host, style="dim"))
            in_order = list(gpus)
            for start in range(0, len(in_order), _SIDE_BY_SIDE):
                yield _matrix(found, which, in_order[start : start + _SIDE_BY_SIDE], width)
    yield from map(plain, findings(found))


def findings(found: GpuComparison) -> Iterator[Text]:
    """Each outlier with its likely cause, or that there is none; and what could not be tested."""
    for outlier in found.outliers:
        yield Text(one_line(_outlier(outlier), 2000), style="yellow")
    if found.tests and not found.outliers:
        yield Text(
            f"No GPU falls out: in {count(found.tests, 'test')} none differs from the median GPU by "
            f"{MIN_EFFECT:.0%} or more at 5 % family-wise."
        )
    for why in dict.fromkeys(found.untested.values()):
        names = [one_line(name) for name, reason in found.untested.items() if reason == why]
        yield Text(f"Not tested: {', '.join(names)} ({why}).", style="dim")


def percent_of_best(cells: Mapping[GpuKey, Cell], which: Figure, gpu: GpuKey) -> float | None:
    """A GPU's share of the best of its row; None without a figure."""
    best = max((value for cell in cells.values() if (value := getattr(cell, which)) is not None), default=None)
    own = getattr(cells[gpu], which) if gpu in cells else None
    return own / best if best and own is not None else None


def _matrix(found: GpuComparison, which: Figure, gpus: Sequence[GpuKey], width: int) -> RenderableType:
    columns = [Column("job"), *(Column(gpu.short, right=True, prose=True) for gpu in gpus)]
    rows: list[list[str | Text]] = [
        [name, *(_text(cells, which, gpu) for gpu in gpus)] for name, cells in found.cells.items()
    ]
    return fitted(columns, rows, width)[0]


def _text(cells: Mapping[GpuKey, Cell], which: Figure, gpu: GpuKey) -> Text:
    cell = cells.get(gpu)
    if cell is None:
        return Text(NONE)
    part = percent_of_best(cells, which, gpu)
    said = [share(part)] if part is not None else []
    said += [f"fail {cell.fail}/{cell.n}"] if cell.fail else []
    said += [f"not run {cell.not_run}/{cell.n}"] if cell.not_run else []
    return Text(" ".join(said) or NONE, style="red" if cell.fail else "")


def _outlier(outlier: Outlier) -> str:
    jobs = ", ".join(_deviation(one) for one in outlier.deviations)
    slower = any(one.effect < 0 for one in outlier.deviations)
    cause = f" Likely cause: {'; '.join(outlier.causes)}." if outlier.causes else ""
    return f"{outlier.gpu} is {'slower' if slower else 'faster'}: {jobs}.{cause}"


def _deviation(one: Deviation) -> str:
    p = f"p {one.p:.2g}" if one.p >= 1e-4 else "p < 0.0001"
    return f"{one_line(one.job)} {100 * one.effect:+.1f} % ({p}, {count(one.repeats, 'repeat')})"
