"""`benchsuite list`: models, profiles, data sets, plots, and the schema of a result."""

from __future__ import annotations

import click


@click.command()
@click.argument("what", type=click.Choice(["models", "profiles", "datasets", "plots", "schema"]))
def command(what: str) -> None:
    """List models, profiles, data sets or plots.

    `schema` prints the JSON schema of a result.
    """
    {"models": _models, "profiles": _profiles, "datasets": _datasets, "plots": _plots, "schema": _schema}[what]()


def _models() -> None:
    from benchsuite.describe import entries

    for name in entries.names():
        model = entries.declared(name, None)
        missing = model.missing()
        click.echo(f"{name}: {model.title}" + (f"  [needs pip install '{' '.join(missing)}']" if missing else ""))
        for line in model.doc.strip().splitlines()[1:]:
            if line:
                click.echo(f"    {line}")
        for parameter, declared in model.parameters.items():
            fusible = "  (may differ within a fused array)" if declared.fusible else ""
            click.echo(f"      --{parameter.replace('_', '-')} {declared.words} = {declared.default!r}{fusible}")
        click.echo()


def _profiles() -> None:
    from benchsuite import files
    from benchsuite.describe import profile

    for name, path in files.shipped("profiles").items():
        jobs = profile.load(name).jobs
        click.echo(f"{name}: {len(jobs)} jobs ({path})")
        for job in jobs:
            click.echo(f"    {job.name}: {job.model or job.entry}, {job.training.precision}")


def _datasets() -> None:
    from benchsuite import files
    from benchsuite.data import descriptor

    for name in files.shipped("datasets"):
        about = descriptor.load(name).about
        click.echo(f"{name}: {about.title}")
        click.echo(f"    licence: {about.licence}")


def _plots() -> None:
    from benchsuite.report import plots

    for kind, what in plots.kinds().items():
        click.echo(f"{kind}: {what}")


def _schema() -> None:
    import msgspec

    from benchsuite.records import Result

    click.echo(msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Result)), indent=2).decode())
