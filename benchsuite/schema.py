"""The ground of every kept file: frozen records, strict JSON, a schema number and the way up from older ones."""

from __future__ import annotations

import math
import re
from typing import Any, TypeVar

import msgspec

from benchsuite.upgrade import upgraded

# History of the schema. `upgrade` holds the way up from each older one.
# 1  The first.
# 2  A plan holds waves, and a task its cell, row, axes, `per` and wave. `training` gathers how a job is trained, with
#    the new fields accumulate and prefetch (1 and false in older files). A run holds machines. Each stream and timeline
#    names its host, boot and wall-clock anchor (`clock`); before, a result had one anchor. A job may have a matrix.
SCHEMA = 2


class Record(msgspec.Struct, frozen=True):
    """Immutable, strict JSON in and out; subclasses repeat `frozen` and add `kw_only`."""


R = TypeVar("R", bound=Record)
# How `to_json` begins a kept record.
_HEAD = re.compile(rb'\{\s*"schema":\s*(\d{1,9}),\s*"kind":\s*"(\w+)",')


def to_json(record: Record, *, indent: int = 0) -> bytes:
    """Strict JSON, UTF-8, one trailing newline; one line unless `indent` is given. NaN never gets in: see `finite`."""
    text = msgspec.json.encode(record)
    return (msgspec.json.format(text, indent=indent) if indent else text) + b"\n"


def finite(value: float | None, digits: int = 7) -> float | None:
    """A number that strict JSON can hold, at `digits` significant digits; None for NaN, infinity and None."""
    return float(f"{value:.{digits}g}") if value is not None and math.isfinite(value) else None


def decode(text: bytes) -> Any:
    """JSON's content.

    Raises:
        ValueError: empty, or not JSON; says which.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not valid JSON ({error})" if text.strip() else "the file is empty") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def from_json(text: bytes, kind: type[R]) -> R:
    """A record of today's schema from its JSON.

    Raises:
        ValueError: not JSON, another kind of file, a newer schema, or a field of the wrong type; says which.
    """
    record = current(text, kind)
    return convert(decode(text), kind) if record is None else record


def current(text: bytes, kind: type[R]) -> R | None:
    """The quick way for a record of today's schema as this version writes it: decoded in one go, without the dicts
    between. None where it is anything else, or damaged: `decode` and `convert` then say what."""
    head = _HEAD.match(text)
    if head is None or int(head[1]) != SCHEMA or head[2].decode() != kind.__name__.lower():
        return None
    try:
        record = msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return record if getattr(record, "schema", SCHEMA) == SCHEMA else None


def convert(content: Any, kind: type[R]) -> R:
    """As `from_json`, of JSON already decoded."""
    wanted = kind.__name__.lower()
    if not isinstance(content, dict) or content.get("kind") != wanted:
        raise ValueError(f"not a {wanted} of benchsuite")
    try:
        return msgspec.convert(upgrade(content), kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a valid {wanted}: {error}") from None


def upgrade(content: dict[str, Any]) -> dict[str, Any]:
    """Any older kept file as today's schema.

    Raises:
        ValueError: the file comes from a newer benchsuite, has no schema number, or lacks what its schema demands.
    """
    found = content.get("schema")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ValueError("no schema number")
    if found > SCHEMA:
        raise ValueError(f"schema {found} comes from a newer benchsuite (this one knows {SCHEMA}); update benchsuite")
    return upgraded(content, found, SCHEMA)
