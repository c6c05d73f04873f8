"""The ways in which models share a GPU, as axes of a job: which combinations exist, and which numbers are measured.

A list for `sharing` or `copies` makes both of them axes, as if the job's matrix held them. The way `serial` has one
model only. In the way `fused` one process trains `copies` models as an array; in all other ways each copy is a task.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec

from benchsuite.describe.tasks import FIT, Gpu, Job, Sharing
from benchsuite.errors import ProfileError, nearest

AXES = ("sharing", "copies")
WAYS: tuple[str, ...] = get_args(Sharing)
AUTO = "auto"  # another word for `fit`
# A search tries no larger number. MIG divides a GPU into seven instances at most, MPS has 48 clients a GPU.
MOST: Mapping[str, int] = {"serial": 1, "concurrent": 64, "mps": 48, "mig": 7, "fused": 4096}
# How many numbers of copies are measured at most, and the rate of the exponential distribution that they are drawn
# from, in units of the largest number: the mean draw is a quarter of it.
MOST_NUMBERS: Mapping[str, int] = {"serial": 1, "concurrent": 5, "mps": 5, "mig": 5, "fused": 10}
RATE = 4.0


def as_axes(fields: Mapping[str, Any], at: str) -> dict[str, Any]:
    """The fields of a job. If `sharing` or `copies` has several values, both move to its `matrix`.

    Args:
        at: the place for messages.

    Raises:
        ProfileError: a way does not exist, or a number of copies is not positive.
    """
    given = {axis: fields[axis] for axis in AXES if axis in fields}
    listed = {axis: [*value] if isinstance(value, list | tuple) else [value] for axis, value in given.items()}
    listed["copies"] = [FIT if value == AUTO else value for value in listed.get("copies", [1])]
    listed.setdefault("sharing", ["serial"])
    _check(listed, at)
    several = any(isinstance(value, list | tuple) for value in given.values()) or FIT in listed["copies"]
    own_axes = fields["matrix"] if isinstance(fields.get("matrix"), dict) else {}
    if twice := [axis for axis in given if axis in own_axes]:
        raise ProfileError(f"{at}: field '{twice[0]}' is also an axis of 'matrix'; give it once")
    if not given or set(AXES) & set(own_axes):
        return dict(fields)
    if several and "array" in own_axes:
        raise ProfileError(f"{at}: field 'matrix': 'copies' is the number of models of an array; leave 'array' out")
    if not several:
        return {**fields, **{axis: listed[axis][0] for axis in AXES}}
    if listed["sharing"] == ["serial"]:
        raise ProfileError(
            f"{at}: field 'sharing': serial trains one model, so copies is 1; give sharing a way such as concurrent"
        )
    own = {name: value for name, value in fields.items() if name not in AXES}
    matrix = own.get("matrix")
    if matrix is not None and not isinstance(matrix, dict):
        return dict(fields)  # the matrix is refused with its own message
    return {**own, "matrix": {**(matrix or {}), **{axis: listed[axis] for axis in AXES}}}


def _check(listed: Mapping[str, Sequence[Any]], at: str) -> None:
    for way in listed["sharing"]:
        if way not in WAYS:
            raise ProfileError(f"{at}: field 'sharing': unknown '{way}'{nearest(str(way), WAYS)}")
    for copies in listed["copies"]:
        if copies != FIT and (type(copies) is not int or copies < 1):
            raise ProfileError(f"{at}: field 'copies': expected a number from 1 on, or {FIT}; found {copies!r}")
    for axis, values in listed.items():
        if not values:
            raise ProfileError(f"{at}: field '{axis}' has no values; give at least one, or remove it")
    if FIT in listed["copies"] and len(listed["copies"]) > 1:
        raise ProfileError(f"{at}: field 'copies': {FIT} finds all numbers; give no other number beside it")


def possible(axes: Mapping[str, Any]) -> dict[str, Any]:
    """The axes of a cell, with a single copy if its way is `serial`."""
    return {**axes, "copies": 1} if axes.get("sharing") == "serial" and "copies" in axes else dict(axes)


def settled(job: Job, at: str) -> Job:
    """The job. In the way `fused`, its number of copies is the number of models that one process trains.

    Raises:
        ProfileError: the way does not suit the job's placement, its array or its batch size.
    """
    way, copies = job.sharing, job.copies
    if way == "serial":
        if copies != 1 and not job.matrix:
            raise ProfileError(f"{at}: field 'copies': serial trains one model; give 'sharing' a way, or leave it out")
        return job
    if copies != FIT and copies > MOST[way]:
        raise ProfileError(f"{at}: field 'copies': {way} has at most {MOST[way]}, found {copies}; lower it")
    if job.placement.devices not in ("each", "none"):
        raise ProfileError(
            f"{at}: field 'sharing': models that share a GPU have one GPU each; give placement per_gpu, per_gpu_or_cpu "
            "or cpu"
        )
    if job.params.get("batch_size") == "auto":
        raise ProfileError(
            f"{at}: field 'sharing': the largest batch leaves no memory to share; give batch_size a number"
        )
    array = copies if way == "fused" and copies != FIT else 1
    if job.training.array not in (1, array):
        raise ProfileError(
            f"{at}: field 'array': the array has as many models as 'copies' says; leave 'array' out ({way}, {copies})"
        )
    return msgspec.structs.replace(job, training=msgspec.structs.replace(job.training, array=array))


def with_copies(job: Job, copies: int) -> Job:
    """The job with a number of copies in place of `fit`."""
    return settled(msgspec.structs.replace(job, copies=copies), job.name)


def why_not(job: Job, gpus: Sequence[Gpu]) -> str | None:
    """Why a job cannot share these GPUs in its way; None if it can."""
    if job.sharing in ("mps", "mig") and not gpus:
        return f"sharing {job.sharing} divides a GPU, and none is visible"
    if job.sharing == "mig" and any(gpu.parent for gpu in gpus):
        return "sharing mig divides a whole GPU, and this is an instance already"
    return None


def numbers(most: int, at_most: int, seed: str, rate: float = RATE) -> tuple[int, ...]:
    """The numbers of copies to measure: 1, `most`, and between them an exponential draw, which is dense at small ones.

    Args:
        most: the largest number that fits.
        at_most: how many numbers there are at most.
        seed: the same seed gives the same numbers.
        rate: of the exponential distribution of number / `most`. The scheme is that of HFTA (Wang et al. 2021).
    """
    found = {1, most}
    drawn = random.Random(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big"))  # noqa: S311
    while len(found) < min(at_most, most):
        number = round(drawn.expovariate(rate) * most)
        if 1 <= number <= most:
            found.add(number)
    return tuple(sorted(found))
