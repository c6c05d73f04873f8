"""The changes after `--` on a command line: values of job fields and of the model's parameters."""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from benchsuite.describe import entries
from benchsuite.describe.tasks import Job
from benchsuite.describe.training import Training
from benchsuite.errors import ProfileError, nearest
from benchsuite.files import parse_yaml

# No change can set these: a job keeps its model, and the fields of `params` and `training` are set one by one.
_FIXED = ("name", "model", "entry", "params", "training")
# Fields of a job that older profiles lack: schema of the plan -> the values that every job of then has.
AS_THEN: dict[int, tuple[tuple[str, str], ...]] = {
    1: (("prefetch", "false"), ("warm_up_s", "0"), ("intra_op_threads", "cpus")),
    2: (("warm_up_s", "0"), ("intra_op_threads", "cpus")),
    3: (("intra_op_threads", "cpus"),),
}
_LISTS = ("loss_band", "tags")  # `0,20` stands for `[0, 20]`, as with parameters
_SEVERAL = ("sharing", "copies")  # here it does so for several values; a single one is no list


def _kind(annotation: Any) -> Any:
    """The type that decides how a command line's text is read: bool, float for any number, else str."""
    parts = set(_leaves(annotation)) - {type(None)}
    if parts == {bool}:
        return bool
    if parts & {int, float}:
        parts = {part for part in parts if typing.get_origin(part) is not Literal}
    return float if parts and parts <= {int, float} else str


def _leaves(annotation: Any) -> list[Any]:
    """The members of a union, without `Annotated`; for any other type the type itself."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _leaves(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, type(int | None)):
        return [leaf for part in typing.get_args(annotation) for leaf in _leaves(part)]
    return [annotation]


# Every field that a profile may set and a command line may change -> the type that its text is read as.
FIELDS: dict[str, Any] = {
    name: bool if name == "compile" else _kind(annotation)
    for record in (Job, Training)
    for name, annotation in typing.get_type_hints(record, include_extras=True).items()
    if name in record.__struct_fields__ and name not in _FIXED
}


@dataclass(frozen=True)
class Overrides:
    """The changes after `--`.

    Attributes:
        pairs: names, with underscores, and texts; the text of a flag is None.
    """

    pairs: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Overrides:
        """Read `--name value`, `--name=value`, `--flag` and `--no-flag`. A value may start with a single dash.

        Raises:
            ProfileError: a word has another form.
        """
        pairs: list[tuple[str, str | None]] = []
        rest = list(arguments)
        while rest:
            word = rest.pop(0)
            if not word.startswith("--") or word == "--":
                chosen = f"a profile's job is chosen by '--name {word}' before it"
                remedy = f"changes come after -- as '--name value'; {chosen}"
                raise ProfileError(f"unexpected '{word}': {remedy}")
            if any("\ud800" <= c <= "\udfff" for c in word + "".join(rest[:1])):
                raise ProfileError(f"after --: {word!a} is not UTF-8")
            name, equals, value = word[2:].partition("=")
            if equals:
                pairs.append((name.replace("-", "_"), value))
            elif rest and not rest[0].startswith("--"):
                pairs.append((name.replace("-", "_"), rest.pop(0)))
            else:
                pairs.append((name.replace("-", "_"), None))
        return cls(tuple(pairs))

    def applied(self, raw: Mapping[str, Any], model: entries.Declared, at: str) -> dict[str, Any]:
        """The fields of a job with these changes.

        A change of a stop rule (max_count, max_steps, max_epochs, target) sets min_time_s to 0. A change of an axis of
        the job's matrix removes the axis. The job's need of GPU memory is not known any more if a parameter or a field
        of its training changes.

        Args:
            raw: the fields before.
            at: the place for messages.

        Raises:
            ProfileError: a name is neither a job field nor a parameter of the model, or a value is missing.
        """
        given = values = dict(self._value(name, text, model, at) for name, text in self.pairs)
        if values.keys() & {"max_count", "max_steps", "max_epochs", "target"}:
            values = {"min_time_s": 0.0, **values}
        if values.keys() & {*model.parameters, *Training.__struct_fields__}:
            values = {"gpu_memory_gib": None, **values}
        fields = with_values(raw, values)
        matrix = fields.get("matrix")
        if isinstance(matrix, dict) and "matrix" not in values:
            fields["matrix"] = {axis: of for axis, of in matrix.items() if axis not in given}
        return fields

    def _value(self, name: str, text: str | None, model: entries.Declared, at: str) -> tuple[str, Any]:
        known = {*FIELDS, *model.parameters}
        flag = True
        if text is None and name not in known and name.startswith("no_") and name[3:] in known:
            name, flag = name[3:], False
        if name not in known:
            where = f"{at}: after --: '--{name.replace('_', '-')}' is neither a job field nor a parameter"
            raise ProfileError(f"{where} of model '{model.name}'{nearest(name, known)}")
        listed = name in _LISTS or (name in _SEVERAL and "," in (text or ""))
        if listed and text and not text.startswith("["):
            text = f"[{text}]"
        if name == "prepare":
            kind = float if (text or "").startswith("[[") else str  # lists of words, else one line for a shell
        elif name in FIELDS:
            kind = float if (text or "")[:1] in ("[", "{") else FIELDS[name]
        else:
            kind = model.parameters[name].type
            if text and "," in text and model.parameters[name].fusible and not text.startswith("["):
                return name, from_text(list, f"[{text}]")  # a value for each model of an array
        if text is None:
            if kind is not bool:
                raise ProfileError(f"{at}: after --: '--{name.replace('_', '-')}' needs a value")
            return name, flag
        if name == "compile":
            return name, {"true": True, "false": False}.get(text, text)
        return name, from_text(kind, text)


def from_text(kind: Any, text: str) -> Any:
    """The value of a command line's text. For a tuple, `1,2` is a list; `1_000` is an integer.

    Args:
        kind: the type of the parameter or field; for `str` the text is returned as it is.

    Raises:
        ProfileError: the text is not valid YAML.
    """
    if kind is str:
        return text
    if re.fullmatch(r"[-+]?[0-9]+(_[0-9]+)+", text):
        return int(text)
    if getattr(kind, "__origin__", None) is tuple and not text.startswith("["):
        text = f"[{text}]"
    return parse_yaml(text, f"'{text}'") if text else text


def with_values(raw: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job with other values. A name in `values` that is not a field is a parameter of the model."""
    fields = dict(raw)
    params = dict(fields["params"]) if isinstance(fields.get("params"), dict) else {}
    for name, value in values.items():
        (fields if name in FIELDS else params)[name] = value
    if "max_time_s" in values and "timeout_s" not in values:
        fields.pop("timeout_s", None)  # its default follows max_time_s
    if params:
        fields["params"] = params
    return fields


def as_argument(name: str, value: Any) -> str:
    """The word after `--` that sets a field or parameter to this value."""
    option = name.replace("_", "-")
    if value is True:
        return f"--{option}"
    if value is False:
        return f"--no-{option}"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"--{option}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
