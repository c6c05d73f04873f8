"""The device on which a worker trains: how to wait for it, its software, and the peak of its memory."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Literal, Protocol

from benchsuite.errors import UsageError
from benchsuite.measurement import PeakMemory


class Device(Protocol):
    """A device.

    Attributes:
        name: torch's name, "cpu" or "cuda:0".
    """

    name: str

    def sync(self) -> None:
        """Wait for all work that was given to the device so far."""

    def software(self) -> dict[str, str]:
        """The versions that affect speed, as this process sees them, and the name of the GPU."""

    def reset_peaks(self) -> None:
        """Restart the peaks of device memory. The host's peak cannot be restarted."""

    def peak_memory(self) -> PeakMemory:
        """The peaks of the device's and the host's memory."""


class Cpu:
    """The CPU. Work is done when a step returns. Models without torch start fast, since this imports no torch."""

    name = "cpu"

    def sync(self) -> None:
        pass

    def software(self) -> dict[str, str]:
        torch = sys.modules.get("torch")
        return {"torch": str(torch.__version__)} if torch else {}

    def reset_peaks(self) -> None:
        pass

    def peak_memory(self) -> PeakMemory:
        return PeakMemory(host_rss_bytes=host_peak_bytes())


class Cuda:
    """One of the GPUs that this process may use.

    Args:
        index: place among them, from 0; the local rank.

    Raises:
        UsageError: torch sees no GPU, or none with this index.
    """

    def __init__(self, index: int = 0) -> None:
        import torch

        if not torch.cuda.is_available():
            built = torch.version.cuda or "no CUDA"
            raise UsageError(
                f"torch {torch.__version__} (built for {built}) sees no GPU; check the driver, or run on CPU"
            )
        if index >= torch.cuda.device_count():
            raise UsageError(f"rank {index} has no GPU: torch sees {torch.cuda.device_count()}")
        self.index, self.name = index, f"cuda:{index}"
        torch.cuda.set_device(index)
        self._torch = torch

    def sync(self) -> None:
        self._torch.cuda.synchronize()

    def software(self) -> dict[str, str]:
        torch = self._torch
        return {
            "torch": str(torch.__version__),
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),
            "gpu": torch.cuda.get_device_name(self.index),
        }

    def reset_peaks(self) -> None:
        self._torch.cuda.reset_peak_memory_stats(self.index)

    def peak_memory(self) -> PeakMemory:
        cuda = self._torch.cuda
        return PeakMemory(
            device_allocated_bytes=cuda.max_memory_allocated(self.index),
            device_reserved_bytes=cuda.max_memory_reserved(self.index),
            host_rss_bytes=host_peak_bytes(),
        )


def open_device(kind: Literal["cpu", "cuda"], index: int = 0) -> Device:
    """The CPU, or the GPU with this index; see `Cuda`."""
    return Cuda(index) if kind == "cuda" else Cpu()


def host_peak_bytes() -> int:
    """The largest resident set of this process since `exec`.

    Source: VmHWM of proc(5). `ru_maxrss` of getrusage(2) survives `exec`, so that a child reports the peak of a larger
    parent; it is used only if /proc has no VmHWM.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        status = ""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
