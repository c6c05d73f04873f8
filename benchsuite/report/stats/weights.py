"""Weights: the share of each job in the score, and the weights that apply to a run."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchsuite import files
from benchsuite.errors import ProfileError
from benchsuite.report.milarun.suite import bare, common_suite
from benchsuite.report.read.summary import ProfileRef, Summary

_LARGEST = 1e9


@dataclass(frozen=True)
class Weights:
    """The weights of a file.

    Attributes:
        values: job name -> weight; None without a file, when every job of the profile weighs 1.
        official: the values are those shipped for the run's profile.
    """

    values: Mapping[str, float] | None = None
    name: str | None = None
    sha256: str | None = None
    official: bool = False


@dataclass(frozen=True)
class Weighing:
    """Weights matched to the jobs of a run.

    Attributes:
        jobs: the weight of each job of the run that has one.
        missing: the weights above 0 of jobs that are not in the run.
        beyond: the keys of jobs that need more GPUs than the machine has.
        unweighted: the jobs of the run without a weight.
    """

    weights: Weights
    jobs: dict[str, float] = field(default_factory=dict)
    missing: dict[str, float] = field(default_factory=dict)
    beyond: tuple[str, ...] = ()
    unweighted: tuple[str, ...] = ()


def read_weights(path: Path) -> dict[str, float]:
    """Job name -> weight, from `name: number` or `name: {weight: number}`.

    Raises:
        ProfileError: malformed, or a weight that is not a number from 0 to 1e9; names the file and the key.
    """
    return {name: _weight(value, f"{path}: {name}") for name, value in files.read_mapping(path).items()}


def _weight(value: Any, where: str) -> float:
    if isinstance(value, dict):
        unknown = [key for key in value if key != "weight"]
        if unknown or not value:
            found = f"unknown key '{unknown[0]}'" if unknown else "no key 'weight'"
            raise ProfileError(f"{where}: {found}; write a number, or {{weight: number}}")
        value = value["weight"]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ProfileError(f"{where}: the weight must be a number, found {value!r}")
    if not 0 <= value <= _LARGEST or math.isnan(value):
        raise ProfileError(f"{where}: the weight must be from 0 to {_LARGEST:g}, found {value!r:.40}")
    return float(value)


def weights_for(profile: ProfileRef | None, name: str | None = None) -> Weights:
    """The weights that a user names; else those shipped for the profile, or for the profile that it is based on.

    Raises:
        ProfileError: the named file is not found or not valid.
    """
    if name == "":
        raise ProfileError("--weights: name a file")
    default = _shipped_for(profile)
    path = files.find("weights", name) if name else default
    if path is None:
        return Weights()
    values = read_weights(path)
    suite = common_suite(values)  # milarun 2020 writes `<suite>.<test>`
    bare_values = {bare(key, suite): weight for key, weight in values.items()}
    official = default is not None and bare_values == read_weights(default)
    return Weights(values, name or path.name, hashlib.sha256(path.read_bytes()).hexdigest(), official)


def _shipped_for(profile: ProfileRef | None) -> Path | None:
    shipped = files.shipped("weights")
    names = (profile.name, profile.based_on) if profile else ()
    return next((shipped[name] for name in names if name is not None and name in shipped), None)


def weigh(weights: Weights, summary: Summary) -> Weighing:
    """Match weights to the jobs of a run by name; a key may have `<profile>.` in front.

    If no key matches, the suite that all keys share (in milarun 2020's files) is removed from them.

    Raises:
        ProfileError: two keys mean the same job.
    """
    present = [job.name for job in summary.jobs]
    if weights.values is None:
        return Weighing(
            weights, dict.fromkeys(present, 1.0), dict.fromkeys((*summary.left_out, *_hidden(summary)), 1.0)
        )
    names = {key: _job_name(key, summary) for key in weights.values}
    if not set(present) & set(names.values()):
        suite = common_suite(names.values())
        names = {key: bare(name, suite) for key, name in names.items()}
    keys: dict[str, str] = {}
    for key, name in names.items():
        if name in keys:
            raise ProfileError(f"{weights.name}: '{key}' and '{keys[name]}' weigh the same job; keep one")
        keys[name] = key
    absent = {key: weights.values[key] for name, key in keys.items() if name not in present}
    beyond = tuple(key for name, key in keys.items() if key in absent and _is_beyond(name, summary))
    return Weighing(
        weights,
        jobs={name: weights.values[keys[name]] for name in present if name in keys},
        missing={key: weight for key, weight in absent.items() if weight > 0 and key not in beyond},
        beyond=beyond,
        unweighted=tuple(name for name in present if name not in keys),
    )


def _job_name(key: str, summary: Summary) -> str:
    profile = summary.profile
    if any(job.name == key for job in summary.jobs) or profile is None:
        return key
    prefixes = (f"{name}." for name in (profile.name, profile.based_on) if name)
    return next((key.removeprefix(prefix) for prefix in prefixes if key.startswith(prefix)), key)


def was_left_out(name: str, summary: Summary) -> bool:
    """Whether --name or --exclude left out a job.

    Args:
        name: of a job, or NAME.N for N GPUs of a progression; it may have `<profile>.` in front.
    """
    job = _job_name(name, summary)
    return job in summary.left_out or job.rpartition(".")[0] in summary.left_out


def needs_more_gpus(name: str, summary: Summary) -> bool:
    """Whether a job was skipped because it needs more GPUs than are visible. `name` is as for `was_left_out`."""
    return _job_name(name, summary) in summary.needs_more_gpus


def _hidden(summary: Summary) -> list[str]:
    """The jobs that need more GPUs than are visible, and not more than the machine has."""
    return [name for name, needed in summary.needs_more_gpus.items() if needed <= (summary.gpus_present or 0)]


def _is_beyond(name: str, summary: Summary) -> bool:
    """Whether the machine has fewer GPUs than a job needs: N for `scaling.N`, else the job's `at_least`.

    A run of fewer GPUs than the machine may have is no evidence: without a record of the machine, only a publication
    states its number of GPUs.
    """
    if needs_more_gpus(name, summary):
        return _job_name(name, summary) not in _hidden(summary)
    match = re.fullmatch(r"scaling\.([1-9][0-9]{0,5})", name)
    gpus = summary.gpus_used if summary.gpus_present is None and summary.provenance else summary.gpus_present
    if match is None or gpus is None:
        return False
    return int(match[1]) > (max(gpus, 1) if was_left_out(name, summary) else gpus)
