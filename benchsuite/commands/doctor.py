"""`benchsuite doctor`: problems of this machine that would spoil a measurement."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchsuite.commands._examples import WithExamples

if TYPE_CHECKING:
    from benchsuite.findings import Finding


class _Checking:
    """Shows on a terminal which check is in progress, in one line that is erased at the end."""

    def __enter__(self) -> _Checking:
        return self

    def __call__(self, what: str) -> None:
        self._show(f"checking {what}")

    def __exit__(self, *_: object) -> None:
        self._show("")

    def _show(self, text: str) -> None:
        if sys.stderr.isatty():
            with contextlib.suppress(OSError):
                click.echo(f"\r\x1b[2K{text}", err=True, nl=False)


_FIELDS = ("about", "state", "text", "remedy")


_EXAMPLES = (
    ("benchsuite doctor", "Check this machine before a run."),
    (
        "benchsuite doctor --json | jq '.[] | select(.state == \"bad\")'",
        "Print only what must be remedied, for a program.",
    ),
)


@click.command(cls=WithExamples, examples=_EXAMPLES)
@click.option("-d", "--data", metavar="DIR", help="Data sets.  [default: $BENCHSUITE_DATA, else data]")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(data: str | None, as_json: bool) -> int:
    """Check this machine for problems, and give their remedies.

    Exit status 0, or 1 if something is BAD.
    """
    from benchsuite.doctor import gpus, host
    from benchsuite.findings import lines
    from benchsuite.host import machine
    from benchsuite.host.visible import visible as usable

    with _Checking() as checking:
        checking("the machine")
        here = machine.describe(os.environ)
        visible, _ = usable(here.gpus, os.environ)
        tasks = max(1, len(visible))
        folder = Path(data or os.environ.get("BENCHSUITE_DATA") or "data")
        results = Path(os.environ.get("BENCHSUITE_OUT") or "results")
        checks: dict[str, Callable[[], Iterable[Finding]]] = {
            "the GPUs": lambda: gpus.findings(here, visible, {os.getpid()}),
            "torch": lambda: gpus.torch_findings(visible, os.environ),
            "isolation": lambda: host.fence_findings(tasks),
            "the processors": host.cpu_findings,
            "the memory": lambda: host.memory_findings(tasks),
            "the disk": lambda: host.disk_findings(results),
            "the data sets": lambda: host.data_findings(folder),
            "extra packages": host.extras_findings,
            "the start of a process": host.start_findings,
        }
        findings: list[Finding] = []
        for what, check in checks.items():
            checking(what)
            findings += check()
    troubles = sum(f.is_bad() for f in findings)
    if as_json:
        click.echo(json.dumps([{name: getattr(finding, name) for name in _FIELDS} for finding in findings], indent=2))
        return 1 if troubles else 0
    width = max(len(f.about) for f in findings)
    for line in lines(findings, width, click.style):
        click.echo(line)
    notes = sum(f.state == "note" for f in findings)
    verdict = "will not all be" if troubles else "will be"
    click.echo(f"{troubles} bad, {notes} to note: results of this machine {verdict} trustworthy.")
    return 1 if troubles else 0
