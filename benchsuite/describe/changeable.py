"""What may stand after `--`, in lines of text: job fields and parameters of models."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence

from msgspec import Meta

from benchsuite import files
from benchsuite.describe import entries, profile
from benchsuite.describe.invocation import chosen
from benchsuite.describe.overrides import FIELDS
from benchsuite.describe.tasks import Job, profile_fields
from benchsuite.describe.training import Training

# The mark of a parameter in which the models that one process trains together may differ, and what it means.
FUSIBLE = "*"
LEGEND = f"{FUSIBLE} may differ between the models that one task trains as an array"


def lines(words: Sequence[str]) -> Iterator[str]:
    """The parameters of the models that a command line names, then the job fields.

    Args:
        words: those before `--`. The first that is a model or a profile counts; `--name` selects jobs of a profile.
    """
    for model in _models(words):
        yield f"Parameters of {model.name}: {model.title}"
        yield from parameter_lines(model)
        yield ""
    yield "Job fields"
    yield from _field_lines()


def parameter_lines(model: entries.Declared) -> Iterator[str]:
    """Each parameter of a model as an option, with its type, its default and the mark of a fusible one."""
    for name, declared in model.parameters.items():
        mark = f"  {FUSIBLE}" if declared.fusible else ""
        yield f"  --{name.replace('_', '-')} {declared.words} = {declared.default!r}{mark}"


def _models(words: Sequence[str]) -> list[entries.Declared]:
    for word in words:
        if word in entries.names():
            return [entries.declared(word, None)]
        if ":" in word and not word.startswith("-"):
            return [entries.declared(None, word)]
        if word in files.shipped("profiles"):
            asked = chosen(words)
            jobs = profile.load(word, only=asked.only, exclude=asked.exclude).jobs
            found = {job.model or job.entry: entries.declared(job.model, job.entry) for job in jobs}
            return list(found.values())
    return []


def _field_lines() -> Iterator[str]:
    defaults = profile_fields(Job(name="job"))
    for record in (Job, Training):
        for name, annotation in typing.get_type_hints(record, include_extras=True).items():
            if name in FIELDS and name in record.__struct_fields__:
                about = _description(annotation)
                default = defaults[name]
                plain = f" = {default!r}" if isinstance(default, str | int | float) else ""
                yield f"  --{name.replace('_', '-')}{plain}: {about}"


def _description(annotation: typing.Any) -> str:
    found = (m.description for m in getattr(annotation, "__metadata__", ()) if isinstance(m, Meta) and m.description)
    return next(found, "")
