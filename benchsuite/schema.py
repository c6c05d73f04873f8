"""The format of every file that benchsuite keeps: frozen records as strict JSON, with a schema number."""

from __future__ import annotations

import math
import re
from codecs import BOM_UTF8
from typing import Any, TypeVar

import msgspec

from benchsuite.upgrade import upgraded

# History of the schema. The module `upgrade` converts files of each older one.
# 1  The first.
# 2  A plan holds waves, and a task its cell, row, axes, `per` and wave. `training` gathers how a job is trained, with
#    the new fields accumulate and prefetch (1 and false in older files). A run holds machines. Each stream and timeline
#    names its host, boot and wall-clock anchor (`clock`); before, a result had one anchor. A job may have a matrix.
# 3  A job has warm_up_s. Before, a task took a fixed number of untimed steps, so that it is 0 in older files.
# 4  `training` has intra_op_threads. Before, each task had as many as its CPUs, so that it is `cpus` in older files.
SCHEMA = 4


class Record(msgspec.Struct, frozen=True):
    """An immutable record that is read and written as strict JSON. Subclasses give `frozen` again, and `kw_only`."""


R = TypeVar("R", bound=Record)
# The begin of a file that `to_json` wrote.
_HEAD = re.compile(rb'\{\s*"schema":\s*(\d{1,9}),\s*"kind":\s*"(\w+)",')


def to_json(record: Record, *, indent: int = 0) -> bytes:
    """A record as strict JSON in UTF-8, with a final line end. Numbers must be finite, see `finite`.

    Args:
        indent: blanks for each level; 0 writes a single line.
    """
    text = msgspec.json.encode(record)
    return (msgspec.json.format(text, indent=indent) if indent else text) + b"\n"


def finite(value: float | None, digits: int = 7) -> float | None:
    """A number rounded to `digits` significant digits; None for NaN and infinity, which strict JSON cannot hold."""
    return float(f"{value:.{digits}g}") if value is not None and math.isfinite(value) else None


def decode(text: bytes) -> Any:
    """The content of a JSON text. It may begin with a byte order mark, which editors on Windows write.

    Raises:
        ValueError: the text is empty, not JSON, or nested too deeply.
    """
    text = text.removeprefix(BOM_UTF8)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not valid JSON ({error})" if text.strip() else "the file is empty") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def from_json(text: bytes, kind: type[R]) -> R:
    """A record from the JSON of this schema or an older one.

    Raises:
        ValueError: the text is not JSON, is another kind of file, has a newer schema, or a field of the wrong type.
    """
    record = current(text, kind)
    return convert(decode(text), kind) if record is None else record


def current(text: bytes, kind: type[R]) -> R | None:
    """A record from JSON of the present schema, decoded directly, which is faster than `decode` and `convert`.

    None for any other text and for a damaged one; `decode` and `convert` then name the reason.
    """
    text = text.removeprefix(BOM_UTF8)
    head = _HEAD.match(text)
    if head is None or int(head[1]) != SCHEMA or head[2].decode() != kind.__name__.lower():
        return None
    try:
        record = msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return record if getattr(record, "schema", SCHEMA) == SCHEMA else None


def kind_of(head: bytes) -> str | None:
    """The kind that the first bytes of a file of `to_json` name; None for any other text."""
    found = _HEAD.match(head.removeprefix(BOM_UTF8))
    return found[2].decode() if found else None


def convert(content: Any, kind: type[R]) -> R:
    """As `from_json`, for JSON that is decoded already."""
    wanted = kind.__name__.lower()
    if not isinstance(content, dict) or content.get("kind") != wanted:
        raise ValueError(f"not a {wanted} of benchsuite")
    try:
        return msgspec.convert(upgrade(content), kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a valid {wanted}: {error}") from None


def upgrade(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a file, converted to the present schema.

    Raises:
        ValueError: the file comes from a newer benchsuite, has no schema number, or lacks what its schema demands.
    """
    found = content.get("schema")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ValueError("no schema number")
    if found > SCHEMA:
        raise ValueError(f"schema {found} comes from a newer benchsuite (this one knows {SCHEMA}); update benchsuite")
    return upgraded(content, found, SCHEMA)
