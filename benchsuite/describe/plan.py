"""The plan: all tasks of a profile on a machine, in waves and in order, made before anything starts.

A job is unrolled over the axes of its matrix and over the number of GPUs of a progression. Each task records what the
plan decided (cell, row, axes, wave, id), so that no other module derives it again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from benchsuite.describe import entries, sharing, spanning
from benchsuite.describe.arrays import with_array
from benchsuite.describe.matrix import Cell, cells, with_copies
from benchsuite.describe.names import cell_name, wave_name
from benchsuite.describe.obstacles import apart, missing_packages, too_few, too_small
from benchsuite.describe.placement import PAIRS
from benchsuite.describe.spanning import Seat
from benchsuite.describe.tasks import FIT, PLACE_AXES, Gpu, Job, NodeShare, Plan, Task, Wave, profile_fields
from benchsuite.describe.variables import THREAD_VARIABLES, recorded_environ
from benchsuite.errors import UsageError

# Ranks of a group that runs on the CPU instead of GPUs. Two are enough to test that it works.
CPU_RANKS = 2
# The value of CUDA_VISIBLE_DEVICES for a worker without a GPU: it hides all GPUs.
NO_GPU = ""


@dataclass(frozen=True)
class Place:
    """The place of one task.

    Attributes:
        gpus: the GPUs of the task; empty on a CPU.
        ranks: the processes that train its model together.
        number: the number in the task's id after the repeat; None if the job has a single task in each repeat.
        axes: the axis of a progression, with the value of this place; empty for other placements.
        skip: why the task cannot run; None if it can.
        copy: the number among the copies that share the place; None if it has a single task.
        nodes: the part of each node; empty for a task on one machine.
        part: the number of its wave, if the job has several waves in each repeat.
    """

    gpus: tuple[Gpu, ...] = ()
    ranks: int = 1
    number: int | None = None
    axes: Mapping[str, int] = field(default_factory=dict)
    skip: str | None = None
    copy: int | None = None
    nodes: tuple[NodeShare, ...] = ()
    part: int | None = None

    @property
    def suffix(self) -> str:
        """The end of the task's id, after the repeat."""
        if self.part is not None and self.nodes:
            return f".{'+'.join(share.node for share in self.nodes)}"  # no name of a host has a plus
        return "".join(
            f".{of}" for of in (self.number, None if self.copy is None else f"c{self.copy}") if of is not None
        )


@dataclass(frozen=True)
class PlanContext:
    """What all tasks of a plan have in common.

    Attributes:
        environ: the environment that workers inherit.
        data_root: the folder of the data sets.
    """

    profile: str
    environ: Mapping[str, str]
    data_root: str | None = None


def make_plan(
    profile: str,
    jobs: Sequence[Job],
    gpus: Sequence[Gpu],
    *,
    environ: Mapping[str, str],
    repeats: int = 1,
    data_root: str | None = None,
    seats: Sequence[Seat] = (),
) -> Plan:
    """The plan of a run, in the order of repeats, jobs, cells, and the number of GPUs of a progression.

    Args:
        profile: the profile's name.
        gpus: the visible GPUs, in their order.
        environ: the environment that workers will inherit; each task records those variables that affect speed.
        data_root: the folder of the data sets.
        seats: the agents of a run over nodes, whose GPUs count instead; empty for a run on one machine.

    Raises:
        UsageError: a job asks for more ranks than there are GPUs.
    """
    context = PlanContext(profile, environ, data_root)
    unrolled = [cell for job in jobs for cell in cells(job)]
    tasks = [
        make_task(cell, place, context, repeat)
        for repeat, cell in itertools.product(range(repeats), unrolled)
        for place in places(cell.job, gpus, seats)
    ]
    return plan_of(tasks)


def with_numbers(plan: Plan, found: Mapping[str, Sequence[int]]) -> Plan:
    """The plan with tasks for the numbers of copies that a search found, in place of the task that stood for them.

    Args:
        found: cell whose `copies` is `fit` -> the numbers. A cell without an entry stays as it is.
    """
    tasks: list[Task] = []
    for wave in plan.waves:
        first = wave.tasks[0]
        if first.job.copies != FIT or first.cell not in found:
            tasks += wave.tasks
            continue
        cell = Cell(first.cell, first.axes, first.job)
        tasks += [made for number in found[first.cell] for task in wave.tasks for made in copied(task, cell, number)]
    return plan_of(tasks)


def copied(task: Task, cell: Cell, number: int) -> list[Task]:
    """The tasks of a cell with this number of copies, in the place of a task whose number was left open."""
    (numbered,) = with_copies(cell, [number])
    place = Place(task.gpus, number=task.gpus[0].visible_index if task.gpus else None, skip=task.skip)
    context = PlanContext(task.profile, task.environ, task.data_root)
    return [make_task(numbered, one, context, task.repeat) for one in _each_copy(numbered.job, place)]


def make_task(cell: Cell, place: Place, context: PlanContext, repeat: int = 0) -> Task:
    """The task of a cell in a place."""
    job = cell.job
    row = f"{cell.name}.{place.ranks}" if place.axes else cell.name
    return Task(
        id=f"{cell.name}.J{repeat}{place.suffix}",
        profile=context.profile,
        repeat=repeat,
        job=job,
        cell=cell.name,
        row=row,
        axes={**cell.axes, **place.axes},
        per=place.ranks if place.axes else 1,
        wave=wave_name(row, repeat, place.part),
        copy=place.copy or 0,
        gpus=place.gpus,
        ranks=place.ranks,
        nodes=place.nodes,
        data_root=context.data_root,
        environ=task_environ(job, place.gpus, context.environ),
        skip=place.skip or missing_packages(job) or too_small(job, place.gpus) or sharing.why_not(job, place.gpus),
        cwd=str(Path.cwd()) if job.entry else None,
        entry_sha256=entries.declared(None, job.entry).sha256 if job.entry else None,
    )


def again(old: Task, job: Job, place: Place) -> Task:
    """A task with another job or place. It keeps its repeat and id; cell, row and axes follow the new job and place.

    Args:
        old: the task that runs again.
        job: its job with changes.
        place: its new place.
    """
    before, now = ({**of.params, **profile_fields(of)} for of in (old.job, job))
    axes = {
        axis: value if before.get(axis) == now.get(axis) else now[axis]
        for axis, value in old.axes.items()
        if axis not in PLACE_AXES
    }
    axes = with_array(axes, job)
    cell = Cell(cell_name(job.name, axes), axes, job)
    of_job = {**_given_threads(old.job), **old.job.env}
    environ = {name: value for name, value in old.environ.items() if name not in of_job}
    task = make_task(cell, place, PlanContext(old.profile, environ, old.data_root), old.repeat)
    return msgspec.structs.replace(task, id=old.id, copy=old.copy, cwd=old.cwd)


def places(job: Job, gpus: Sequence[Gpu], seats: Sequence[Seat] = ()) -> Iterator[Place]:
    """The places of a job in one repeat, once for each copy that trains in a process of its own.

    Raises:
        UsageError: as `_on_one_machine` and `spread`.
    """
    if seats and job.placement.nodes == PAIRS:
        for number, of in spanning.spread_pairs(job, seats):
            yield Place(of.gpus, of.ranks, skip=of.skip, nodes=of.shares, part=number)
        return
    if seats or job.placement.spanned > 1:
        found = spanning.spread(job, seats) if seats else spanning.alone(job)
        yield Place(found.gpus, found.ranks, skip=found.skip, nodes=found.shares)
        return
    for place in _on_one_machine(job, gpus):
        yield from _each_copy(job, place)


def _each_copy(job: Job, place: Place) -> Iterator[Place]:
    if job.processes == 1 or place.skip or sharing.why_not(job, place.gpus):
        yield place
    else:
        yield from (replace(place, copy=copy) for copy in range(job.processes))


def _on_one_machine(job: Job, gpus: Sequence[Gpu]) -> Iterator[Place]:
    """The places of a job on this machine, in one repeat. A progression has one for each number of GPUs, or of ranks.

    With `fsdp` these are the numbers that its shards divide.

    Raises:
        UsageError: the job asks for more ranks than there are GPUs, or for shards into which they cannot be divided.
    """
    devices, parallel = job.placement.devices, job.training.parallel
    asked, multiple = parallel.ranks, parallel.multiple
    on_gpus, skip = devices != "none" and bool(gpus), None
    if on_gpus:
        skip = too_few(job, len(gpus))
    elif devices != "none" and not job.placement.cpu_allowed:
        named = {"each": "per_gpu", "progression": "gpu_progression", "all": "all_gpus"}[devices]
        skip = f"no GPU is visible, and the job's placement is {named} ({named}_or_cpu would allow the CPU)"
    if skip:
        yield _step(1, (), skip) if devices == "progression" else Place(skip=skip)
        return
    if on_gpus and (least := max(asked or 1, multiple)) > len(gpus):
        what = (
            f"parallel.dp {asked} is"
            if parallel.fsdp is None and not parallel.pp
            else f"parallel asks for {least} ranks,"
        )
        raise UsageError(f"job '{job.name}': {what} over the {len(gpus)} visible GPUs; lower it")
    if on_gpus and devices == "each":
        yield from (Place((gpu,), number=gpu.visible_index) for gpu in gpus)
        return
    most = asked or (len(gpus) if on_gpus else max(multiple, 1 if devices in ("each", "none") else CPU_RANKS))
    if devices != "progression":
        if most % multiple:
            field = "pp" if parallel.pp else "dp" if parallel.fsdp == "all" else "fsdp"
            raise UsageError(
                f"job '{job.name}': parallel.{field} {multiple} does not divide the {most} visible GPUs; give a "
                f"divisor of it, or both dp and {'pp' if parallel.pp else 'fsdp'}"
            )
        yield Place(tuple(gpus[:most]) if on_gpus else (), most, skip=apart(gpus[:most]))
        return
    for ranks in range(multiple, most + 1, multiple):
        yield _step(ranks, gpus[:ranks] if on_gpus else (), apart(gpus[:ranks]))


def _step(ranks: int, gpus: Sequence[Gpu], skip: str | None = None) -> Place:
    """The place of a progression with this number of GPUs or, on the CPU, of ranks."""
    return Place(tuple(gpus), ranks, ranks - 1, {"gpus" if gpus or skip else "ranks": ranks}, skip)


def task_environ(job: Job, gpus: Sequence[Gpu], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that a task records: those of the user, its GPUs by UUID, and the job's `env`.

    A number of intra-op threads that the job gives replaces that of the user.
    """
    return {
        **recorded_environ(environ),
        **_given_threads(job),
        "CUDA_DEVICE_ORDER": environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        "CUDA_VISIBLE_DEVICES": ",".join(g.uuid for g in gpus) or NO_GPU,
        **job.env,
    }


def _given_threads(job: Job) -> dict[str, str]:
    """The variables for a number of intra-op threads; empty if the job gives no number."""
    threads = job.training.intra_op_threads
    return dict.fromkeys(THREAD_VARIABLES, threads) if threads.isdecimal() else {}


def plan_of(tasks: Sequence[Task]) -> Plan:
    """The plan of these tasks, in their order: tasks of the same wave follow each other."""
    grouped = itertools.groupby(tasks, key=lambda task: task.wave)
    return Plan(waves=tuple(Wave(name=name, tasks=tuple(wave)) for name, wave in grouped))
