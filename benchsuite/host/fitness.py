"""The state of a GPU that shows whether it is fit: its link, memory errors, limits, and events in the kernel's log.

Source of NVML's meanings: nvml.h of the NVML API reference.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchsuite.describe.tasks import Gpu
from benchsuite.host import nvml
from benchsuite.host.device import clock_events
from benchsuite.host.nvml import Absent
from benchsuite.telemetry import SLOWING

KERNEL_LOG = Path("/dev/kmsg")
# "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, *(.*))?")
_RECORD_BYTES = 8192  # the kernel refuses to give a record to a smaller buffer


@dataclass(frozen=True)
class GpuState:
    """A GPU at one moment; None: not reported, and `reasons` says why.

    Attributes:
        pcie_generation, pcie_width: of the link now. A GPU that is idle may lower its generation to save power.
        pcie_generation_max, pcie_width_max: what the GPU in this slot can reach.
        pcie_replays: packets that the link has sent again since the driver started.
        ecc_corrected, ecc_uncorrected: memory errors since the driver started.
        ecc_corrected_total, ecc_uncorrected_total: memory errors in the life of the card.
        remapped_corrected, remapped_uncorrected: memory rows that were replaced, by the kind of error.
        remap_pending: a row waits to be replaced at the next reset.
        remap_failed: a row could not be replaced.
        slowed_by: names of the clock events that are faults and hold the clocks down now; see `SLOWING`.
        power_limit_default_w: the limit with which the card is delivered.
    """

    gpu: Gpu
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    ecc_corrected_total: int | None = None
    ecc_uncorrected_total: int | None = None
    remapped_corrected: int | None = None
    remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    slowed_by: tuple[str, ...] | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    reasons: dict[str, str] = field(default_factory=dict)


class _Reader:
    """Asks NVML about one card, field by field."""

    def __init__(self, handle: Any) -> None:
        self.found: dict[str, Any] = {}
        self.reasons: dict[str, str] = {}
        self._handle = handle

    def read(self, name: str, convert: Callable[[Any], Any], function: str, *arguments: Any) -> None:
        """Keep the answer as the field `name`, or the reason why there is none."""
        answer = nvml.ask(function, self._handle, *arguments)
        if isinstance(answer, Absent):
            self.reasons[name] = answer.reason
            return
        try:
            self.found[name] = convert(answer)
        except nvml.UNUSABLE:
            self.reasons[name] = nvml.UNREADABLE


def gpu_state(gpu: Gpu) -> GpuState:
    """The state of a GPU now. A card that is gone, or does not answer in time, has no field but the reason of `gpu`."""
    found = nvml.within(nvml.LIMIT_S, _gpu_state, gpu)
    return GpuState(gpu, reasons={"gpu": found.reason}) if isinstance(found, Absent) else found


def _gpu_state(gpu: Gpu) -> GpuState:
    handle = nvml.ask("nvmlDeviceGetHandleByUUID", gpu.parent or gpu.uuid)
    if isinstance(handle, Absent):
        return GpuState(gpu, reasons={"gpu": handle.reason})
    reader = _Reader(handle)
    _read_link(reader)
    _read_memory(reader)
    _read_clocks(reader)
    return GpuState(gpu, **reader.found, reasons=reader.reasons)


def _read_link(reader: _Reader) -> None:
    reader.read("pcie_generation", int, "nvmlDeviceGetCurrPcieLinkGeneration")
    reader.read("pcie_generation_max", int, "nvmlDeviceGetMaxPcieLinkGeneration")
    reader.read("pcie_width", int, "nvmlDeviceGetCurrPcieLinkWidth")
    reader.read("pcie_width_max", int, "nvmlDeviceGetMaxPcieLinkWidth")
    reader.read("pcie_replays", int, "nvmlDeviceGetPcieReplayCounter")


def _read_memory(reader: _Reader) -> None:
    for kind in ("corrected", "uncorrected"):
        error = nvml.constant(f"NVML_MEMORY_ERROR_TYPE_{kind.upper()}")
        for name, counter in ((f"ecc_{kind}", "VOLATILE"), (f"ecc_{kind}_total", "AGGREGATE")):
            reader.read(name, int, "nvmlDeviceGetTotalEccErrors", error, nvml.constant(f"NVML_{counter}_ECC"))
    rows: tuple[tuple[str, Callable[[Any], Any]], ...] = (
        ("remapped_corrected", int),
        ("remapped_uncorrected", int),
        ("remap_pending", bool),
        ("remap_failed", bool),
    )
    for place, (name, convert) in enumerate(rows):
        reader.read(name, partial(_at, place, convert), "nvmlDeviceGetRemappedRows")


def _at(place: int, convert: Callable[[Any], Any], found: Any) -> Any:
    return convert(found[place])


def _read_clocks(reader: _Reader) -> None:
    sm_clock = nvml.constant("NVML_CLOCK_SM")
    reader.read("sm_clock_mhz", int, "nvmlDeviceGetClockInfo", sm_clock)
    reader.read("max_sm_clock_mhz", int, "nvmlDeviceGetMaxClockInfo", sm_clock)
    reader.read("temperature_c", int, "nvmlDeviceGetTemperature", nvml.constant("NVML_TEMPERATURE_GPU"))
    reader.read("power_limit_w", _watts, "nvmlDeviceGetEnforcedPowerLimit")
    reader.read("power_limit_default_w", _watts, "nvmlDeviceGetPowerManagementDefaultLimit")
    reader.read("slowed_by", _slowed_by, "nvmlDeviceGetCurrentClocksEventReasons")
    if "slowed_by" not in reader.found:  # the name of the function in older drivers
        reader.read("slowed_by", _slowed_by, "nvmlDeviceGetCurrentClocksThrottleReasons")
        if "slowed_by" in reader.found:
            del reader.reasons["slowed_by"]


def _watts(milliwatts: Any) -> float:
    return int(milliwatts) / 1000


def _slowed_by(mask: Any) -> tuple[str, ...]:
    return tuple(name for name in clock_events(int(mask)) if name in SLOWING)


@dataclass(frozen=True)
class Xid:
    """An error that NVIDIA's driver has written to the kernel's log.

    Attributes:
        pci: the GPU's PCI address as the driver writes it, such as 0000:3b:00.
        code: the number of the error, see NVIDIA's list of XID errors; 79: the GPU has fallen off the bus.
        text: the rest of the line.
    """

    pci: str
    code: int
    text: str


@dataclass(frozen=True)
class XidLog:
    """The errors in the kernel's log, oldest first.

    Attributes:
        readable: whether the log could be read; if not, `reason` says why, and no error is known.
    """

    events: tuple[Xid, ...] = ()
    readable: bool = True
    reason: str | None = None


def xid_log(file: Path = KERNEL_LOG) -> XidLog:
    """The XID errors since the boot, as far as the kernel's log still holds them.

    Most kernels show their log only to root or a process with CAP_SYSLOG, and a container may lack the file. NVML
    reports such errors only while a process waits for them, so that it is no substitute.
    """
    try:
        records = _records(file)
    except PermissionError:
        return XidLog(readable=False, reason=f"{file} may not be read: run as root, or see 'sudo dmesg'")
    except OSError as error:
        return XidLog(readable=False, reason=f"{file} cannot be read: {error.strerror or error}")
    if not any(records):
        return XidLog(readable=False, reason=f"{file} is empty, as in some containers: see 'dmesg' on the host")
    found = (_XID.search(record) for record in records)
    return XidLog(tuple(Xid(one[1], int(one[2]), (one[3] or "").strip()) for one in found if one))


def _records(file: Path) -> list[str]:
    """The records of the kernel's log. A read of /dev/kmsg gives one record; of a plain file, a part of it.

    Raises:
        OSError: the file cannot be opened or read.
    """
    records: list[bytes] = []
    log = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                record = os.read(log, _RECORD_BYTES)
            except BlockingIOError:  # no more records
                break
            except BrokenPipeError:  # records were overwritten while they were read; the next read goes on after them
                continue
            if not record:
                break
            records.append(record)
    finally:
        os.close(log)
    return b"".join(records).decode("utf-8", errors="replace").split("\n")
