"""`benchsuite list`: models, profiles, data sets, plots, baselines, cards, and the fields of profiles and results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import click

from benchsuite.commands._examples import WithExamples
from benchsuite.errors import nearest


class _Kind(click.Choice[str]):
    """A choice that suggests the word which was meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            raise click.UsageError(f"No list of '{value}'{nearest(value, self.choices)}", ctx)
        return super().convert(value, param, ctx)


_EXAMPLES = (
    ("benchsuite list profiles", "What can be run."),
    ("benchsuite list models", "All models with their parameters."),
    ("benchsuite list schema > result.schema.json", "The format of a result, for a program."),
)


def _profile_fields() -> str:
    from benchsuite.describe.reference import profile_page

    return profile_page()


def _result_fields() -> str:
    from benchsuite.describe.reference import result_page

    return result_page()


def _schema() -> str:
    import msgspec

    from benchsuite.records import Result

    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Result)), indent=2).decode() + "\n"


# What is printed as it is, in contrast to the lists, which are entries.
_PAGES: dict[str, Callable[[], str]] = {
    "profile-fields": _profile_fields,
    "result-fields": _result_fields,
    "schema": _schema,
}


@click.command(cls=WithExamples, examples=_EXAMPLES)
@click.argument("what", type=_Kind(["models", "profiles", "datasets", "plots", "baselines", "cards", *_PAGES]))
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(what: str, as_json: bool) -> None:
    """List models, profiles, data sets, plots, baselines or cards.

    'cards' prints the table of GPUs with their dense peaks. 'profile-fields' and 'result-fields' print every field of a
    profile and of a result as Markdown. 'schema' prints the JSON schema of a result.
    """
    if what in _PAGES:
        click.echo(_PAGES[what](), nl=False)
        return
    entries, text = _LISTS[what]
    found = entries()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for line in text(found):
        click.echo(line)


def _models() -> list[dict[str, Any]]:
    from benchsuite.describe import entries

    models = [entries.declared(name, None) for name in entries.names()]
    return [
        {
            "name": model.name,
            "about": model.title,
            "needs": model.missing(),
            "reads": model.reads,
            "parallel": model.parallel,
            "parameters": [
                {
                    "name": name,
                    "option": f"--{name.replace('_', '-')}",
                    "type": declared.words,
                    "default": declared.default,
                    "fusible": declared.fusible,
                }
                for name, declared in model.parameters.items()
            ],
        }
        for model in models
    ]


def _models_text(found: Iterable[dict[str, Any]]) -> Iterable[str]:
    from benchsuite.describe import entries
    from benchsuite.describe.changeable import LEGEND, parameter_lines

    for model in found:
        needs = f"  [needs pip install '{' '.join(model['needs'])}']" if model["needs"] else ""
        declared = entries.declared(model["name"], None)
        yield f"{model['name']}: {model['about']}{needs}"
        yield from (f"    {line}" for line in declared.doc.strip().splitlines()[1:] if line)
        yield from (f"    {line}" for line in parameter_lines(declared))
        yield ""
    yield LEGEND


def _profiles() -> list[dict[str, Any]]:
    from benchsuite import files
    from benchsuite.describe import profile

    return [
        {
            "name": name,
            "about": profile.about(name),
            "file": str(path),
            "jobs": [
                {
                    "name": job.name,
                    "model": job.model or job.entry,
                    "precision": job.training.precision,
                    "gpu_memory_gib": job.gpu_memory_gib,
                }
                for job in profile.load(name).jobs
            ],
        }
        for name, path in files.shipped("profiles").items()
    ]


def _profiles_text(found: Iterable[dict[str, Any]]) -> Iterable[str]:
    for profile in found:
        yield f"{profile['name']}: {len(profile['jobs'])} jobs; {profile['about']}"
        yield f"    {profile['file']}"
        for job in profile["jobs"]:
            needs = f", needs {job['gpu_memory_gib']:g} GiB of GPU memory" if job["gpu_memory_gib"] else ""
            yield f"    {job['name']}: {job['model']}, {job['precision']}{needs}"


def _datasets() -> list[dict[str, Any]]:
    from benchsuite import files
    from benchsuite.data import descriptor

    found = {name: descriptor.load(name).about for name in files.shipped("datasets")}
    return [{"name": name, "about": about.title, "licence": about.licence} for name, about in found.items()]


def _datasets_text(found: Iterable[dict[str, Any]]) -> Iterable[str]:
    for dataset in found:
        yield f"{dataset['name']}: {dataset['about']}"
        yield f"    licence: {dataset['licence']}"


def _plots() -> list[dict[str, Any]]:
    from benchsuite.report import plots

    return [{"name": kind, "about": what} for kind, what in plots.kinds().items()]


def _baselines() -> list[dict[str, Any]]:
    from benchsuite import files
    from benchsuite.report.sources import summary_of

    found = []
    for name, path in files.shipped("baselines").items():
        summary = summary_of(path)
        found.append({"name": name, "jobs": len(summary.jobs), "created": summary.created, "file": str(path)})
    return found


def _baselines_text(found: Iterable[dict[str, Any]]) -> Iterable[str]:
    for baseline in found:
        yield f"{baseline['name']}: {baseline['jobs']} jobs, {_date(baseline['created'])} ({baseline['file']})"


def _date(created: str | None) -> str:
    from benchsuite.report.show.sections.origin import date_words

    return date_words(created) or "no date"


def _cards() -> list[dict[str, Any]]:
    import msgspec

    from benchsuite.describe import cards

    return [{"name": known.name, **msgspec.to_builtins(known.card), "file": str(known.file)} for known in cards.table()]


def _cards_text(found: Iterable[dict[str, Any]]) -> Iterable[str]:
    for card in found:
        peaks = ", ".join(f"{name} {peak:g}" for name, peak in card["dense_tflops"].items() if peak)
        memory = f"; memory {card['memory_gb_s']:g} GB/s" if card["memory_gb_s"] else ""
        yield f"{card['name']}: {', '.join(card['names'])}"
        yield f"    dense TFLOP/s: {peaks}{memory}"
        yield f"    {card['source']} ({card['file']})"


def _plots_text(found: Iterable[dict[str, Any]]) -> Iterable[str]:
    yield from (f"{plot['name']}: {plot['about']}" for plot in found)


_LISTS: dict[str, tuple[Callable[[], list[dict[str, Any]]], Callable[[Iterable[dict[str, Any]]], Iterable[str]]]] = {
    "models": (_models, _models_text),
    "profiles": (_profiles, _profiles_text),
    "datasets": (_datasets, _datasets_text),
    "plots": (_plots, _plots_text),
    "baselines": (_baselines, _baselines_text),
    "cards": (_cards, _cards_text),
}
