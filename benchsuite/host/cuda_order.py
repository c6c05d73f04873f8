"""The order in which CUDA numbers GPUs of different models. A child process asks CUDA itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache

from benchsuite.describe.tasks import Gpu
from benchsuite.errors import reason

LIMIT_S = 60.0
# A file torch.py in the current folder must not be run.
_PROGRAM = """
import sys
sys.path[:] = filter(None, sys.path)
import torch
for index in range(torch.cuda.device_count()):
    card = torch.cuda.get_device_properties(index)
    print(card.uuid, f"{card.pci_domain_id:x}:{card.pci_bus_id:x}:{card.pci_device_id:x}")
"""


def differs(present: Sequence[Gpu], environ: Mapping[str, str]) -> bool:
    """Can CUDA's numbers differ from NVML's? Only if the user chose CUDA's own order and the GPUs differ in model."""
    return environ.get("CUDA_DEVICE_ORDER") == "FASTEST_FIRST" and len({gpu.name for gpu in present}) > 1


def numbered(present: Sequence[Gpu], environ: Mapping[str, str]) -> dict[int, Gpu] | str:
    """CUDA's number -> GPU, matched by UUID or else by PCI address; if CUDA cannot be asked, the reason in words."""
    variables = {name: value for name, value in environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    listed = _listed(tuple(sorted(variables.items())))
    if isinstance(listed, str):
        return listed
    found: dict[int, Gpu] = {}
    for number, (uuid, pci) in enumerate(listed):
        place = _place(pci)
        same = [g for g in present if g.uuid == uuid] or [g for g in present if place and _place(g.pci) == place]
        if len(same) == 1:
            found[number] = same[0]
    return found


@cache
def _listed(variables: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...] | str:
    """UUID and PCI address of each GPU in CUDA's order under these variables, or why torch could not list them."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"torch did not list the GPUs within {LIMIT_S:g} s"
    except OSError as error:
        return f"{sys.executable} cannot be started: {reason(error)}"
    if done.returncode:
        return f"torch could not list the GPUs: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    cards = [line.split() for line in done.stdout.splitlines()]
    return tuple((f"GPU-{uuid.removeprefix('GPU-')}", pci) for uuid, pci in cards) or "torch sees no GPU"


def _place(pci: str) -> tuple[int, ...] | None:
    """Domain, bus and device; NVML writes `00000000:01:00.0`."""
    try:
        return tuple(int(part, 16) for part in pci.partition(".")[0].split(":"))
    except ValueError:
        return None
