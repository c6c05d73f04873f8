"""Checks of the GPUs, by NVML and torch: present, healthy, with equal settings, and not used by others."""

from __future__ import annotations

import json
import operator
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import NoneType
from typing import Any

from benchsuite.describe.tasks import Gpu
from benchsuite.findings import Finding, bad, note, ok
from benchsuite.host import nvml
from benchsuite.host.device import clock_events
from benchsuite.host.nvml import Absent, GpuLost
from benchsuite.records import Machine
from benchsuite.telemetry import SLOWING

TORCH_LIMIT_S = 120
_SILENT = "read the output of 'nvidia-smi' and the kernel's log; reset or replace it"
_REPLACE = "reset the GPU; replace it if the error comes back"
# A file torch.py in the current folder must not be run.
_ASK_TORCH = """
import sys
sys.path[:] = filter(None, sys.path)
import json, torch
cuda = torch.cuda.is_available()
uuids = [str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())] if cuda else []
print(json.dumps({"torch": str(torch.__version__), "cuda": torch.version.cuda, "uuids": uuids}))
"""


def findings(here: Machine, visible: Sequence[Gpu], own_pids: set[int]) -> Iterator[Finding]:
    """All findings about the GPUs."""
    if not visible:
        without = "without GPUs, 'benchsuite jobs smoke' and jobs with placement: cpu run"
        remedy = f"install NVIDIA's driver, or set CUDA_VISIBLE_DEVICES; {without}"
        yield bad("driver", f"no GPU can be used: {here.gpu_note or 'the process sees no GPU'}", remedy)
        return
    yield ok("driver", f"{here.driver or 'unknown version'}, {len(visible)} of {len(here.gpus)} GPUs visible")
    if here.gpu_note:
        silent = "left out" in here.gpu_note
        remedy = _SILENT if silent else "unset CUDA_VISIBLE_DEVICES, or correct it"
        yield (bad if silent else note)("GPUs", here.gpu_note, remedy)
    queries = {_name(gpu): partial(_of_one, gpu, own_pids) for gpu in visible}
    for gpu, found in zip(visible, nvml.together(nvml.LIMIT_S, queries), strict=True):
        yield from (
            [bad(_name(gpu), f"does not answer: {found.reason}", _SILENT)] if isinstance(found, Absent) else found
        )
    yield from _alike(visible)


def _of_one(gpu: Gpu, own_pids: set[int]) -> list[Finding] | Absent:
    """What is wrong with a GPU, or that it is well; `Absent` if it is gone."""
    try:
        handle = _query("nvmlDeviceGetHandleByUUID", gpu.uuid)
        if handle is None:
            return Absent("NVML does not find it by its UUID")
        troubles: list[Finding] = []
        for look in (_persistence, _ecc, _mig, _power, _clock_events):
            troubles += look(gpu, handle)
        troubles += _strangers(gpu, handle, own_pids)
        return troubles or [ok(_name(gpu), _well(gpu, handle))]
    except GpuLost as lost:
        return Absent(str(lost))


def _query(function: str, *arguments: Any) -> Any:
    """NVML's answer; None if there is none. Raises GpuLost."""
    return nvml.read(lambda answer: answer, function, *arguments)


def _whole(function: str, *arguments: Any) -> int:
    """As `_query`, a whole number; 0 for any other answer."""
    return nvml.read(operator.index, function, *arguments) or 0


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.visible_index}"


def _well(gpu: Gpu, handle: Any) -> str:
    """The checks that passed, and the values that the card does not report."""
    looked = {
        "persistence mode": "nvmlDeviceGetPersistenceMode",
        "ECC": "nvmlDeviceGetEccMode",
        "MIG": "nvmlDeviceGetMigMode",
        "power limit": "nvmlDeviceGetPowerManagementDefaultLimit",
        "clock events": "nvmlDeviceGetCurrentClocksEventReasons",
        "processes": "nvmlDeviceGetComputeRunningProcesses",
    }
    known = [name for name, function in looked.items() if not isinstance(_query(function, handle), (str, NoneType))]
    unknown = [name for name in looked if name not in known]
    words = [
        f"{gpu.name}: {', '.join(known)} well" if known else gpu.name,
        f"not reported: {', '.join(unknown)}" if unknown else "",
    ]
    return "; ".join(filter(None, words))


def _first(modes: Any) -> Any:
    """The mode in force; the second is the one after the next reset."""
    return modes[0]


def _persistence(gpu: Gpu, handle: Any) -> Iterator[Finding]:
    mode = _query("nvmlDeviceGetPersistenceMode", handle)
    if mode == 0:
        remedy = f"sudo nvidia-smi -i {gpu.nvml_index} -pm 1, or run nvidia-persistenced"
        yield note(_name(gpu), "persistence mode is off: the driver starts anew for each task", remedy)


def _ecc(gpu: Gpu, handle: Any) -> Iterator[Finding]:
    current = nvml.read(_first, "nvmlDeviceGetEccMode", handle)
    if current == 0:
        text = "ECC is off: memory is faster and larger than with it"
        yield note(_name(gpu), text, "compare only with cards whose ECC is off")
    corrected, uncorrected, volatile = 0, 1, 0
    errors = _whole("nvmlDeviceGetTotalEccErrors", handle, uncorrected, volatile)
    if errors:
        yield bad(_name(gpu), f"{errors} uncorrected memory errors since the driver started", _REPLACE)
    mended = _whole("nvmlDeviceGetTotalEccErrors", handle, corrected, volatile)
    if mended:
        yield note(_name(gpu), f"{mended} corrected memory errors since the driver started", "watch whether they grow")
    if nvml.read(lambda rows: rows[2] == 1 or rows[3] == 1, "nvmlDeviceGetRemappedRows", handle):
        yield bad(_name(gpu), "memory rows wait to be remapped, or cannot be remapped", _REPLACE)


def _mig(gpu: Gpu, handle: Any) -> Iterator[Finding]:
    if gpu.parent:
        remedy = f"compare it only with equal instances, or divide no card: sudo nvidia-smi -i {gpu.nvml_index} -mig 0"
        yield note(_name(gpu), f"it is a part of the card {gpu.parent} (MIG)", remedy)
    elif nvml.read(_first, "nvmlDeviceGetMigMode", handle) == 1:
        remedy = f"sudo nvidia-smi -i {gpu.nvml_index} -mig 0"
        yield bad(_name(gpu), "MIG is on: a task would use only a part of the GPU", remedy)


def _power(gpu: Gpu, handle: Any) -> Iterator[Finding]:
    default_mw = _whole("nvmlDeviceGetPowerManagementDefaultLimit", handle)
    now_mw = _whole("nvmlDeviceGetEnforcedPowerLimit", handle)
    if default_mw and now_mw and now_mw < default_mw:
        remedy = f"sudo nvidia-smi -i {gpu.nvml_index} -pl {default_mw // 1000}"
        yield bad(_name(gpu), f"power is limited to {now_mw / 1000:.0f} W of {default_mw / 1000:.0f} W", remedy)
    wanted = _whole("nvmlDeviceGetApplicationsClock", handle, nvml.constant("NVML_CLOCK_SM"))
    usual = _whole("nvmlDeviceGetDefaultApplicationsClock", handle, nvml.constant("NVML_CLOCK_SM"))
    if wanted and usual and wanted < usual:
        remedy = f"sudo nvidia-smi -i {gpu.nvml_index} -rac"
        yield bad(_name(gpu), f"application clocks are set to {wanted} MHz, below the usual {usual} MHz", remedy)


def _clock_events(gpu: Gpu, handle: Any) -> Iterator[Finding]:
    """A power cap is normal under load; heat and hardware slow-down are not."""
    mask = _whole("nvmlDeviceGetCurrentClocksEventReasons", handle)
    mask = mask or _whole("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    named = [name for name in clock_events(mask) if name in SLOWING]
    if named:
        remedy = "check cooling and power supply; wait until it is cool"
        yield bad(_name(gpu), f"clocks are held down now: {', '.join(named)}", remedy)


def _strangers(gpu: Gpu, handle: Any, own_pids: set[int]) -> Iterator[Finding]:
    pids = (
        nvml.read(lambda found: {int(process.pid) for process in found}, "nvmlDeviceGetComputeRunningProcesses", handle)
        or set()
    )
    others = sorted(pids - own_pids)
    if others:
        shown = ", ".join(map(str, others))
        yield bad(_name(gpu), f"other processes compute on it: {shown}", "let them end, or choose other GPUs")


def _alike(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """Cards of one model with different limits cannot be compared with each other."""
    by_model: dict[str, set[tuple[float | None, int | None]]] = {}
    for gpu in gpus:
        by_model.setdefault(gpu.name, set()).add((gpu.power_limit_w, gpu.max_sm_clock_mhz))
    for model, limits in by_model.items():
        if len(limits) > 1:
            shown = "; ".join(f"{watts} W, {mhz} MHz" for watts, mhz in sorted(limits, key=str))
            yield bad("GPUs", f"{model}: limits differ between cards ({shown})", "set equal limits with nvidia-smi -pl")


def torch_findings(visible: Sequence[Gpu], environ: Mapping[str, str]) -> Iterator[Finding]:
    """Does torch see the GPUs that NVML sees? A child process looks, because CUDA takes memory on each GPU."""
    try:
        env = {**environ, "CUDA_DEVICE_ORDER": environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")}
        command = [sys.executable, "-c", _ASK_TORCH]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TORCH_LIMIT_S, check=False, env=env)
    except subprocess.TimeoutExpired:
        yield bad("torch", f"did not answer within {TORCH_LIMIT_S} s", "try 'python -c \"import torch\"'")
        return
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        yield bad("torch", f"cannot be used: {last}", "pip install torch torchvision")
        return
    found = json.loads(done.stdout.strip().splitlines()[-1])
    seen = {f"GPU-{uuid}" for uuid in found["uuids"]}
    version = f"{found['torch']}, built for {'CUDA ' + found['cuda'] if found['cuda'] else 'the CPU'}"
    # A process sees one instance of a card that MIG divides; each task gets its own.
    unseen = [_name(g) for g in visible if g.uuid not in seen and not g.parent]
    if unseen:
        remedy = (
            "install a CUDA build of torch that fits the driver ('nvidia-smi' shows the newest CUDA that it supports)"
        )
        yield bad("torch", f"{version}: does not see {', '.join(unseen)}", remedy)
    else:
        yield ok("torch", f"{version}, sees {len(seen)} GPUs")
