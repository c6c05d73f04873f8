"""`benchsuite report`: one verdict, one table and one score of a run; a table of machines; or a fleet of nodes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchsuite.commands import completion
from benchsuite.commands._examples import WithExamples

if TYPE_CHECKING:
    from benchsuite.report.fleet.folders import FleetFolders
    from benchsuite.report.show.asked import Asked
    from benchsuite.report.show.output import Target

CONDITIONS = ("failures", "slower", "incomplete", "flagged")
_FAILED_CONDITION = 3


def _finite(_context: click.Context, _option: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise click.BadParameter("nan is not a percentage.")
    return value


def _prices(_context: click.Context, _option: click.Parameter, values: tuple[float, ...]) -> tuple[float, ...]:
    for price in values:
        if not 0 < price < math.inf:
            raise click.BadParameter(f"must be a number above 0, found {price:g}.")
    return values


def _conditions(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...]:
    if value is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",")))
    unknown = [name for name in names if name not in CONDITIONS]
    if unknown:
        raise click.BadParameter(f"no condition '{unknown[0]}'; known: {', '.join(CONDITIONS)}.")
    return names


_EXAMPLES = (
    ("benchsuite report", "The newest run."),
    ("benchsuite report results/new --compare h200", "Is this machine as fast as a shipped baseline?"),
    ("benchsuite report results/new --compare results/old --explain", "What changed since the last run, and why."),
    ("benchsuite report results/new --full --html report.html", "A page with charts."),
    (
        "benchsuite report results/a results/b --systems --price 250000 --price 310000",
        "Two machines with their prices.",
    ),
    (
        "benchsuite report results/new --compare h200 --fail-on slower,failures",
        "For a script: exit with 3 if the machine is slower.",
    ),
)


@click.command(cls=WithExamples, examples=_EXAMPLES)
@click.argument(
    "outs", metavar="[OUT]...", nargs=-1, type=click.Path(path_type=Path), shell_complete=completion.baselines
)
@click.option(
    "--compare",
    metavar="BASE",
    multiple=True,
    shell_complete=completion.baselines,
    help="Compare with a baseline; can be repeated.",
)
@click.option("--compare-unlike", is_flag=True, help="Also compare jobs whose settings differ.")
@click.option("--explain", is_flag=True, help="With --compare: split each ratio into what the counters explain.")
@click.option("--compare-gpus", is_flag=True, help="Compare the GPUs and name any outlier.")
@click.option("--systems", is_flag=True, help="Compare machines: each OUT is one.")
@click.option("--fail-on", metavar="CONDITIONS", callback=_conditions, help=f"Exit with 3 on: {', '.join(CONDITIONS)}.")
@click.option("--traces", metavar="FOLDER", help="Add the recordings of a traced run, job by job.")
@click.option("--full", is_flag=True, help="Show everything, not just 40 lines; --systems always does.")
@click.option("--html", metavar="FILE", help="Write a page with charts to a new file.")
@click.option("--csv", metavar="FILE", help="Write one row for each job; - is stdout.")
@click.option("--md", metavar="FILE", help="Write Markdown; - is stdout.")
@click.option("--json", metavar="FILE", help="Write everything as JSON; - is stdout.")
@click.option("--weights", metavar="FILE", help="Weights of the jobs.  [default: the profile's]")
@click.option(
    "--margin",
    type=click.FloatRange(0, 100, min_open=True),
    metavar="PERCENT",
    default=2.0,
    callback=_finite,
    help="The difference that counts as the same.  [default: 2]",
)
@click.option("--no-penalize-variance", is_flag=True, help="Do not lower scores of jobs that vary.")
@click.option("--penalize-variance", is_flag=True, hidden=True, help="The default.")
@click.option("--partial", is_flag=True, help="Also score only the jobs that have a number.")
@click.option(
    "--price",
    "prices",
    type=float,
    multiple=True,
    metavar="P",
    callback=_prices,
    help="The machine's price; with --systems one for each.",
)
@click.option("--power", is_flag=True, help="Add machine score per watt of the GPUs.")
@click.option("--nodes", metavar="FILE", help="The nodes of a fleet that were to run, one a line.")
@click.option("--drain", is_flag=True, help="Print the scontrol commands that drain nodes of a fleet that fail.")
def command(
    outs: tuple[Path, ...],
    compare: tuple[str, ...],
    compare_unlike: bool,
    explain: bool,
    compare_gpus: bool,
    systems: bool,
    fail_on: tuple[str, ...],
    traces: str | None,
    full: bool,
    weights: str | None,
    margin: float,
    no_penalize_variance: bool,
    penalize_variance: bool,
    partial: bool,
    prices: tuple[float, ...],
    power: bool,
    nodes: str | None,
    drain: bool,
    **files: str | None,
) -> int:
    """Report a run: a verdict, a table and a score.

    OUT is a results folder, a summary, a result or a baseline; the default is the newest run. Several OUT are runs of
    one machine, its sessions. BASE is the same; A,B,C are several runs of one machine. It also works during a run.

    If OUT holds a results folder for each of several nodes, the report compares and judges the nodes.

    Exit status: 0; 1 if no task is ok (yet); 2 for wrong input; 3 if a condition of --fail-on holds.
    """
    from benchsuite.commands._fleet import fleet_folders
    from benchsuite.errors import UsageError
    from benchsuite.report.show import output
    from benchsuite.report.show.asked import Asked

    if penalize_variance and no_penalize_variance:
        raise UsageError("--penalize-variance: does not go with --no-penalize-variance")
    beside = {"compare": bool(compare), "compare-unlike": compare_unlike, "compare-gpus": compare_gpus}
    beside |= {"power": power, "explain": explain, "traces": traces is not None}
    folders = fleet_folders(outs, systems, nodes, drain, {**beside, "price": bool(prices)})
    if "slower" in fail_on and not compare and not systems and not folders:
        raise UsageError("--fail-on slower: name a baseline with --compare")
    if explain and not compare and not systems:
        raise UsageError("--explain: name a baseline with --compare")
    if len(prices) > 1 and not systems:
        raise UsageError("--price: given several times; name one price, or compare machines with --systems")
    targets = output.targets(files)
    price = prices[0] if prices else None
    asked = Asked(
        weights, margin / 100, not no_penalize_variance, partial, compare_unlike, compare_gpus, power, price, explain
    )
    if folders:
        return _fleet(folders, asked, targets, full, drain, fail_on)
    if systems:
        return _systems(outs, prices, [name for name, given in beside.items() if given], asked, targets, fail_on)
    return _report(outs, compare, asked, targets, full, fail_on, Path(traces) if traces else None)


def _report(
    outs: tuple[Path, ...],
    bases: tuple[str, ...],
    asked: Asked,
    targets: list[Target],
    full: bool,
    fail_on: tuple[str, ...],
    traces: Path | None,
) -> int:
    """The report of one machine; the exit status."""
    from dataclasses import replace

    from benchsuite import default_out
    from benchsuite.commands._terminal import console
    from benchsuite.report.fleet.folders import only_run
    from benchsuite.report.show import output, terminal
    from benchsuite.report.show.asked import report_on
    from benchsuite.report.show.fail_on import holding
    from benchsuite.report.show.report import document
    from benchsuite.report.stats.smoke import smoke_check

    outs = tuple(only_run(out) for out in outs) or (default_out.newest_run(os.environ),)
    report = report_on(outs, bases, asked)
    if traces:
        from benchsuite.trace.in_report import traced_sections

        report = replace(report, traced=traced_sections(traces, {job.name for job in report.summary.jobs}))
    if not any(target.to_stdout for target in targets):
        if full:
            terminal.render(document(report), console())
        else:
            terminal.render_brief(report, console())
    _say_written(output.written(report, outs[0] if len(outs) == 1 else None, targets))
    check = smoke_check(report.summary)
    return _status(holding(report, fail_on), report.summary.any_ok or bool(check and check.train))


def _fleet(
    folders: FleetFolders, asked: Asked, targets: list[Target], full: bool, drain: bool, fail_on: tuple[str, ...]
) -> int:
    """The report of many nodes; the exit status."""
    from benchsuite.commands._fleet import report_fleet
    from benchsuite.report.show.fleet.conditions import holding_fleet
    from benchsuite.report.show.fleet.files import written_fleet

    fleet = report_fleet(folders, asked, targets, full, drain)
    _say_written(written_fleet(fleet, targets))
    return _status(holding_fleet(fleet, fail_on), fleet.any_ok)


def _systems(
    outs: tuple[Path, ...],
    prices: tuple[float, ...],
    beside: list[str],
    asked: Asked,
    targets: list[Target],
    fail_on: tuple[str, ...],
) -> int:
    """The report of several machines; the exit status."""
    from benchsuite.commands._terminal import console
    from benchsuite.report.show.systems import systems_document, written_systems
    from benchsuite.report.show.systems_fail_on import holding_systems
    from benchsuite.report.show.terminal import render
    from benchsuite.report.stats.systems import check_systems, named_systems

    check_systems(outs, prices, beside)
    groups = named_systems(outs, prices, asked.weights, asked.margin, asked.penalized, asked.partial)
    if not any(target.to_stdout for target in targets):
        render(systems_document(groups), console())
    _say_written(written_systems(groups, targets))
    any_ok = any(one.named.summary.any_ok for group in groups for one in group.systems)
    return _status(holding_systems(groups, fail_on), any_ok)


def _status(found: list[str], any_ok: bool) -> int:
    """The exit status; each condition that holds is named on stderr."""
    from benchsuite.errors import one_line

    if found:
        click.echo(f"benchsuite: --fail-on {one_line('; '.join(found))}", err=True)
    if not any_ok:
        return 1
    return _FAILED_CONDITION if found else 0


def _say_written(written: Iterable[tuple[Target, str]]) -> None:
    """Print what goes to standard output, and name each file that is written."""
    from benchsuite.errors import one_line

    for target, text in written:
        if target.to_stdout:
            click.echo(text, nl=False)
        else:
            click.echo(f"benchsuite: {target.kind} written to {one_line(target.file)}", err=True)
