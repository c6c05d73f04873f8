"""`benchsuite overhead`: measure what measuring costs on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from benchsuite.commands import completion
from benchsuite.commands._changes import WithChanges
from benchsuite.describe.invocation import ONLY

_EPILOG = (
    "It runs on the first GPU, or on the CPU. 'benchsuite report OUT --full' shows the result again. After -- come job "
    "fields and parameters, as for 'benchsuite jobs'."
)

_EXAMPLES = (
    ("benchsuite overhead", "The small jobs of smoke, on the first GPU or the CPU."),
    ("benchsuite overhead standard --name convnet -d data --rounds 40", "One job of the suite, with more rounds."),
)


@click.command(cls=WithChanges, epilog=_EPILOG, examples=_EXAMPLES)
@click.argument("profile", default="smoke", shell_complete=completion.profiles_or_runs)
@click.option(ONLY, "only", multiple=True, metavar="JOB", shell_complete=completion.jobs, help="Only this job.")
@click.option("--rounds", type=click.IntRange(3, 1000), default=20, metavar="N", help="Pairs of blocks.  [default: 20]")
@click.option(
    "--block", type=click.FloatRange(0.05, 60), default=2.0, metavar="S", help="Seconds of a block.  [default: 2]"
)
@click.option("-d", "--data", metavar="DIR", help="Data sets.  [default: $BENCHSUITE_DATA, else data]")
@click.option("-o", "--out", metavar="OUT", help="New folder for the results.")
@click.argument("changes", nargs=-1, type=click.UNPROCESSED, metavar="[-- CHANGES]")
def command(
    profile: str,
    only: tuple[str, ...],
    rounds: int,
    block: float,
    data: str | None,
    out: str | None,
    changes: tuple[str, ...],
) -> int:
    """Measure what measuring costs.

    Each job of PROFILE (default: smoke) is measured as with 'jobs'. Then it trains on in blocks of steps, in turns:
    bare, and with all that measuring takes. The cost is the ratio of their times minus 1, with its 95 %
    interval. The exit status is 1 if the whole interval of a job is above 0.5 %, or a task fails.
    """
    from benchsuite.commands._running import check_out, run_plan
    from benchsuite.costs import CostAsked
    from benchsuite.describe.costed import costed
    from benchsuite.describe.plan import make_plan
    from benchsuite.host import machine as host
    from benchsuite.host.visible import chosen as chosen_gpus
    from benchsuite.launch.asked import Asked, fresh
    from benchsuite.launch.session import Invocation

    check_out(out, resume=False)
    asked = Asked(profile, only, (), changes, str(Path(data).absolute()) if data else None)
    settled = fresh(asked, os.environ)
    machine = host.describe(os.environ)
    gpus = chosen_gpus(machine.gpus, settled.environ, machine.gpu_note)[:1]
    chosen = settled.profile
    plan = make_plan(chosen.name, chosen.jobs, gpus, environ=os.environ, data_root=settled.data_root)
    plan = costed(plan, CostAsked(rounds=rounds, block_s=block))
    return run_plan(plan, chosen.used(), out, False, Invocation(machine, os.environ, sys.argv), ended=_show)


def _show(folder: Path) -> int:
    """Show what the run in a folder found; 1 if measuring costs a job too much."""
    from benchsuite.commands._terminal import console
    from benchsuite.report.read.load import load
    from benchsuite.report.show.document import Document
    from benchsuite.report.show.sections.cost import cost_section
    from benchsuite.report.show.sections.origin import title
    from benchsuite.report.show.terminal import render
    from benchsuite.report.stats.summarise import summarise

    summary = summarise(load(folder))
    if section := cost_section(summary):
        render(Document(title=title(summary), intro=(), jobs=None, sections=(section,), score=None), console())
    return int(any(job.verdict == "FAIL" for job in summary.costs))
