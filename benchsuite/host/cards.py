"""The GPUs of this machine by NVML: whole cards, and the instances of a card that MIG divides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from benchsuite.describe.tasks import Gpu
from benchsuite.host import nvml
from benchsuite.host.nvml import Absent, GpuLost, read

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Left:
    """Why a card is left out."""

    reason: str


def driver() -> str | None:
    """The driver's version; None if NVML does not give it."""
    version = nvml.within(nvml.LIMIT_S, nvml.ask, "nvmlSystemGetDriverVersion")
    return version if isinstance(version, str) and version else None


def gpus() -> tuple[list[Gpu], str | None]:
    """All GPUs in NVML's order, which is PCI order; and a reason if there are none, or cards are left out.

    A card that MIG divides is represented by its instances.
    """
    if reason := nvml.start():
        return [], reason
    number = nvml.within(nvml.LIMIT_S, nvml.ask, "nvmlDeviceGetCount")
    if not isinstance(number, int):
        why = number.reason if isinstance(number, Absent) else nvml.UNREADABLE
        return [], f"NVML: the number of GPUs is unknown: {why}"
    found: list[Gpu] = []
    left_out: list[str] = []
    queries = {f"GPU {index}": partial(_described, index) for index in range(number)}
    for index, described in enumerate(nvml.together(nvml.LIMIT_S, queries)):
        if isinstance(described, Absent):
            left_out.append(f"GPU {index} does not answer and is left out: {described.reason}")
        elif isinstance(described, Left):
            left_out.append(f"GPU {index} is left out: {described.reason}")
        else:
            found += described
    if left_out:
        return _numbered(found), f"NVML: {'; '.join(left_out)}"
    return _numbered(found), None if found else "NVML lists no GPU"


def _numbered(found: list[Gpu]) -> list[Gpu]:
    return [msgspec.structs.replace(gpu, visible_index=index) for index, gpu in enumerate(found)]


def _described(index: int) -> list[Gpu] | Left | Absent:
    """A card, or its instances, or why it is left out."""
    handle = nvml.ask("nvmlDeviceGetHandleByIndex", index)
    if isinstance(handle, Absent):
        return handle
    try:
        card = _card(handle, index)
        instances = None if isinstance(card, Left) else _instances(handle, card)
    except GpuLost as lost:
        return Absent(str(lost))
    if isinstance(card, Left):
        return card
    if instances is None:
        return [card]
    return instances or Left("MIG is on, and it has no instance")


def _card(handle: Any, index: int) -> Gpu | Left:
    """A whole card.

    Raises:
        GpuLost: it is gone.
    """
    uuid = nvml.ask("nvmlDeviceGetUUID", handle)
    if isinstance(uuid, Absent):
        if uuid.lost:
            raise GpuLost(uuid.reason)
        return Left(f"its UUID is unknown: {uuid.reason}")
    if not _names_a_device(uuid):
        return Left(f"CUDA knows no GPU by its UUID {str(uuid)!r}")
    limit_w = read(lambda mw: mw / 1000, "nvmlDeviceGetEnforcedPowerLimit", handle)
    clock_mhz = read(int, "nvmlDeviceGetMaxClockInfo", handle, nvml.constant("NVML_CLOCK_SM"))
    return Gpu(
        visible_index=index,
        nvml_index=index,
        uuid=uuid,
        name=read(_name, "nvmlDeviceGetName", handle) or UNKNOWN,
        pci=read(_pci, "nvmlDeviceGetPciInfo", handle) or UNKNOWN,
        memory_bytes=read(lambda memory: int(memory.total), "nvmlDeviceGetMemoryInfo", handle),
        power_limit_w=limit_w,
        max_sm_clock_mhz=clock_mhz,
    )


def _instances(handle: Any, card: Gpu) -> list[Gpu] | None:
    """The instances of a card that MIG divides; None if MIG is off, or the driver does not list instances.

    Source: `nvmlDeviceGetMigDeviceHandleByIndex` in nvml.h; a place without an instance is "not found".

    Raises:
        GpuLost: the card is gone.
    """
    if read(lambda modes: modes[0], "nvmlDeviceGetMigMode", handle) != 1:
        return None
    most = read(int, "nvmlDeviceGetMaxMigDeviceCount", handle)
    return None if most is None else list(_each(handle, card, most))


def _each(handle: Any, card: Gpu, most: int) -> Iterator[Gpu]:
    for place in range(most):
        instance = nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
        uuid = None if isinstance(instance, Absent) else nvml.ask("nvmlDeviceGetUUID", instance)
        if uuid is None or not _names_a_device(uuid):
            continue
        # Power limit and clocks are those of the whole card.
        yield Gpu(
            visible_index=card.visible_index,
            nvml_index=card.nvml_index,
            uuid=uuid,
            name=read(_name, "nvmlDeviceGetName", instance) or f"{card.name} MIG",
            pci=card.pci,
            memory_bytes=read(lambda memory: int(memory.total), "nvmlDeviceGetMemoryInfo", instance),
            max_sm_clock_mhz=card.max_sm_clock_mhz,
            parent=card.uuid,
        )


def _names_a_device(uuid: Any) -> bool:
    """Can CUDA_VISIBLE_DEVICES hold this UUID? An older driver writes `MIG-GPU-UUID/1/0`."""
    return isinstance(uuid, str) and uuid.isascii() and uuid.startswith(("GPU-", "MIG-")) and "," not in uuid


def _name(answer: Any) -> str:
    if not isinstance(answer, str):
        raise TypeError(answer)
    return answer


def _pci(answer: Any) -> str:
    address = answer.busId
    return address.decode(errors="replace") if isinstance(address, bytes) else str(address)
