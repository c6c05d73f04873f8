"""What is found out: the machine, the run, and one result a task. Schema 1.

Times called `*_s` are seconds of CLOCK_MONOTONIC unless a field says otherwise; one anchor of the wall clock and the
boot id let the streams of one machine be joined.
"""

from __future__ import annotations

from typing import Literal

from benchsuite.describe.tasks import Gpu, PageCache, Task
from benchsuite.schema import SCHEMA, Record
from benchsuite.telemetry import Telemetry

OVERLAPS = "its share and ours overlap"  # in a tenant's `reason`: another run was on the machine
Status = Literal["ok", "failed", "oom", "timeout", "killed", "lost", "interrupted", "skipped"]
FAILURES: frozenset[Status] = frozenset({"failed", "oom", "timeout", "killed", "lost"})
Phase = Literal["measure", "hold"]


class Machine(Record, frozen=True, kw_only=True):
    """What a machine is. `gpus` are all that NVML lists, `visible` the UUIDs this run may use, in their order."""

    host: str
    boot_id: str
    system: str
    kernel: str
    cpu: str
    cpus: int
    cpus_usable: int
    memory_bytes: int
    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    visible: tuple[str, ...] = ()
    gpu_note: str | None = None
    python: str
    packages: dict[str, str]


class Code(Record, frozen=True, kw_only=True):
    """Which benchsuite ran; `commit` and `dirty` only from a checkout."""

    version: str
    commit: str | None = None
    dirty: bool | None = None


class ProfileUsed(Record, frozen=True, kw_only=True):
    """The profile of a run. `official`: the content of a shipped one, unchanged; else `differences` from `based_on`."""

    name: str
    path: str
    sha256: str
    text: str
    official: bool
    based_on: str | None = None
    differences: tuple[str, ...] = ()


class Run(Record, frozen=True, kw_only=True):
    """`run.json`: what was asked, on which machine, by which code; `resumed` are the times and command lines since."""

    schema: int = SCHEMA
    kind: Literal["run"] = "run"
    created: str
    command: tuple[str, ...]
    profile: ProfileUsed
    repeats: int
    machine: Machine
    code: Code
    resumed: tuple[tuple[str, str], ...] = ()


# --- what is measured -------------------------------------------------------------------------------------------------


class Slice(Record, frozen=True, kw_only=True, array_like=True, gc=False):
    """Whole steps from one device sync to the next; times in seconds since `go`.

    There are millions of them in a large report: without references they need no garbage collector.
    """

    start_s: float
    end_s: float
    steps: int
    items: int
    phase: Phase = "measure"

    @property
    def elapsed_s(self) -> float:
        return self.end_s - self.start_s


class WarmUp(Record, frozen=True, kw_only=True):
    """Untimed steps before `ready`, compilation and allocation included."""

    steps: int
    elapsed_s: float


class Compiled(Record, frozen=True, kw_only=True):
    """What Dynamo made of the model: no graph at all is possible, silently."""

    graphs: int
    breaks: int


class PrecisionCheck(Record, frozen=True, kw_only=True):
    """Relative errors of one matrix product and one convolution against fp64, and the precision that they show."""

    asked: str
    in_force: str
    matmul_error: float
    conv_error: float


class GroupUsed(Record, frozen=True, kw_only=True):
    """How the ranks of a task met and talk: at which port of this machine, by which library."""

    ranks: int
    backend: str
    nccl: str | None = None
    port: int | None = None


class PeakMemory(Record, frozen=True, kw_only=True):
    """Peaks over the whole process: of torch's allocator on the device, and resident in the host's memory."""

    device_allocated_bytes: int | None = None
    device_reserved_bytes: int | None = None
    host_rss_bytes: int | None = None


class Stream(Record, frozen=True, kw_only=True):
    """The series of one rank: measured slices, then hold as one.

    `losses`: the last step's loss at the end of each measured slice, null where the model has none; one that is not
    finite ends the task.
    """

    device: str
    role: str = "train"
    rank: int = 0
    counts_items: bool = True
    models: int = 1
    unit: str
    origin_s: float
    slices: tuple[Slice, ...] = ()
    losses: tuple[float | None, ...] = ()
    warm_up: WarmUp | None = None
    stopped_by: str | None = None
    peak_memory: PeakMemory | None = None
    compiled: Compiled | None = None
    precision: PrecisionCheck | None = None
    notes: tuple[str, ...] = ()


class Measurement(Record, frozen=True, kw_only=True):
    streams: tuple[Stream, ...] = ()


class Failure(Record, frozen=True, kw_only=True):
    """Why a task is not ok; `traceback` holds the child's traceback or the last lines it printed."""

    kind: str
    message: str
    traceback: str | None = None


class Identity(Record, frozen=True, kw_only=True):
    host: str
    profile: str
    job: str
    cell: str | None
    repeat: int
    devices: tuple[int, ...]
    copy: int
    attempt: int


class TaskMachine(Record, frozen=True, kw_only=True):
    """The task's own GPUs, the SHA-256 of run.json's machine facts, and the software as the child saw it."""

    gpus: tuple[Gpu, ...]
    driver: str | None
    facts_sha256: str
    software: dict[str, str] = {}


class Pressure(Record, frozen=True, kw_only=True):
    """How long some, or all, of a tenant's processes stood still for want of CPU or memory (PSI), in seconds."""

    cpu_some_s: float | None = None
    cpu_full_s: float | None = None
    memory_some_s: float | None = None
    memory_full_s: float | None = None


class Tenant(Record, frozen=True, kw_only=True):
    """The fence: what was asked, what was in force, why, and what the kernel counted; null where it counts nothing.

    `asked` is the job's `tenant`, `isolation` the option. `cpu`: cpuset-v2, cpuset-v1, affinity or none; `memory`: v2,
    v1 or none; `group` the control group's name. `throttled_s`: how long the CPU quota around the whole run held
    processes back while the task ran.
    """

    asked: str
    isolation: str | None = None
    cpu: str = "none"
    memory: str = "none"
    reason: str
    group: str | None = None
    cpus: tuple[int, ...] = ()
    memory_bytes: int | None = None
    oom_kills: int | None = None
    peak_memory_bytes: int | None = None
    peak_pids: int | None = None
    throttled_s: float | None = None
    pressure: Pressure | None = None


class DataUsed(Record, frozen=True, kw_only=True):
    """Where the batches came from. Null where it does not apply: input made in memory has no version, hash or size.

    `size` is that of synthetic data; `page_cache` what the job asked for, and `cached` the share of the files' bytes
    that the kernel held when the task was started, null where it does not say.
    """

    name: str
    real: bool
    version: str | None = None
    sha256: str | None = None
    size_bytes: int | None = None
    file_system: str | None = None
    size: str | None = None
    page_cache: PageCache | None = None
    cached: float | None = None


class BatchProbe(Record, frozen=True, kw_only=True, array_like=True):
    """One try of a batch size, in a process of its own; peaks of device (as allocated) and host memory, where known."""

    batch_size: int
    fits: bool
    device_bytes: int | None
    host_bytes: int | None
    elapsed_s: float


class BatchSearch(Record, frozen=True, kw_only=True):
    """How the batch size of a job that asks for `auto` was found: every try, in order, and what a larger one met.

    `found` is the largest that fits, to within a sixteenth.
    """

    found: int
    limit: str
    probes: tuple[BatchProbe, ...]


class Timeline(Record, frozen=True, kw_only=True):
    """When things happened; null where they did not."""

    queued_s: float
    started_s: float | None = None
    ready_s: float | None = None
    go_s: float | None = None
    ended_s: float | None = None


class Anchor(Record, frozen=True, kw_only=True):
    """One instant on two clocks, and the boot that CLOCK_MONOTONIC counts from."""

    boot_id: str
    wall: str
    monotonic_s: float


class Result(Record, frozen=True, kw_only=True):
    """One task's only result, written by the parent whatever became of the child."""

    schema: int = SCHEMA
    kind: Literal["result"] = "result"
    status: Status
    error: Failure | None = None
    identity: Identity
    task: Task
    machine: TaskMachine
    code: Code
    tenant: Tenant
    data: DataUsed | None = None
    batch_search: BatchSearch | None = None
    group: GroupUsed | None = None
    timeline: Timeline
    anchor: Anchor
    measurement: Measurement = Measurement()
    telemetry: Telemetry | None = None
    telemetry_reason: str | None = None
    exit_code: int | None = None
