"""The folders of runs with recordings."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchsuite.errors import UsageError

if TYPE_CHECKING:
    from benchsuite.describe.tasks import Plan


def new_folder(name: str) -> Path:
    """A new folder below `traces`, which a report of the newest run does not look into.

    Raises:
        OutputError: it cannot be made.
    """
    from benchsuite.default_out import new_default_out
    from benchsuite.rundir import slug

    parent = Path(os.environ.get("BENCHSUITE_OUT") or "results") / "traces"
    return new_default_out(slug(name), {**os.environ, "BENCHSUITE_OUT": str(parent)}, datetime.now())


def add_tracks(folder: Path) -> None:
    """Write benchsuite's own tracks into the timelines of a run, and print which have none."""
    from benchsuite.errors import one_line
    from benchsuite.trace.tracks import add_to_run

    for line in add_to_run(folder):
        click.echo(f"benchsuite: {one_line(line)}", err=True)


def recorded(plan: Plan, timeline: bool, cores: bool, resume: bool) -> Plan:
    """The plan with a recording in each task.

    Raises:
        UsageError: both kinds are asked for, the run is resumed, ncu is missing, or a task has no GPU for it.
    """
    import shutil

    from benchsuite.describe.tasks import Trace
    from benchsuite.describe.traced import all_recorded
    from benchsuite.launch.profilers import INSTEAD

    if timeline and cores:
        raise UsageError("--profile and --profile-fp32: give one of them in a run")
    if resume:
        raise UsageError("--resume: a run with recordings is not continued; start a new one")
    if cores and not any(task.gpus for task in plan.tasks):
        raise UsageError("--profile-fp32: it records a GPU, and no task of this run has one")
    if cores and shutil.which("ncu") is None:
        raise UsageError(f"--profile-fp32: {INSTEAD['ncu']}")
    return all_recorded(plan, Trace(tool="ncu" if cores else "timeline", steps=5))
