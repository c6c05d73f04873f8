"""What follows `--` on a command line: changes to job fields and to the model's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from benchsuite.describe import entries
from benchsuite.describe.tasks import Job
from benchsuite.errors import ProfileError, nearest

_FIXED = ("name", "model", "entry", "params")
_FIELDS = tuple(f for f in Job.__struct_fields__ if f not in _FIXED)
_BOOLEAN = ("compile", *(field.name for field in msgspec.structs.fields(Job) if field.type is bool))
_LISTS = ("loss_band", "tags")  # `0,20` stands for `[0, 20]`, as with parameters
_NUMBERS = ("max_count", "max_steps", "min_time_s", "max_time_s", "timeout_s")


@dataclass(frozen=True)
class Overrides:
    """Pairs of a name (underscores) and its text; None for a bare flag."""

    pairs: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Overrides:
        """`--name value`, `--name=value`, `--flag` and `--no-flag`; a value may start with one dash.

        Raises:
            ProfileError: something that is none of these.
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
        """A job's fields with these changes; an explicit max_count or max_steps clears min_time_s.

        Raises:
            ProfileError: neither a job field nor a parameter of the job's model; or no value where one is needed.
        """
        fields = dict(raw)
        params = dict(fields["params"]) if isinstance(fields.get("params"), dict) else {}
        names = set()
        for given, text in self.pairs:
            name, value = self._value(given, text, model, at)
            names.add(name)
            if name in _FIELDS:
                fields[name] = value
            else:
                params[name] = value
        if names & {"max_count", "max_steps"} and "min_time_s" not in names:
            fields["min_time_s"] = 0.0
        if "max_time_s" in names and "timeout_s" not in names:
            fields.pop("timeout_s", None)  # so that the default follows
        if params:
            fields["params"] = params
        return fields

    def _value(self, name: str, text: str | None, model: entries.Declared, at: str) -> tuple[str, Any]:
        known = {*_FIELDS, *model.parameters}
        flag = True
        if text is None and name not in known and name.startswith("no_") and name[3:] in known:
            name, flag = name[3:], False
        if name not in known:
            where = f"{at}: after --: '--{name.replace('_', '-')}' is neither a job field nor a parameter"
            raise ProfileError(f"{where} of model '{model.name}'{nearest(name, known)}")
        if name in _LISTS and text and not text.startswith("["):
            text = f"[{text}]"
        kind: Any = bool if name in _BOOLEAN else str
        if name in _FIELDS:
            kind = float if name in _NUMBERS or (text or "")[:1] in ("[", "{") else kind
        else:
            kind = model.parameters[name].type
        if text is None:
            if kind is not bool:
                raise ProfileError(f"{at}: after --: '--{name.replace('_', '-')}' needs a value")
            return name, flag
        if name == "compile":
            return name, {"true": True, "false": False}.get(text, text)
        return name, entries.from_text(kind, text)
