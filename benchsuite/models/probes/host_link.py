"""Copies between pinned host memory and a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import Tensor

_PCI = Path("/sys/bus/pci/devices")
_NODES = Path("/sys/devices/system/node")


class Link:
    """A buffer on each side of the link between the host and a device.

    Args:
        size_bytes: of each buffer.
    """

    def __init__(self, device: torch.device, size_bytes: int) -> None:
        on_gpu = device.type == "cuda"
        with near(device):
            self.host = torch.ones(size_bytes, dtype=torch.uint8, pin_memory=on_gpu)
        self.there = torch.ones(size_bytes, dtype=torch.uint8, device=device)
        self.device = device

    def to_device(self) -> Tensor:
        """Start a copy from the host to the device."""
        return self.there.copy_(self.host, non_blocking=True)

    def to_host(self) -> Tensor:
        """Start a copy from the device to the host."""
        return self.host.copy_(self.there, non_blocking=True)


@contextmanager
def near(device: torch.device) -> Iterator[None]:
    """While entered, this thread runs on the CPUs of the GPU's NUMA node, so that memory comes from there.

    It has no effect for a CPU, or if the kernel does not know the node or refuses.
    """
    allowed = os.sched_getaffinity(0)
    close = node_cpus(device) & allowed
    if close:
        with suppress(OSError):
            os.sched_setaffinity(0, close)
    try:
        yield
    finally:
        if close:
            with suppress(OSError):
                os.sched_setaffinity(0, allowed)


def node_cpus(device: torch.device) -> set[int]:
    """The CPUs of a GPU's NUMA node; empty if it is not known."""
    if device.type != "cuda":
        return set()
    card = torch.cuda.get_device_properties(device)
    try:
        address = f"{card.pci_domain_id:04x}:{card.pci_bus_id:02x}:{card.pci_device_id:02x}.0"
        node = int((_PCI / address / "numa_node").read_text())
        return cpus_in((_NODES / f"node{node}" / "cpulist").read_text()) if node >= 0 else set()
    except (OSError, ValueError, AttributeError):
        return set()


def cpus_in(words: str) -> set[int]:
    """The CPUs of a list as the kernel writes it: "0-3,8"."""
    found: set[int] = set()
    for part in filter(None, words.strip().split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found
