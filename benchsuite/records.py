"""Records that a run writes: the machines, the run itself, and one result for each task.

Times called `*_s` are seconds of CLOCK_MONOTONIC unless a field says otherwise. A `clock` in the same record names the
host and the boot, so that times of one host can be related to each other.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from benchsuite.describe.spanning import Seat
from benchsuite.describe.tasks import Gpu, PageCache, ProfileUsed, Sharing, Task
from benchsuite.measurement import Clock, GroupUsed, Measurement
from benchsuite.schema import SCHEMA, Record
from benchsuite.searches import BatchSearch
from benchsuite.telemetry import Telemetry

Status = Literal["ok", "failed", "oom", "timeout", "killed", "lost", "interrupted", "skipped"]
FAILURES: frozenset[Status] = frozenset({"failed", "oom", "timeout", "killed", "lost"})


class Machine(Record, frozen=True, kw_only=True):
    """The hardware and software of a machine."""

    host: str
    boot_id: str
    system: str
    kernel: str
    cpu: Annotated[str, Meta(description="model of the processors")]
    cpus: Annotated[int, Meta(description="logical processors")]
    cpus_usable: Annotated[int, Meta(description="logical processors that this run may use")]
    memory_bytes: Annotated[int | None, Meta(description="memory of the host; null: the kernel does not report it")]
    driver: Annotated[str | None, Meta(description="NVIDIA driver")] = None
    gpus: Annotated[tuple[Gpu, ...], Meta(description="all GPUs that NVML lists")] = ()
    visible: Annotated[tuple[str, ...], Meta(description="UUIDs of the GPUs that this run may use, in order")] = ()
    gpu_note: Annotated[str | None, Meta(description="why no GPU is listed, or not every one")] = None
    python: str
    packages: Annotated[dict[str, str], Meta(description="package -> version")]

    @property
    def sha256(self) -> str:
        """The hash by which a result names these facts."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


class Code(Record, frozen=True, kw_only=True):
    """The version of benchsuite that ran."""

    version: str
    commit: Annotated[str | None, Meta(description="only from a checkout")] = None
    dirty: Annotated[bool | None, Meta(description="the checkout had uncommitted changes")] = None

    @property
    def words(self) -> str:
        """ "benchsuite 0.1.0 at 1a2b3c4d5e6f, with uncommitted changes"."""
        commit = f" at {self.commit[:12]}" if self.commit else ""
        return f"benchsuite {self.version}{commit}{', with uncommitted changes' if self.dirty else ''}"


class Run(Record, frozen=True, kw_only=True):
    """`run.json`: the command, the profile, the machines and the code of a run."""

    schema: int = SCHEMA
    kind: Literal["run"] = "run"
    created: Annotated[str, Meta(description="wall clock, ISO 8601")]
    command: Annotated[tuple[str, ...], Meta(description="command line, word by word")]
    profile: ProfileUsed
    repeats: int
    machines: Annotated[tuple[Machine, ...], Meta(min_length=1, description="the first is the one that ran benchsuite")]
    seats: Annotated[tuple[Seat, ...], Meta(description="agents of a run over nodes; empty: one machine")] = ()
    code: Code
    begun_schema: Annotated[int, Meta(description="schema of the benchsuite that started the run")] = SCHEMA
    resumed: Annotated[
        tuple[tuple[str, str], ...], Meta(description="when the run was resumed, and by which command line")
    ] = ()

    @property
    def machine(self) -> Machine:
        """The machine on which benchsuite was started."""
        return self.machines[0]


class Failure(Record, frozen=True, kw_only=True):
    """Why the status of a task is not ok."""

    kind: str
    message: str
    traceback: Annotated[str | None, Meta(description="the worker's traceback, or the last lines that it printed")] = (
        None
    )

    @property
    def words(self) -> str:
        """The message, with the type of an exception that the message does not name: "ValueError: boom"."""
        alone = self.kind in self.message or self.kind.islower() or self.kind.startswith("SIG")
        return self.message if alone else f"{self.kind}: {self.message}"


class Identity(Record, frozen=True, kw_only=True):
    """The task that a result belongs to."""

    host: Annotated[str, Meta(description="the host on which benchsuite was started")]
    profile: str
    job: Annotated[str, Meta(description="key of the profile's entry")]
    cell: Annotated[str, Meta(description="the job's name with the values of its matrix")]
    row: Annotated[str, Meta(description="the name under which rates pool")]
    axes: Annotated[dict[str, Any], Meta(description="axis of the unrolled job -> value")] = {}
    repeat: int
    devices: Annotated[tuple[int, ...], Meta(description="visible indices of its GPUs")]
    copy: int
    attempt: Annotated[int, Meta(description="from 1; higher only in a run that was resumed")]


class TaskMachine(Record, frozen=True, kw_only=True):
    """The task's own GPUs, and the machine and software behind them."""

    gpus: tuple[Gpu, ...]
    cpu: Annotated[str | None, Meta(description="model of the processors; null: not recorded")] = None
    driver: str | None
    facts_sha256: Annotated[str, Meta(description="SHA-256 of the machine's facts in run.json")]
    software: Annotated[dict[str, str], Meta(description="versions as the worker saw them")] = {}
    facts: Annotated[
        Machine | None, Meta(description="the facts themselves; only in a single result, which has no run.json")
    ] = None


class Pressure(Record, frozen=True, kw_only=True):
    """How long some, or all, of a tenant's processes waited for CPU or memory (PSI)."""

    cpu_some_s: float | None = None
    cpu_full_s: float | None = None
    memory_some_s: float | None = None
    memory_full_s: float | None = None


class Tenant(Record, frozen=True, kw_only=True):
    """The share of the machine that a task had. Null: the kernel does not count it."""

    asked: Annotated[str, Meta(description="the job's `tenant`")]
    isolation: Annotated[str | None, Meta(description="the option --isolation")] = None
    cpu: Annotated[str, Meta(description="in force: cpuset-v2, cpuset-v1, affinity or none")] = "none"
    memory: Annotated[str, Meta(description="in force: v2, v1 or none")] = "none"
    reason: Annotated[str, Meta(description="why this fence is in force")]
    crowded: Annotated[
        bool, Meta(description="another run of benchsuite was on the machine, whose share may overlap")
    ] = False
    group: Annotated[str | None, Meta(description="name of the control group")] = None
    cpus: Annotated[tuple[int, ...], Meta(description="logical processors of the task")] = ()
    memory_bytes: Annotated[int | None, Meta(description="limit")] = None
    oom_kills: Annotated[int | None, Meta(description="processes that the kernel killed for memory")] = None
    peak_memory_bytes: int | None = None
    peak_pids: int | None = None
    throttled_s: Annotated[
        float | None, Meta(description="how long the CPU quota around the run held processes back")
    ] = None
    pressure: Pressure | None = None


class ContainerUsed(Record, frozen=True, kw_only=True):
    """The container in which a task's worker ran."""

    engine: Annotated[str, Meta(description="docker, podman or apptainer")]
    image: str


class DataUsed(Record, frozen=True, kw_only=True):
    """The source of the batches. Input made in memory has no version, hash or size."""

    name: str
    real: Annotated[bool, Meta(description="false: synthetic, or made in memory")]
    version: str | None = None
    sha256: str | None = None
    size_bytes: int | None = None
    file_system: str | None = None
    size: Annotated[str | None, Meta(description="size class of synthetic data")] = None
    page_cache: Annotated[PageCache | None, Meta(description="what the job asked for")] = None
    cached: Annotated[
        float | None, Meta(description="share of the files' bytes in the page cache at the start; null: not known")
    ] = None


class SharingUsed(Record, frozen=True, kw_only=True):
    """How the models of a wave shared a GPU."""

    way: Sharing
    copies: Annotated[int, Meta(gt=0, description="models that shared the GPU")]
    in_use: Annotated[
        bool | None, Meta(description="whether the way was seen at work; null: it needs no proof, or was not looked at")
    ] = None
    seen: Annotated[str | None, Meta(description="what showed it, in words")] = None


class Timeline(Record, frozen=True, kw_only=True):
    """The times of a task, on the clock of the host that supervised it. Null: it did not get so far."""

    clock: Clock
    queued_s: float
    started_s: float | None = None
    ready_s: float | None = None
    go_s: float | None = None
    ended_s: float | None = None


class NodePart(Record, frozen=True, kw_only=True):
    """What the agent of one node records of its part of a task over nodes. Times are on the clock of its host."""

    node: Annotated[str, Meta(description="name of the agent, as in the task's `nodes`")]
    host: Annotated[str, Meta(description="name of the machine")]
    clock: Clock
    offset_s: Annotated[
        float, Meta(description="the host's CLOCK_MONOTONIC minus that of the host that recorded the result")
    ] = 0.0
    offset_error_s: Annotated[float, Meta(description="largest error of `offset_s`: half of the fastest answer")] = 0.0
    facts_sha256: Annotated[str, Meta(description="SHA-256 of the machine's facts in run.json")]
    tenant: Tenant
    telemetry: Telemetry | None = None
    data: DataUsed | None = None
    started_s: float | None = None
    ended_s: float | None = None
    exit_code: Annotated[int | None, Meta(description="of the launcher of its ranks; null: it was ended, or lost")] = (
        None
    )
    environ: Annotated[dict[str, str], Meta(description="variables that its ranks got because of the network")] = {}


class Rate(Record, frozen=True, kw_only=True):
    """What the slices of a task say of its speed, as the report derives it. The slices are the measurement."""

    value: Annotated[float | None, Meta(description="`unit` per second in the window; null: see `reason`")] = None
    unit: Annotated[str, Meta(description="what an item is, such as image; `value` counts them per second")]
    reason: Annotated[str | None, Meta(description="why there is no value")] = None
    error: Annotated[
        float | None,
        Meta(
            description="half width of the 95 % interval of `value`, a fraction of it (0.01 is 1 %), from the window's "
            "slices alone"
        ),
    ] = None
    std: Annotated[
        float | None,
        Meta(description="standard deviation of the rates of the window's slices, absolute, in `unit` per second"),
    ] = None
    slices: Annotated[int, Meta(description="slices of the window")] = 0
    items: Annotated[int, Meta(description="items in the window")] = 0
    seconds: Annotated[float, Meta(description="length of the window")] = 0.0
    start_s: Annotated[float | None, Meta(description="begin of the window, on CLOCK_MONOTONIC")] = None
    end_s: Annotated[float | None, Meta(description="end of the window, on CLOCK_MONOTONIC")] = None
    steady: Annotated[
        bool | None, Meta(description="whether the window's rate is known to 2 %, on one level and without a drift")
    ] = None
    unsteady: Annotated[tuple[str, ...], Meta(description="what makes the window not steady, each with a remedy")] = ()
    model_tflops: Annotated[float | None, Meta(description="model TFLOP/s of one GPU; null: not known, or no GPU")] = (
        None
    )
    mfu: Annotated[
        float | None,
        Meta(description="`model_tflops` over the GPU's dense peak; whole attention squares count; null: not known"),
    ] = None


class Result(Record, frozen=True, kw_only=True):
    """The result of one task. The parent writes exactly one, however the worker ended."""

    schema: int = SCHEMA
    kind: Literal["result"] = "result"
    status: Status
    error: Failure | None = None
    identity: Identity
    task: Task
    machine: TaskMachine
    code: Code
    tenant: Tenant
    container: Annotated[ContainerUsed | None, Meta(description="null: the worker ran on the host itself")] = None
    data: DataUsed | None = None
    batch_search: BatchSearch | None = None
    sharing: Annotated[
        SharingUsed | None, Meta(description="how it shared its GPU with other models; null: it had the GPU alone")
    ] = None
    group: GroupUsed | None = None
    timeline: Timeline
    measurement: Measurement = Measurement()
    telemetry: Annotated[Telemetry | None, Meta(description="summary of the samples, on the clock of `timeline`")] = (
        None
    )
    parts: Annotated[
        tuple[NodePart, ...], Meta(description="the part of each node, in the order of ranks; empty: one machine")
    ] = ()
    telemetry_reason: Annotated[str | None, Meta(description="why there is no telemetry")] = None
    exit_code: Annotated[int | None, Meta(description="of a worker that ended by itself; negative: a signal")] = None
    rate: Annotated[
        Rate | None,
        Meta(description="derived from `measurement`; only where `run` or `rerun` writes a single result"),
    ] = None
