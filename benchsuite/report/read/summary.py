"""The kept summary: what every report, comparison and baseline reads.

`stats.summarise` makes it from a run folder. A published baseline is a summary too, and may lack tasks and repeats.
Rates are in items/s, divided by `per` of their row.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from benchsuite.describe.cards import Format
from benchsuite.describe.tasks import PLACE_AXES
from benchsuite.measurement import ModelFlops, PipelineUsed
from benchsuite.provisions import DataUsed
from benchsuite.records import Code, Machine
from benchsuite.report.measure.intervals import Interval
from benchsuite.report.read.cost import JobCost
from benchsuite.report.read.together import Together
from benchsuite.report.read.trainings import Training
from benchsuite.report.read.use import StdParts, Use
from benchsuite.report.read.wall import WallTime
from benchsuite.schema import SCHEMA, Record


class ProfileRef(Record, frozen=True, kw_only=True):
    """The profile of a run, without its text; fields other than the name are null without a run.json."""

    name: str
    sha256: str | None = None
    official: bool | None = None
    based_on: str | None = None
    differences: tuple[str, ...] = ()


class TaskGpu(Record, frozen=True, kw_only=True):
    """A GPU of a task."""

    index: int
    uuid: str


class TaskSummary(Record, frozen=True, kw_only=True):
    """One planned task."""

    id: str
    host: str | None = None
    session: Annotated[int, Meta(description="place of its run among `sessions`, from 0")] = 0
    repeat: int
    copy: int = 0
    attempt: int | None = None
    device: str
    status: Annotated[str, Meta(description="a result's, `insufficient`, `not run` or `running`")]
    reason: Annotated[str | None, Meta(description="why the task is not ok")] = None
    workload: Annotated[
        str | None, Meta(description="SHA-256 of what is trained; null where another program does not record it")
    ] = None
    perf: Annotated[float | None, Meta(description="items/s in the window")] = None
    slices: Annotated[int, Meta(description="slices of the window")] = 0
    dropped: Annotated[int, Meta(description="slices behind the window that are left out")] = 0
    items: Annotated[int, Meta(description="items in the window")] = 0
    seconds: Annotated[float, Meta(description="length of the window")] = 0.0
    spread: Annotated[float | None, Meta(description="standard deviation of the slices' rates over their mean")] = None
    spread_half: Annotated[float | None, Meta(description="half width of its 95 % interval")] = None
    drift: Annotated[float | None, Meta(description="relative change of the rate per 10 s")] = None
    drift_half: Annotated[float | None, Meta(description="half width of its 95 % interval")] = None
    settled_s: Annotated[
        float | None, Meta(description="seconds since go at which the rate settled; 0: from the first slice")
    ] = None
    change: Annotated[float | None, Meta(description="relative change of the rate at `settled_s`")] = None
    error: Annotated[
        float | None,
        Meta(description="half width of the 95 % interval of perf, relative, from the window's slices alone"),
    ] = None
    steady: Annotated[
        bool | None, Meta(description="whether the window's rate is known to 2 %, on one level and without a drift")
    ] = None
    unsteady: Annotated[tuple[str, ...], Meta(description="what makes the window not steady, each with a remedy")] = ()
    perf_unthrottled: Annotated[
        float | None,
        Meta(description="perf over the window's slices without thermal or hardware slow-down; null: none was slowed"),
    ] = None
    unthrottled_reason: Annotated[str | None, Meta(description="why there is no such figure")] = None
    gpus: tuple[TaskGpu, ...] = ()
    nodes: Annotated[tuple[str, ...], Meta(description="nodes of a task over nodes; empty: one machine")] = ()
    use: Use | None = None
    unsampled: Annotated[str | None, Meta(description="when its GPUs were not sampled, and why")] = None
    file: Annotated[str | None, Meta(description="name of the result's file")] = None


class Repeat(Record, frozen=True, kw_only=True):
    """A job in one repeat."""

    session: Annotated[int, Meta(description="place of its run among `sessions`, from 0")] = 0
    repeat: int
    tasks: Annotated[int, Meta(description="planned tasks")]
    ok: Annotated[int, Meta(description="tasks with a figure")]
    perf: Annotated[float | None, Meta(description="mean of their perfs")] = None


class GpuSummary(Record, frozen=True, kw_only=True):
    """A job on one GPU, if another program published that instead of tasks."""

    gpu: str
    n: Annotated[int, Meta(description="samples")]
    perf: float | None = None
    std: Annotated[float | None, Meta(description="relative to `perf`")] = None
    min: float | None = None
    max: float | None = None


# Every task is ok; some are not; none is; none was run; some are still to run: of a run in progress, or of another.
JobState = Literal["ok", "fails in part", "fails", "never run", "in progress", "unfinished"]


class JobSummary(Record, frozen=True, kw_only=True):
    """One row of the report: a job, or one combination of an unrolled job's axes."""

    name: Annotated[str, Meta(description="the name under which rates pool; weights and comparisons go by it")]
    job: Annotated[str, Meta(description="key of the profile's entry")]
    axes: Annotated[dict[str, Any], Meta(description="axis of the unrolled job -> value of this row")] = {}
    per: Annotated[int, Meta(gt=0, description="what rates are divided by: GPUs or ranks of a progression's group")] = 1
    unit: Annotated[str | None, Meta(description="what an item is")] = None
    devices: Annotated[str, Meta(description="the placement's `devices`")] = "each"
    n: Annotated[int, Meta(description="planned tasks")]
    state: Annotated[
        JobState | None, Meta(description="whether the job has a number; null: another program's publication")
    ] = None
    fail: Annotated[int, Meta(description="tasks that ended and are not ok")]
    not_run: Annotated[int, Meta(description="of `to_run`, tasks of a run that is not in progress")] = 0
    to_run: Annotated[int, Meta(description="tasks that have not ended: not run, running or interrupted")] = 0
    perf: Annotated[float | None, Meta(description="items/s in the window, mean over tasks")] = None
    std: Annotated[
        float | None,
        Meta(description="population standard deviation over tasks, relative to `perf`; null: one task, or perf 0"),
    ] = None
    std_parts: StdParts | None = None
    perf_adj: Annotated[float, Meta(description="perf x (1 - std) x (1 - fail/n)")]
    min: Annotated[float | None, Meta(description="lowest perf of a task")] = None
    max: Annotated[float | None, Meta(description="highest perf of a task")] = None
    interval: Annotated[Interval | None, Meta(description="95 % interval of perf over repeats")] = None
    slices: Annotated[int, Meta(description="slices behind perf, over all tasks")] = 0
    seconds: Annotated[float, Meta(description="seconds behind perf, over all tasks")] = 0.0
    unsteady: Annotated[int, Meta(description="ok tasks whose window is not steady")] = 0
    perf_unthrottled: Annotated[
        float | None, Meta(description="perf with the slices that heat or hardware slowed left out; null: none was")
    ] = None
    use: Use | None = None
    workload: Annotated[str | None, Meta(description="SHA-256 of what is trained")] = None
    unlike: Annotated[
        tuple[str, ...], Meta(description="how tasks differ in what they train, old -> new; then perf means nothing")
    ] = ()
    unlike_machines: Annotated[
        tuple[str, ...], Meta(description="how the machines of the tasks differ; then there is no perf")
    ] = ()
    settings: Annotated[dict[str, Any], Meta(description="what was asked, by field")] = {}
    tags: Annotated[tuple[str, ...], Meta(description="labels of the job")] = ()
    data_used: Annotated[tuple[DataUsed, ...], Meta(description="what the tasks read")] = ()
    batch_size: Annotated[int | None, Meta(description="the size found for a job that asks for `auto`")] = None
    ranks: Annotated[int, Meta(description="processes that train one model together")] = 1
    batch_each: Annotated[int | None, Meta(description="batch size of one rank")] = None
    backend: Annotated[str | None, Meta(description="library by which ranks communicate")] = None
    peak_memory_bytes: Annotated[int | None, Meta(description="of a device, the largest of all tasks")] = None
    model_flops: Annotated[ModelFlops | None, Meta(description="of the first task that records them")] = None
    pipeline: Annotated[PipelineUsed | None, Meta(description="of the first ok task; null: no pipeline")] = None
    product_format: Annotated[
        Format | None, Meta(description="number format in which the matrix products ran; null: not known")
    ] = None
    gpu_names: Annotated[tuple[str, ...], Meta(description="models of the GPUs of its ok tasks, by NVML")] = ()
    gpus: Annotated[tuple[GpuSummary, ...], Meta(description="only where no tasks are kept")] = ()
    unit_factor: Annotated[
        float | None, Meta(description="what an older baseline's rates are multiplied by to be in today's unit")
    ] = None
    excluded: Annotated[str | None, Meta(description="why the job cannot be compared at all")] = None
    together: Annotated[
        Together | None, Meta(description="its copies that share a GPU as a whole; null: a job without copies")
    ] = None
    repeats: tuple[Repeat, ...] = ()
    tasks: tuple[TaskSummary, ...] = ()

    @property
    def varied(self) -> dict[str, Any]:
        """The axes of a matrix with this row's values, without the number of GPUs or ranks of a progression."""
        return {axis: value for axis, value in self.axes.items() if axis not in PLACE_AXES}

    @property
    def ended(self) -> int:
        """The number of tasks that `fail` is out of: `n` without `to_run`."""
        return self.n - self.to_run


class RerunSummary(Record, frozen=True, kw_only=True):
    """A rerun beside its original; never part of n, perf or score."""

    task: TaskSummary
    of: Annotated[str, Meta(description="file name of the original result")]
    original_perf: float | None = None
    changes: tuple[str, ...] = ()


class BadFile(Record, frozen=True, kw_only=True):
    """A file that cannot be used, and why."""

    file: str
    reason: str


class Session(Record, frozen=True, kw_only=True):
    """One run of several that are reported together."""

    source: Annotated[str, Meta(description="name of its folder or file")]
    created: str | None = None
    hosts: tuple[str, ...] = ()
    differences: Annotated[
        tuple[str, ...], Meta(description="how machine, software and settings differ from the first run, old -> new")
    ] = ()


class Summary(Record, frozen=True, kw_only=True):
    """All jobs of a run, or of several runs of one machine, with machines, code, isolation and data."""

    schema: int = SCHEMA
    kind: Literal["summary"] = "summary"
    source: Annotated[str, Meta(description="name of the folder or publication")]
    origin: Annotated[str | None, Meta(description="the other program whose files were read, in its own unit")] = None
    created: str | None = None
    command: Annotated[tuple[str, ...], Meta(description="command line of the run, or of its first session")] = ()
    provenance: Annotated[str | None, Meta(description="where a baseline's figures come from")] = None
    planned: Annotated[bool, Meta(description="n counts planned tasks; false: only the results that were found")] = True
    in_progress: Annotated[bool, Meta(description="made while the run went on")] = False
    needs_more_gpus: Annotated[
        dict[str, int],
        Meta(description="jobs that were skipped since fewer GPUs are visible than they need -> GPUs that they need"),
    ] = {}
    complete: Annotated[
        bool | None,
        Meta(description="every planned task was run, every job has a number, and no job was left out; null: unknown"),
    ] = None
    profile: ProfileRef | None = None
    machines: Annotated[
        tuple[Machine, ...], Meta(description="those of the first session; empty where no run.json says")
    ] = ()
    code: tuple[Code, ...] = ()
    measured_with: Annotated[
        dict[str, tuple[str, ...]], Meta(description="host, processor, GPU, driver and torch of the results -> values")
    ] = {}
    gpus_used: int = 0
    isolation: Annotated[dict[str, int], Meta(description="fence in force -> number of tasks")] = {}
    data: Annotated[dict[str, int], Meta(description="data read -> number of tasks")] = {}
    overlap: Annotated[
        float | None,
        Meta(description="least share of a task's window in which its whole wave trained; null: no wave has two tasks"),
    ] = None
    budget_s: Annotated[
        float | None,
        Meta(description="the time in which --budget chose the repeats; null: each job was to have as many"),
    ] = None
    jobs: tuple[JobSummary, ...]
    reruns: tuple[RerunSummary, ...] = ()
    bad_files: tuple[BadFile, ...] = ()
    trainings: Annotated[
        tuple[Training, ...], Meta(description="tasks that train by epochs; they are no jobs of the score")
    ] = ()
    sessions: Annotated[tuple[Session, ...], Meta(description="the runs reported together; empty: one run")] = ()
    left_out: Annotated[
        tuple[str, ...], Meta(description="jobs of the profile that were not to run, by --name or --exclude")
    ] = ()
    costs: Annotated[tuple[JobCost, ...], Meta(description="what measuring costs; empty: it was not measured")] = ()
    wall: Annotated[WallTime | None, Meta(description="what the wall time went to; null: not recorded")] = None

    @property
    def machine(self) -> Machine | None:
        """The machine on which benchsuite was started."""
        return self.machines[0] if self.machines else None

    @property
    def gpus_present(self) -> int | None:
        """The number of GPUs of the machines; None without a run.json."""
        return sum(len(machine.gpus) for machine in self.machines) if self.machines else None

    @property
    def any_ok(self) -> bool:
        """Whether any task, or a rerun, has a throughput, or a training by epochs is ok."""
        measured = any(job.perf is not None or any(t.perf is not None for t in job.tasks) for job in self.jobs)
        measured |= any(one.status == "ok" for one in self.trainings)
        return measured or any(rerun.task.status == "ok" for rerun in self.reruns)

    @property
    def mixed(self) -> dict[str, tuple[str, ...]]:
        """The facts of `measured_with` that have several values."""
        return {what: values for what, values in self.measured_with.items() if len(values) > 1}
