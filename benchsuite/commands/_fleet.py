"""The report of a fleet, as `benchsuite report` makes it of a folder with a results folder for each node."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from benchsuite.report.fleet.folders import FleetFolders
    from benchsuite.report.fleet.judge import Fleet
    from benchsuite.report.show.asked import Asked
    from benchsuite.report.show.output import Target

# The options that do not go with a fleet, with the reason.
_BESIDE = {
    "compare": "a node is compared with the other nodes; name one node's folder to compare it with a baseline",
    "compare-unlike": "a job that trains something else is left out of the comparison",
    "compare-gpus": "the report of a fleet compares the GPUs of every node",
    "explain": "it explains the ratios of one machine; name one node's folder with --compare BASELINE",
    "traces": "it is of one machine; name one node's folder",
    "price": "it is of one machine; compare prices with --systems",
    "power": "it is of one machine; name one node's folder",
}


def fleet_folders(
    outs: Sequence[Path], systems: bool, nodes: str | None, drain: bool, beside: Mapping[str, bool]
) -> FleetFolders | None:
    """The folders of the fleet that a user asks for; None if it is a report of one machine or of systems.

    Args:
        beside: option -> whether it is given, for the options of `_BESIDE`.

    Raises:
        UsageError: an option does not go with what OUT is.
    """
    from benchsuite.errors import UsageError, one_line
    from benchsuite.report.fleet.folders import find_fleet

    asked = "--nodes" if nodes is not None else "--drain" if drain else None
    if systems or len(outs) != 1:
        if asked:
            raise UsageError(f"{asked}: name one folder that holds a results folder for each node")
        return None
    found = find_fleet(outs[0], Path(nodes) if nodes is not None else None)
    if found is None and asked:
        shown = one_line(str(outs[0]))
        raise UsageError(f"{asked}: {shown} does not hold results folders of several nodes")
    for name, given in beside.items():
        if found and given:
            raise UsageError(f"--{name}: does not go with the report of a fleet; {_BESIDE[name]}")
    return found


def report_fleet(folders: FleetFolders, asked: Asked, targets: Sequence[Target], full: bool, drain: bool) -> Fleet:
    """Read, judge and show a fleet."""
    from benchsuite.commands._nodes import quoted
    from benchsuite.commands._terminal import console
    from benchsuite.describe.invocation import program
    from benchsuite.report.fleet.folders import ACROSS
    from benchsuite.report.fleet.judge import judge_fleet
    from benchsuite.report.fleet.node import Scoring
    from benchsuite.report.fleet.reading import read_nodes, read_tournaments
    from benchsuite.report.show.fleet.document import fleet_document, headline
    from benchsuite.report.show.fleet.files import drain_lines
    from benchsuite.report.show.terminal import render
    from benchsuite.report.stats.weights import weights_for

    weights_for(None, asked.weights)  # a file that is not valid is an error of the user, not of each node
    scoring = Scoring(asked.weights, asked.penalized, asked.partial)
    records = read_nodes(folders, scoring, _progress(len(folders.folders)))
    fleet = judge_fleet(folders, records, asked.margin, read_tournaments(folders.out / ACROSS))
    if (folders.out / ACROSS / "run.json").exists():
        click.echo(
            f"Jobs over nodes have a report of their own: {program()} report {quoted(folders.out / ACROSS)}", err=True
        )
    if drain:
        click.echo(f"benchsuite: {headline(fleet)}", err=True)
        for line in drain_lines(fleet):
            click.echo(line)
    elif not any(target.to_stdout for target in targets):
        render(fleet_document(fleet, brief=not full), console())
    return fleet


def _progress(nodes: int) -> Callable[[int], None]:
    """Show on a terminal how many nodes are read; a pipe or a log sees nothing."""
    if not sys.stderr.isatty():
        return lambda done: None

    def show(done: int) -> None:
        sys.stderr.write(f"\rReading nodes: {done:,} of {nodes:,}" if done < nodes else "\r\x1b[K")
        sys.stderr.flush()

    return show
