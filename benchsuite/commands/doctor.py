"""`benchsuite doctor`: problems of this machine that would spoil a measurement."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

_FIELDS = ("about", "state", "text", "remedy")


@click.command()
@click.option("-d", "--data", help="Folder of the data sets.  [default: $BENCHSUITE_DATA, else data]")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(data: str | None, as_json: bool) -> int:
    """Check this machine for problems, and give their remedies.

    Exit status 0, or 1 if something is BAD.
    """
    from benchsuite.doctor import gpus, host
    from benchsuite.findings import lines
    from benchsuite.host import machine

    here = machine.describe(os.environ)
    visible, why_not = machine.visible(here.gpus, os.environ)
    tasks = max(1, len(visible))
    folder = Path(data or os.environ.get("BENCHSUITE_DATA") or "data")
    results = Path(os.environ.get("BENCHSUITE_OUT") or "results")
    findings = [
        *gpus.findings(here.gpus, visible, here.gpu_note or why_not, {os.getpid()}),
        *gpus.torch_findings(visible, os.environ),
        *host.fence_findings(tasks),
        *host.cpu_findings(),
        *host.memory_findings(tasks),
        *host.disk_findings(results),
        *host.data_findings(folder),
        *host.extras_findings(),
        *host.start_findings(),
    ]
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
