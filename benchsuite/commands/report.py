"""`benchsuite report`: one table and one score from a results folder or a summary."""

from __future__ import annotations

import math
import os
import sys
from io import TextIOWrapper
from pathlib import Path

import click

# In cells, if the output is not a terminal but a pipe or a log.
_PIPE_WIDTH = 120
CONDITIONS = ("failures", "slower", "incomplete", "flagged")


def _finite(_context: click.Context, _option: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise click.BadParameter("nan is not a percentage.")
    return value


def _conditions(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...]:
    if value is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",")))
    unknown = [name for name in names if name not in CONDITIONS]
    if unknown:
        raise click.BadParameter(f"no condition '{unknown[0]}'; known: {', '.join(CONDITIONS)}.")
    return names


@click.command()
@click.argument("outs", metavar="[OUT]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--weights", metavar="FILE", help="Weights of the jobs.  [default: the profile's own]")
@click.option(
    "--compare",
    metavar="BASE",
    multiple=True,
    help="A baseline, a summary file or another results folder; A,B,C: several runs of one machine, as its sessions. "
    "Each --compare is a baseline of its own.",
)
@click.option(
    "--margin",
    type=click.FloatRange(0, 100, min_open=True),
    metavar="PERCENT",
    default=2.0,
    show_default=True,
    callback=_finite,
    help="The difference up to which speeds count as the same.",
)
@click.option("--compare-unlike", is_flag=True, help="Also compare jobs whose workload differs between both sides.")
@click.option(
    "--penalize-variance/--no-penalize-variance",
    default=True,
    help="Reduce perf_adj by std%, on both sides of a comparison.  [default: penalize]",
)
@click.option("--compare-gpus", is_flag=True, help="Show the GPUs side by side, and name outliers.")
@click.option("--partial", is_flag=True, help="Also score a part: the jobs that have a figure, and say how many.")
@click.option("--price", type=float, metavar="P", help="The machine's price: adds price / machine score.")
@click.option("--power", is_flag=True, help="Add machine score / watt, of the GPUs' power by telemetry.")
@click.option("--full", is_flag=True, help="Show all of it; without --full at most 40 lines, the worst jobs first.")
@click.option(
    "--fail-on",
    metavar="CONDITIONS",
    callback=_conditions,
    help="failures, slower, incomplete, flagged, separated by commas: exit status 3 if one of them holds.",
)
@click.option("--html", metavar="FILE", help="Write one self-contained page, with curves, to a new file.")
@click.option("--csv", metavar="FILE", help="Write one row a job; '-' is standard output, in place of the text.")
@click.option("--md", metavar="FILE", help="Write Markdown; '-' as for --csv.")
@click.option("--json", metavar="FILE", help="Write all of it as JSON; '-' as for --csv.")
def command(
    outs: tuple[Path, ...],
    weights: str | None,
    compare: tuple[str, ...],
    margin: float,
    compare_unlike: bool,
    penalize_variance: bool,
    compare_gpus: bool,
    partial: bool,
    price: float | None,
    power: bool,
    full: bool,
    fail_on: tuple[str, ...],
    **files: str | None,
) -> int:
    """Show a table and a score of OUT, a results folder (default: the newest) or a summary file.

    Several OUT are runs of one machine, its sessions: from three on the intervals include the variation between them.
    It works at any time, also during a run.

    Exit status: 0; 1 if no task is ok (yet); 2 for wrong input; 3 if a condition of --fail-on holds.
    """
    from rich.console import Console

    from benchsuite import rundir
    from benchsuite.errors import UsageError, one_line
    from benchsuite.report.show import output, terminal
    from benchsuite.report.show.fail_on import holding
    from benchsuite.report.show.report import Report, document
    from benchsuite.report.sources import summary_of_runs
    from benchsuite.report.stats import compare as comparing
    from benchsuite.report.stats import weights as weighing
    from benchsuite.report.stats.gpus import compare_gpus as side_by_side
    from benchsuite.report.stats.power import score_per_watt
    from benchsuite.report.stats.score import score, without_penalty

    if "slower" in fail_on and not compare:
        raise UsageError("--fail-on slower: name a baseline with --compare")
    if price is not None and not (0 < price < math.inf):
        raise UsageError(f"--price: must be a number above 0, found {price:g}")
    targets = output.targets(files)
    outs = outs or (rundir.newest_run(os.environ),)
    adjusted = (lambda summary: summary) if penalize_variance else without_penalty
    summary = adjusted(summary_of_runs(outs))
    laid = weighing.weigh(weighing.weights_for(summary.profile, weights), summary)
    comparisons = tuple(
        comparing.compare(
            summary, adjusted(comparing.find_base(base)), laid, base, margin / 100, compare_unlike, partial
        )
        for base in compare
    )
    if isinstance(sys.stdout, TextIOWrapper):
        # A name that the terminal cannot write must not stop the report.
        sys.stdout.reconfigure(errors="replace")
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    logs = ", ".join(str(out / "logs") for out in outs if (out / "logs").is_dir()) or None
    gpus = side_by_side(summary) if compare_gpus else None
    scored = score(summary, laid, penalized=penalize_variance, partial=partial)
    jobs = {job.name: job for job in summary.jobs}
    watts = score_per_watt(jobs, {**laid.jobs, **laid.missing}, penalized=penalize_variance) if power else None
    report = Report(", ".join(map(str, outs)), summary, scored, comparisons, logs, price, gpus, watts)
    if not any(target.to_stdout for target in targets):
        if full:
            terminal.render(document(report), console)
        else:
            terminal.render_brief(report, console)
    folder = outs[0] if len(outs) == 1 and outs[0].is_dir() else None
    for target, text in output.written(report, folder, targets):
        if target.to_stdout:
            click.echo(text, nl=False)
        else:
            click.echo(f"benchsuite: {target.kind} written to {one_line(target.file)}", err=True)
    found = holding(report, fail_on)
    if found:
        click.echo(f"benchsuite: --fail-on {one_line('; '.join(found))}", err=True)
    return 1 if not summary.any_ok else 3 if found else 0
