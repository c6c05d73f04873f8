"""Show how the nodes of a run stand: live while a command waits, as a table for `benchsuite status`."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape
from rich.table import Table

from benchsuite.errors import one_line
from benchsuite.launch.progress import LiveDisplay

if TYPE_CHECKING:
    from benchsuite.cluster.states import NodeStatus

# What is not a terminal gets a line at each change, and one for all nodes after this time.
SUMMARY_EVERY_S = 60.0
_STYLES = {"ok": "green", "running": "cyan", "starting": "cyan", "waiting": "", "not submitted": "yellow"}
# A table of more nodes than fit begins with these.
_FIRST = ("running", "starting", "waiting")


class NodesShown(LiveDisplay):
    """Shows on stderr how nodes stand: by a live table on a terminal, by lines elsewhere."""

    def __init__(self) -> None:
        super().__init__("asking Slurm")
        self._words: dict[str, str] = {}
        self._summary_s = time.monotonic()

    def show(self, statuses: Sequence[NodeStatus]) -> None:
        """Show the nodes as they stand now."""
        for status in statuses:
            if self._words.get(status.node) == status.word:
                continue
            self._words[status.node] = status.word
            if not self.live or not status.live:
                self.say(line_of(status))
        if self.live:
            self.picture(table(statuses, rows=max(3, self.console.height - 6)))
        elif time.monotonic() - self._summary_s > SUMMARY_EVERY_S:
            self._summary_s = time.monotonic()
            self.say(summary(statuses))


def line_of(status: NodeStatus) -> str:
    """How a node stands, in one line."""
    job = f" (job {status.job_id})" if status.live else ""
    tasks = status.tally.words if status.tally and not status.live else ""
    return "; ".join(filter(None, [f"{status.node}: {status.word}{job}", tasks, status.detail]))


def summary(statuses: Sequence[NodeStatus]) -> str:
    """Such as "4 nodes: 3 running, 1 ok; tasks: 37 of 80 have ended"."""
    from benchsuite.cluster.waiting import closing_words

    tallies = [status.tally for status in statuses if status.tally]
    ended, total = sum(tally.ended for tally in tallies), sum(tally.total for tally in tallies)
    return f"{closing_words(statuses)}; tasks: {ended} of {total} have ended" if tallies else closing_words(statuses)


def table(statuses: Sequence[NodeStatus], rows: int | None = None) -> Table:
    """The nodes as a table.

    Args:
        rows: the most nodes to show, with a line about all of them; all nodes and no such line if None.
    """
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), caption_justify="left")
    for heading in ("node", "state", "job", "tasks", ""):
        shown.add_column(heading, no_wrap=heading != "", overflow="fold")
    order = sorted(statuses, key=lambda s: s.word not in _FIRST) if rows and len(statuses) > rows else statuses
    for status in order[:rows]:
        tasks = status.tally.words if status.tally else ""
        style = _STYLES.get(status.word, "red")
        shown.add_row(
            escape(status.node), status.word, status.job_id or "", tasks, escape(one_line(status.detail)), style=style
        )
    if rows is not None:
        hidden = len(statuses) - len(order[:rows])
        shown.caption = summary(statuses) + (f"; {hidden} nodes are not shown" if hidden else "")
    return shown


def say(*parts: str) -> None:
    """A line on stderr, with its parts apart. The terminal may be gone."""
    with contextlib.suppress(OSError):
        click.echo("    ".join(map(one_line, parts)), err=True)


def quoted(out: Path) -> str:
    """A folder as a word of a command line."""
    return shlex.quote(f"./{out}" if str(out).startswith("-") else str(out))


def close(statuses: Sequence[NodeStatus], shown: Path) -> int:
    """Print the closing lines.

    Args:
        shown: the folder as the user named it.

    Returns:
        The exit status.
    """
    from benchsuite.cluster.waiting import closing_words, exit_status
    from benchsuite.describe.invocation import program, resume_command

    status = exit_status(statuses)
    say(f"{closing_words(statuses)}.")
    if any(one.tally for one in statuses):
        say(f"Results: {shown}", f"Report: {program()} report {quoted(shown)}")
    if any(one.to_run for one in statuses):
        say(f"Continue: {resume_command(shown)}", f"Logs: {shown}/.cluster/NODE.*.log")
    return status
