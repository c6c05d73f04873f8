"""What NVML and the kernel say of a node's GPUs before and after the probes; kept beside the run and judged.

A value of None was not reported. `reasons` then says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from benchsuite.files import look
from benchsuite.health.rules import Rules
from benchsuite.health.verdict import Outcome, Ruling, Word
from benchsuite.report.format import count
from benchsuite.rundir import read_record
from benchsuite.schema import SCHEMA, Record

# Below `logs/`, which neither the manifest nor a reader of results looks at.
FILE = "logs/health.json"


class GpuFacts(Record, frozen=True, kw_only=True):
    """The state of a GPU at one moment."""

    uuid: str
    index: Annotated[int, Meta(description="place among the GPUs that this run may use")]
    pci: Annotated[str, Meta(description="PCI address")] = ""
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    ecc_corrected: Annotated[int | None, Meta(description="since the driver started")] = None
    ecc_uncorrected: Annotated[int | None, Meta(description="since the driver started")] = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    slowed_by: tuple[str, ...] | None = None
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    reasons: Annotated[dict[str, str], Meta(description="field -> why it is null")] = {}


class XidEvent(Record, frozen=True, kw_only=True):
    """An event of NVIDIA's driver in the kernel's log."""

    pci: str
    code: int
    text: str = ""


class NodeState(Record, frozen=True, kw_only=True):
    """The GPUs and the kernel's log at one moment."""

    gpus: tuple[GpuFacts, ...] = ()
    xids: Annotated[tuple[XidEvent, ...] | None, Meta(description="since boot; null: see `xid_reason`")] = None
    xid_reason: str | None = None


class Watched(Record, frozen=True, kw_only=True):
    """What `benchsuite health` keeps beside a run."""

    schema: int = SCHEMA
    kind: Literal["watched"] = "watched"
    mode: Annotated[str, Meta(description="quick, accept or soak")]
    expected_gpus: Annotated[int | None, Meta(description="GPUs that the node is to have; null: not given")] = None
    before: NodeState
    after: NodeState


def read_watched(folder: Path) -> Watched | None:
    """What was kept beside a run; None if it is no run of `benchsuite health`.

    Raises:
        ResultError: the file is damaged.
    """
    file = folder / FILE
    return read_record(file, Watched) if look(file) == "file" else None


def of_gpu(before: GpuFacts, after: GpuFacts, state: NodeState, rules: Rules) -> Iterator[Outcome]:
    """The outcomes of a GPU's own state.

    Args:
        state: after the run.
    """
    if gone := after.reasons.get("gpu"):
        cause = "a GPU that fell off the bus, or needs a reset"
        yield _outcome("answers", after, "FAIL", f"it does not answer: {gone}", "nvidia-smi -L", cause=cause)
        return
    yield _ecc(before, after)
    yield _remapping(after)
    yield _pcie(before, after)
    yield _power(after)
    yield _xids(after, state, rules)


def _outcome(check: str, gpu: GpuFacts, word: Word, reason: str, command: str, **fields: object) -> Outcome:
    ruling = Ruling(rule="state", word=word, reason=reason)
    more = {"value": None, "unit": "", "cause": None, **fields}
    return msgspec.convert(
        {
            "check": check.lower().replace(" ", "_"),
            "title": check,
            "place": f"GPU {gpu.index}",
            "uuids": (gpu.uuid,),
            "word": word,
            "reason": reason,
            "command": command,
            "rulings": (ruling,),
            **more,
        },
        Outcome,
    )


def _unknown(gpu: GpuFacts, *fields: str) -> str | None:
    """Why NVML reports none of these fields; None if it reports one."""
    if any(getattr(gpu, name) is not None for name in fields):
        return None
    return next((gpu.reasons[name] for name in fields if name in gpu.reasons), "NVML does not report it")


def _ecc(before: GpuFacts, after: GpuFacts) -> Outcome:
    show = f"nvidia-smi -q -d ECC -i {after.uuid}"
    if why := _unknown(after, "ecc_uncorrected", "ecc_corrected"):
        return _outcome("ECC", after, "NOT RUN", why, show)
    if after.ecc_uncorrected:
        reason = f"{count(after.ecc_uncorrected, 'uncorrected memory error')} since the driver started"
        return _outcome(
            "ECC", after, "FAIL", reason, show, cause="faulty memory; reset the GPU, replace it if they return"
        )
    new = (after.ecc_corrected or 0) - (before.ecc_corrected or 0)
    if new > 0:
        return _outcome("ECC", after, "WARN", f"{count(new, 'memory error')} corrected during the probes", show)
    return _outcome("ECC", after, "PASS", "no uncorrected memory error", show)


def _remapping(gpu: GpuFacts) -> Outcome:
    show = f"nvidia-smi -q -d ROW_REMAPPER -i {gpu.uuid}"
    if why := _unknown(gpu, "remap_pending", "remap_failed"):
        return _outcome("row remapping", gpu, "NOT RUN", why, show)
    if gpu.remap_failed:
        return _outcome("row remapping", gpu, "FAIL", "a memory row could not be remapped", show, cause="faulty memory")
    if gpu.remap_pending:
        reason = "a memory row waits to be remapped until the GPU is reset"
        return _outcome("row remapping", gpu, "FAIL", reason, show, cause="faulty memory row")
    return _outcome("row remapping", gpu, "PASS", "nothing pending, nothing failed", show)


def trained_down(gpu: GpuFacts) -> str | None:
    """The PCIe link in words if it has fewer lanes than both ends support; None if it has all, or is not known."""
    if gpu.pcie_width is None or gpu.pcie_width_max is None or gpu.pcie_width >= gpu.pcie_width_max:
        return None
    return f"its PCIe link has {gpu.pcie_width} of {gpu.pcie_width_max} lanes"


def _pcie(before: GpuFacts, after: GpuFacts) -> Outcome:
    show = f"nvidia-smi --query-gpu=pcie.link.width.current,pcie.link.gen.current --format=csv -i {after.uuid}"
    if why := _unknown(after, "pcie_width", "pcie_generation"):
        return _outcome("PCIe link", after, "NOT RUN", why, show)
    figure = {"value": f"generation {after.pcie_generation or '?'} x{after.pcie_width or '?'}"}
    if narrow := trained_down(after):
        cause = "a PCIe link that is trained down; reseat the card or riser"
        return _outcome("PCIe link", after, "FAIL", narrow, show, cause=cause, **figure)
    # An idle card lowers its generation to save power, so that a low one is no proof. Slow copies are.
    best = max(before.pcie_generation or 0, after.pcie_generation or 0)
    low = best and after.pcie_generation_max and best < after.pcie_generation_max
    lanes = (
        f"all lanes; generation {best} of {after.pcie_generation_max}, as idle cards may choose" if low else "all lanes"
    )
    return _outcome("PCIe link", after, "PASS", lanes, show, **figure)


def low_generation(gpu: GpuFacts) -> str | None:
    """The PCIe generation in words if it was below the highest; None if it was not, or is not known."""
    now, highest = gpu.pcie_generation, gpu.pcie_generation_max
    return f"its PCIe link is at generation {now} of {highest}" if now and highest and now < highest else None


def lowered_limit(gpu: GpuFacts) -> str | None:
    """The power limit in words if it is below the card's default; None if it is not, or not known."""
    now_w, default_w = gpu.power_limit_w, gpu.power_limit_default_w
    if now_w is None or default_w is None or now_w >= default_w:
        return None
    return f"its power limit is {now_w:.0f} W of {default_w:.0f} W"


def _power(gpu: GpuFacts) -> Outcome:
    show = f"nvidia-smi -q -d POWER -i {gpu.uuid}"
    if why := _unknown(gpu, "power_limit_w", "power_limit_default_w"):
        return _outcome("power limit", gpu, "NOT RUN", why, show)
    if lowered := lowered_limit(gpu):
        return _outcome("power limit", gpu, "WARN", lowered, show)
    return _outcome("power limit", gpu, "PASS", "not below the card's default", show)


def _xids(gpu: GpuFacts, state: NodeState, rules: Rules) -> Outcome:
    show = "dmesg | grep -i xid"
    if state.xids is None:
        return _outcome("XID", gpu, "NOT RUN", state.xid_reason or "the kernel's log was not read", show)
    own = [event for event in state.xids if _same_card(event.pci, gpu.pci)]
    faults = [event for event in own if rules.xids and event.code in rules.xids.fail]
    if faults:
        codes = ", ".join(str(code) for code in dict.fromkeys(event.code for event in faults))
        cause = f"the driver reported: {faults[-1].text}" if faults[-1].text else None
        return _outcome("XID", gpu, "FAIL", f"XID {codes} since boot", show, cause=cause)
    if own:
        codes = ", ".join(str(code) for code in dict.fromkeys(event.code for event in own))
        return _outcome("XID", gpu, "WARN", f"XID {codes} since boot, which programs can cause", show)
    return _outcome("XID", gpu, "PASS", "none since boot", show)


def _same_card(one: str, other: str) -> bool:
    """Whether two PCI addresses are the same; domain and function may be missing or padded."""
    return _bus(one) == _bus(other) != ""


def _bus(address: str) -> str:
    parts = address.lower().removeprefix("pci:").partition(".")[0].split(":")
    if len(parts) < 2:
        return ""
    return ":".join(part.lstrip("0") or "0" for part in ["0", *parts][-3:])
