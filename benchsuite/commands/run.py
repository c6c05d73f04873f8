"""`benchsuite run`: train one model once."""

from __future__ import annotations

import os
from pathlib import Path

import click

from benchsuite.commands import completion
from benchsuite.commands._changes import WithChanges

_EPILOG = (
    "After -- come job fields (--max-count, --precision, ...) and parameters of the model: "
    "'benchsuite run ENTRY -- --help' lists them."
)


_EXAMPLES = (
    ("benchsuite run vae", "Train a model for 15 s, and print the result."),
    (
        "benchsuite run convnet -d data -o one.json -- --batch-size 64 --precision bf16",
        "On data, with other parameters, into a file.",
    ),
    ("benchsuite run my_model:build", "A model of your own, from my_model.py in the current folder."),
    ("benchsuite run vae -- --help", "What may stand after --."),
)


@click.command(cls=WithChanges, epilog=_EPILOG, examples=_EXAMPLES)
@click.argument("entry", shell_complete=completion.models)
@click.option("-d", "--data", metavar="DIR", help="Data sets.  [default: $BENCHSUITE_DATA, else data]")
@click.option("-o", "--out", metavar="OUT", help="A new .json file or folder.  [default: JSON on stdout]")
@click.argument("changes", nargs=-1, type=click.UNPROCESSED, metavar="[-- CHANGES]")
def command(entry: str, data: str | None, out: str | None, changes: tuple[str, ...]) -> int:
    """Run one model on the first GPU, or on the CPU.

    ENTRY is the name of a model, or module:function of your own. The JSON holds the rate: jq .rate.value

    Exit status: 0 if the model trained; 1 if it failed; 2 for wrong input.
    """
    from benchsuite.describe import profile as profiles
    from benchsuite.describe.overrides import Overrides
    from benchsuite.describe.plan import make_plan
    from benchsuite.describe.tasks import ProfileUsed
    from benchsuite.errors import UsageError
    from benchsuite.host import machine as host
    from benchsuite.host.visible import chosen as chosen_gpus
    from benchsuite.launch.run_one import Judge, check_file, keep, run_single
    from benchsuite.launch.session import data_root
    from benchsuite.report.measure.foresight import warnings
    from benchsuite.report.show.one_line import figure
    from benchsuite.report.stats.rate import alone
    from benchsuite.schema import to_json

    overrides = Overrides.parse(changes)
    job = profiles.single(None, entry, overrides) if ":" in entry else profiles.single(entry, None, overrides)
    root = data_root(data, os.environ)
    machine = host.describe(os.environ)
    gpus = chosen_gpus(machine.gpus, os.environ, machine.gpu_note)
    if job.placement.devices == "progression":
        raise UsageError("--placement: 'run' makes one task, a progression several; give all_gpus")
    if job.processes > 1 or job.copies == "fit":
        raise UsageError("--copies: 'run' makes one task, and copies are several; give --sharing fused, or use 'share'")
    chosen = gpus if job.placement.devices == "all" else gpus[:1]
    (task,) = make_plan("run", [job], chosen, environ=os.environ, data_root=root).tasks
    target = Path(out) if out and out != "-" else None
    if target and target.suffix == ".json":
        check_file(target)
    folder = target if target and target.suffix != ".json" else None
    used = ProfileUsed(name="run", path="", sha256="", text="", official=False)
    result, status = run_single(task, used, machine, os.environ, Judge(figure, warnings), folder)
    result = alone(result, machine)
    if target is None:
        click.echo(to_json(result, indent=2), nl=False)
    elif folder is None:
        keep(result, target)
    return status
