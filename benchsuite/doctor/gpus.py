"""Checks of the GPUs, by NVML and torch: present, healthy, with equal settings, and not used by others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchsuite.describe.tasks import Gpu
from benchsuite.findings import Finding, bad, note, ok
from benchsuite.host import nvml
from benchsuite.host.device import clock_events
from benchsuite.telemetry import SLOWING

TORCH_LIMIT_S = 120
_REPLACE = "reset the GPU; replace it if the error comes back"
_ASK_TORCH = """
import json, torch
cuda = torch.cuda.is_available()
uuids = [str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())] if cuda else []
print(json.dumps({"torch": str(torch.__version__), "cuda": torch.version.cuda, "uuids": uuids}))
"""


def findings(
    present: Sequence[Gpu], visible: Sequence[Gpu], why_none: str | None, own_pids: set[int]
) -> Iterator[Finding]:
    """All findings about the GPUs; `why_none` is the reason for an empty `visible`."""
    if not visible:
        without = "without GPUs, 'benchsuite jobs smoke' and jobs with placement: cpu run"
        remedy = f"install NVIDIA's driver, or set CUDA_VISIBLE_DEVICES; {without}"
        yield bad("driver", f"no GPU can be used: {why_none or 'the process sees no GPU'}", remedy)
        return
    yield ok("driver", f"{nvml.driver() or 'unknown version'}, {len(visible)} of {len(present)} GPUs visible")
    for gpu in visible:
        handle = nvml.query("nvmlDeviceGetHandleByUUID", gpu.uuid)
        if handle is None:
            yield bad(
                _name(gpu),
                "does not answer",
                "read the output of 'nvidia-smi' and the kernel's log; reset or replace it",
            )
            continue
        looks = (_persistence, _ecc, _mig, _power, _clock_events)
        troubles = [finding for look in looks for finding in look(gpu, handle)]
        troubles += _strangers(gpu, handle, own_pids)
        yield from troubles or [ok(_name(gpu), _well(gpu, handle))]
    yield from _alike(visible)


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
    known = [name for name, function in looked.items() if nvml.query(function, handle) is not None]
    unknown = [name for name in looked if name not in known]
    words = [
        f"{gpu.name}: {', '.join(known)} well" if known else gpu.name,
        f"not reported: {', '.join(unknown)}" if unknown else "",
    ]
    return "; ".join(filter(None, words))


def _persistence(gpu: Gpu, handle: Any) -> Iterator[Finding]:
    mode = nvml.query("nvmlDeviceGetPersistenceMode", handle)
    if mode == 0:
        remedy = f"sudo nvidia-smi -i {gpu.nvml_index} -pm 1, or run nvidia-persistenced"
        yield note(_name(gpu), "persistence mode is off: the driver starts anew for each task", remedy)


def _ecc(gpu: Gpu, handle: Any) -> Iterator[Finding]:
    current, _ = nvml.query("nvmlDeviceGetEccMode", handle) or (None, None)
    if current == 0:
        text = "ECC is off: memory is faster and larger than with it"
        yield note(_name(gpu), text, "compare only with cards whose ECC is off")
    corrected, uncorrected, volatile = 0, 1, 0
    errors = nvml.query("nvmlDeviceGetTotalEccErrors", handle, uncorrected, volatile)
    if errors:
        yield bad(_name(gpu), f"{errors} uncorrected memory errors since the driver started", _REPLACE)
    mended = nvml.query("nvmlDeviceGetTotalEccErrors", handle, corrected, volatile)
    if mended:
        yield note(_name(gpu), f"{mended} corrected memory errors since the driver started", "watch whether they grow")
    _, _, pending, failed = nvml.query("nvmlDeviceGetRemappedRows", handle) or (0, 0, 0, 0)
    if pending or failed:
        yield bad(_name(gpu), "memory rows wait to be remapped, or cannot be remapped", _REPLACE)


def _mig(gpu: Gpu, handle: Any) -> Iterator[Finding]:
    current, _ = nvml.query("nvmlDeviceGetMigMode", handle) or (None, None)
    if current == 1:
        remedy = f"sudo nvidia-smi -i {gpu.nvml_index} -mig 0"
        yield bad(_name(gpu), "MIG is on: a task would use only a part of the GPU", remedy)


def _power(gpu: Gpu, handle: Any) -> Iterator[Finding]:
    default_mw = nvml.query("nvmlDeviceGetPowerManagementDefaultLimit", handle)
    now_mw = nvml.query("nvmlDeviceGetEnforcedPowerLimit", handle)
    if default_mw and now_mw and now_mw < default_mw:
        remedy = f"sudo nvidia-smi -i {gpu.nvml_index} -pl {default_mw // 1000}"
        yield bad(_name(gpu), f"power is limited to {now_mw / 1000:.0f} W of {default_mw / 1000:.0f} W", remedy)
    wanted = nvml.query("nvmlDeviceGetApplicationsClock", handle, nvml.constant("NVML_CLOCK_SM"))
    usual = nvml.query("nvmlDeviceGetDefaultApplicationsClock", handle, nvml.constant("NVML_CLOCK_SM"))
    if wanted and usual and wanted < usual:
        remedy = f"sudo nvidia-smi -i {gpu.nvml_index} -rac"
        yield bad(_name(gpu), f"application clocks are set to {wanted} MHz, below the usual {usual} MHz", remedy)


def _clock_events(gpu: Gpu, handle: Any) -> Iterator[Finding]:
    """A power cap is normal under load; heat and hardware slow-down are not."""
    mask = nvml.query("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if mask is None:
        mask = nvml.query("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    named = [name for name in clock_events(mask or 0) if name in SLOWING]
    if named:
        remedy = "check cooling and power supply; wait until it is cool"
        yield bad(_name(gpu), f"clocks are held down now: {', '.join(named)}", remedy)


def _strangers(gpu: Gpu, handle: Any, own_pids: set[int]) -> Iterator[Finding]:
    processes = nvml.query("nvmlDeviceGetComputeRunningProcesses", handle) or []
    others = sorted({p.pid for p in processes} - own_pids)
    if others:
        pids = ", ".join(map(str, others))
        yield bad(_name(gpu), f"other processes compute on it: {pids}", "let them end, or choose other GPUs")


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
    unseen = [_name(g) for g in visible if g.uuid not in seen]
    if unseen:
        remedy = (
            "install a CUDA build of torch that fits the driver ('nvidia-smi' shows the newest CUDA that it supports)"
        )
        yield bad("torch", f"{version}: does not see {', '.join(unseen)}", remedy)
    else:
        yield ok("torch", f"{version}, sees {len(seen)} GPUs")
