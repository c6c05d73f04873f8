"""A profile as typed, checked jobs: defaults merged, short names resolved, every parameter with its value."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import msgspec

from benchsuite import files
from benchsuite.data import descriptor
from benchsuite.describe import entries
from benchsuite.describe.changes import differences
from benchsuite.describe.overrides import Overrides
from benchsuite.describe.tasks import RENDEZVOUS, Compile, Job, PageCache, Precision
from benchsuite.errors import ModelError, ProfileError, nearest
from benchsuite.records import ProfileUsed

# Time for start, warm-up and compilation that a task has beyond its `max_time_s`, where `timeout_s` is not given.
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
_FIELDS = tuple(f for f in Job.__struct_fields__ if f != "name")
_CHOICES = {
    "precision": get_args(Precision),
    "compile": get_args(Compile),
    "tenant": ("share", "machine"),
    "page_cache": get_args(PageCache),
}
_LATER = ("arrays", "matrix")


@dataclass(frozen=True)
class Profile:
    """A profile's jobs in order, and how it stands to the shipped ones; `sha256` is of the jobs as they will run."""

    name: str
    path: Path
    text: str
    sha256: str
    jobs: tuple[Job, ...]
    based_on: str | None
    differences: tuple[str, ...]

    @property
    def official(self) -> bool:
        return self.based_on is not None and not self.differences

    def used(self) -> ProfileUsed:
        """What `run.json` keeps of it."""
        return ProfileUsed(
            name=self.name,
            path=str(self.path),
            sha256=self.sha256,
            text=self.text,
            official=self.official,
            based_on=self.based_on,
            differences=self.differences,
        )


def load(
    spec: str, *, only: Sequence[str] = (), exclude: Sequence[str] = (), overrides: Overrides | None = None
) -> Profile:
    """Read and check a profile, with the chosen jobs and the changes that follow `--`.

    Args:
        spec: a path, or the bare name of a shipped profile.
        only: names of the jobs to keep; all where empty.
        exclude: names of the jobs to leave out.

    Raises:
        ProfileError: file, job and field are named, with the nearest known name or the remedy.
    """
    path = files.find("profiles", spec)
    text = files.read_text(path)
    content = files.parse_mapping(text, path)
    raw = _merged(content, path)
    for name in (*only, *exclude):
        if name not in raw:
            raise ProfileError(f"{path}: no job '{name}'{nearest(name, raw)}")
    chosen = [name for name in raw if (not only or name in only) and name not in exclude]
    if not chosen:
        raise ProfileError(f"{path}: no job is left to run")
    jobs = tuple(resolve(name, raw[name], str(path), overrides) for name in chosen)
    based_on, changes = _lineage(path.stem, jobs)
    sha256 = hashlib.sha256(msgspec.json.encode(jobs, order="deterministic")).hexdigest()
    return Profile(path.stem, path, text, sha256, jobs, based_on, changes)


def single(model: str | None, entry: str | None, overrides: Overrides) -> Job:
    """The job of `benchsuite run`: a model's name or a `module:function`, with a profile's defaults.

    Raises:
        ProfileError: an unknown model, field or parameter.
    """
    raw = {"model": model} if model is not None else {"entry": entry}
    name = model if model is not None else (entry or "")
    return resolve(name, {**raw, "placement": "per_gpu_or_cpu"}, "run", overrides)


def _merged(content: Mapping[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """Each job with the defaults of "*": field by field, and `params` and `env` key by key; the job's own win."""
    for name, fields in content.items():
        if not isinstance(fields, dict):
            raise ProfileError(f"{path}: job '{name}': expected a mapping of fields, found {fields!r}")
    common = content.get("*", {})
    jobs = {name: _with_defaults(common, job) for name, job in content.items() if name != "*"}
    if not jobs:
        raise ProfileError(f"{path}: no jobs; give at least one beside '*'")
    return jobs


def _with_defaults(common: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**common, **job}
    for field in ("params", "env"):
        ours, theirs = job.get(field), common.get(field)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            merged[field] = {**theirs, **ours}
    if "entry" in job and "model" not in job:
        merged.pop("model", None)
    if "model" in job and "entry" not in job:
        merged.pop("entry", None)
    return merged


def resolve(name: str, raw: Mapping[str, Any], where: str, overrides: Overrides | None = None) -> Job:
    """A checked job from a mapping of its fields.

    Raises:
        ProfileError: names `where`, the job, the field and the remedy.
    """
    at = f"{where}: job '{name}'"
    if not name.isprintable():
        raise ProfileError(f"{where}: job {name!r}: control characters in the name; remove them")
    for field in raw:
        if field in _LATER:
            raise ProfileError(f"{at}: field '{field}' is not supported by this version; remove it")
        if field not in _FIELDS:
            raise ProfileError(f"{at}: unknown field '{field}'{nearest(field, _FIELDS)}")
    if (raw.get("model") is None) == (raw.get("entry") is None):
        raise ProfileError(f"{at}: give either 'model' or 'entry'")
    _text(raw.get("model"), "model", at)
    _text(raw.get("entry"), "entry", at)
    try:
        model = entries.declared(raw.get("model"), raw.get("entry"))
        fields = overrides.applied(raw, model, at) if overrides else dict(raw)
        fields["params"] = entries.complete(model, _mapping(fields.get("params"), at))
    except ModelError as error:
        raise ProfileError(f"{at}: {error}") from None
    return _checked(_job(name, _short_names(fields, at), at), at)


def _mapping(params: Any, at: str) -> dict[str, Any]:
    if params is not None and not isinstance(params, dict):
        raise ProfileError(f"{at}: field 'params': expected a mapping of names, found {params!r}")
    return params or {}


def _text(value: Any, field: str, at: str) -> None:
    if value is not None and not isinstance(value, str):
        raise ProfileError(f"{at}: field '{field}': expected text, found {value!r}")


def _short_names(fields: dict[str, Any], at: str) -> dict[str, Any]:
    """Short ways of writing in their long form: placements, compile, whole numbers in env; null means "not given"."""
    fields = {key: value for key, value in fields.items() if value is not None}
    placement = fields.get("placement")
    if isinstance(placement, str):
        if placement not in PLACEMENTS:
            raise ProfileError(f"{at}: field 'placement': unknown '{placement}'{nearest(placement, PLACEMENTS)}")
        fields["placement"] = PLACEMENTS[placement]
    if isinstance(fields.get("env"), dict):
        fields["env"] = {k: str(v) if type(v) is int else v for k, v in fields["env"].items()}
    if isinstance(fields.get("compile"), bool):
        fields["compile"] = "default" if fields["compile"] else "none"
    if "timeout_s" not in fields and isinstance(fields.get("max_time_s"), int | float):
        fields["timeout_s"] = fields["max_time_s"] + START_ALLOWANCE_S
    return fields


def _job(name: str, fields: Mapping[str, Any], at: str) -> Job:
    try:
        return msgspec.convert({"name": name, **fields}, Job)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$.")
        field = place.rstrip("`")
        value = fields.get(field.partition(".")[0].partition("[")[0])
        if field == "name":
            raise ProfileError(f"{at}: the name is over 100 characters; shorten it") from None
        if field in _CHOICES and isinstance(value, str):
            raise ProfileError(f"{at}: field '{field}': unknown '{value}'{nearest(value, _CHOICES[field])}") from None
        label = f"field '{field}'" if field else "a field of 'placement'"
        raise ProfileError(f"{at}: {label}: {reason.replace('`', '').lower()}, found {value!r}") from None


def _checked(job: Job, at: str) -> Job:
    place = job.placement
    if place.nodes != 1 or place.copies != 1 or place.share != "timeslice":
        supported = f"only {', '.join(PLACEMENTS)} are supported by this version"
        raise ProfileError(f"{at}: field 'placement': {supported}")
    _check_ranks(job, at)
    _check_times(job, at)
    commands = [[job.prepare or "-"]] if isinstance(job.prepare, str) else job.prepare
    if any(not words or not words[0] or "\0" in "".join(words) for words in commands):
        raise ProfileError(f"{at}: field 'prepare': an empty command, or a null character; remove it")
    _check_data(job, at)
    _check_env(job, at)
    return job


def _check_ranks(job: Job, at: str) -> None:
    """The placement has room for several ranks, and the model can be trained by them."""
    several = job.placement.devices in ("progression", "all") or (job.parallel.dp or 1) > 1
    if job.placement.devices == "each" and several:
        raise ProfileError(
            f"{at}: field 'parallel': each task has one GPU, so dp is 1; give placement all_gpus or gpu_progression"
        )
    if several and not entries.declared(job.model, job.entry).parallel:
        raise ProfileError(
            f"{at}: '{job.model or job.entry}' steps by itself and cannot be trained by several ranks: give placement "
            "per_gpu, and no parallel.dp"
        )


def _check_data(job: Job, at: str) -> None:
    """The data set exists, and the model can read its kind."""
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
    for low, high in (("min_time_s", "max_time_s"), ("min_time_s", "timeout_s")):
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


def _lineage(name: str, jobs: Sequence[Job]) -> tuple[str | None, tuple[str, ...]]:
    """The shipped profile that these jobs come from, by the jobs' names, and how they differ from it."""
    best: tuple[int, bool, str] | None = None
    shipped: dict[str, tuple[Job, ...]] = {}
    for stem, path in files.shipped("profiles").items():
        raw = _merged(files.read_mapping(path), path)
        if not {job.name for job in jobs} & set(raw):
            continue
        shipped[stem] = tuple(resolve(job, fields, str(path)) for job, fields in raw.items())
        differing = len(differences(shipped[stem], jobs))
        if best is None or (-differing, stem == name, stem) > best:
            best = (-differing, stem == name, stem)
    if best is None:
        return None, ()
    return best[2], differences(shipped[best[2]], jobs)
