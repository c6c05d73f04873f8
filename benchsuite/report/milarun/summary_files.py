"""Summaries and baselines of milarun 2020 (tag mila-ao-2020-2), recognised by their shape, never by name.

A mapping of `<suite>.<test>` to {n, failures, train: {n, min, max, mean, std}, pergpu: {index: the same},
peak_memory in MiB}. Rates are in items/s, one sample for each run and timing; std is a population's. NaN marks a run
that was too short for any rate.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, TypeGuard

import msgspec

from benchsuite.errors import ResultError, encodable
from benchsuite.report.measure.intervals import perf_adjusted
from benchsuite.report.milarun.suite import LARGEST, ORIGIN, RULE, bare, common_suite, order, unit_of
from benchsuite.report.read.summary import GpuSummary, JobSummary, ProfileRef, Summary
from benchsuite.schema import Record

MIB = 2**20
_Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]


class _Figures(Record, frozen=True, kw_only=True):
    n: _Count
    min: float
    max: float
    mean: float
    std: float


class _Group(Record, frozen=True, kw_only=True):
    n: Annotated[int, msgspec.Meta(ge=1, le=10**9)]
    failures: _Count
    train: _Figures
    pergpu: dict[str, _Figures] = {}
    peak_memory: float | None = None


def read_file(path: Path) -> Summary | None:
    """The summary that milarun wrote to a file; None if the file is not milarun's.

    Raises:
        ResultError: another kind of milarun's files, or a damaged summary; names the field.
    """
    content = read_json(path)
    if is_result(content):
        raise ResultError(f"{path}: a single result of milarun 2020; name the folder that holds its results")
    if is_weights(content):
        raise ResultError(f"{path}: weights, not a summary; give them to 'report' as --weights {path}")
    if not is_summary(content):
        return None
    suite = common_suite(content)
    jobs = [_job(bare(name, suite), suite, _group(group, f"{path}: '{name}'")) for name, group in content.items()]
    return Summary(
        source=encodable(path.stem),
        origin=ORIGIN,
        provenance=f"a summary of milarun 2020, {RULE}",
        planned=False,
        profile=ProfileRef(name=suite) if suite else None,
        gpus_used=max(max(len(job.gpus), job.per) for job in jobs),
        jobs=tuple(sorted(jobs, key=lambda job: order(job.name))),
    )


def read_json(path: Path) -> Any:
    """A file's content, with the NaN and Infinity that milarun writes; None if it is unreadable or not JSON."""
    try:
        text = path.read_bytes()
        content = json.loads(text)
        if b"\\u" in text:
            json.dumps(content, ensure_ascii=False).encode()  # raises for half a character, which no file can hold
        return content
    except (OSError, ValueError, RecursionError):
        return None


def is_result(content: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a file's content is a result of one process."""
    return isinstance(content, dict) and {"name", "job_id", "success", "timings"} <= content.keys()


def is_weights(content: Any) -> bool:
    """Whether every value is a weight; benchsuite's own weights look the same."""
    return isinstance(content, dict) and bool(content) and all(_has(value, {"weight"}) for value in content.values())


def is_summary(content: Any) -> TypeGuard[dict[str, Any]]:
    """Whether any value is a group's. One is enough, so that a damaged group is reported as damaged."""
    shape = {"n", "failures", "train"}
    return isinstance(content, dict) and "kind" not in content and any(_has(v, shape) for v in content.values())


def _has(value: Any, keys: set[str]) -> bool:
    return isinstance(value, dict) and keys <= value.keys()


def _group(content: Any, where: str) -> _Group:
    try:
        group = msgspec.convert(content, _Group)
    except msgspec.ValidationError as error:
        raise ResultError(f"{where}: not a summary of milarun 2020: {error}; write it anew from its results") from None
    if group.failures > group.n:
        raise ResultError(f"{where}: {group.failures} failures of n = {group.n}; write it anew from its results")
    return group


def _job(name: str, suite: str | None, group: _Group) -> JobSummary:
    perf, std = _mean(group.train), _std(group.train)
    gpus = _progression(name, group)
    return JobSummary(
        **by_name(name, suite, gpus),
        devices="progression" if gpus else "each",
        n=group.n,
        fail=group.failures,
        perf=perf,
        std=std,
        perf_adj=perf_adjusted(perf, std, group.n, group.failures),
        min=None if perf is None else _known(group.train.min),
        max=None if perf is None else _known(group.train.max),
        peak_memory_bytes=memory_bytes(group.peak_memory),
        gpus=tuple(_gpu(index, figures) for index, figures in sorted(group.pergpu.items(), key=_by_index)),
    )


def by_name(name: str, suite: str | None, gpus: int | None) -> dict[str, Any]:
    """The fields of a `JobSummary` that follow from a job's name; `gpus` is the number in it, if of a progression."""
    size = gpus or 1
    axes = {"gpus": gpus} if gpus else {}
    job = name.removesuffix(f".{gpus}")
    return {"name": name, "job": job, "axes": axes, "unit": unit_of(name, suite), "per": size, "ranks": size}


def _progression(name: str, group: _Group) -> int | None:
    """The number of GPUs in a progression's name; figures per GPU exist only for one GPU."""
    match = re.search(r"\.([1-9][0-9]{0,5})$", name)
    gpus = int(match[1]) if match else None
    return gpus if gpus and (gpus == 1 or not group.pergpu) and len(group.pergpu) <= 1 else None


def _gpu(index: str, figures: _Figures) -> GpuSummary:
    return GpuSummary(
        gpu=f"GPU {index}",
        n=figures.n,
        perf=_mean(figures),
        std=_std(figures),
        min=_known(figures.min),
        max=_known(figures.max),
    )


def _by_index(item: tuple[str, Any]) -> tuple[int, str]:
    return (int(item[0]) if re.fullmatch(r"[0-9]{1,9}", item[0]) else -1), item[0]


def memory_bytes(mib: float | None) -> int | None:
    """Bytes of milarun's MiB; None for None, and for -1, which marks a run without a sample."""
    return round(mib * MIB) if mib is not None and 0 <= mib <= LARGEST / MIB else None


def _mean(figures: _Figures) -> float | None:
    return _known(figures.mean) if figures.n else None


def _std(figures: _Figures) -> float | None:
    """The standard deviation relative to the mean; None for one sample."""
    return _known(figures.std / figures.mean) if figures.n > 1 and figures.mean > 0 else None


def _known(value: float) -> float | None:
    return value if 0 <= value <= LARGEST else None
