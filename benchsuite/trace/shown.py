"""The analyses of traces as documents, which every renderer of reports shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchsuite.errors import ResultError, one_line
from benchsuite.measurement import MemoryCurve
from benchsuite.report.format import count, number, percent, share, whole
from benchsuite.report.show.document import Column, Document, Fact, Part, Section, fact, sentence, table
from benchsuite.trace.kernels import short_name
from benchsuite.trace.memory import TOLERANCE, off
from benchsuite.trace.ncu import CoreUse, NcuUse
from benchsuite.trace.nvprof import Fp32Kernel, Fp32Use
from benchsuite.trace.parts import WindowPart, parts_of
from benchsuite.trace.timeline import Timeline
from benchsuite.trace.utilisation import GpuUse, KernelUse

TOP = 10
_KINDS = {
    "weights": "parameters and buffers",
    "optimiser state": "momenta and the like",
    "gradients": "of parameters",
    "activations": "tensors that autograd keeps for the backward pass",
    "temporary": "all else that steps allocate: workspaces, outputs, batches, gradients of activations",
    "other": "allocated before the recording and of no known kind, such as a batch or a CUDA graph's pool",
}


def timeline_document(path: Path, timeline: Timeline, uses: tuple[GpuUse, ...], top: int = TOP) -> Document:
    """Where the time of a timeline goes, GPU by GPU.

    Raises:
        ResultError: no GPU did anything in the trace.
    """
    name = one_line(str(path))
    if not uses:
        raise ResultError(
            f"{name}: no kernel of a GPU in the trace: it was recorded without ProfilerActivity.CUDA, on a CPU, or "
            "outside of any step"
        )
    steps = f"{count(len(timeline.steps), 'step')}" if timeline.steps else "no step is marked: first to last GPU work"
    intro = tuple(
        sentence(
            f"GPU {use.device} runs kernels for {percent(use.utilisation)} of {use.window_s:.4f} s; {_most_idle(use)}."
        )
        for use in uses
    )
    sections = [section for use in uses for section in _gpu(use, top)]
    facts = (
        fact("Window", f"{uses[0].window_s:.6f} s ({steps})"),
        fact(
            "Host",
            f"{whole(timeline.host_calls)} calls of CUDA, {number(timeline.host_calls / uses[0].window_s)} a second",
        ),
        fact(
            "Source", f"{name}, a timeline of torch.profiler. The profiler slows the host: idle time is an upper bound."
        ),
    )
    return Document(f"Timeline {name}", intro, None, (*sections, Section("Trace", (facts,))), None)


def _most_idle(use: GpuUse) -> str:
    causes = {
        "the data loader": use.idle.input_s,
        "the host's wait for the GPU (sync)": use.idle.sync_s,
        "the host, which launches too late": use.idle.host_s,
        "gaps in the queue": use.idle.queue_s,
    }
    cause, longest = max(causes.items(), key=lambda item: item[1])
    return (
        f"most idle time ({percent(longest / use.window_s)}) is due to {cause}" if longest > 0 else "it is never idle"
    )


def _gpu(use: GpuUse, top: int) -> list[Section]:
    window = use.window_s
    parts = parts_of(use)
    divided = table(
        (
            Column[WindowPart]("part", lambda part: part.name),
            Column[WindowPart]("ms", lambda part: 1e3 * part.elapsed_s, number, right=True),
            Column[WindowPart]("%", lambda part: part.elapsed_s / part.window_s, share, right=True),
            Column[WindowPart]("when", lambda part: part.meaning, rank=1, prose=True),
        ),
        parts,
    )
    overlap: list[Fact] = []
    if use.hidden_communication is not None:
        overlap.append(
            fact("Collectives", f"{percent(use.hidden_communication)} of their time is hidden by other kernels")
        )
    if use.hidden_copies is not None:
        overlap.append(fact("Copies", f"{percent(use.hidden_copies)} of their time is hidden by kernels"))
    gpu = f"GPU {use.device}"
    first: tuple[Part, ...] = (divided, tuple(overlap)) if overlap else (divided,)
    return [
        Section(f"{gpu}: the window divided", first),
        Section(f"{gpu}: classes of kernels", (_kernels(use.classes, window, lambda one: one.name),)),
        Section(
            f"{gpu}: kernels ({min(top, len(use.kernels))} of {len(use.kernels)})",
            (_kernels(use.kernels[:top], window, lambda one: short_name(one.name), kind=True),),
        ),
    ]


def _kernels(
    uses: tuple[KernelUse, ...], window_s: float, name: Callable[[KernelUse], str], *, kind: bool = False
) -> Part:
    columns = [
        Column[KernelUse]("kernel" if kind else "class", name, prose=kind),
        Column[KernelUse]("launches", lambda one: one.launches, whole, right=True),
        Column[KernelUse]("ms", lambda one: 1e3 * one.elapsed_s, number, right=True),
        Column[KernelUse]("µs each", lambda one: 1e6 * one.elapsed_s / one.launches, number, right=True, rank=1),
        Column[KernelUse]("% of window", lambda one: one.elapsed_s / window_s, share, right=True),
    ]
    if kind:
        columns.append(Column[KernelUse]("class", lambda one: one.kind, rank=2))
    return table(columns, uses)


def ncu_document(path: Path, use: NcuUse, top: int = TOP) -> Document:
    """How much each kind of cores works while kernels run."""
    known = [core for core in use.cores if core.percent is not None]
    highest = max(known, key=lambda core: core.percent or 0.0, default=None)
    first = (
        f"While kernels run, {highest.cores} is the busiest kind of cores: {highest.percent:.1f} % of its peak."
        if highest
        else "The table has no metric of the cores' use; profile with the metrics that are named below."
    )
    cores = table(
        (
            Column[CoreUse]("cores", lambda core: core.cores),
            Column[CoreUse](
                "% of peak", lambda core: core.percent, lambda v: "n/a" if v is None else f"{v:.3f}", right=True
            ),
            Column[CoreUse]("kernels", lambda core: core.kernels, whole, right=True),
            Column[CoreUse]("metric", lambda core: core.metric, rank=1, prose=True),
        ),
        use.cores,
        "Means over the kernels, weighted by their cycles; time between kernels does not count.",
    )
    by_kernel = table(
        (
            Column[tuple[str, int, float]]("kernel", lambda row: short_name(row[0]), prose=True),
            Column[tuple[str, int, float]]("launches", lambda row: row[1], whole, right=True),
            Column[tuple[str, int, float]]("% of cycles", lambda row: row[2], share, right=True),
        ),
        use.by_kernel[:top],
    )
    facts = [
        fact("Kernels", f"{count(use.launches, 'launch').replace('launchs', 'launches')}, {whole(use.cycles)} cycles")
    ]
    if use.time_s is not None:
        facts.append(fact("Time", f"{1e3 * use.time_s:.3f} ms in kernels"))
    if use.flops is not None and use.time_s:
        facts.append(
            fact("FP32", f"{use.flops / use.time_s / 1e12:.3f} TFLOP/s outside of tensor cores, while kernels run")
        )
    facts.append(fact("Source", f"{one_line(str(path))}, a table of Nsight Compute"))
    title = f"Kernels ({min(top, len(use.by_kernel))} of {len(use.by_kernel)})"
    sections = (Section("Use of the cores", (cores,)), Section(title, (by_kernel,)), Section("Table", (tuple(facts),)))
    return Document(f"Use of the cores {one_line(str(path))}", (sentence(first),), None, sections, None)


def memory_document(path: Path, curve: MemoryCurve) -> Document:
    """What the memory holds at its peak, by kind."""
    total = sum(curve.at_peak.values())
    largest = max(curve.at_peak, key=lambda kind: curve.at_peak[kind])
    kinds = table(
        (
            Column[str]("kind", str),
            Column[str]("GiB", lambda kind: curve.at_peak[kind] / 2**30, number, right=True),
            Column[str]("%", lambda kind: curve.at_peak[kind] / total if total else None, share, right=True),
            Column[str]("what it is", lambda kind: _KINDS.get(kind, ""), rank=1, prose=True),
        ),
        list(curve.at_peak),
    )
    apart = off(curve)
    facts = [
        fact("Peak", f"{total / 2**30:.3f} GiB, {curve.peak_at_s:.4f} s after the recording began"),
        fact("Allocator", f"{curve.peak_bytes / 2**30:.3f} GiB handed out at its own peak"),
        fact("Cache", f"{curve.reserved_bytes / 2**30:.3f} GiB reserved by torch at its own peak"),
        fact(
            "Driver",
            f"{curve.device_used_bytes / 2**30:.3f} GiB in use on the device, contexts and other processes included",
        ),
        fact("Source", f"{one_line(str(path))}, a recording of torch's allocator"),
    ]
    intro = [
        sentence(
            f"Of {total / 2**30:.2f} GiB at the peak, {largest} are {percent(curve.at_peak[largest] / max(total, 1))}."
        )
    ]
    if apart is not None and abs(apart) > TOLERANCE:
        intro.append(
            sentence(
                f"The recorded peak is {percent(apart)} off the allocator's own: the table does not hold all memory.",
                "warn",
            )
        )
    sections = (Section("Memory at the peak", (kinds, tuple(facts))),)
    return Document(f"Memory {one_line(str(path))}", tuple(intro), None, sections, None)


def fp32_document(path: Path, use: Fp32Use, top: int = TOP) -> Document:
    """The use of the fp32 units from a table of nvprof."""
    kernels = table(
        (
            Column[Fp32Kernel]("kernel", lambda one: short_name(one.name), prose=True),
            Column[Fp32Kernel]("% of time", lambda one: one.share, share, right=True),
            Column[Fp32Kernel]("fp32 units, 0 to 10", lambda one: one.level, number, right=True),
            Column[Fp32Kernel]("against the mean", lambda one: _against(one, use), rank=1),
        ),
        use.kernels[:top],
    )
    facts = [
        fact("Time", f"{1e3 * use.total_s:.3f} ms in kernels"),
        fact("Source", f"{one_line(str(path))}, a table of nvprof; levels of 10 % each"),
    ]
    if use.unknown:
        facts.insert(0, fact("Without a level", f"{count(use.unknown, 'row')}; they count as 0"))
    first = sentence(f"While kernels run, the fp32 units work at {use.percent:.2f} % of their peak.")
    title = f"Kernels ({min(top, len(use.kernels))} of {len(use.kernels)})"
    sections = (Section(title, (kernels,)), Section("Table", (tuple(facts),)))
    return Document(f"Use of the fp32 units {one_line(str(path))}", (first,), None, sections, None)


def _against(one: Fp32Kernel, use: Fp32Use) -> str:
    mean = use.percent / 10
    return "above" if one.level > mean else "below" if one.level < mean else "equal"
