"""A heat map of jobs by GPUs: the rate of each GPU relative to the job's median over GPUs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchsuite.report.format import NONE, count, number, signed
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell
from benchsuite.report.stats.gpu_cells import Cell as GpuCell
from benchsuite.report.stats.gpu_cells import GpuKey, gpu_cells

# More columns than anyone can read.
MOST_GPUS = 64
# The least deviation from the median of each class of the style sheet, for either side.
_LEVELS = ((0.10, "3"), (0.05, "2"), (0.02, "1"))
_ALL = "all jobs (median)"


@dataclass(frozen=True)
class HeatMap:
    """The rows of a heat map.

    Attributes:
        hosts: each host with its number of GPUs shown.
        rows: job -> its cells; a cell's value is the relative difference from the row's median.
        all_jobs: the median of each column; empty for a single job.
        left_out: the number of GPUs that are not shown.
    """

    hosts: tuple[tuple[str, int], ...]
    gpus: tuple[Cell, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    all_jobs: tuple[Cell, ...]
    left_out: int


def heat_map(summary: Summary) -> HeatMap | None:
    """The jobs that run on each GPU by itself; None below two GPUs."""
    cells = gpu_cells(summary)
    gpus = sorted({gpu for of_job in cells.values() for gpu in of_job})
    if len(gpus) < 2:
        return None
    shown = gpus[:MOST_GPUS]
    rows = tuple((job, tuple(_row(job, of_job, shown))) for job, of_job in cells.items())
    heads = tuple(Cell(f"GPU {gpu.index}", note=str(gpu)) for gpu in shown)
    every = tuple(_all_jobs(heads[at], [row[at] for _, row in rows]) for at in range(len(shown)))
    hosts = tuple(Counter(gpu.host for gpu in shown).items())
    return HeatMap(hosts, heads, rows, every if len(rows) > 1 else (), len(gpus) - len(shown))


def shade(cell: Cell) -> str:
    """The class of a cell: how far below ("cold") or above ("warm") the median it is, and whether a task failed."""
    failed = " failed" if cell.tone == "bad" else ""
    if not isinstance(cell.value, float):
        return f"absent{failed}"
    # Rounded as the cell shows it, so that equal texts have equal colours.
    away = round(cell.value, 3)
    side = "cold" if away < 0 else "warm"
    return next((f"{side}{name}" for least, name in _LEVELS if abs(away) >= least), "even") + failed


def _row(job: str, of_job: Mapping[GpuKey, GpuCell], shown: Sequence[GpuKey]) -> list[Cell]:
    means = [cell.mean for cell in of_job.values() if cell.mean is not None]
    middle = statistics.median(means) if means else None
    return [_cell(job, gpu, of_job.get(gpu), middle) for gpu in shown]


def _cell(job: str, gpu: GpuKey, cell: GpuCell | None, middle: float | None) -> Cell:
    if cell is None:
        return Cell(NONE, note=f"{job} on {gpu}: no task")
    tasks = f"{count(cell.n, 'task')}, {cell.fail} failed" + (f", {cell.not_run} not run" if cell.not_run else "")
    lines = [f"{job} on {gpu}", tasks]
    if cell.unsteady:
        lines.append(f"{cell.unsteady} not steady")
    failed = f"{cell.fail}/{cell.n} failed" if cell.fail else ""
    value = cell.mean / middle - 1 if cell.mean is not None and middle else None
    if cell.mean is not None:
        one = len(cell.by_repeat) == 1
        spread = "" if one else f" ({number(cell.min)} to {number(cell.max)} over {len(cell.by_repeat)} repeats)"
        lines.insert(1, f"{number(cell.mean)} items/s{spread}")
    if value is None:
        return Cell(failed or ("not run" if cell.not_run else NONE), None, "bad" if failed else "", "\n".join(lines))
    text = f"{_signed(value)} {cell.fail}/{cell.n} ✕" if failed else _signed(value)
    return Cell(text, value, "bad" if failed else "", "\n".join(lines))


def _all_jobs(head: Cell, cells: Sequence[Cell]) -> Cell:
    values = [cell.value for cell in cells if isinstance(cell.value, float)]
    if not values:
        return Cell(NONE, note=f"{head.note}: no rate")
    value = statistics.median(values)
    return Cell(_signed(value), value, note=f"{head.note}: median over {count(len(values), 'job')}")


def _signed(value: float) -> str:
    """ "+0.4", "-3.2", in percent, with a real minus sign; "0.0" without a sign."""
    return signed(value).replace("-", "\N{MINUS SIGN}")
