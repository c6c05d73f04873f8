"""What limits each job, with bars of the time and of the units of its GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchsuite.report.format import number, whole
from benchsuite.report.read.summary import Summary
from benchsuite.report.read.use import Use
from benchsuite.report.show.sections.limited import known


@dataclass(frozen=True)
class Share:
    """A bar from 0 to 100; `percent` is None if it was not recorded, and `note` stands under the pointer."""

    percent: float | None
    note: str = ""

    @property
    def text(self) -> str:
        return "" if self.percent is None else whole(self.percent)

    @property
    def length(self) -> float:
        """The length of the bar, at most 100."""
        return round(min(100.0, max(0.0, self.percent or 0.0)), 1)


@dataclass(frozen=True)
class Limited:
    """A job: the class of its bottleneck, the evidence, and a bar for each of `Utilisation.names`."""

    job: str
    by: str
    evidence: str
    shares: tuple[Share, ...]


@dataclass(frozen=True)
class Utilisation:
    """The jobs on GPUs. A bar that no job records is left out of `names`."""

    names: tuple[str, ...]
    jobs: tuple[Limited, ...]


def utilisation(summary: Summary) -> Utilisation | None:
    """A row for each job on GPUs; None if the limit of no job is known."""
    found = known(summary)
    if not found:
        return None
    uses = {job.name: job.use or Use() for job in summary.jobs}
    bars = {one.job: dict(_shares(uses[one.job], _card_bytes(summary))) for one in found}
    every = list(dict.fromkeys(name for of in bars.values() for name in of))
    names = tuple(name for name in every if any(of[name].percent is not None for of in bars.values()))
    rows = (
        Limited(one.job, one.by, "; ".join(one.evidence), tuple(bars[one.job][name] for name in names)) for one in found
    )
    return Utilisation(names, tuple(rows))


def _card_bytes(summary: Summary) -> int | None:
    """The memory of a GPU, if all of the machine's GPUs have the same."""
    sizes = {gpu.memory_bytes for machine in summary.machines for gpu in machine.gpus}
    return sizes.pop() if len(sizes) == 1 else None


def _shares(use: Use, card_bytes: int | None) -> Iterator[tuple[str, Share]]:
    yield "kernel", Share(use.gpu_percent, "time in which a kernel runs")
    yield "input", Share(_hundred(use.input_waiting), "time in which the host waits for the next batch")
    yield "SMs", Share(use.sm_percent, "busy multiprocessors")
    yield "memory BW", Share(use.dram_percent, "device memory bandwidth, of its peak")
    yield "tensor", Share(use.tensor_percent, "tensor cores, of their peak")
    yield "FP32", Share(use.fp32_percent, "FP32 pipe, of its peak")
    power = use.power_w / use.power_limit_w if use.power_w is not None and use.power_limit_w else None
    yield "power", Share(_hundred(power), f"{whole(use.power_w)} of {whole(use.power_limit_w)} W")
    held = use.device_reserved_bytes
    memory = held / card_bytes if held is not None and card_bytes else None
    note = "" if held is None else f"{number(held / 2**30)} GiB at the peak"
    yield "memory", Share(_hundred(memory), note)


def _hundred(share: float | None) -> float | None:
    return None if share is None else 100 * share
