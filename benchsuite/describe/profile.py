"""A profile as typed, checked jobs, with the defaults of "*" merged in, and how it stands to the shipped ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchsuite import files
from benchsuite.describe import changes
from benchsuite.describe.jobs import resolve
from benchsuite.describe.matrix import cells
from benchsuite.describe.overrides import Overrides
from benchsuite.describe.tasks import Job, ProfileUsed
from benchsuite.errors import ProfileError, nearest


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
    return of_text(files.read_text(path), path, only=only, exclude=exclude, overrides=overrides)


def of_text(
    text: str, path: Path, *, only: Sequence[str] = (), exclude: Sequence[str] = (), overrides: Overrides | None = None
) -> Profile:
    """As `load`, of a profile's text; `path` names it.

    Raises:
        ProfileError: as `load`.
    """
    raw = _merged(files.parse_mapping(text, path), path)
    for name in (*only, *exclude):
        if name not in raw:
            raise ProfileError(f"{path}: no job '{name}'{nearest(name, raw)}")
    chosen = [name for name in raw if (not only or name in only) and name not in exclude]
    if not chosen:
        raise ProfileError(f"{path}: no job is left to run")
    jobs = tuple(resolve(name, raw[name], str(path), overrides) for name in chosen)
    for job in jobs:
        cells(job, str(path))  # each combination of a matrix is checked before anything starts
    based_on, differences = _lineage(path.stem, jobs)
    sha256 = hashlib.sha256(msgspec.json.encode(jobs, order="deterministic")).hexdigest()
    return Profile(path.stem, path, text, sha256, jobs, based_on, differences)


def single(model: str | None, entry: str | None, overrides: Overrides) -> Job:
    """The job of `benchsuite run`: a model's name or a `module:function`, with a profile's defaults.

    Raises:
        ProfileError: an unknown model, field or parameter.
    """
    raw = {"model": model} if model is not None else {"entry": entry}
    name = model if model is not None else (entry or "")
    job = resolve(name, {**raw, "placement": "per_gpu_or_cpu"}, "run", overrides)
    if job.matrix:
        raise ProfileError("run: field 'matrix': 'run' makes one task; put the job into a profile for 'jobs'")
    return job


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


def _lineage(name: str, jobs: Sequence[Job]) -> tuple[str | None, tuple[str, ...]]:
    """The shipped profile that these jobs come from, by the jobs' names, and how they differ from it."""
    best: tuple[int, bool, str] | None = None
    ours = {job.name: job for job in jobs}
    found: dict[str, tuple[str, ...]] = {}
    for stem, path in files.shipped("profiles").items():
        raw = _merged(files.read_mapping(path), path)
        if ours.keys().isdisjoint(raw):
            continue
        found[stem] = changes.changes({job: resolve(job, fields, str(path)) for job, fields in raw.items()}, ours)
        best = max(best or (-len(found[stem]), stem == name, stem), (-len(found[stem]), stem == name, stem))
    return (best[2], found[best[2]]) if best else (None, ())
