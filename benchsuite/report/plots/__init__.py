"""Plots of a run or a summary: one file for each kind, with the name that `--kind` takes.

The first line of its docstring describes the plot. `draw(source) -> Figure` raises ResultError if the source holds
nothing to show. Figures need no display, and no global state of pyplot.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from benchsuite.errors import ResultError, UsageError, nearest, one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchsuite.report.read.load import Loaded
    from benchsuite.report.read.summary import Summary


@dataclass(frozen=True)
class Source:
    """The data of a plot: a summary with its path, and the `base` to compare with.

    `task` is the id of the only task to show; None shows all. `compare_unlike` also compares jobs whose workloads
    differ.
    """

    summary: Summary
    path: Path | None = None
    base: Summary | None = None
    base_name: str = ""
    task: str | None = None
    compare_unlike: bool = False

    def folder(self) -> Loaded:
        """The results folder or the one result, with every slice.

        Raises:
            ResultError: there is only a summary, or the folder holds no `task`.
        """
        from benchsuite.report.read.load import load, load_file
        from benchsuite.report.sources import is_result

        single = self.path is not None and is_result(self.path)
        if self.path is None or not (single or self.path.is_dir()):
            raise ResultError(f"{self.summary.source}: a summary holds no slices or samples; name the results folder")
        loaded = load_file(self.path) if single else load(self.path)
        ids = [row.task.id for row in loaded.rows]
        if self.task is not None and self.task not in ids:
            raise ResultError(f"{self.path}: no task '{one_line(self.task)}'{nearest(self.task, ids[:50])}")
        return loaded


def names() -> list[str]:
    """The kinds, without an import of what draws them."""
    return sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem != "__init__")


def kinds() -> dict[str, str]:
    """Each kind with its description."""
    return {name: (_module(name).__doc__ or "").strip().splitlines()[0] for name in names()}


def draw(kind: str, source: Source) -> Figure:
    """Draw one kind of plot.

    Raises:
        UsageError: there is no such kind.
        ResultError: the source holds nothing to show.
    """
    if kind not in kinds():
        raise UsageError(f"--kind {kind}: unknown{nearest(kind, kinds())}")
    return cast("Figure", _module(kind).draw(source))


@dataclass(frozen=True)
class Drawn:
    """A figure of a plot, and the numbers behind it as CSV. `name` distinguishes it from the others; empty: alone."""

    figure: Figure
    name: str = ""
    csv: str = ""


def draw_all(kind: str, source: Source) -> list[Drawn]:
    """Draw one kind of plot, which may have several figures.

    Raises:
        UsageError, ResultError: as `draw`.
    """
    every = getattr(_module(kind), "draw_all", None) if kind in kinds() else None
    return every(source) if every else [Drawn(draw(kind, source))]


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"benchsuite.report.plots.{name}")
