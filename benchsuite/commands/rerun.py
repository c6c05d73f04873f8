"""`benchsuite rerun`: one task again, exactly as it was."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchsuite.commands._changes import WithChanges

if TYPE_CHECKING:
    from benchsuite.describe.plan import Place
    from benchsuite.describe.tasks import Job, Task
    from benchsuite.records import Machine, Result


_EPILOG = "After -- come changes: job fields and parameters of the model. Each one is printed."
_EXAMPLES = (
    ("benchsuite rerun results/new/standard.vae.J0.1.20260105-101500-123456.json", "Run a task again."),
    (
        "benchsuite rerun results/new/standard.vae.J0.1.20260105-101500-123456.json -o - -- --min-time-s 60",
        "Run it longer, and print the result.",
    ),
)


@click.command(cls=WithChanges, epilog=_EPILOG, examples=_EXAMPLES)
@click.argument("result")
@click.option("-o", "--out", metavar="OUT", help="A .json file, a folder, or -.  [default: beside RESULT]")
@click.option("--other-gpu", is_flag=True, help="If the GPU of RESULT is not here, use the one with its index.")
@click.argument("changes", nargs=-1, type=click.UNPROCESSED, metavar="[-- CHANGES]")
def command(result: str, out: str | None, other_gpu: bool, changes: tuple[str, ...]) -> int:
    """Run the task of a result again.

    It has the same parameters, environment, GPU and data. Another host or driver is listed as a change. A rerun is
    shown beside its original and never counts in a score.
    """
    from benchsuite.describe.tasks import ProfileUsed
    from benchsuite.errors import OutputError, UsageError, reason
    from benchsuite.host import machine as host
    from benchsuite.launch.run_one import Judge, check_file, keep, run_single
    from benchsuite.records import Result
    from benchsuite.report.measure.foresight import warnings
    from benchsuite.report.show.one_line import figure
    from benchsuite.report.stats.rate import alone
    from benchsuite.rundir import read_record
    from benchsuite.schema import to_json

    path = Path(result).absolute()
    out = str(Path(out).absolute()) if out and out != "-" else out
    if path.is_dir():
        raise UsageError(_name_a_result(Path(result)))
    original = read_record(path, Result)
    _go_to(original)
    machine = host.describe(os.environ)
    task = _again(original, path, machine, changes, other_gpu)
    target = Path(out) if out and out != "-" else None
    if target and target.suffix == ".json":
        check_file(target)
    elif target and not target.is_dir():
        try:
            target.mkdir(parents=True)
        except OSError as error:
            raise OutputError(f"{target}: cannot be written: {reason(error)}") from None
    elif target is None and out != "-":
        target = path.parent
        check_file(target / ".rerun.json")
    used = ProfileUsed(name=task.profile, path=str(path), sha256="", text="", official=False)
    again, status = run_single(task, used, machine, os.environ, Judge(figure, warnings), like=original)
    again = alone(again, machine)
    if target is None:
        click.echo(to_json(again, indent=2), nl=False)
    else:
        click.echo(f"Result: {keep(again, target)}", err=True)
    _beside(original, again)
    return status


def _name_a_result(folder: Path) -> str:
    """What to name instead of a folder: a result in it, if it is the folder of a run."""
    from benchsuite.records import Result
    from benchsuite.rundir import results

    first = next((file.name for file, result in results(folder) if isinstance(result, Result)), None)
    such = f", such as {folder / first}" if first else "; 'benchsuite jobs' and 'run' write them"
    return f"{folder}: a folder; name the file of one result{such}"


def _go_to(original: Result) -> None:
    """Change to the folder in which the original task found the user's own model."""
    if original.task.job.entry and original.task.cwd and Path(original.task.cwd).is_dir():
        os.chdir(original.task.cwd)


def _again(original: Result, path: Path, machine: Machine, changes: tuple[str, ...], other_gpu: bool) -> Task:
    """The task to run again, with the changes. All of them are reported on stderr, those of the machine too."""
    import msgspec

    from benchsuite.describe import plan
    from benchsuite.describe.changes import job_changes
    from benchsuite.describe.jobs import resolve
    from benchsuite.describe.overrides import Overrides
    from benchsuite.describe.tasks import RerunOf, profile_fields
    from benchsuite.errors import UsageError

    old = original.task
    job = resolve(old.job.name, profile_fields(old.job), str(path), Overrides.parse(changes))
    if job.matrix:
        raise UsageError(f"{path}: --matrix: a rerun is one task; put the job into a profile for 'jobs'")
    if job.processes > 1:
        raise UsageError(f"{path}: one of {job.copies} copies that shared a GPU; run its job again with 'jobs'")
    place, other = _place(old, job, path, machine, other_gpu)
    task = plan.again(old, job, place)
    altered = (*job_changes(old.job, job), *_file(old, task), *other, *_elsewhere(original, machine, place))
    if old.data_root and not Path(old.data_root).is_dir():
        raise UsageError(f"{path}: its data folder {old.data_root} is missing; bring it back, or link it there")
    for change in altered:
        click.echo(f"changed: {change}", err=True)
    return msgspec.structs.replace(task, rerun_of=RerunOf(result=path.name, changes=altered))


def _file(old: Task, new: Task) -> Iterator[str]:
    """The file of the user's own model if it has changed since the original, old -> new."""
    if old.entry_sha256 and new.entry_sha256 and old.entry_sha256 != new.entry_sha256:
        yield f"the file of {new.job.entry}, sha256 {old.entry_sha256[:12]} -> {new.entry_sha256[:12]}"


def _elsewhere(original: Result, machine: Machine, place: Place) -> Iterator[str]:
    """Host and driver if they are not those of the original, old -> new. A task without a GPU uses no driver."""
    if original.identity.host != machine.host:
        yield f"host {original.identity.host} -> {machine.host}"
    if original.task.gpus and place.gpus and original.machine.driver != machine.driver:
        yield f"driver {original.machine.driver or 'not known'} -> {machine.driver or 'not known'}"


def _moved(old: Task, possible: Sequence[Place], path: Path, other_gpu: bool) -> tuple[Place, tuple[str, ...]]:
    """The place that a changed placement gives, on the GPUs of the original if possible, and how its GPUs differ.

    Raises:
        UsageError: the placement is not possible here, or has other GPUs than the original and `other_gpu` is false.
    """
    from benchsuite.errors import UsageError

    before = {gpu.uuid: gpu for gpu in old.gpus}
    place = max(possible, key=lambda p: ([gpu.uuid for gpu in p.gpus] == [*before], p.ranks == old.ranks))
    if place.skip:
        raise UsageError(f"{path}: {place.skip}")
    now = {gpu.uuid: gpu for gpu in place.gpus}
    was, instead = (", ".join(f"{g.uuid} ({g.name})" for g in gpus.values()) or "none" for gpus in (before, now))
    unlike = not (before.keys() <= now.keys() or now.keys() <= before.keys())
    if unlike and not other_gpu:
        raise UsageError(f"{path}: its GPU {was} is not here; --other-gpu runs it on {instead}")
    return place, () if was == instead else (f"gpu {was} -> {instead}",)


def _place(old: Task, job: Job, path: Path, machine: Machine, other_gpu: bool) -> tuple[Place, tuple[str, ...]]:
    """The place of the rerun, and how its GPUs differ from those of the original, old -> new.

    Args:
        other_gpu: in place of a GPU that is not here, take the one with the same visible index.

    Raises:
        UsageError: a GPU is not here, or the place that the changes ask for does not exist.
    """
    from benchsuite.describe.plan import Place, places
    from benchsuite.describe.tasks import PLACE_AXES
    from benchsuite.errors import UsageError
    from benchsuite.host.visible import chosen as chosen_gpus

    if job.placement.spanned > 1:
        raise UsageError(
            f"{path}: the task spans {job.placement.nodes} nodes, and a rerun has one machine; run its job again with "
            "'benchsuite jobs'"
        )
    gpus = chosen_gpus(machine.gpus, os.environ, machine.gpu_note)
    parallel, before = job.training.parallel, old.job.training.parallel
    same = all(getattr(parallel, field) == getattr(before, field) for field in ("dp", "fsdp", "pp", "replicas"))
    if job.placement != old.job.placement or not same:
        return _moved(old, list(places(job, gpus)), path, other_gpu)
    by_uuid, taken = {gpu.uuid: gpu for gpu in gpus}, {gpu.uuid for gpu in old.gpus}
    placed, changed = [], []
    for wanted in old.gpus:
        found = by_uuid.get(wanted.uuid)
        if found is None:
            missing = f"its GPU {wanted.visible_index} ({wanted.name}, {wanted.uuid}) is not here"
            others = (g for g in gpus if g.visible_index == wanted.visible_index and g.uuid not in taken)
            found = next(others, None)
            if found is None:
                reason = machine.gpu_note or f"only {len(gpus)} GPUs are visible"
                raise UsageError(f"{path}: {missing}: {reason}")
            instead = f"visible GPU {found.visible_index} ({found.name}, {found.uuid})"
            if not other_gpu:
                raise UsageError(f"{path}: {missing}; --other-gpu runs it on {instead}")
            changed.append(f"gpu {wanted.uuid} ({wanted.name}) -> {found.uuid} ({found.name})")
        placed.append(found)
    axes: dict[str, int] = {axis: old.axes[axis] for axis in PLACE_AXES if axis in old.axes}
    return Place(tuple(placed), old.ranks, axes=axes), tuple(changed)


def _beside(original: Result, again: Result) -> None:
    """Print both figures, and the differences in code, software and isolation."""
    from benchsuite.report.measure.window import task_window
    from benchsuite.report.show.one_line import figure

    click.echo(f"original: {original.status} {figure(original).words}", err=True)
    click.echo(f"rerun:    {again.status} {figure(again).words}", err=True)
    before, after = task_window(original).perf, task_window(again).perf
    if before and after and original.status == again.status == "ok":
        click.echo(f"ratio:    {after / before:.3f} (above 1 the rerun is faster)", err=True)
    for key in sorted({**original.machine.software, **again.machine.software}):
        was, now = original.machine.software.get(key), again.machine.software.get(key)
        if was and now and was != now:
            click.echo(f"note: {key} {was} -> {now}", err=True)
    for name in ("cpu", "memory", "memory_bytes"):
        was, now = getattr(original.tenant, name), getattr(again.tenant, name)
        if was != now:
            click.echo(f"note: isolation, {name} {was} -> {now}", err=True)
    if len(original.tenant.cpus) != len(again.tenant.cpus):
        click.echo(f"note: processors {len(original.tenant.cpus)} -> {len(again.tenant.cpus)}", err=True)
    if original.code != again.code:
        click.echo(f"note: code {original.code.words} -> {again.code.words}", err=True)
