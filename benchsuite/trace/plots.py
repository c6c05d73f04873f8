"""Pictures of the analyses: memory by kind over time, and the parts of each GPU's window."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from benchsuite.errors import one_line
from benchsuite.measurement import MEMORY_KINDS, MemoryCurve
from benchsuite.report.show.axes import GREY, PALETTE, caption
from benchsuite.trace.ncu import NcuUse
from benchsuite.trace.parts import parts_of
from benchsuite.trace.utilisation import GpuUse

_COLOURS = dict(zip(MEMORY_KINDS, (*PALETTE[:5], GREY), strict=True))


def memory_figure(path: Path, curve: MemoryCurve) -> Figure:
    """GiB of each kind over milliseconds, stacked, with the allocator's own peak as a line."""
    figure = Figure(figsize=(10.0, 5.0), layout="constrained")
    axes = figure.subplots()
    at_ms = [1e3 * point[0] for point in curve.points]
    kinds = [[point[1 + place] / 2**30 for point in curve.points] for place in range(len(MEMORY_KINDS))]
    axes.stackplot(at_ms, *kinds, labels=MEMORY_KINDS, colors=[_COLOURS[kind] for kind in MEMORY_KINDS], step="post")
    axes.axhline(curve.peak_bytes / 2**30, color="black", linestyle="--", linewidth=1, label="allocator's own peak")
    axes.set(xlabel="ms since the recording began", ylabel="GiB", xlim=(at_ms[0], max(at_ms[-1], at_ms[0] + 1e-6)))
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    caption(
        figure,
        f"Memory of the GPU by kind: {one_line(path.name)}",
        [f"{len(at_ms)} points; each is the moment with the most memory among its neighbours"],
    )
    return figure


def timeline_figure(path: Path, uses: tuple[GpuUse, ...]) -> Figure:
    """The parts of the window of each GPU in percent, one bar a GPU."""
    figure = Figure(figsize=(10.0, 1.8 + 0.5 * len(uses)), layout="constrained")
    axes = figure.subplots()
    names = [f"GPU {use.device}" for use in uses]
    left = [0.0] * len(uses)
    colours = (*PALETTE[:3], *PALETTE[3:7])
    for place, part in enumerate(parts_of(uses[0])):
        widths = [100 * parts_of(use)[place].elapsed_s / use.window_s for use in uses]
        axes.barh(names, widths, left=left, color=colours[place], label=f"{part.name} ({widths[0]:.1f} %)")
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set(xlabel="% of the window", xlim=(0, 100))
    axes.invert_yaxis()
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
    windows = ", ".join(f"{use.window_s:.4f} s" for use in uses)
    caption(
        figure,
        f"Where the time goes: {one_line(path.name)}",
        [f"window: {windows}; percentages of GPU {uses[0].device}"],
    )
    return figure


def ncu_figure(path: Path, use: NcuUse) -> Figure:
    """The use of each kind of cores in percent of its peak; kinds without a metric have no bar and say so."""
    figure = Figure(figsize=(8.0, 1.5 + 0.4 * len(use.cores)), layout="constrained")
    axes = figure.subplots()
    names = [core.cores if core.percent is not None else f"{core.cores} (n/a)" for core in use.cores]
    bars = axes.barh(names, [core.percent or 0.0 for core in use.cores], color=PALETTE[0])
    axes.bar_label(bars, [f"{core.percent:.1f}" if core.percent is not None else "" for core in use.cores], padding=3)
    axes.set(xlabel="% of the peak while kernels run", xlim=(0, 105))
    axes.invert_yaxis()
    caption(figure, f"Use of the cores: {one_line(path.name)}", [f"{use.launches} launches, weighted by cycles"])
    return figure
