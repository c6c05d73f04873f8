"""Records of what the user asks for: the jobs of a profile, and the tasks and waves of a plan.

A worker reads these records, and `plan.json` and every result keep them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from benchsuite.costs import CostAsked
from benchsuite.describe.containers import Container
from benchsuite.describe.goal import Kept, Target
from benchsuite.describe.placement import PAIRS
from benchsuite.describe.placement import Placement as Placement
from benchsuite.describe.training import Training
from benchsuite.schema import SCHEMA, Record

LONGEST_S = 30 * 24 * 3600.0
PageCache = Literal["any", "cold", "warm"]
# The ways in which several models share a GPU. `serial` is the base that the others are compared with: one model.
Sharing = Literal["serial", "concurrent", "mps", "mig", "fused"]
# The ways that run each model in a process of its own.
PROCESSES: frozenset[Sharing] = frozenset({"concurrent", "mps", "mig"})
Copies = Annotated[int, Meta(gt=0)] | Literal["fit"]
# The value of `copies` for which a search finds the largest number that fits, and a draw the numbers to measure.
FIT: Literal["fit"] = "fit"


# The axes of a progression: how many GPUs, or on a CPU how many ranks, a group has.
PLACE_AXES = ("gpus", "ranks")


class Job(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of a profile, with all defaults filled in."""

    name: Annotated[str, Meta(min_length=1, max_length=100, description="key of the entry in the profile")]
    model: Annotated[str | None, Meta(description="name of a model that benchsuite ships")] = None
    entry: Annotated[str | None, Meta(description="`module:function` of a model of the user's own")] = None
    params: Annotated[
        dict[str, Any],
        Meta(description="parameters of the model; those that a profile leaves out have the model's defaults"),
    ] = {}
    matrix: Annotated[
        dict[str, tuple[Any, ...]],
        Meta(description="values of parameters or fields; the job runs once for each combination"),
    ] = {}
    placement: Annotated[Placement, Meta(description="where the tasks of the job go")] = Placement()
    sharing: Annotated[
        Sharing,
        Meta(
            description="how several models share a GPU: serial (one model), concurrent (a process each), mps, mig, or "
            "fused (one process); a list is an axis"
        ),
    ] = "serial"
    copies: Annotated[
        Copies, Meta(description="models that share a GPU; fit: up to the most that fit; a list is an axis")
    ] = 1
    max_count: Annotated[
        Annotated[int, Meta(gt=0)] | None, Meta(description="items after which the measurement may end")
    ] = None
    max_steps: Annotated[
        Annotated[int, Meta(gt=0)] | None, Meta(description="steps after which the measurement may end")
    ] = None
    warm_up_s: Annotated[
        float,
        Meta(ge=0, le=LONGEST_S, description="seconds that the untimed steps before the measurement last at least"),
    ] = 2.0
    min_time_s: Annotated[
        float, Meta(ge=0, le=LONGEST_S, description="seconds that the measurement lasts at least")
    ] = 15.0
    max_time_s: Annotated[
        float, Meta(gt=0, le=LONGEST_S, description="seconds after which the measurement ends in any case")
    ] = 120.0
    timeout_s: Annotated[
        float, Meta(gt=0, le=2 * LONGEST_S, description="seconds for the whole process, start and warm-up included")
    ] = 600.0
    max_epochs: Annotated[
        Annotated[int, Meta(gt=0)] | None,
        Meta(description="epochs after which the training ends; the task then has no score"),
    ] = None
    target: Annotated[
        Target | None,
        Meta(description="figure at which the training ends: `loss=2.0` or `bleu=21.8`; the task then has no score"),
    ] = None
    epoch_items: Annotated[
        Annotated[int, Meta(gt=0)] | None, Meta(description="items in an epoch, of all ranks together")
    ] = None
    checkpoints: Annotated[
        Kept, Meta(description="epochs of which the run folder keeps the checkpoints: all, the last, or none")
    ] = "all"
    resume_from: Annotated[
        str | None, Meta(description="checkpoint from which a training by epochs continues, up to `.epochN`")
    ] = None
    loss_band: Annotated[
        tuple[float, float] | None, Meta(description="bounds between which the last loss must lie")
    ] = None
    training: Annotated[Training, Meta(description="how the model is trained")] = Training()
    gpu_memory_gib: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="memory that each GPU needs, GiB; a task on a smaller GPU is skipped; null: not known"),
    ] = None
    data: Annotated[str | None, Meta(description="name of a data set; null: input is generated in memory")] = None
    page_cache: Annotated[
        PageCache,
        Meta(description="state of the data set's files in the page cache at the start: emptied, filled, or as it is"),
    ] = "any"
    prepare: Annotated[
        str | tuple[tuple[str, ...], ...],
        Meta(description="set-up commands before each wave: argument lists, or one line for a shell"),
    ] = ()
    env: Annotated[dict[str, str], Meta(description="environment variables of the worker")] = {}
    container: Annotated[
        Container | None, Meta(description="container in which the workers run; null: they run on the host itself")
    ] = None
    tenant: Annotated[
        Literal["share", "machine"], Meta(description="a task gets its share of the machine, or all of it")
    ] = "share"
    tags: Annotated[tuple[str, ...], Meta(description="labels without effect on the measurement")] = ()

    @property
    def processes(self) -> int:
        """The tasks that train side by side in each place. It is 1 as long as a search must find the copies."""
        return self.copies if self.sharing in PROCESSES and self.copies != FIT else 1

    @property
    def by_epochs(self) -> bool:
        """Whether the job trains epochs to their end, or to a target."""
        return self.max_epochs is not None or self.target is not None


def profile_fields(job: Job) -> dict[str, Any]:
    """The fields of a job on one level, as in a profile: those of `training` among the others, and without the name."""
    fields: dict[str, Any] = msgspec.to_builtins(job)
    del fields["name"]
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat.update(value if name == "training" else {name: value})
    return flat


class ProfileUsed(Record, frozen=True, kw_only=True):
    """The profile of a run, as `run.json` keeps it."""

    name: str
    path: str
    sha256: Annotated[str, Meta(description="of the jobs as they run; empty for a single task")]
    text: Annotated[str, Meta(description="content of the profile's file")]
    official: Annotated[bool, Meta(description="the content of a shipped profile, unchanged")]
    based_on: Annotated[str | None, Meta(description="the shipped profile that it comes from")] = None
    differences: Annotated[tuple[str, ...], Meta(description="changes to `based_on`, in words")] = ()


class Gpu(Record, frozen=True, kw_only=True):
    """One GPU of a machine: a whole card, or an instance of a card that MIG divides."""

    visible_index: Annotated[int, Meta(description="place among the GPUs that this run may use")]
    nvml_index: Annotated[int, Meta(description="place of the card in NVML's order, which is that of PCI addresses")]
    uuid: Annotated[str, Meta(description="UUID, as nvidia-smi -L gives it")]
    name: Annotated[str, Meta(description="name of the card")]
    pci: Annotated[str, Meta(description="PCI address")]
    memory_bytes: Annotated[int | None, Meta(description="total memory")] = None
    power_limit_w: Annotated[float | None, Meta(description="power limit in force")] = None
    max_sm_clock_mhz: Annotated[int | None, Meta(description="highest clock of the SMs")] = None
    parent: Annotated[str | None, Meta(description="UUID of the card that this MIG instance is a part of")] = None


class RerunOf(Record, frozen=True, kw_only=True):
    """Which result a rerun repeats."""

    result: Annotated[str, Meta(description="file name of the original result")]
    changes: Annotated[tuple[str, ...], Meta(description="how the rerun differs from it, old -> new")] = ()


class Trace(Record, frozen=True, kw_only=True):
    """What a profiler records of a task once its measurement is over. The rate of such a task enters no report."""

    tool: Annotated[
        Literal["timeline", "memory", "ncu", "nsys", "nvprof"],
        Meta(description="torch.profiler, the history of torch's allocator, Nsight Compute, Nsight Systems or nvprof"),
    ]
    steps: Annotated[int, Meta(gt=0, description="steps that are recorded, after those that are measured")]
    kernels: Annotated[int, Meta(gt=0, description="for ncu: kernels that are recorded at most")] = 200


class NodeShare(Record, frozen=True, kw_only=True):
    """The part of a task over nodes that one agent runs: the ranks after those of the agents before it."""

    node: Annotated[str, Meta(description="name of the agent: its node")]
    ranks: Annotated[int, Meta(gt=0, description="ranks that it starts")]
    gpus: Annotated[int, Meta(ge=0, description="GPUs of the task on it, one for each rank; 0: the CPU")] = 0


class Task(Record, frozen=True, kw_only=True):
    """A job in its place: all that is needed to run it, now or again."""

    id: Annotated[str, Meta(description="`CELL.J` with repeat and place; unique in a plan")]
    profile: Annotated[str, Meta(description="name of the profile")]
    repeat: Annotated[int, Meta(description="pass over the profile, from 0")]
    job: Annotated[Job, Meta(description="the job with the values of this task's cell")]
    cell: Annotated[str, Meta(description="the job's name with the values of its matrix")]
    row: Annotated[str, Meta(description="the name under which rates pool; a row of the report")]
    axes: Annotated[dict[str, Any], Meta(description="axis of the unrolled job -> value of this task")] = {}
    per: Annotated[int, Meta(gt=0, description="what the task's rate is divided by")] = 1
    wave: Annotated[str, Meta(description="tasks of one wave run side by side")]
    copy: Annotated[int, Meta(description="number among the copies on one GPU, from 0")] = 0
    gpus: Annotated[tuple[Gpu, ...], Meta(description="its GPUs; empty: it runs on the CPU")] = ()
    ranks: Annotated[
        int, Meta(gt=0, description="processes that train one model, one for each GPU or all on the CPU")
    ] = 1
    nodes: Annotated[tuple[NodeShare, ...], Meta(description="parts in the order of ranks; empty: one machine")] = ()
    data_root: Annotated[str | None, Meta(description="folder of the data sets")] = None
    environ: Annotated[
        dict[str, str], Meta(description="recorded environment variables, with the job's own `env`")
    ] = {}
    skip: Annotated[str | None, Meta(description="why the task cannot run")] = None
    cwd: Annotated[str | None, Meta(description="folder in which the module of `entry` is searched first")] = None
    entry_sha256: Annotated[
        str | None, Meta(description="SHA-256 of the file that `entry` names; null: a shipped model, or not recorded")
    ] = None
    rerun_of: Annotated[RerunOf | None, Meta(description="the result that this task repeats; null: no rerun")] = None
    trace: Annotated[Trace | None, Meta(description="what a profiler records; null: nothing")] = None
    cost: Annotated[CostAsked | None, Meta(description="how the cost of measuring is measured; null: it is not")] = None

    @property
    def device(self) -> str:
        """The place in words: "GPU 0", "GPU 0,1" or "CPU"; over nodes "2 nodes, 16 GPUs"."""
        if self.nodes and self.job.placement.nodes == PAIRS:
            return " - ".join(share.node for share in self.nodes)
        if self.nodes:
            return f"{self.job.placement.nodes} nodes, {self.ranks} {'GPUs' if self.gpus else 'ranks on the CPU'}"
        if self.gpus:
            return "GPU " + ",".join(str(g.visible_index) for g in self.gpus)
        return "CPU" if self.ranks == 1 else f"CPU, {self.ranks} ranks"


def lacks_gpus(task: Task) -> bool:
    """Whether a task is skipped because its job needs several GPUs, and fewer are visible."""
    return task.skip is not None and task.job.placement.at_least > 1 and not task.gpus


class DataFolder(Record, frozen=True, kw_only=True):
    """A complete data set on this machine."""

    name: str
    path: str
    reader: Annotated[str, Meta(description="the kind of reader that understands its files")]
    layout: Annotated[dict[str, str], Meta(description="role of a file -> its path below the folder")]


class Wave(Record, frozen=True, kw_only=True):
    """Tasks that run side by side: they begin to measure together, and the next wave waits for all of them."""

    name: str
    tasks: tuple[Task, ...]
    took_s: Annotated[
        float | None,
        Meta(description="with --budget: time from the end of the wave before to the end of this one; null: not run"),
    ] = None


class Plan(Record, frozen=True, kw_only=True):
    """`plan.json`: every task of a run, in order, written before the first one starts.

    A run with --budget adds waves, each before it starts.
    """

    schema: int = SCHEMA
    kind: Literal["plan"] = "plan"
    waves: tuple[Wave, ...]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, wave after wave."""
        return tuple(task for wave in self.waves for task in wave.tasks)

    @property
    def repeats(self) -> int:
        """How many passes over the profile the plan holds."""
        return max((task.repeat for task in self.tasks), default=-1) + 1
