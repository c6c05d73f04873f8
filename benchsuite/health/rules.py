"""The rules by which `benchsuite health` judges: read from the files in `health/`, which people edit and extend.

A file has four optional parts. `checks` names each figure that is judged. `tolerances` says how far a figure may lie
from its peers or from a base. `floors` gives the least figure of a check by card, with its source. `xids` lists the
events of NVIDIA's driver that are faults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from benchsuite import files
from benchsuite.describe import cards
from benchsuite.errors import ProfileError, nearest
from benchsuite.schema import Record

_Share = Annotated[float, Meta(gt=0, lt=1)]
_Positive = Annotated[float, Meta(gt=0)]
_Text = Annotated[str, Meta(min_length=1)]


class Tolerance(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a figure may lie on the bad side of its peers, or of a base, as shares of their median."""

    spread: Annotated[_Share, Meta(description="standard deviation between healthy cards of one model")]
    warn: Annotated[_Share, Meta(description="WARN from here, if the deviation is significant")]
    fail: Annotated[_Share, Meta(description="FAIL from here, if the deviation is significant; else WARN")]


class Check(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure that a job of the probes measures, and how it is judged."""

    job: Annotated[_Text, Meta(description="job of the profile")]
    title: Annotated[str | None, Meta(description="name in reports; null: the key, with blanks")] = None
    reading: Annotated[str | None, Meta(description="reading of the result; null: the job's rate")] = None
    label: Annotated[str | None, Meta(description="label of the value in the reading; null: every one")] = None
    each: Annotated[
        Literal["task", "gpu", "link"],
        Meta(description="what a figure belongs to: the task's place, or the GPU or link that a label names"),
    ] = "task"
    part: Annotated[
        Literal["chip", "memory", "pcie", "link", "host"], Meta(description="what it shows; leads to the likely cause")
    ] = "chip"
    unit: str = ""
    factor: Annotated[_Positive, Meta(description="recorded figures are multiplied by it")] = 1.0
    better: Literal["higher", "lower"] = "higher"
    against: Annotated[
        tuple[Literal["peer", "base"], ...],
        Meta(description="compared with the node's other GPUs or links, and with --base"),
    ] = ()
    tolerance: Annotated[str | None, Meta(description="name of the tolerance of these comparisons")] = None
    most: Annotated[float | None, Meta(description="FAIL above this, on every card")] = None
    expect: Annotated[str | None, Meta(description="FAIL if the reading is another word")] = None
    cause: Annotated[str | None, Meta(description="the likely cause of a FAIL, unless telemetry shows one")] = None


class Floor(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figure that a card reaches, and how much less is still accepted."""

    reference: _Positive
    margin: Annotated[float, Meta(ge=0, lt=1, description="share of `reference` that may be missing")] = 0.0
    gpus: Annotated[
        Annotated[int, Meta(gt=0)] | None, Meta(description="only for tasks on this number of GPUs; null: on any")
    ] = None
    source: Annotated[_Text, Meta(description="where the reference comes from")]

    def limit(self, better: str) -> float:
        """The floor; a ceiling where less is better."""
        return self.reference * (1 - self.margin if better == "higher" else 1 + self.margin)


# What a file may give for a check: one floor, or several for different numbers of GPUs.
Floors: Any = Floor | Annotated[tuple[Floor, ...], Meta(min_length=1)]


class Xids(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The XID events that are faults of the hardware."""

    fail: tuple[int, ...]
    source: _Text


class _File(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tolerances: dict[str, Tolerance] = {}
    checks: dict[str, Check] = {}
    floors: dict[str, dict[str, Floors]] = {}
    xids: Xids | None = None


class Rules(Record, frozen=True, kw_only=True):
    """All rules together.

    Attributes:
        floors: card of the table of cards -> check -> floors.
        own: the checks of the user's own file.
    """

    checks: dict[str, Check] = {}
    tolerances: dict[str, Tolerance] = {}
    floors: dict[str, dict[str, tuple[Floor, ...]]] = {}
    xids: Xids | None = None
    own: frozenset[str] = frozenset()

    def tolerance(self, check: str) -> Tolerance:
        """The tolerance of a check that is compared with peers or a base."""
        return self.tolerances[self.checks[check].tolerance or ""]

    def title(self, check: str) -> str:
        """The name of a check in reports."""
        found = self.checks.get(check)
        return found.title if found and found.title else check.replace("_", " ")

    def floor(self, check: str, card: str | None, gpus: int) -> Floor | None:
        """The floor of a check on a card, for a task on `gpus` GPUs; one for that number goes first."""
        found = self.floors.get(card or "", {}).get(check, ())
        fitting = [floor for floor in found if floor.gpus in (None, gpus)]
        return min(fitting, key=lambda floor: floor.gpus is None, default=None)


def load(own: Path | None = None) -> Rules:
    """The shipped rules, with those of the user's own file in their place where names are equal.

    Raises:
        ProfileError: a file is not valid; names the file, the place in it and the remedy.
    """
    if own is None:
        return _shipped()
    rules = _together([own], _shipped())
    changed = frozenset(name for name, check in rules.checks.items() if check is not _shipped().checks.get(name))
    return msgspec.structs.replace(rules, own=changed)


@cache
def _shipped() -> Rules:
    return _together(files.shipped("health").values(), Rules())


def _together(paths: Iterable[Path], under: Rules) -> Rules:
    """The rules of the files, over those that are there already.

    Raises:
        ProfileError: a file is not valid.
    """
    found = {path: _read(path) for path in paths}
    checks, tolerances, xids = dict(under.checks), dict(under.tolerances), under.xids
    floors = {card: dict(of_card) for card, of_card in under.floors.items()}
    for file in found.values():
        checks |= file.checks
        tolerances |= file.tolerances
        xids = file.xids or xids
    for path, file in found.items():
        for name, tolerance in file.tolerances.items():
            if tolerance.fail < tolerance.warn:
                raise ProfileError(f"{path}: tolerances '{name}': field 'fail': less than 'warn'; give at least that")
        for name, check in file.checks.items():
            _check(check, f"{path}: checks '{name}'", tolerances)
        for card, of_card in file.floors.items():
            _check_floors(of_card, f"{path}: floors '{card}'", card, checks)
            kept = {check: floor if isinstance(floor, tuple) else (floor,) for check, floor in of_card.items()}
            floors[card] = {**floors.get(card, {}), **kept}
    return Rules(checks=checks, tolerances=tolerances, floors=floors, xids=xids)


def _check(check: Check, at: str, tolerances: Mapping[str, Tolerance]) -> None:
    """Raises ProfileError: fields of a check do not fit each other."""
    if check.reading is None and (check.label or check.each != "task" or check.expect is not None):
        raise ProfileError(f"{at}: label, each and expect choose from a reading; give 'reading'")
    if not check.against and check.most is None and check.expect is None:
        raise ProfileError(f"{at}: nothing judges it; give 'against', 'most' or 'expect'")
    if check.against and check.tolerance is None:
        raise ProfileError(f"{at}: 'against' compares by a tolerance; give 'tolerance'")
    if check.against and check.tolerance not in tolerances:
        raise ProfileError(
            f"{at}: field 'tolerance': no '{check.tolerance}'{nearest(check.tolerance or '', tolerances)}"
        )


def _check_floors(of_card: Mapping[str, object], at: str, card: str, checks: Mapping[str, Check]) -> None:
    """Raises ProfileError: floors are for an unknown card or check."""
    known = {known.name for known in cards.table()}
    if card not in known:
        raise ProfileError(f"{at}: no such card{nearest(card, known)}; 'benchsuite list cards' shows all")
    for check in of_card:
        if check not in checks:
            raise ProfileError(f"{at}: no check '{check}'{nearest(check, checks)}")


def _read(file: Path) -> _File:
    """Convert part by part and entry by entry, so that a message can name the entry."""
    content = files.read_mapping(file)
    parts: dict[str, Any] = {}
    for part, value in content.items():
        if part not in _File.__struct_fields__:
            raise ProfileError(f"{file}: unknown part '{part}'{nearest(part, _File.__struct_fields__)}")
        if part == "xids":
            parts[part] = _converted(value, Xids, f"{file}: xids")
        else:
            at = f"{file}: {part}"
            entries = _mapping(value, at)
            parts[part] = {name: _entry(part, entry, f"{at} '{name}'") for name, entry in entries.items()}
    return _File(**parts)


def _mapping(value: object, at: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ProfileError(f"{at}: expected a mapping of names, found {value!r}")
    return value


def _entry(part: str, value: object, at: str) -> object:
    if part == "floors":
        of_card = _mapping(value, at).items()
        return {check: _converted(floor, Floors, f"{at}: check '{check}'") for check, floor in of_card}
    return _converted(value, Check if part == "checks" else Tolerance, at)


def _converted(value: object, kind: Any, at: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        field = place.rstrip("`").lstrip(".")
        where = f"field '{field}': " if field else ""
        words = reason.replace("`", "").lower()
        for word, plain in (("object", "mapping"), ("array", "list")):
            words = words.replace(word, plain)
        raise ProfileError(f"{at}: {where}{words}") from None
