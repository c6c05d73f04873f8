"""A job unrolled over its matrix: one cell for each combination of values."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchsuite.describe import entries
from benchsuite.describe.jobs import resolve
from benchsuite.describe.overrides import FIELDS, with_values
from benchsuite.describe.tasks import PLACE_AXES, Job, axis_value, cell_name, written
from benchsuite.errors import ProfileError, nearest

# More cells than anyone wants. A typing error in a profile must not make a plan of hours.
MOST_CELLS = 10_000


@dataclass(frozen=True)
class Cell:
    """A job with one combination of its matrix.

    Attributes:
        name: the job's name with the values in brackets: "vae[batch_size=64,precision=bf16]".
        axes: axis -> value, as the profile writes it; empty for a job without a matrix.
        job: the job with these values and without a matrix.
    """

    name: str
    axes: Mapping[str, Any]
    job: Job


def cells(job: Job, where: str = "plan") -> list[Cell]:
    """The cells of a job, with the last axis varying fastest. A job without a matrix is its only cell.

    Args:
        where: the profile's file, for messages.

    Raises:
        ProfileError: an axis is neither a parameter nor a field, has no values, or one twice, or a cell is not valid.
    """
    if not job.matrix:
        return [Cell(job.name, {}, job)]
    at = f"{where}: job '{job.name}': field 'matrix'"
    _check_axes(job, at)
    raw = {name: value for name, value in written(job).items() if name != "matrix"}
    found = []
    for values in itertools.product(*job.matrix.values()):
        axes = dict(zip(job.matrix, values, strict=True))
        try:
            found.append(Cell(cell_name(job.name, axes), axes, resolve(job.name, with_values(raw, axes), where)))
        except ProfileError as error:
            raise ProfileError(f"{error} (cell {cell_name(job.name, axes)} of its matrix)") from None
    return found


def _check_axes(job: Job, at: str) -> None:
    parameters = entries.declared(job.model, job.entry).parameters
    known = {*FIELDS, *parameters} - {"matrix", "tags", *PLACE_AXES}
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
