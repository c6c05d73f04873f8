"""How busy the units of a GPU are, by NVML's GPM (Hopper and newer), which compares two samples of the device."""

from __future__ import annotations

import math
from typing import Any

from benchsuite.host import nvml
from benchsuite.host.nvml import Absent

# Field of a DeviceSample -> metric. Source: the NVML_GPM_METRIC_* ids of nvml.h; per cent of the peak, or MiB/s.
METRICS = {
    "sm_percent": "SM_UTIL",
    "occupancy_percent": "SM_OCCUPANCY",
    "tensor_percent": "ANY_TENSOR_UTIL",
    "fp64_percent": "FP64_UTIL",
    "fp32_percent": "FP32_UTIL",
    "fp16_percent": "FP16_UTIL",
    "dram_percent": "DRAM_BW_UTIL",
    "pcie_tx_mib_s": "PCIE_TX_PER_SEC",
    "pcie_rx_mib_s": "PCIE_RX_PER_SEC",
    "nvlink_tx_mib_s": "NVLINK_TOTAL_TX_PER_SEC",
    "nvlink_rx_mib_s": "NVLINK_TOTAL_RX_PER_SEC",
}


class Gpm:
    """The metrics of one device since the previous reading. Two samples are kept and take turns."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._before: Any = None
        self._spare: Any = None
        self._ids = [nvml.constant(f"NVML_GPM_METRIC_{name}") for name in METRICS.values()]
        self.unsupported = self._why_not()

    def _why_not(self) -> Absent | None:
        support = nvml.ask("nvmlGpmQueryDeviceSupport", self._handle)
        if isinstance(support, Absent):
            return support
        supported = getattr(support, "isSupportedDevice", False)
        return None if supported else Absent("GPM: not supported by this device")

    def read(self) -> dict[str, float | Absent]:
        """Each metric since the last call; the first call only takes its sample."""
        if self.unsupported:
            return dict.fromkeys(METRICS, self.unsupported)
        after = self._sample()
        if isinstance(after, Absent):
            return dict.fromkeys(METRICS, after)
        before, self._before = self._before, after
        if before is None:
            return dict.fromkeys(METRICS, Absent("GPM: needs two samples"))
        values = nvml.gpm_metrics(before, after, self._ids)
        self._spare = before
        if isinstance(values, Absent):
            return dict.fromkeys(METRICS, values)
        absent = Absent("GPM: this device does not give it")
        return {name: v if math.isfinite(v) else absent for name, v in zip(METRICS, values, strict=True)}

    def _sample(self) -> Any:
        into = self._spare if self._spare is not None else nvml.ask("nvmlGpmSampleAlloc")
        if isinstance(into, Absent):
            return into
        self._spare = into
        taken = nvml.ask("nvmlGpmSampleGet", self._handle, into)
        if not isinstance(taken, Absent):
            self._spare = None
        return taken

    def close(self) -> None:
        """Free the samples."""
        for sample in (self._before, self._spare):
            if sample is not None:
                nvml.ask("nvmlGpmSampleFree", sample)
        self._before = self._spare = None
