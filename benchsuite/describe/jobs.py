"""Check one entry of a profile and make a job of it: short names are expanded, every parameter has its value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from benchsuite import files
from benchsuite.data import descriptor
from benchsuite.describe import entries, goal, sharing, spanning
from benchsuite.describe.arrays import check_array
from benchsuite.describe.overrides import FIELDS, Overrides
from benchsuite.describe.pipelining import check_pipeline, with_plan
from benchsuite.describe.secrets import REMEDY, is_secret, secret_in
from benchsuite.describe.tasks import LONGEST_S, Job, PageCache, Placement
from benchsuite.describe.training import GRAPHED, Compile, Precision, Training
from benchsuite.describe.variables import RENDEZVOUS, THREAD_VARIABLES, looks_secret
from benchsuite.errors import ModelError, ProfileError, nearest

# If `timeout_s` is not given, a task has this time beyond its `max_time_s` for its start, compilation and warm-up.
START_ALLOWANCE_S = 480.0

PLACEMENTS: dict[str, dict[str, Any]] = {
    "per_gpu": {"devices": "each"},
    "per_gpu_or_cpu": {"devices": "each", "cpu_allowed": True},
    "gpu_progression": {"devices": "progression"},
    "all_gpus": {"devices": "all"},
    "gpu_progression_or_cpu": {"devices": "progression", "cpu_allowed": True},
    "all_gpus_or_cpu": {"devices": "all", "cpu_allowed": True},
    "cpu": {"devices": "none"},
}
# The fields that a profile may set: those of a job and, on the same level, those of its `training`.
_FIELDS = ("model", "entry", "params", *FIELDS)
_CHOICES = {
    "precision": get_args(Precision),
    "compile": get_args(Compile),
    "tenant": ("share", "machine"),
    "page_cache": get_args(PageCache),
    "checkpoints": get_args(goal.Kept),
    "intra_op_threads": ("auto", "cpus"),
}


def resolve(
    name: str, raw: Mapping[str, Any], where: str, overrides: Overrides | None = None, *, cell: bool = False
) -> Job:
    """A checked job from a mapping of its fields.

    Args:
        name: the key of the entry.
        raw: its fields, with the profile's defaults.
        where: the profile's file, for messages.
        overrides: changes from the command line.
        cell: the fields are those of one cell, in which no list is left.

    Raises:
        ProfileError: a field is unknown, or its value is not possible; names the file, the job and the field.
    """
    at = f"{where}: job '{name}'"
    if not name.isprintable():
        raise ProfileError(f"{where}: job {name!r}: control characters in the name; remove them")
    for field in raw:
        if field not in _FIELDS:
            raise ProfileError(f"{at}: unknown field '{field}'{nearest(field, _FIELDS)}")
    if (raw.get("model") is None) == (raw.get("entry") is None):
        raise ProfileError(f"{at}: give either 'model' or 'entry'")
    _text(raw.get("model"), "model", at)
    _text(raw.get("entry"), "entry", at)
    try:
        model = entries.declared(raw.get("model"), raw.get("entry"))
        if hidden := sorted(set(model.parameters) & set(_FIELDS)):
            raise ProfileError(
                f"{at}: parameter '{hidden[0]}' of model '{model.name}' has the name of a job field; rename it"
            )
        fields = overrides.applied(raw, model, at) if overrides else dict(raw)
        fields["params"] = entries.complete(model, _mapping(fields.get("params"), at))
    except ModelError as error:
        raise ProfileError(f"{at}: {error}") from None
    short = _short_names(fields, where, at)
    of_fields = short if cell else sharing.as_axes(short, at)
    job = _checked(sharing.settled(_job(name, of_fields, at), at), at)
    goal.check(job, at, limited="max_time_s" in short)
    return job


def _mapping(params: Any, at: str) -> dict[str, Any]:
    if params is not None and not isinstance(params, dict):
        raise ProfileError(f"{at}: field 'params': expected a mapping of names, found {params!r}")
    return params or {}


def _text(value: Any, field: str, at: str) -> None:
    if value is not None and not isinstance(value, str):
        raise ProfileError(f"{at}: field '{field}': expected text, found {value!r}")


def _short_names(fields: dict[str, Any], where: str, at: str) -> dict[str, Any]:
    """Expand the short forms of some fields and a plan, drop nulls (not given), and set `timeout_s`."""
    fields = {key: value for key, value in fields.items() if value is not None}
    if "parallel" in fields:
        fields["parallel"] = with_plan(fields["parallel"], where, at)
    placement = fields.get("placement")
    if isinstance(placement, str):
        if placement not in PLACEMENTS:
            raise ProfileError(f"{at}: field 'placement': unknown '{placement}'{nearest(placement, PLACEMENTS)}")
        fields["placement"] = PLACEMENTS[placement]
    elif isinstance(placement, dict) and (unknown := placement.keys() - set(Placement.__struct_fields__)):
        what = f"unknown field '{min(unknown)}'{nearest(min(unknown), Placement.__struct_fields__)}"
        raise ProfileError(f"{at}: field 'placement': {what}; sharing and copies are fields of the job")
    if isinstance(fields.get("container"), str):
        fields["container"] = {"image": fields["container"]}
    if isinstance(fields.get("env"), dict):
        fields["env"] = {k: str(v) if type(v) is int else v for k, v in fields["env"].items()}
    if type(fields.get("intra_op_threads")) is int:
        fields["intra_op_threads"] = str(fields["intra_op_threads"])
    if isinstance(fields.get("compile"), bool):
        fields["compile"] = "default" if fields["compile"] else "none"
    fields = goal.expand(fields, LONGEST_S)
    if "timeout_s" not in fields and isinstance(fields.get("max_time_s"), int | float):
        fields["timeout_s"] = fields["max_time_s"] + START_ALLOWANCE_S
    return fields


def _job(name: str, fields: Mapping[str, Any], at: str) -> Job:
    training = {field: value for field, value in fields.items() if field in Training.__struct_fields__}
    own = {field: value for field, value in fields.items() if field not in training}
    try:
        return msgspec.convert({"name": name, **own, "training": training}, Job)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$.")
        field = place.rstrip("`").removeprefix("training.")
        value = fields.get(field.partition(".")[0].partition("[")[0])
        if field == "name":
            raise ProfileError(f"{at}: the name is over 100 characters; shorten it") from None
        if field == "parallel.fsdp" and isinstance(value, dict):
            expected = "expected a number of ranks, at least 1, or all"
            raise ProfileError(f"{at}: field '{field}': {expected}; found {value['fsdp']!r}") from None
        if field in _CHOICES and isinstance(value, str):
            raise ProfileError(f"{at}: field '{field}': unknown '{value}'{nearest(value, _CHOICES[field])}") from None
        label = f"field '{field}'" if field else "a field of 'placement'"
        raise ProfileError(f"{at}: {label}: {reason.replace('`', '').lower()}, found {value!r}") from None


def _checked(job: Job, at: str) -> Job:
    spanning.check(job, at)
    check_array(job, at)
    _check_ranks(job, at)
    _check_times(job, at)
    commands = [[job.prepare or "-"]] if isinstance(job.prepare, str) else job.prepare
    if any(not words or not words[0] or "\0" in "".join(words) for words in commands):
        raise ProfileError(f"{at}: field 'prepare': a command is empty or has a null character; remove it")
    _check_no_secret(job, at)
    _check_data(job, at)
    _check_env(job, at)
    return job


def _check_no_secret(job: Job, at: str) -> None:
    """Raises ProfileError: `env`, `prepare` or a parameter holds what looks like a secret."""
    commands = [job.prepare] if isinstance(job.prepare, str) else map(" ".join, job.prepare)
    found = {
        "prepare": next(filter(None, map(secret_in, commands)), None),
        "env": next((name for name, value in job.env.items() if looks_secret(name) or secret_in(value)), None),
        "params": next(
            (n for n, v in job.params.items() if isinstance(v, str) and (is_secret(n, v) or secret_in(v))), None
        ),
    }
    for field, name in found.items():
        if name:
            raise ProfileError(f"{at}: field '{field}': {name} {REMEDY}")


def _check_ranks(job: Job, at: str) -> None:
    """Raises ProfileError: several ranks are asked for, and the placement or the model allows one only."""
    parallel = job.training.parallel
    of_parallel = (parallel.dp or 1) > 1 or (parallel.fsdp or 1) != 1 or parallel.pp is not None
    several = job.placement.devices in ("progression", "all") or of_parallel or job.placement.spanned > 1
    if job.placement.devices == "each" and of_parallel:
        field = "dp" if parallel.fsdp is None else "dp and fsdp"
        if parallel.pp is not None:
            raise ProfileError(f"{at}: field 'parallel.pp': each task has one GPU; give placement all_gpus")
        raise ProfileError(
            f"{at}: field 'parallel': each task has one GPU, so {field} {'is' if field == 'dp' else 'are'} 1; "
            "give placement all_gpus or gpu_progression"
        )
    if several and not entries.declared(job.model, job.entry).parallel:
        raise ProfileError(
            f"{at}: '{job.model or job.entry}' steps by itself and cannot be trained by several ranks: give placement "
            f"per_gpu, and no parallel.{'dp' if parallel.fsdp is None else 'fsdp'}"
        )
    _check_sharding(job, at)
    check_pipeline(job, entries.declared(job.model, job.entry), at)


def _check_sharding(job: Job, at: str) -> None:
    """Raises ProfileError: weights are to be split among ranks, and another field of the training forbids it."""
    training = job.training
    if training.parallel.fsdp is None:
        return
    if training.precision == "amp-fp16":
        raise ProfileError(f"{at}: field 'precision': amp-fp16 cannot scale losses of sharded weights; give bf16")
    if training.compile in GRAPHED:
        raise ProfileError(
            f"{at}: field 'compile': the CUDA graphs of {training.compile} need weights that stay in place, and fsdp "
            "gathers them anew; give default or max-autotune-no-cudagraphs"
        )
    if training.channels_last:
        raise ProfileError(f"{at}: field 'channels_last': fsdp splits contiguous weights only; leave it out")


def _check_data(job: Job, at: str) -> None:
    """Raises ProfileError: the data set does not exist, or the model cannot read it."""
    if job.data is None:
        if job.page_cache != "any":
            raise ProfileError(f"{at}: field 'page_cache': the job names no data set; give 'data' as well")
        return
    known = files.shipped("datasets")
    if job.data not in known:
        raise ProfileError(f"{at}: field 'data': no data set '{job.data}'{nearest(job.data, known)}")
    reads = entries.declared(job.model, job.entry).reads
    if descriptor.load(job.data).about.reader not in reads:
        fitting = [name for name in known if descriptor.load(name).about.reader in reads]
        able = f"reads {', '.join(fitting)}" if fitting else "reads no data set"
        raise ProfileError(f"{at}: field 'data': '{job.model or job.entry}' cannot read '{job.data}'; it {able}")


def _check_times(job: Job, at: str) -> None:
    if job.loss_band and job.loss_band[0] >= job.loss_band[1]:
        raise ProfileError(f"{at}: field 'loss_band': give the lower bound first, then a higher one")
    for low, high in (("min_time_s", "max_time_s"), ("min_time_s", "timeout_s"), ("warm_up_s", "timeout_s")):
        less, more = getattr(job, low), getattr(job, high)
        if less > more:
            raise ProfileError(f"{at}: {low} {less:g} is over {high} {more:g}; raise {high}")


def _check_env(job: Job, at: str) -> None:
    for key, value in job.env.items():
        if not key or "=" in key or "\0" in key + value:
            raise ProfileError(f"{at}: field 'env': '{key}' is not the name of an environment variable")
        if key in RENDEZVOUS:
            raise ProfileError(
                f"{at}: field 'env': {key} is given to each rank; a port is set by 'parallel': {{port: N}}"
            )
        if key in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
            raise ProfileError(
                f"{at}: field 'env': {key} decides the GPU; set it for the whole run, or use 'placement'"
            )
        if key in THREAD_VARIABLES and job.training.intra_op_threads.isdecimal():
            raise ProfileError(f"{at}: field 'env': {key} and intra_op_threads both give a number; remove one of them")
