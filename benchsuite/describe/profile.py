"""Load a profile: its jobs are checked, have the defaults of "*", and are compared with the shipped profiles."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from benchsuite import files
from benchsuite.describe import changes
from benchsuite.describe.jobs import resolve
from benchsuite.describe.matrix import cells
from benchsuite.describe.overrides import Overrides
from benchsuite.describe.tasks import Job, ProfileUsed
from benchsuite.errors import ProfileError, nearest

# What each shipped profile is for.
_ABOUT = {
    "10gb": "the suite for GPUs of 10 GB",
    "5gb": "the suite for GPUs of 5 GB",
    "hfta": "small models that share a GPU in all ways, at HFTA's sizes; for 'plot --kind speedup'",
    "hfta-units": "arrays of which some units stay unfused; for 'plot --kind partially_fused'",
    "hfta-smoke": "two toys that share a CPU; a check that the ways of sharing run",
    "health": "checks a node and compares its GPUs, in minutes; no data set needed",
    "lite": "the suite with smaller batches and short runs; a quick check that everything works",
    "modern": "what people train today: language models, transformers of images, sampling; GPUs of 80 GB",
    "node_pairs": "an all-reduce on each pair of nodes, to find a slow node or link",
    "papers": "the models of TBD, HFTA and PipeDream at their papers' sizes",
    "pipedream": "PipeDream's models on 1 to 8 GPUs, data parallel and as pipelines of stages",
    "probes": "each part of a node by itself, in GB/s and TFLOP/s: matrix products, memory, links, silent corruption",
    "probes_quick": "six general probes, for a quick look at a node",
    "smoke": "toy jobs, with or without a GPU; a check that everything runs",
    "standard": "the suite; its numbers make the score of a machine",
    "tbd": "sweeps of TBD's models over the batch size; for 'plot --kind batch'",
}


@dataclass(frozen=True)
class Profile:
    """A checked profile.

    Attributes:
        text: the content of its file.
        sha256: the hash of the jobs as they will run.
        jobs: the chosen jobs, in the order of the file.
        based_on: the shipped profile that it comes from; None if it comes from none.
        differences: the changes to that profile, in words.
    """

    name: str
    path: Path
    text: str
    sha256: str
    jobs: tuple[Job, ...]
    based_on: str | None
    differences: tuple[str, ...]

    @property
    def official(self) -> bool:
        """Is it a shipped profile, unchanged?"""
        return self.based_on is not None and not self.differences

    def used(self) -> ProfileUsed:
        """The profile's record in `run.json`."""
        return ProfileUsed(
            name=self.name,
            path=str(self.path),
            sha256=self.sha256,
            text=self.text,
            official=self.official,
            based_on=self.based_on,
            differences=self.differences,
        )


def about(name: str) -> str:
    """What a shipped profile is for, in one line; empty for an unknown name."""
    return _ABOUT.get(name, "")


def load(
    spec: str, *, only: Sequence[str] = (), exclude: Sequence[str] = (), overrides: Overrides | None = None
) -> Profile:
    """Read and check a profile.

    Args:
        spec: a path, or the bare name of a shipped profile.
        only: the jobs to keep; empty for all.
        exclude: the jobs to leave out.
        overrides: the changes after `--`.

    Raises:
        ProfileError: the profile is not valid; names the file, the job and the field.
    """
    path = files.find("profiles", spec)
    return of_text(files.read_text(path), path, only=only, exclude=exclude, overrides=overrides)


def of_text(
    text: str, path: Path, *, only: Sequence[str] = (), exclude: Sequence[str] = (), overrides: Overrides | None = None
) -> Profile:
    """As `load`, for the text of a profile.

    Args:
        path: its file, for messages and for the profile's name.

    Raises:
        ProfileError: as `load`.
    """
    raw = _read(text, path)
    for name in (*only, *exclude):
        if name not in raw:
            raise ProfileError(f"{path}: no job '{name}'{nearest(name, raw)}")
    chosen = [name for name in raw if (not only or name in only) and name not in exclude]
    if not chosen:
        raise ProfileError(f"{path}: no job is left to run")
    jobs = tuple(resolve(name, raw[name], str(path), overrides) for name in chosen)
    _check_names(jobs, path)
    based_on, differences = _lineage(path.stem, jobs)
    sha256 = _hash(jobs)
    return Profile(path.stem, path, text, sha256, jobs, based_on, differences)


def _hash(jobs: Sequence[Job]) -> str:
    """SHA-256 of the jobs as they run, without their need of memory, which changes no work."""
    kept = msgspec.to_builtins(jobs, order="deterministic")
    for job in kept:
        del job["gpu_memory_gib"]
    return hashlib.sha256(msgspec.json.encode(kept)).hexdigest()


def names(text: str, path: Path) -> tuple[str, ...]:
    """The names of the jobs in the text of a profile.

    Raises:
        ProfileError: as `load`.
    """
    return tuple(_read(text, path))


def _check_names(jobs: Sequence[Job], path: Path) -> None:
    """Check each combination of each matrix, and that no two jobs share a row of the report.

    Raises:
        ProfileError: a cell is not valid, or two jobs have cells or numbers of GPUs of the same name.
    """
    of_cell: dict[str, str] = {}
    progressions: dict[str, str] = {}
    for job in jobs:
        for cell in cells(job, str(path)):
            if cell.name in of_cell:
                raise ProfileError(
                    f"{path}: jobs '{of_cell[cell.name]}' and '{job.name}' both make {cell.name}; rename one"
                )
            of_cell[cell.name] = job.name
            if cell.job.placement.devices == "progression":
                progressions[cell.name] = job.name
    for name, other in of_cell.items():
        stem, _, number = name.rpartition(".")
        if number.isdecimal() and stem in progressions:
            clash = f"job '{other}' has the name of {number} GPUs of the progression '{progressions[stem]}'"
            raise ProfileError(f"{path}: {clash}; rename one")


def single(model: str | None, entry: str | None, overrides: Overrides) -> Job:
    """The job of `benchsuite run`, with the defaults of a profile's job.

    Args:
        model: the name of a shipped model, or None.
        entry: `module:function` of the user's own model, or None.

    Raises:
        ProfileError: the model, a field or a parameter is unknown.
    """
    raw = {"model": model} if model is not None else {"entry": entry}
    name = model if model is not None else (entry or "")
    job = resolve(name, {**raw, "placement": "per_gpu_or_cpu"}, "run", overrides)
    if job.matrix:
        raise ProfileError("run: field 'matrix': 'run' makes one task; put the job into a profile for 'jobs'")
    return job


@lru_cache(maxsize=64)  # each profile is compared with all shipped ones, and to parse YAML is slow
def _read(text: str, path: Path) -> Mapping[str, dict[str, Any]]:
    """The fields of each job in the text of a profile. They are shared: no caller changes them."""
    return MappingProxyType(_merged(files.parse_mapping(text, path), path))


@lru_cache(maxsize=64)
def _resolved(text: str, path: Path) -> Mapping[str, Job]:
    """The checked jobs of a shipped profile."""
    return MappingProxyType({name: resolve(name, fields, str(path)) for name, fields in _read(text, path).items()})


def _merged(content: Mapping[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """Each job with the defaults of "*". A job's own fields take precedence; `params` and `env` are merged by key."""
    for name, fields in content.items():
        if not isinstance(fields, dict):
            raise ProfileError(f"{path}: job '{name}': expected a mapping of fields, found {fields!r}")
    common = content.get("*", {})
    jobs = {name: _with_defaults(common, job) for name, job in content.items() if name != "*"}
    if not jobs:
        raise ProfileError(f"{path}: no jobs; give at least one besides '*'")
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
    """The shipped profile that these jobs come from, and the changes to it.

    A profile comes from a shipped one of its name, or from one of whose jobs it has at least half, by their names. Of
    several it comes from the one with the fewest changes.
    """
    best: tuple[int, bool, str] | None = None
    ours = {job.name: job for job in jobs}
    found: dict[str, tuple[str, ...]] = {}
    for stem, path in files.shipped("profiles").items():
        text = files.read_text(path)
        raw = _read(text, path)
        shared = len(ours.keys() & raw.keys())
        if not shared or (stem != name and 2 * shared < len(raw)):
            continue
        found[stem] = changes.changes(_resolved(text, path), ours)
        best = max(best or (-len(found[stem]), stem == name, stem), (-len(found[stem]), stem == name, stem))
    return (best[2], found[best[2]]) if best else (None, ())
