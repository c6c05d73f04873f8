"""`benchsuite summary`: a run, or several as sessions, as one file, to keep, to share, and to compare with."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from benchsuite.commands import completion
from benchsuite.commands._examples import WithExamples

_EXAMPLES = (
    ("benchsuite summary results/new -o new.json", "Keep a run as a single file."),
    (
        "benchsuite summary results/monday results/tuesday -o machine.json",
        "Two sessions of one machine as one baseline.",
    ),
)


@click.command(cls=WithExamples, examples=_EXAMPLES)
@click.argument(
    "outs", metavar="[OUT]...", nargs=-1, type=click.Path(path_type=Path), shell_complete=completion.baselines
)
@click.option("-o", "--output", default="-", metavar="FILE", help="A new file; - is stdout.  [default: -]")
def command(outs: tuple[Path, ...], output: str) -> None:
    """Write a summary of a run, to compare with.

    OUT is a results folder; the default is the newest one. Several OUT are runs of one machine, and make one summary
    with each run as a session. The summary is JSON.
    """
    from benchsuite import default_out
    from benchsuite.errors import one_line
    from benchsuite.report.read.summary_file import write_summary
    from benchsuite.report.sources import summary_of_runs
    from benchsuite.schema import to_json

    summary = summary_of_runs(outs or (default_out.newest_run(os.environ),))
    if output == "-":
        click.echo(_escaped(to_json(summary, indent=2).decode()), nl=False)
    else:
        write_summary(Path(output), summary)
        click.echo(f"benchsuite: summary written to {one_line(output)}", err=True)


def _escaped(text: str) -> str:
    """The same JSON with control characters beyond ASCII escaped, which JSON permits and a terminal may obey."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
