"""One GPU at one moment, as NVML reports it; found by its UUID and never by a number."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchsuite.describe.tasks import Gpu
from benchsuite.host import nvml
from benchsuite.host.gpm import Gpm
from benchsuite.host.nvml import Absent, GpuLost
from benchsuite.telemetry import DeviceSample, GpuProcess

# Source: nvmlClocksEventReason* (once ...ThrottleReason*) of nvml.h.
CLOCK_EVENTS = {
    0x001: "idle",
    0x002: "applications_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal",
    0x040: "hw_thermal",
    0x080: "hw_power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}
# What the instances of a card that MIG divides share.
_OF_THE_CARD = ("energy_j", "power_w")
# What NVML writes if it has no value, in 32 and 64 bits: NVML_VALUE_NOT_AVAILABLE.
_NO_VALUE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)


def clock_events(mask: int) -> tuple[str, ...]:
    """The names of the bits that are set, lowest first; `bit_N` for an unknown one."""
    bits = (bit for bit in range(64) if mask >> bit & 1)
    return tuple(CLOCK_EVENTS.get(1 << bit, f"bit_{bit}") for bit in bits)


class Device:
    """Reads one GPU. `reasons` gets, for each field without a value, the last reason for it."""

    def __init__(self, gpu: Gpu, reasons: dict[str, str]) -> None:
        """Look the GPU up.

        Raises:
            GpuLost: NVML no longer knows it.
        """
        self.reasons = reasons
        self._handle = nvml.ask("nvmlDeviceGetHandleByUUID", gpu.uuid)
        if isinstance(self._handle, Absent):
            raise GpuLost(self._handle.reason)
        self._part = gpu.parent is not None
        self._gpm = Gpm(self._handle)

    def sample(self) -> DeviceSample:
        """All fields at one moment; None for those without a value.

        Raises:
            GpuLost: the device fell off the bus or needs a reset.
        """
        # Energy is read right after the clock, so that energy over time is right to a fraction of a millisecond.
        found: dict[str, Any] = {"monotonic_s": time.monotonic()}
        found["energy_j"] = self._number("energy_j", "nvmlDeviceGetTotalEnergyConsumption", scale=1000)
        found["power_w"] = self._number("power_w", "nvmlDeviceGetPowerUsage", scale=1000)
        busy = self._ask("nvmlDeviceGetUtilizationRates")
        found["gpu_percent"] = self._keep("gpu_percent", busy, lambda b: float(b.gpu))
        found["memory_busy_percent"] = self._keep("memory_busy_percent", busy, lambda b: float(b.memory))
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        found["memory_used_bytes"] = self._keep("memory_used_bytes", memory, lambda m: int(m.used))
        for field, clock in (("sm_clock_mhz", "NVML_CLOCK_SM"), ("memory_clock_mhz", "NVML_CLOCK_MEM")):
            found[field] = self._number(field, "nvmlDeviceGetClockInfo", nvml.constant(clock))
        found["temperature_c"] = self._keep("temperature_c", self._temperature(), int)
        found["clock_events"] = self._keep("clock_events", self._events(), clock_events)
        for field, kind in (("ecc_corrected", "CORRECTED"), ("ecc_uncorrected", "UNCORRECTED")):
            error = nvml.constant(f"NVML_MEMORY_ERROR_TYPE_{kind}")
            found[field] = self._number(field, "nvmlDeviceGetTotalEccErrors", error, nvml.constant("NVML_VOLATILE_ECC"))
        running = self._ask("nvmlDeviceGetComputeRunningProcesses")
        found["processes"] = self._keep("processes", running, lambda ps: tuple(map(_process, ps)))
        for field, value in self._gpm.read().items():
            found[field] = self._keep(field, value, float)
        return DeviceSample(**found)

    def close(self) -> None:
        """Release what NVML holds for this device."""
        self._gpm.close()

    def _ask(self, function: str, *arguments: Any) -> Any:
        return nvml.ask(function, self._handle, *arguments)

    def _number(self, field: str, function: str, *arguments: Any, scale: int | None = None) -> Any:
        whole = self._part and field in _OF_THE_CARD
        answer = Absent("MIG: known of the whole card only") if whole else self._ask(function, *arguments)
        return self._keep(field, answer, (lambda n: n / scale) if scale else int)

    def _temperature(self) -> Any:
        sensor = nvml.constant("NVML_TEMPERATURE_GPU")
        answer = self._ask("nvmlDeviceGetTemperatureV", sensor)
        return self._ask("nvmlDeviceGetTemperature", sensor) if isinstance(answer, Absent) else answer

    def _events(self) -> Any:
        answer = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        return self._ask("nvmlDeviceGetCurrentClocksThrottleReasons") if isinstance(answer, Absent) else answer

    def _keep(self, field: str, answer: Any, convert: Callable[[Any], Any]) -> Any:
        """The answer converted, or None with its reason noted."""
        if isinstance(answer, Absent):
            if answer.lost:
                raise GpuLost(answer.reason)
            self.reasons[field] = answer.reason
            return None
        if isinstance(answer, int) and answer in _NO_VALUE:
            self.reasons[field] = "NVML has no value for it"
            return None
        try:
            return convert(answer)
        except nvml.UNUSABLE:
            self.reasons[field] = nvml.UNREADABLE
            return None


def _process(process: Any) -> GpuProcess:
    pid = int(process.pid)
    memory = process.usedGpuMemory
    return GpuProcess(pid=pid, memory_bytes=None if memory is None else int(memory), here=Path(f"/proc/{pid}").exists())
