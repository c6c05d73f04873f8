"""A job unrolled over its matrix: one cell for each combination of values."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchsuite.describe import entries, sharing
from benchsuite.describe.arrays import with_array
from benchsuite.describe.jobs import START_ALLOWANCE_S, resolve
from benchsuite.describe.names import axis_value, cell_name
from benchsuite.describe.overrides import FIELDS, with_values
from benchsuite.describe.tasks import PLACE_AXES, Job, profile_fields
from benchsuite.errors import ProfileError, nearest

# More cells than anyone wants. A typing error in a profile must not make a plan of hours.
MOST_CELLS = 10_000


@dataclass(frozen=True)
class Cell:
    """A job with one combination of its matrix.

    Attributes:
        name: the job's name with the values in brackets: "vae[batch_size=64,precision=bf16]".
        axes: axis -> value; empty for a job with neither a matrix nor an array. A single value is the one that the job
            has in the end, so that `true` and `default` of `compile` are the same; a list or mapping is as the profile
            writes it.
        job: the job with these values and without a matrix.
    """

    name: str
    axes: Mapping[str, Any]
    job: Job


def cells(job: Job, where: str = "plan") -> list[Cell]:
    """The cells of a job, with the last axis varying fastest. A job without a matrix is its only cell.

    An array of models is an axis of each cell, whether the matrix names it or not.

    Args:
        where: the profile's file, for messages.

    Raises:
        ProfileError: an axis is neither a parameter nor a field, has no values, or one twice, or a cell is not valid.
    """
    if not job.matrix:
        axes = with_array({}, job)
        return [Cell(cell_name(job.name, axes), axes, job)]
    at = f"{where}: job '{job.name}': field 'matrix'"
    _check_axes(job, at)
    raw = {name: value for name, value in profile_fields(job).items() if name != "matrix"}
    if job.timeout_s == job.max_time_s + START_ALLOWANCE_S:
        del raw["timeout_s"]  # it follows max_time_s
    found: dict[str, Cell] = {}
    for values in itertools.product(*job.matrix.values()):
        given = dict(zip(job.matrix, values, strict=True))
        axes = sharing.possible(given)
        try:
            resolved = resolve(job.name, _with_axes(raw, axes), where, cell=True)
        except ProfileError as error:
            raise ProfileError(f"{error} (cell {cell_name(job.name, axes)} of its matrix)") from None
        axes = with_array(axes_of(resolved, axes), resolved)
        cell = Cell(cell_name(job.name, axes), axes, resolved)
        if cell.name in found and given != sharing.possible(given):
            continue  # serial has one copy whatever the axis says
        if cell.name in found:
            raise ProfileError(f"{at}: two combinations mean {cell.name}; write each value once")
        found[cell.name] = cell
    return [*found.values()]


def with_copies(cell: Cell, copies: Sequence[int]) -> list[Cell]:
    """The cells of a cell whose number of copies was left open, one for each number."""
    found = []
    for number in copies:
        axes = {**cell.axes, "copies": number}
        found.append(Cell(cell_name(cell.job.name, axes), axes, sharing.with_copies(cell.job, number)))
    return found


def _with_axes(raw: Mapping[str, Any], axes: Mapping[str, Any]) -> dict[str, Any]:
    """As `with_values`; an explicit timeout_s stays."""
    kept = {"timeout_s": raw["timeout_s"]} if "timeout_s" in raw else {}
    return with_values(raw, {**kept, **axes})


def axes_of(job: Job, axes: Mapping[str, Any]) -> dict[str, Any]:
    """The axes with the values that a job has in the end; lists, mappings and their short names stay as written."""
    fields = {**job.params, **profile_fields(job)}
    return {
        axis: fields[axis] if isinstance(fields.get(axis), str | int | float) else value for axis, value in axes.items()
    }


def _check_axes(job: Job, at: str) -> None:
    parameters = entries.declared(job.model, job.entry).parameters
    known = {*FIELDS, *parameters} - {"matrix", "tags", "env", "prepare", *PLACE_AXES}
    number = 1
    for axis, values in job.matrix.items():
        if axis not in known:
            raise ProfileError(
                f"{at}: axis '{axis}' is neither a job field nor a parameter of model "
                f"'{job.model or job.entry}'{nearest(axis, known)}"
            )
        if not values:
            raise ProfileError(f"{at}: axis '{axis}' has no values; give at least one, or remove it")
        texts = [axis_value(value) for value in values]
        if twice := next((text for text in texts if texts.count(text) > 1), None):
            raise ProfileError(f"{at}: axis '{axis}' has the value {twice} twice; remove one")
        number *= len(values)
    if number > MOST_CELLS:
        raise ProfileError(f"{at}: {number:,} cells; a matrix has at most {MOST_CELLS:,}, so shorten its lists")
