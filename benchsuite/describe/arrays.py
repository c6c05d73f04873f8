"""Arrays of models: what a job may ask for, and the parameters of each model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from benchsuite.describe import entries
from benchsuite.describe.tasks import Job
from benchsuite.errors import ProfileError

AXIS, SEED = "array", "seed"


def check_array(job: Job, at: str) -> None:
    """Check the fields of an array.

    Args:
        at: the place for messages.

    Raises:
        ProfileError: a field or a parameter does not fit the number of models.
    """
    training, count = job.training, job.training.array
    model = entries.declared(job.model, job.entry)
    for name, value in job.params.items():
        if is_each(model.parameters[name], value) and len(value) != count:
            models = f"array is {count}" if count > 1 else "the job has no array"
            if job.sharing != "serial" or "copies" in job.matrix:
                raise ProfileError(
                    f"{at}: parameter '{name}' has {len(value)} values, and {job.sharing} with copies {job.copies} "
                    f"trains {count} in a process; give one value, or a job with 'array' and without 'sharing'"
                )
            raise ProfileError(
                f"{at}: parameter '{name}' has {len(value)} values, one for each model, and {models}; "
                f"give array {len(value)}, or one value"
            )
    if count == 1:
        if training.unfused_units:
            raise ProfileError(f"{at}: field 'unfused_units': the job has no array; give array as well")
        return
    if reason := refused(job, model):
        raise ProfileError(f"{at}: field 'array': {reason}")


def refused(job: Job, model: entries.Declared) -> str | None:
    """Why the job's models cannot be an array; None if nothing that is known before a start forbids it."""
    training = job.training
    if not model.parallel:
        return f"'{model.name}' steps by itself, so its copies cannot be fused; leave array out"
    if model.not_fused:
        return f"'{model.name}' cannot be fused: {model.not_fused}; leave array out"
    several = job.placement.devices in ("progression", "all")
    if several or (training.parallel.dp or 1) > 1 or training.parallel.fsdp or training.parallel.pp:
        return "one process trains all models; give placement per_gpu or cpu, and no parallel"
    if job.by_epochs:
        return "checkpoints and targets are those of one model; leave array out, or max_epochs and target"
    if training.checkpoint:
        return "blocks of fused models cannot compute their activations again; leave checkpoint out"
    if training.channels_last:
        return "fused convolutions are grouped, and have no layout of their own; leave channels_last out"
    return None


def is_each(parameter: entries.Parameter, value: Any) -> bool:
    """Is this value of a parameter a list with one for each model?"""
    return parameter.fusible and parameter.takes_each and isinstance(value, list)


def params_of(params: Mapping[str, Any], fusible: Collection[str], model: int) -> dict[str, Any]:
    """The parameters of one model of an array.

    A list of a fusible parameter holds a value for each model. A single seed is that of the first model, and the next
    ones count on from it.

    Args:
        params: those of the job.
        fusible: the names of the fusible parameters.
        model: the number of the model, from 0.
    """
    own = {
        name: value[model] if name in fusible and isinstance(value, list) else value for name, value in params.items()
    }
    if SEED in fusible and isinstance(params.get(SEED), int):
        own[SEED] = params[SEED] + model
    return own


def with_array(axes: Mapping[str, Any], job: Job) -> dict[str, Any]:
    """The axes of a cell. An array is always one of them, so that rates of different numbers of models never pool.

    An axis `copies` stands for it.
    """
    if job.training.array == 1 or AXIS in axes or "copies" in axes:
        return dict(axes)
    return {**axes, AXIS: job.training.array}
