"""Recognise which tool wrote a file, and analyse it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchsuite.errors import ResultError, one_line, reason
from benchsuite.report.show.document import Document
from benchsuite.trace import memory, ncu, nvprof, shown, timeline, utilisation
from benchsuite.trace.chrome import opened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Tool = Literal["timeline", "memory", "ncu", "nvprof"]
_HEAD_CHARACTERS = 1 << 20


@dataclass(frozen=True)
class Analysis:
    """What a file shows: as a document for people, as plain values for programs, and as a picture if it has one."""

    tool: Tool
    document: Document
    values: dict[str, Any]
    figure: Callable[[], Figure] | None = None


def analysis(path: Path, top: int = shown.TOP) -> Analysis:
    """The analysis of a file that a profiler wrote.

    Args:
        top: how many kernels the document lists.

    Raises:
        ResultError: the file is of no known tool, or cannot be read as one of it.
    """
    tool = tool_of(path)
    if tool == "timeline":
        read = timeline.read(path)
        uses = utilisation.analysed(read)
        document = shown.timeline_document(path, read, uses, top)
        gpus = [{**asdict(use), "utilisation": use.utilisation, "busy": use.busy} for use in uses]
        values = {"tool": tool, "steps": len(read.steps), "gpus": gpus}
        return Analysis(tool, document, values, lambda: _plots().timeline_figure(path, uses))
    if tool == "memory":
        curve = memory.read(path)
        values = {"tool": tool, **{name: getattr(curve, name) for name in curve.__struct_fields__ if name != "points"}}
        document = shown.memory_document(path, curve)
        return Analysis(tool, document, values, lambda: _plots().memory_figure(path, curve))
    if tool == "ncu":
        use = ncu.analysed(path, ncu.read(path))
        document = shown.ncu_document(path, use, top)
        return Analysis(tool, document, {"tool": tool, **asdict(use)}, lambda: _plots().ncu_figure(path, use))
    fp32 = nvprof.fp32_use(path)
    return Analysis(tool, shown.fp32_document(path, fp32, top), {"tool": tool, **asdict(fp32)})


def _plots() -> Any:
    """The module that draws. matplotlib is slow to import, and most calls draw nothing."""
    from benchsuite.trace import plots

    return plots


def tool_of(path: Path) -> Tool:
    """The tool that wrote a file, by its first characters.

    Raises:
        ResultError: the file cannot be read, is empty, or is of no known tool.
    """
    try:
        with opened(path) as file:
            head = file.read(_HEAD_CHARACTERS)
    except (OSError, EOFError) as error:
        why = reason(error) if isinstance(error, OSError) else "the compressed data is cut off"
        raise ResultError(f"{one_line(str(path))}: cannot be read: {why}") from None
    if not head.strip():
        raise ResultError(f"{one_line(str(path))}: the file is empty")
    if head.lstrip()[0] in "{[":
        return "memory" if '"kind":"memory"' in head[:200] else "timeline"
    if nvprof.FP32 in head:
        return "nvprof"
    if '"Kernel Name"' in head or "==PROF==" in head or "==ERROR==" in head:
        return "ncu"
    raise ResultError(
        f"{one_line(str(path))}: no trace that is known: give the JSON of torch.profiler, the output of ncu --csv, or "
        "a table of nvprof"
    )
