"""`benchsuite plot`: a picture of a run's results or of a summary."""

from __future__ import annotations

import os
from pathlib import Path

import click

from benchsuite.commands import completion
from benchsuite.commands._examples import WithExamples
from benchsuite.commands._picture import check_picture, draw

_EXAMPLES = (
    ("benchsuite plot --kind throughput", "The rate over time of the newest run."),
    ("benchsuite plot results/new --kind compare --base results/old -o change.svg", "Two runs side by side."),
    ("benchsuite plot results/new --kind telemetry --task vae.J0.1", "Power, clocks and temperature of one task."),
)


@click.command(cls=WithExamples, examples=_EXAMPLES)
@click.argument("results", required=False, type=click.Path(path_type=Path), shell_complete=completion.baselines)
@click.option(
    "--kind",
    metavar="KIND",
    required=True,
    shell_complete=completion.plots,
    help="The plot: see 'benchsuite list plots'.",
)
@click.option("-o", "--output", metavar="FILE", help="A new .png, .svg or .pdf file.  [default: KIND.png]")
@click.option(
    "--base",
    metavar="BASE",
    shell_complete=completion.baselines,
    help="For compare: a baseline, a summary file or a results folder; A,B,C: several runs.",
)
@click.option("--task", metavar="ID", help="For throughput and telemetry: draw only this task, such as vae.J0.1.")
@click.option("--compare-unlike", is_flag=True, help="For compare: also draw jobs whose workload differs, in grey.")
def command(
    results: Path | None, kind: str, output: str | None, base: str | None, task: str | None, compare_unlike: bool
) -> None:
    """Draw a plot of a run.

    RESULTS is a results folder or a summary; the default is the newest run. A plot of several figures writes FILE-NAME
    for each of them.
    """
    from benchsuite import default_out, rundir
    from benchsuite.errors import one_line
    from benchsuite.report import plots
    from benchsuite.report.sources import summary_of
    from benchsuite.report.stats.compare import find_base
    from benchsuite.writing import check_place, write_for_user

    target = Path(output or f"{kind}.png")
    check_picture(target, "-o")
    results = results or default_out.newest_run(os.environ)
    against = find_base(base) if base else None
    source = plots.Source(summary_of(results), results, against, base or "", task, compare_unlike)
    for drawn in plots.draw_all(kind, source):
        picture = target.with_stem(f"{target.stem}-{rundir.slug(drawn.name)}") if drawn.name else target
        table = picture.with_suffix(".csv")
        for path in (picture, *([table] if drawn.csv else [])):
            check_place(path, "-o")
        draw(drawn.figure, picture, "-o")
        if drawn.csv:
            write_for_user(table, drawn.csv.encode(), "-o")
        beside = f", its numbers to {one_line(table.name)}" if drawn.csv else ""
        click.echo(f"benchsuite: plot written to {one_line(str(picture))}{beside}", err=True)
