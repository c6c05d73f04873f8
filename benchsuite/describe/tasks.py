"""What is asked for: jobs of a profile, and the tasks that they become. Crosses into the child and is kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from benchsuite.schema import SCHEMA, Record

LONGEST_S = 30 * 24 * 3600.0
Precision = Literal["fp32", "tf32", "amp-fp16", "bf16"]
PageCache = Literal["any", "cold", "warm"]
Compile = Literal["none", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "aot_eager"]


# Only these environment variables are recorded: all may change a measurement, none should hold a secret.
_RECORDED = re.compile(
    r"(CUDA|NCCL|GLOO|TORCH|TORCHINDUCTOR|TORCHDYNAMO|TRITON|PYTORCH|ATEN|CUDNN|CUBLAS|DNNL|ONEDNN|MKLDNN"
    r"|OMP|MKL|KMP|GOMP|OPENBLAS|MALLOC)(_\w+)?"
    r"|NVIDIA_TF32_OVERRIDE|GLIBC_TUNABLES|PYTHONHASHSEED|PYTHONPATH|LD_PRELOAD|LD_LIBRARY_PATH"
)


# What tells a rank where to meet the others: never inherited.
RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


def recorded_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that are recorded in a task and restored by a rerun."""
    return {name: environ[name] for name in sorted(environ) if _RECORDED.fullmatch(name)}


class Placement(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a job's tasks go. `cpu_allowed`: without any GPU, one task on the CPU instead of none."""

    devices: Literal["each", "progression", "all", "none"] = "each"
    nodes: int = 1
    copies: int = 1
    share: Literal["timeslice", "mps", "mig"] = "timeslice"
    cpu_allowed: bool = False


class Parallel(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many ranks train one model together: `dp` of them, data parallel; None: one for each GPU of the placement.

    They meet at `port` of this machine; None: at one that the system gives.
    """

    dp: Annotated[int, Meta(gt=0)] | None = None
    port: Annotated[int, Meta(gt=0, lt=65536)] | None = None


class Job(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of a profile, complete: `params` holds every parameter with its value.

    `max_count` counts items, `max_steps` steps; the run ends when that *and* `min_time_s` are reached, or at
    `max_time_s`. `timeout_s` bounds the whole process, start and warm-up included. The last loss must lie in
    `loss_band`. `page_cache` is how the data set's files shall lie in the kernel's page cache when the job's tasks
    start: emptied of them, filled with them, or as it is. `channels_last` lays out images and the weights of
    convolutions channel by channel, which tensor cores like.
    """

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    model: str | None = None
    entry: str | None = None
    params: dict[str, Any] = {}
    placement: Placement = Placement()
    parallel: Parallel = Parallel()
    max_count: Annotated[int, Meta(gt=0)] | None = None
    max_steps: Annotated[int, Meta(gt=0)] | None = None
    min_time_s: Annotated[float, Meta(ge=0, le=LONGEST_S)] = 15.0
    max_time_s: Annotated[float, Meta(gt=0, le=LONGEST_S)] = 120.0
    timeout_s: Annotated[float, Meta(gt=0, le=2 * LONGEST_S)] = 600.0
    loss_band: tuple[float, float] | None = None
    precision: Precision = "fp32"
    compile: Compile = "none"
    channels_last: bool = False
    data: str | None = None
    page_cache: PageCache = "any"
    prepare: str | tuple[tuple[str, ...], ...] = ()
    env: dict[str, str] = {}
    tenant: Literal["share", "machine"] = "share"
    tags: tuple[str, ...] = ()


class Gpu(Record, frozen=True, kw_only=True):
    """One GPU: `visible_index` is its place among those that this run may use, `nvml_index` NVML's (PCI) order."""

    visible_index: int
    nvml_index: int
    uuid: str
    name: str
    pci: str
    memory_bytes: int | None = None
    power_limit_w: float | None = None
    max_sm_clock_mhz: int | None = None


class RerunOf(Record, frozen=True, kw_only=True):
    """The file name of the result that a rerun repeats, and how the rerun differs from it, old -> new."""

    result: str
    changes: tuple[str, ...] = ()


class Task(Record, frozen=True, kw_only=True):
    """One placed copy of a job: all that is needed to run it, now or again.

    `ranks` processes train it together, one for each of its GPUs or all on the CPU.
    `environ` is what the environment held of the names that matter to a measurement (see `recorded_environ`),
    with the job's own `env`. `skip` says why it cannot run; `cwd` is the folder in which an `entry` of the user's own
    is looked for first.
    """

    id: str
    profile: str
    repeat: int
    job: Job
    cell: str | None = None
    copy: int = 0
    gpus: tuple[Gpu, ...] = ()
    ranks: Annotated[int, Meta(gt=0)] = 1
    data_root: str | None = None
    environ: dict[str, str] = {}
    skip: str | None = None
    cwd: str | None = None
    rerun_of: RerunOf | None = None

    @property
    def device(self) -> str:
        """How people call its place: "GPU 0", "GPU 0,1" or "CPU"."""
        if self.gpus:
            return "GPU " + ",".join(str(g.visible_index) for g in self.gpus)
        return "CPU" if self.ranks == 1 else f"CPU, {self.ranks} ranks"


class DataFolder(Record, frozen=True, kw_only=True):
    """A data set found complete: where it lies, which reader understands it, and role -> path below it."""

    name: str
    path: str
    reader: str
    layout: dict[str, str]


class Plan(Record, frozen=True, kw_only=True):
    """`plan.json`: every task, in order, written before the first start."""

    schema: int = SCHEMA
    kind: Literal["plan"] = "plan"
    tasks: tuple[Task, ...]
