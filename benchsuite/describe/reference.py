"""The fields of a profile and of a result as pages in Markdown, made from the types of their records."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect as types

from benchsuite.describe.jobs import PLACEMENTS, START_ALLOWANCE_S
from benchsuite.describe.tasks import Job
from benchsuite.describe.training import Training
from benchsuite.records import Result
from benchsuite.schema import SCHEMA, Record

# What a profile may write in place of the type of a field's record.
SHORT_FORMS = {
    "placement": f" or one of {', '.join(f'`{name}`' for name in PLACEMENTS)}",
    "compile": ", true (`default`), false (`none`)",
    "intra_op_threads": " or an integer",
    "container": " or text (the image)",
    "target": " or text (`loss=2.0`, `bleu=21.8`)",
    "parallel": " or a mapping with `plan`, a file that `plan-stages` writes",
    "sharing": ", or a list of them",
    "copies": ", or a list of them",
}
# Defaults that depend on other fields of the job.
DEFAULTS = {
    "timeout_s": f"`max_time_s` + {START_ALLOWANCE_S:g}",
    "min_time_s": "15.0; 0 with `max_epochs` or `target`",
    "max_time_s": "120.0; no limit with `max_epochs`",
}
_HEAD = ("| field | type | default | meaning |", "|---|---|---|---|")
_PROFILE = """\
# Profile reference

`benchsuite list profile-fields` prints this page from the types of the program.

A profile maps the names of its jobs to their fields. The entry `"*"` holds defaults for all jobs.
[Profiles](profiles.md) explains the fields, with examples. A field that is missing or null has its default.

## Job

A job has exactly one of `model` and `entry`. Every field but `model`, `entry` and `params` can also follow `--` on the
command line, as `--max-time-s 30`.
"""
_RESULT = """\
# Result schema

`benchsuite list result-fields` prints this page from the types of the program.

Every task of a run leaves one result: a JSON file with the fields of `Result`. Files are written with schema {schema}.
Files of older schemas are read: they are upgraded in memory, and the files stay as they are.
`benchsuite list schema` prints the same as a JSON schema.

A file has every field. The default counts where an older file lacks a field. Null stands for a value that was not
measured or does not apply. Times called `*_s` are seconds of CLOCK_MONOTONIC unless a field says otherwise.
"""


def profile_page() -> str:
    """Every field that a profile may have, and those of the records in it."""
    job, *others = _records(Job)
    lines = [_row(field, SHORT_FORMS.get(field.name, "")) for field in _profile_fields(job)]
    inner = [record for record in others if record.cls is not Training]
    return "\n".join([_PROFILE, *_HEAD, *lines, *(line for record in inner for line in _section(record))]) + "\n"


def result_page() -> str:
    """Every field of a result, and those of the records in it but for a job's, which the profile's page holds."""
    of_job = {record.cls for record in _records(Job)}
    records = [record for record in _records(Result) if record.cls not in of_job]
    text = "\n".join([_RESULT.format(schema=SCHEMA).rstrip("\n"), *(line for r in records for line in _section(r))])
    return text.replace("[Job](#job)", "[Job](profile-reference.md#job)") + "\n"


def _profile_fields(job: types.StructType) -> Iterator[types.Field]:
    """The fields of a job as a profile has them: without the name, and with those of its training on the same level."""
    for field in job.fields:
        if field.name == "training":
            yield from next(_structs(field.type)).fields
        elif field.name != "name":
            yield field


def _records(kind: type[Record]) -> list[types.StructType]:
    """A record and all records in its fields, each once, in the order in which a reader meets them."""
    found: dict[type, types.StructType] = {}
    waiting: list[types.Type] = [types.type_info(kind)]
    while waiting:
        for record in _structs(waiting.pop(0)):
            if record.cls not in found:
                found[record.cls] = record
                waiting = [field.type for field in record.fields] + waiting
    return list(found.values())


def _structs(kind: types.Type) -> Iterator[types.StructType]:
    """The records that a type consists of, without those in their fields."""
    if isinstance(kind, types.StructType):
        yield kind
    elif isinstance(kind, types.Metadata):
        yield from _structs(kind.type)
    elif isinstance(kind, types.UnionType):
        for part in kind.types:
            yield from _structs(part)
    elif isinstance(kind, types.VarTupleType):
        yield from _structs(kind.item_type)
    elif isinstance(kind, types.DictType):
        yield from _structs(kind.value_type)


def _section(record: types.StructType) -> Iterator[str]:
    listed = " It is written as a list of its fields, in this order." if record.array_like else ""
    about = inspect.getdoc(record.cls) or ""
    yield from ("", f"## {record.cls.__name__}", "", f"{about}{listed}", "", *_HEAD, *map(_row, record.fields))


def _row(field: types.Field, short_form: str = "") -> str:
    """A row of a table. The meaning of a field without a description is the first line of its record's docstring."""
    cells = (f"`{field.name}`", _words(field.type) + short_form, _default(field), _meaning(field))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _words(kind: types.Type) -> str:
    """A type with its bounds: "integer over 0 or null"."""
    if isinstance(kind, types.Metadata):
        return _words(kind.type)
    if isinstance(kind, types.UnionType):
        parts = sorted(kind.types, key=lambda part: isinstance(part, types.NoneType))
        return " or ".join(_words(part) for part in parts)
    if isinstance(kind, types.IntType | types.FloatType):
        return _number_words(kind)
    if isinstance(kind, types.StrType):
        return _text_words(kind)
    if isinstance(kind, types.LiteralType):
        return ", ".join(f"`{value}`" for value in kind.values)
    if isinstance(kind, types.StructType):
        return f"[{kind.cls.__name__}](#{kind.cls.__name__.lower()})"
    return _collection_words(kind)


def _collection_words(kind: types.Type) -> str:
    if isinstance(kind, types.VarTupleType):
        return f"list of {_bracketed(kind.item_type)}"
    if isinstance(kind, types.TupleType):
        return f"[{', '.join(map(_words, kind.item_types))}]"
    if isinstance(kind, types.DictType):
        return f"mapping of text to {_bracketed(kind.value_type)}"
    return {types.BoolType: "true or false", types.NoneType: "null", types.AnyType: "any value"}[type(kind)]


def _bracketed(kind: types.Type) -> str:
    return f"({_words(kind)})" if isinstance(kind, types.UnionType | types.VarTupleType) else _words(kind)


def _number_words(kind: types.IntType | types.FloatType) -> str:
    bounds = (("over", kind.gt), ("from", kind.ge), ("below", kind.lt), ("up to", kind.le))
    words = [f" {word} {bound:.10g}" for word, bound in bounds if bound is not None]
    return ("integer" if isinstance(kind, types.IntType) else "number") + "".join(words)


def _text_words(kind: types.StrType) -> str:
    lengths = f" of {kind.min_length} to {kind.max_length} characters" if kind.max_length else ""
    return f"text{lengths}" + (f" matching `{kind.pattern}`" if kind.pattern else "")


def _default(field: types.Field) -> str:
    if field.name in DEFAULTS:
        return DEFAULTS[field.name]
    if field.required:
        return "required"
    value: Any = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, Record):
        return "{}"
    return json.dumps(msgspec.to_builtins(value)).strip('"')


def _meaning(field: types.Field) -> str:
    if isinstance(field.type, types.Metadata) and (about := (field.type.extra_json_schema or {}).get("description")):
        return str(about)
    record = next(_structs(field.type), None)
    return (inspect.getdoc(record.cls) or "").partition("\n")[0] if record else ""
