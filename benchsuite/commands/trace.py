"""`benchsuite trace`: record where a model's time or memory goes, or read such a recording."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchsuite.commands import completion
from benchsuite.commands._changes import WithChanges
from benchsuite.commands._picture import check_picture, draw
from benchsuite.commands._traces import add_tracks, new_folder

if TYPE_CHECKING:
    from benchsuite.describe.overrides import Overrides
    from benchsuite.describe.tasks import Job, Trace

# The tools whose files are read here, and the programs that open those of the others.
_READ = ("timeline", "memory", "ncu")
_OPEN = {"nsys": "Nsight Systems", "nvprof": "the Visual Profiler (nvvp)"}
_EPILOG = (
    "Tools: timeline (torch.profiler), memory (history of torch's allocator), ncu (Nsight Compute), nsys (Nsight "
    "Systems), nvprof (GPUs before Turing). After -- come job fields and parameters of the model, as for "
    "'benchsuite run'."
)


_EXAMPLES = (
    ("benchsuite trace vae --plot vae.png", "Where does the time of a step go?"),
    ("benchsuite trace convnet --tool memory -- --batch-size 64", "What fills the memory?"),
    ("benchsuite trace wlm -p standard -o traces/wlm", "As a job of a profile trains it."),
    ("benchsuite trace --read trace.json.gz --top 20", "Read a recording of torch.profiler."),
)


@click.command(cls=WithChanges, epilog=_EPILOG, examples=_EXAMPLES)
@click.argument("entry", required=False, shell_complete=completion.models)
@click.option("-p", "--profile", metavar="PROFILE", help="ENTRY is a job of this profile.")
@click.option(
    "--tool",
    type=click.Choice(["timeline", "memory", "ncu", "nsys", "nvprof"]),
    default="timeline",
    help="[default: timeline]",
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
@click.option("--plot", metavar="FILE", help="Draw the analysis: a new .png, .svg or .pdf file.")
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
    plot: str | None,
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
    picture = Path(plot) if plot else None
    if picture:
        check_picture(picture, "--plot")
    if nvvp is not None:
        from benchsuite.trace.nvprof import corrected

        click.echo(f"compute utilisation without the profiler's overhead: {corrected(*nvvp):.1f} %")
        return 0
    if file is not None:
        _show(file, top, as_json, picture)
        return 0
    from benchsuite.describe.tasks import Trace

    assert entry is not None
    asked = Trace(tool=tool, steps=steps, kernels=kernels)  # type: ignore[arg-type]
    recorded, status, on_gpu = _record(entry, profile, asked, start, data, out, changes)
    for path in recorded:
        if on_gpu and tool in _READ:
            _show(path, top, as_json, picture if path == recorded[0] else None)
        note = "" if on_gpu else "; it holds no GPU, so there is no use of one to show: open it in ui.perfetto.dev"
        note = f"; open it in {_OPEN[tool]}" if tool in _OPEN else note
        click.echo(f"benchsuite: recorded in {path}{note}", err=True)
    return status


def _show(file: Path, top: int, as_json: bool, picture: Path | None) -> None:
    from benchsuite.commands._terminal import console
    from benchsuite.errors import ResultError, one_line
    from benchsuite.report.show.terminal import render
    from benchsuite.trace.recognise import analysis

    found = analysis(file, top)
    if picture:
        if found.figure is None:
            raise ResultError(f"--plot: there is no picture of a table of {found.tool}; leave --plot out")
        draw(found.figure(), picture, "--plot")
        click.echo(f"benchsuite: plot written to {one_line(str(picture))}", err=True)
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

    from benchsuite.describe.overrides import Overrides
    from benchsuite.describe.plan import make_plan
    from benchsuite.describe.tasks import ProfileUsed
    from benchsuite.describe.traced import recording
    from benchsuite.errors import UsageError
    from benchsuite.host import machine as host
    from benchsuite.host.visible import chosen as chosen_gpus
    from benchsuite.launch.profilers import INSTEAD
    from benchsuite.launch.run_one import Judge, run_single
    from benchsuite.launch.session import data_root
    from benchsuite.report.show.one_line import traced_figure

    job = _job(entry, profile, Overrides.parse(changes))
    root = data_root(data, os.environ)
    machine = host.describe(os.environ)
    gpus = chosen_gpus(machine.gpus, os.environ, machine.gpu_note)
    if asked.tool != "timeline" and not gpus:
        raise UsageError(f"--tool {asked.tool}: it records a GPU, and this run has none; the timeline works on a CPU")
    if asked.tool in INSTEAD and shutil.which(asked.tool) is None:
        raise UsageError(f"--tool {asked.tool}: {INSTEAD[asked.tool]}")
    chosen = gpus if job.placement.devices == "all" else gpus[:1]
    (task,) = make_plan("trace", [job], chosen, environ=os.environ, data_root=root).tasks
    folder = Path(out) if out else new_folder(entry)
    used = ProfileUsed(name="trace", path="", sha256="", text="", official=False)
    task = recording(task, asked, start)
    result, status = run_single(task, used, machine, os.environ, Judge(traced_figure, lambda tasks: ()), folder)
    streams = [stream for stream in result.measurement.streams if stream.traced]
    add_tracks(folder)
    return [folder / stream.traced.file for stream in streams if stream.traced], status, bool(task.gpus)


def _job(entry: str, profile: str | None, overrides: Overrides) -> Job:
    """The job of a profile, or that of a model.

    Raises:
        ProfileError: the profile has no such job, or the job makes more than one task on a GPU.
    """
    from benchsuite.describe import profile as profiles
    from benchsuite.errors import ProfileError

    if profile is not None:
        (job,) = profiles.load(profile, only=[entry], overrides=overrides).jobs
        if job.matrix or job.placement.devices == "progression":
            raise ProfileError(f"{profile}: job '{entry}' makes several tasks; give values and a placement after --")
    else:
        own = ":" in entry
        job = profiles.single(None if own else entry, entry if own else None, overrides)
    return job
