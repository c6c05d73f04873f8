"""`benchsuite share`: which way of sharing a GPU finishes the most jobs of a model."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchsuite.commands import completion
from benchsuite.commands._changes import WithChanges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchsuite.describe.profile import Profile
    from benchsuite.describe.tasks import Gpu, Plan

_EPILOG = (
    "After -- come job fields (--precision, --sharing, --copies, --min-time-s, ...) and parameters of the model: "
    "'benchsuite run ENTRY -- --help' lists them."
)
# Just long enough for a number.
_MIN_TIME_S = 7.0


_EXAMPLES = (
    ("benchsuite share vae", "How many training processes of a model fill this GPU?"),
    (
        "benchsuite share dcgan --repeat 3 --job-items 1_000_000 -- --batch-size 32",
        "With intervals, for jobs of a million items.",
    ),
)


@click.command(cls=WithChanges, epilog=_EPILOG, examples=_EXAMPLES)
@click.argument("entry", shell_complete=completion.models)
@click.option("-d", "--data", metavar="DIR", help="Data sets.  [default: $BENCHSUITE_DATA, else data]")
@click.option("-o", "--out", metavar="OUT", help="New folder for the results.  [default: results/share-ENTRY-TIME]")
@click.option("--repeat", type=click.IntRange(min=1), default=1, metavar="N", help="Measure N times.  [default: 1]")
@click.option("--allow-mig", is_flag=True, help="Also divide the GPU by MIG, and make it whole again.")
@click.option(
    "--job-items",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Items of one job.  [default: those of one model alone in an hour]",
)
@click.argument("changes", nargs=-1, type=click.UNPROCESSED, metavar="[-- CHANGES]")
def command(
    entry: str,
    data: str | None,
    out: str | None,
    repeat: int,
    allow_mig: bool,
    job_items: float | None,
    changes: tuple[str, ...],
) -> int:
    """Find how many models of one kind should share a GPU, and in which way.

    ENTRY is the name of a model, or module:function of your own. A short sweep measures one model alone, several
    processes with and without MPS, and a fused array, each with up to as many models as fit. The results are those of
    'jobs': 'report OUT --full' and 'plot OUT --kind speedup' read them.
    """
    from benchsuite.commands._terminal import console
    from benchsuite.describe.overrides import Overrides
    from benchsuite.describe.plan import make_plan
    from benchsuite.describe.profile import of_text
    from benchsuite.errors import ProfileError
    from benchsuite.host import machine as host
    from benchsuite.host.visible import chosen as chosen_gpus
    from benchsuite.launch import session
    from benchsuite.launch.progress import Progress
    from benchsuite.launch.session import Invocation, data_root
    from benchsuite.report.measure.foresight import warnings
    from benchsuite.report.show.one_line import figure
    from benchsuite.report.show.sections.advice import advice
    from benchsuite.report.show.terminal import render
    from benchsuite.report.sources import summary_of

    machine = host.describe(os.environ)
    gpus = chosen_gpus(machine.gpus, os.environ, machine.gpu_note)[:1]
    name = f"share-{entry.replace(':', '.')}"
    overrides, root = Overrides.parse(changes), data_root(data, os.environ)

    def planned(ways: Sequence[str]) -> tuple[Profile, Plan]:
        jobs = sweep(entry, gpus, machine.cpus_usable, ways)
        profile = of_text(json.dumps(jobs, indent=2), Path(f"{name}.json"), overrides=overrides)
        plan = make_plan(profile.name, profile.jobs, gpus, environ=os.environ, repeats=repeat, data_root=root)
        return profile, plan

    ways = possible_ways(gpus, allow_mig=allow_mig)
    try:
        profile, plan = planned([*ways, "fused"])
    except ProfileError as error:
        profile, plan = planned(ways)  # what is wrong with other words is raised again
        click.echo(f"the way fused is left out: {error}", err=True)
    how = Invocation(machine, os.environ, sys.argv, allow_mig=allow_mig)
    progress = Progress(figure, foresee=warnings)
    folder = session.execute(plan, profile.used(), _folder(out, name), progress, how).path
    render(advice(summary_of(folder), f"{entry} on {gpus[0].name if gpus else machine.cpu}", job_items), console())
    click.echo(f"Results: {folder}", err=True)
    ok, ended = progress.counts["ok"], progress.counts.total()
    return 3 if not ok else 0 if ok == ended else 1


def possible_ways(gpus: Sequence[Gpu], *, allow_mig: bool) -> list[str]:
    """The ways that are possible here, without the fused array, which depends on the model."""
    from benchsuite.launch.mig import SMI
    from benchsuite.launch.mps import CONTROL

    ways = ["serial", "concurrent"]
    ways += ["mps"] if gpus and shutil.which(CONTROL) else []
    return ways + (["mig"] if gpus and allow_mig and shutil.which(SMI) else [])


def sweep(entry: str, gpus: Sequence[Gpu], cpus: int, ways: Sequence[str]) -> dict[str, Any]:
    """The profile of a short sweep.

    On a GPU a search finds how many models fit, and one model alone is also measured as a CUDA graph. On a CPU there
    are one, two, and as many models as there are CPUs, at most 4.
    """
    which = {"entry": entry} if ":" in entry else {"model": entry}
    name = entry.partition(":")[0]
    common = {**which, "placement": "per_gpu_or_cpu", "min_time_s": _MIN_TIME_S}
    copies: Any = "fit" if gpus else sorted({1, 2, min(cpus, 4)})
    jobs: dict[str, Any] = {name: {**common, "sharing": [*ways], "copies": copies}}
    if gpus:
        jobs[f"{name}_graphed"] = {**common, "compile": "reduce-overhead"}
    return jobs


def _folder(out: str | None, name: str) -> Path:
    from datetime import datetime

    from benchsuite.default_out import new_default_out

    return Path(out) if out else new_default_out(name, os.environ, datetime.now())
