"""`benchsuite trace`: what a profiler's file shows."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.option(
    "--read",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Analyse FILE: JSON of torch.profiler (also .gz), output of ncu --csv, or a table of nvprof.",
)
@click.option(
    "--nvvp",
    nargs=3,
    type=float,
    metavar="PERCENT SESSION_S OVERHEAD_S",
    help="Correct the compute utilisation that nvvp shows for the profiler's overhead.",
)
@click.option("--top", default=10, metavar="N", type=click.IntRange(1, 1000), help="List N kernels.  [default: 10]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(file: Path | None, nvvp: tuple[float, float, float] | None, top: int, as_json: bool) -> None:
    """Show where the time of a trace goes.

    A timeline gives the share of time in which each GPU computes, copies and communicates, the causes of its idle time,
    and its longest kernels. A table of ncu gives the use of each kind of cores.
    """
    from benchsuite.errors import UsageError

    if (file is None) == (nvvp is None):
        raise UsageError("trace: give either --read FILE or --nvvp PERCENT SESSION_S OVERHEAD_S")
    if nvvp is not None:
        from benchsuite.trace.nvprof import corrected

        click.echo(f"compute utilisation without the profiler's overhead: {corrected(*nvvp):.1f} %")
        return
    assert file is not None
    from benchsuite.commands._terminal import console
    from benchsuite.report.show.terminal import render
    from benchsuite.trace.recognise import analysis

    found = analysis(file, top)
    if as_json:
        click.echo(json.dumps(found.values, indent=2, allow_nan=False))
        return
    render(found.document, console())
