"""Records that a run writes: the machines, the run itself, and one result for each task.

Times called `*_s` are seconds of CLOCK_MONOTONIC unless a field says otherwise. A `clock` in the same record names the
host and the boot, so that times of one host can be related to each other.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from benchsuite.costs import PhaseSpan
from benchsuite.describe.spanning import Seat
from benchsuite.describe.tasks import Gpu, ProfileUsed, Task
from benchsuite.measurement import Clock, GroupUsed, Measurement
from benchsuite.provisions import ContainerUsed, DataUsed, SharingUsed, Tenant
from benchsuite.schema import SCHEMA, Record
from benchsuite.searches import BatchSearch
from benchsuite.telemetry import Telemetry

Status = Literal["ok", "failed", "oom", "timeout", "killed", "lost", "interrupted", "skipped"]
FAILURES: frozenset[Status] = frozenset({"failed", "oom", "timeout", "killed", "lost"})


class Machine(Record, frozen=True, kw_only=True):
    """The hardware and software of a machine."""

    host: Annotated[str, Meta(description="name of the host")]
    boot_id: Annotated[str, Meta(description="boot of the host")]
    system: Annotated[str, Meta(description="operating system, such as Linux")]
    kernel: Annotated[str, Meta(description="release of the kernel")]
    cpu: Annotated[str, Meta(description="model of the processors")]
    cpus: Annotated[int, Meta(description="logical processors")]
    cpus_usable: Annotated[int, Meta(description="logical processors that this run may use")]
    memory_bytes: Annotated[int | None, Meta(description="memory of the host; null: the kernel does not report it")]
    driver: Annotated[str | None, Meta(description="NVIDIA driver")] = None
    gpus: Annotated[tuple[Gpu, ...], Meta(description="all GPUs that NVML lists")] = ()
    visible: Annotated[tuple[str, ...], Meta(description="UUIDs of the GPUs that this run may use, in order")] = ()
    gpu_note: Annotated[str | None, Meta(description="why no GPU is listed, or not every one")] = None
    python: Annotated[str, Meta(description="version of Python")]
    packages: Annotated[dict[str, str], Meta(description="package -> version")]

    @property
    def sha256(self) -> str:
        """The hash by which a result names these facts."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


class Code(Record, frozen=True, kw_only=True):
    """The version of benchsuite that ran."""

    version: Annotated[str, Meta(description="version of the package")]
    commit: Annotated[str | None, Meta(description="of the checkout that ran or was built")] = None
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
    repeats: Annotated[int, Meta(description="those that are planned at the start; with a budget, 1")]
    budget_s: Annotated[
        float | None, Meta(description="with --budget: the time after which no repeat is added; null: no budget")
    ] = None
    machines: Annotated[tuple[Machine, ...], Meta(min_length=1, description="the first is the one that ran benchsuite")]
    seats: Annotated[tuple[Seat, ...], Meta(description="agents of a run over nodes; empty: one machine")] = ()
    code: Code
    begun_schema: Annotated[int, Meta(description="schema of the benchsuite that started the run")] = SCHEMA
    preload: Annotated[
        bool | None,
        Meta(description="workers are forked from a preloaded process where that is possible; null: not recorded"),
    ] = None
    resumed: Annotated[
        tuple[tuple[str, str], ...], Meta(description="when the run was resumed, and by which command line")
    ] = ()

    @property
    def machine(self) -> Machine:
        """The machine on which benchsuite was started."""
        return self.machines[0]


class Failure(Record, frozen=True, kw_only=True):
    """Why the status of a task is not ok."""

    kind: Annotated[
        str,
        Meta(description="type of the exception, name of the signal, or a kind of benchsuite's own such as timeout"),
    ]
    message: Annotated[str, Meta(description="the reason in words")]
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
    profile: Annotated[str, Meta(description="name of the profile")]
    job: Annotated[str, Meta(description="key of the profile's entry")]
    cell: Annotated[str, Meta(description="the job's name with the values of its matrix")]
    row: Annotated[str, Meta(description="the name under which rates pool")]
    axes: Annotated[dict[str, Any], Meta(description="axis of the unrolled job -> value")] = {}
    repeat: Annotated[int, Meta(description="pass over the profile, from 0")]
    devices: Annotated[tuple[int, ...], Meta(description="visible indices of its GPUs")]
    copy: Annotated[int, Meta(description="number among the copies on one GPU, from 0")]
    attempt: Annotated[int, Meta(description="from 1; higher only in a run that was resumed")]


class TaskMachine(Record, frozen=True, kw_only=True):
    """The task's own GPUs, and the machine and software behind them."""

    gpus: Annotated[tuple[Gpu, ...], Meta(description="GPUs of the task")]
    cpu: Annotated[str | None, Meta(description="model of the processors; null: not recorded")] = None
    driver: Annotated[str | None, Meta(description="NVIDIA driver; null: no GPU")]
    facts_sha256: Annotated[str, Meta(description="SHA-256 of the machine's facts in run.json")]
    software: Annotated[dict[str, str], Meta(description="versions as the worker saw them")] = {}
    facts: Annotated[
        Machine | None, Meta(description="the facts themselves; only in a single result, which has no run.json")
    ] = None


class Timeline(Record, frozen=True, kw_only=True):
    """The times of a task, on the clock of the host that supervised it. Null: it did not get so far."""

    clock: Annotated[Clock, Meta(description="the clock of these times")]
    queued_s: Annotated[float, Meta(description="the run began")]
    started_s: Annotated[float | None, Meta(description="its process was started")] = None
    ready_s: Annotated[float | None, Meta(description="all its ranks were warm")] = None
    go_s: Annotated[float | None, Meta(description="its wave began to measure")] = None
    ended_s: Annotated[float | None, Meta(description="its last process ended")] = None
    phases: Annotated[
        tuple[PhaseSpan, ...],
        Meta(
            description="what the time of rank 0 went to, up to `ended_s`, from `started_s` or, for one that waits "
            "for a preloaded process, before; empty: not recorded"
        ),
    ] = ()


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
    started_s: Annotated[float | None, Meta(description="the launcher of its ranks was started; null: never")] = None
    ended_s: Annotated[float | None, Meta(description="its last process ended; null: not known")] = None
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

    schema: Annotated[int, Meta(description="number of the file format")] = SCHEMA
    kind: Annotated[Literal["result"], Meta(description="kind of the file")] = "result"
    status: Annotated[Status, Meta(description="how the task ended")]
    error: Annotated[Failure | None, Meta(description="why the status is not ok")] = None
    identity: Annotated[Identity, Meta(description="which task of which run this is")]
    task: Annotated[Task, Meta(description="all that is needed to run the task again")]
    machine: Annotated[TaskMachine, Meta(description="the GPUs and the software of the task")]
    code: Annotated[Code, Meta(description="the version of benchsuite")]
    tenant: Annotated[Tenant, Meta(description="the share of the machine that the task had")]
    container: Annotated[ContainerUsed | None, Meta(description="null: the worker ran on the host itself")] = None
    data: Annotated[DataUsed | None, Meta(description="the source of the batches")] = None
    batch_search: Annotated[
        BatchSearch | None, Meta(description="how the batch size was found, for `batch_size: auto`")
    ] = None
    sharing: Annotated[
        SharingUsed | None, Meta(description="how it shared its GPU with other models; null: it had the GPU alone")
    ] = None
    group: Annotated[GroupUsed | None, Meta(description="how several ranks met; null: a single rank")] = None
    timeline: Annotated[Timeline, Meta(description="when the task started and ended")]
    measurement: Annotated[Measurement, Meta(description="the slices, and what else the worker measured")] = (
        Measurement()
    )
    telemetry: Annotated[Telemetry | None, Meta(description="summary of the samples, on the clock of `timeline`")] = (
        None
    )
    parts: Annotated[
        tuple[NodePart, ...], Meta(description="the part of each node, in the order of ranks; empty: one machine")
    ] = ()
    telemetry_reason: Annotated[str | None, Meta(description="why there is no telemetry")] = None
    exit_code: Annotated[int | None, Meta(description="of a worker that ended by itself; negative: a signal")] = None
    forked: Annotated[
        bool | None,
        Meta(description="the worker was forked from a preloaded process; false: it started anew; null: not recorded"),
    ] = None
    rate: Annotated[
        Rate | None,
        Meta(description="derived from `measurement`; only where `run` or `rerun` writes a single result"),
    ] = None
