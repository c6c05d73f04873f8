"""`benchsuite trace`: record where a model's time or memory goes, or read such a recording."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchsuite.commands import completion
from benchsuite.commands._changes import WithChanges

if TYPE_CHECKING:
    from benchsuite.describe.overrides import Overrides
    from benchsuite.describe.tasks import Job, Trace

_MEASURED_S = 5.0
_LONGEST_S = 1200.0
_EPILOG = (
    "Tools: timeline (torch.profiler), memory (history of torch's allocator), ncu (Nsight Compute). After -- come job "
    "fields and parameters of the model, as for 'benchsuite run'."
)


@click.command(cls=WithChanges, epilog=_EPILOG)
@click.argument("entry", required=False, shell_complete=completion.models)
@click.option("-p", "--profile", metavar="PROFILE", help="ENTRY is a job of this profile.")
@click.option(
    "--tool", type=click.Choice(["timeline", "memory", "ncu"]), default="timeline", help="[default: timeline]"
)
@click.option("--start", metavar="N", type=click.IntRange(1), help="Measured steps before.  [default: those of 5 s]")
@click.option("--steps", metavar="M", type=click.IntRange(1, 10_000), default=5, help="Recorded steps.  [default: 5]")
@click.option(
    "--kernels", metavar="K", type=click.IntRange(1), default=200, help="For ncu: at most K kernels.  [default: 200]"
)
@click.option("-d", "--data", metavar="DIR", help="Data sets.  [default: $BENCHSUITE_DATA, else data]")
@click.option("-o", "--out", metavar="OUT", help="A new folder.  [default: a dated one in $BENCHSUITE_OUT]")
@click.option("--read", "file", metavar="FILE", type=click.Path(path_type=Path), help="Read a recording instead.")
@click.option("--nvvp", nargs=3, type=float, metavar="PERCENT SESSION_S OVERHEAD_S", help="Correct nvvp's utilisation.")
@click.option("--top", default=10, metavar="N", type=click.IntRange(1, 1000), help="List N kernels.  [default: 10]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("changes", nargs=-1, type=click.UNPROCESSED, metavar="[-- CHANGES]")
def command(
    entry: str | None,
    profile: str | None,
    tool: str,
    start: int | None,
    steps: int,
    kernels: int,
    data: str | None,
    out: str | None,
    file: Path | None,
    nvvp: tuple[float, float, float] | None,
    top: int,
    as_json: bool,
    changes: tuple[str, ...],
) -> int:
    """Show where a model's time or memory goes.

    ENTRY is the name of a model, module:function of your own, or a job of PROFILE. It trains as with 'run'; then a
    profiler records some steps. With --read, the file of a profiler is read: JSON of torch.profiler (also .gz), output
    of ncu --csv, or a table of nvprof.
    """
    from benchsuite.errors import UsageError

    if sum(given is not None for given in (entry, file, nvvp)) != 1:
        raise UsageError("trace: give one of ENTRY, --read FILE and --nvvp PERCENT SESSION_S OVERHEAD_S")
    if nvvp is not None:
        from benchsuite.trace.nvprof import corrected

        click.echo(f"compute utilisation without the profiler's overhead: {corrected(*nvvp):.1f} %")
        return 0
    if file is not None:
        _show(file, top, as_json)
        return 0
    from benchsuite.describe.tasks import Trace

    assert entry is not None
    asked = Trace(tool=tool, steps=steps, kernels=kernels)  # type: ignore[arg-type]
    recorded, status, on_gpu = _record(entry, profile, asked, start, data, out, changes)
    for path in recorded:
        if on_gpu:
            _show(path, top, as_json)
        note = "" if on_gpu else "; it holds no GPU, so there is no use of one to show: open it in ui.perfetto.dev"
        click.echo(f"benchsuite: recorded in {path}{note}", err=True)
    return status


def _show(file: Path, top: int, as_json: bool) -> None:
    from benchsuite.commands._terminal import console
    from benchsuite.report.show.terminal import render
    from benchsuite.trace.recognise import analysis

    found = analysis(file, top)
    if as_json:
        click.echo(json.dumps(found.values, indent=2, allow_nan=False))
    else:
        render(found.document, console())


def _record(
    entry: str,
    profile: str | None,
    asked: Trace,
    start: int | None,
    data: str | None,
    out: str | None,
    changes: tuple[str, ...],
) -> tuple[list[Path], int, bool]:
    """Run the task with its profiler: the recordings, one a rank, the exit status, and whether a GPU trained."""
    import shutil

    import msgspec

    from benchsuite.describe.overrides import Overrides
    from benchsuite.describe.plan import make_plan
    from benchsuite.describe.tasks import ProfileUsed
    from benchsuite.errors import UsageError
    from benchsuite.host import machine as host
    from benchsuite.host.visible import chosen as chosen_gpus
    from benchsuite.launch.run_one import Judge, run_single
    from benchsuite.launch.session import data_root
    from benchsuite.report.show.one_line import traced_figure

    job = _job(entry, profile, Overrides.parse(changes), start)
    root = data_root(data, os.environ)
    machine = host.describe(os.environ)
    gpus = chosen_gpus(machine.gpus, os.environ, machine.gpu_note)
    if asked.tool != "timeline" and not gpus:
        raise UsageError(f"--tool {asked.tool}: it records a GPU, and this run has none; the timeline works on a CPU")
    if asked.tool == "ncu" and shutil.which("ncu") is None:
        raise UsageError("--tool ncu: Nsight Compute is not on PATH; install it, or use --tool timeline")
    chosen = gpus if job.placement.devices == "all" else gpus[:1]
    (task,) = make_plan("trace", [job], chosen, environ=os.environ, data_root=root).tasks
    folder = Path(out) if out else _new_folder(entry)
    used = ProfileUsed(name="trace", path="", sha256="", text="", official=False)
    task = msgspec.structs.replace(task, trace=asked)
    result, status = run_single(task, used, machine, os.environ, Judge(traced_figure, lambda tasks: ()), folder)
    streams = result.measurement.streams if result.measurement else ()
    return [folder / stream.traced.file for stream in streams if stream.traced], status, bool(task.gpus)


def _new_folder(entry: str) -> Path:
    """A new folder below `traces`, which a report of the newest run does not look into."""
    from benchsuite.rundir import new_default_out, slug

    parent = Path(os.environ.get("BENCHSUITE_OUT") or "results") / "traces"
    return new_default_out(slug(entry), {**os.environ, "BENCHSUITE_OUT": str(parent)}, datetime.now())


def _job(entry: str, profile: str | None, overrides: Overrides, start: int | None) -> Job:
    """The job, measured for `start` steps or `_MEASURED_S` seconds before the recording.

    Raises:
        ProfileError: the profile has no such job, or the job makes more than one task on a GPU.
    """
    import msgspec

    from benchsuite.describe import profile as profiles
    from benchsuite.errors import ProfileError

    if profile is not None:
        (job,) = profiles.load(profile, only=[entry], overrides=overrides).jobs
        if job.matrix or job.placement.devices == "progression":
            raise ProfileError(f"{profile}: job '{entry}' makes several tasks; give values and a placement after --")
    else:
        own = ":" in entry
        job = profiles.single(None if own else entry, entry if own else None, overrides)
    measured_s = 0.0 if start else _MEASURED_S
    return msgspec.structs.replace(
        job,
        max_count=None,
        max_steps=start,
        min_time_s=measured_s,
        max_time_s=_LONGEST_S if start else measured_s,
        timeout_s=max(job.timeout_s, _LONGEST_S),
    )
