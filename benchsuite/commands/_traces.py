"""The folders of runs with recordings."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import click


def new_folder(name: str) -> Path:
    """A new folder below `traces`, which a report of the newest run does not look into.

    Raises:
        OutputError: it cannot be made.
    """
    from benchsuite.rundir import new_default_out, slug

    parent = Path(os.environ.get("BENCHSUITE_OUT") or "results") / "traces"
    return new_default_out(slug(name), {**os.environ, "BENCHSUITE_OUT": str(parent)}, datetime.now())


def add_tracks(folder: Path) -> None:
    """Write benchsuite's own tracks into the timelines of a run, and print which have none."""
    from benchsuite.errors import one_line
    from benchsuite.trace.tracks import add_to_run

    for line in add_to_run(folder):
        click.echo(f"benchsuite: {one_line(line)}", err=True)
