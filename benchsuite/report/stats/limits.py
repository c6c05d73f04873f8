"""What limits the speed of a job: the GPU, the host, communication between ranks, or the CPU that it runs on.

Telemetry decides. The rule is the share of the time in which any kernel runs on the GPU. Below one half, a host twice
as fast saves more time than a GPU twice as fast, so the host limits the job; from one half up, the GPU does.

On one and two H200 the standard profile lies far from that line. A kernel runs for 1 to 44 % of the time in the jobs
toy_reg, toy_lstm, vae, loader, reso, minigrid, atari, dcgan and recom: the host limits them. It runs for 76 to 100 % of
the time in translator, wlm, wlmfp16, ssd, fast_style, convnet, convnet_fp16 and scaling.1: the GPU limits them. The
share of busy SMs agrees (0 to 46 % against 58 to 94 %). It decides only where the time of kernels is not recorded,
since small kernels that follow each other without a gap leave SMs idle and yet keep the host waiting.

A group of ranks counts as limited by communication, whatever its GPUs show: the kernels of NCCL keep a GPU busy too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from benchsuite.report.format import percent
from benchsuite.report.read.summary import JobSummary
from benchsuite.report.read.use import Use

LimitName = Literal["GPU", "host", "CPU", "communication", "not known"]
NOT_KNOWN: LimitName = "not known"
# From this share of the time (or of the SMs) in percent, the GPU limits a job.
BUSY_PERCENT = 50.0
# A tag of this form names the limit of a job, for runs without telemetry: `limited:host`.
TAG = "limited:"
_TAGGED: dict[str, LimitName] = {f"{TAG}{name.lower()}": name for name in get_args(LimitName) if name != NOT_KNOWN}
# From this share of the time, a wait for a CPU belongs to the evidence.
_WAITING = 0.05


@dataclass(frozen=True)
class Limit:
    """What limits a job, and the evidence in words."""

    by: LimitName
    evidence: str


def limited_by(job: JobSummary) -> Limit:
    """What limits a job, by its place, then by its telemetry, then by a tag `limited:...` of its profile."""
    if job.ranks > 1:
        return Limit("communication", f"{job.ranks} ranks" + (f" over {job.backend}" if job.backend else ""))
    if job.devices == "none" or (job.tasks and all(task.device.startswith("CPU") for task in job.tasks)):
        return Limit("CPU", "runs on the CPU")
    busy = _busy_percent(job.use) if job.use else None
    if job.use and busy is not None:
        return Limit("GPU" if busy >= BUSY_PERCENT else "host", ", ".join(_evidence(job.use)))
    tag = next((tag for tag in job.tags if tag.lower() in _TAGGED), None)
    return Limit(_TAGGED[tag.lower()], f"tag {tag}, no telemetry") if tag else Limit(NOT_KNOWN, "no telemetry")


def _busy_percent(use: Use) -> float | None:
    return use.sm_percent if use.gpu_percent is None else use.gpu_percent


def _evidence(use: Use) -> Iterator[str]:
    if use.gpu_percent is not None:
        yield f"a kernel runs for {use.gpu_percent:.0f} % of the time"
    if use.sm_percent is not None:
        yield f"SMs busy {use.sm_percent:.0f} %"
    if use.cpu_waiting is not None and use.cpu_waiting >= _WAITING:
        yield f"waits for a CPU for {percent(use.cpu_waiting, 0)} of the time"
