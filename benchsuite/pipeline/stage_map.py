"""PipeDream's stage configuration: which modules make a stage, and on which ranks it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from benchsuite.errors import PipelineError, nearest, one_line
from benchsuite.files import read_mapping
from benchsuite.schema import Record

_MODULES, _RANKS, _DEPTHS = "module_to_stage_map", "stage_to_rank_map", "stage_to_depth_map"


class StageMap(Record, frozen=True, kw_only=True):
    """A stage configuration. Stages and ranks count from 0.

    Attributes:
        stage_of: the stage of each module; the criterion is the last module.
        ranks: the ranks of each stage. Several ranks of one stage are replicas.
        warm_up: minibatches that each stage takes forward before its first backward pass; None if not given.
        units: of a plan that `plan-stages` wrote, the number of units of each stage; None otherwise.
    """

    stage_of: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]
    warm_up: tuple[int, ...] | None = None
    units: tuple[int, ...] | None = None

    @property
    def num_ranks(self) -> int:
        return sum(map(len, self.ranks))


def read(path: Path) -> StageMap:
    """Read a stage configuration, or the file of a plan that `plan-stages` wrote.

    Raises:
        ProfileError: the file is missing, unreadable, or not JSON.
        PipelineError: a field is missing or unknown, or the stages or ranks are not consistent; names file and field.
    """
    content, where = read_mapping(path), one_line(str(path))
    known = (_MODULES, _RANKS, _DEPTHS)
    for field in content:
        if field not in known and content.get("kind") != "stageplan":
            raise PipelineError(f"{where}: unknown field '{one_line(field)}'{nearest(field, known)}")
    for field in (_MODULES, _RANKS):
        if field not in content:
            raise PipelineError(f"{where}: field '{field}' is missing; a stage configuration needs it")
    stage_of = _numbers(content[_MODULES], f"{where}: field '{_MODULES}'")
    for before, after in zip((0, *stage_of), stage_of, strict=False):
        if after - before not in (0, 1) or stage_of[0]:
            at = f"{where}: field '{_MODULES}'"
            raise PipelineError(f"{at}: stage {after} comes after {before}; number the stages 0, 1, ... in order")
    stages = stage_of[-1] + 1
    at = f"{where}: field '{_RANKS}'"
    ranks = tuple(_numbers(of, at) for of in _by_stage(content[_RANKS], stages, at))
    found = sorted(rank for of in ranks for rank in of)
    if found != list(range(len(found))):
        raise PipelineError(f"{at}: the ranks are {found}; give each of 0 to {len(found) - 1} to one stage, once")
    at = f"{where}: field '{_DEPTHS}'"
    warm_up = _numbers(_by_stage(content[_DEPTHS], stages, at), at) if _DEPTHS in content else None
    return StageMap(stage_of=stage_of, ranks=ranks, warm_up=warm_up, units=_units(content, stages, where))


def _units(content: dict[str, Any], stages: int, where: str) -> tuple[int, ...] | None:
    planned = content.get("stages") if content.get("kind") == "stageplan" else None
    if planned is None:
        return None
    try:
        found = tuple(len(names) for names in msgspec.convert([one["units"] for one in planned], list[list[str]]))
    except (KeyError, TypeError, msgspec.ValidationError):
        found = ()
    if len(found) != stages:
        raise PipelineError(f"{where}: field 'stages': give the units of each of {stages} stages")
    return found


def _by_stage(value: Any, stages: int, at: str) -> list[Any]:
    """The values of a mapping whose keys are the stages, in the order of the stages."""
    names = [str(stage) for stage in range(stages)]
    if not isinstance(value, dict) or sorted(value) != sorted(names):
        found = ", ".join(map(one_line, value)) if isinstance(value, dict) and value else "none"
        raise PipelineError(f"{at}: its stages are {found}; map each of {', '.join(names)}, as '{_MODULES}' has them")
    return [value[name] for name in names]


def _numbers(value: Any, at: str) -> tuple[int, ...]:
    """A list of one or more numbers that count from 0."""
    if not isinstance(value, list) or not value or any(type(n) is not int or n < 0 for n in value):
        raise PipelineError(f"{at}: expected a list of numbers of 0 or more, found {one_line(repr(value))[:60]}")
    return tuple(value)
