"""Plots of a summary: one file a kind, whose name is what `--kind` takes.

Each has a docstring whose first line says what is shown, and `draw(summary) -> Figure`, which raises ResultError where
the summary holds nothing to show. Figures are made without a display, and without pyplot's global state.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from benchsuite.errors import UsageError, nearest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchsuite.report.summary import Summary


def kinds() -> dict[str, str]:
    """Each kind with what it shows."""
    names = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem != "__init__")
    return {name: (_module(name).__doc__ or "").strip().splitlines()[0] for name in names}


def draw(kind: str, summary: Summary) -> Figure:
    """Draw one kind of plot.

    Raises:
        UsageError: there is no such kind.
        ResultError: the summary holds nothing to show.
    """
    if kind not in kinds():
        raise UsageError(f"--kind {kind}: unknown{nearest(kind, kinds())}")
    return cast("Figure", _module(kind).draw(summary))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"benchsuite.report.plots.{name}")
