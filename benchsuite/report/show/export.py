"""A report as data: one flat row a job, for CSV, and the whole of it as JSON. Absent is empty, or null, never 0."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from benchsuite.report.read.summary import JobSummary
from benchsuite.report.show.render import Report
from benchsuite.report.stats.compare import Comparison, JobRatio
from benchsuite.report.stats.gpus import Cell, GpuComparison, GpuKey
from benchsuite.report.stats.scaling import curves
from benchsuite.report.stats.score import Score
from benchsuite.schema import SCHEMA
from benchsuite.telemetry import CAPPED, SLOWING

Scalar = str | int | float | bool | None
# A spreadsheet takes text that begins so for a formula.
_FORMULA = ("=", "+", "-", "@")


def job_rows(report: Report) -> list[dict[str, Scalar]]:
    """One row a job, all with the same columns, which no run changes: every single figure of the summary, those of a
    record within it under "record_figure", its weight, the share of the time under each cause of slowed clocks, and,
    beside a base, "compared_..." (a second: "compared2_...").
    """
    rows = []
    for job in report.summary.jobs:
        row = {column: _at(job, path) for column, path in _columns(JobSummary)}
        row["weight"] = report.score.weighing.jobs.get(job.name)
        events = job.use.clock_events if job.use else None
        row |= {f"use_{name}": None if events is None else events.get(name, 0.0) for name in (CAPPED, *SLOWING)}
        for place, comparison in enumerate(report.comparisons, start=1):
            prefix = f"compared{place if place > 1 else ''}"
            ratio = next((found for found in comparison.jobs if found.name == job.name), None)
            row[f"{prefix}_base"] = _whole(comparison.name)
            row |= {f"{prefix}_{column}": _at(ratio, path) for column, path in _columns(JobRatio) if column != "name"}
        rows.append(row)
    return rows


def to_csv(report: Report) -> str:
    """The rows with a header; text that a spreadsheet would run as a formula begins with an apostrophe."""
    rows = job_rows(report)
    text = io.StringIO()
    columns = list(rows[0]) if rows else [column for column, _ in _columns(JobSummary)]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({column: _safe(value) for column, value in row.items()} for row in rows)
    return text.getvalue()


def to_json(report: Report) -> str:
    """Strict JSON: `jobs` are the rows of the CSV, `summary` is what `benchsuite summary` writes (but for perf_adj, if
    variance is not penalized). Control characters are escaped, so that it is safe on a terminal, too."""
    content = {
        "schema": SCHEMA,
        "kind": "report",
        "title": _whole(report.title),
        "score": _score(report.score),
        "price": _price(report),
        "scaling": [_builtins(curve) for curve in curves(report.summary)],
        "gpus": _gpus(report.gpus) if report.gpus else None,
        "comparisons": [_comparison(comparison) for comparison in report.comparisons],
        "jobs": job_rows(report),
        "summary": msgspec.structs.replace(report.summary, source=_whole(report.summary.source)),
    }
    text = msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text) + "\n"


def _score(score: Score) -> dict[str, Any]:
    told = {"failure_rate": score.failure_rate, "verdict": score.verdict, "provisional": score.provisional}
    return {**_builtins(score), **told}


def _price(report: Report) -> dict[str, float | None] | None:
    if report.price is None:
        return None
    per = {"per_score": report.score.value, "per_machine_score": report.score.machine}
    return {"price": report.price, **{name: report.price / of if of else None for name, of in per.items()}}


def _gpus(found: GpuComparison) -> dict[str, Any]:
    """Each job's rates by GPU and repeat, the outliers, and why jobs were not tested."""
    cells = {job: [_cell(gpu, cell) for gpu, cell in of_job.items()] for job, of_job in found.cells.items()}
    outliers = [_builtins(outlier) for outlier in found.outliers]
    return {"jobs": cells, "outliers": outliers, "untested": dict(found.untested), "tests": found.tests}


def _cell(gpu: GpuKey, cell: Cell) -> dict[str, Any]:
    """Without how the GPU was used, which the summary has with its tasks."""
    own = {name: value for name, value in _builtins(cell).items() if name != "uses"}
    return {"gpu": _builtins(gpu), **own, **_properties(cell)}


def _comparison(comparison: Comparison) -> dict[str, Any]:
    """Without the base's own summary, of which only the source is named."""
    own = {key: value for key, value in _builtins(comparison).items() if key != "base"}
    jobs = [{**_builtins(job), **_properties(job)} for job in comparison.jobs]
    return {**own, **_properties(comparison), "base": _whole(comparison.base.source), "jobs": jobs}


def _columns(kind: type) -> list[tuple[str, tuple[str, ...]]]:
    """The columns of a record with the way to each value: single values, those of records within, then properties."""
    names: Iterable[str] = getattr(kind, "__struct_fields__", ()) or vars(kind)["__dataclass_fields__"]
    hints = get_type_hints(kind)
    found: list[tuple[str, tuple[str, ...]]] = []
    for name in names:
        kinds = [hints[name], *get_args(hints[name])]
        inner = next((of for of in kinds if isinstance(of, type) and _is_record(of)), None)
        if any(get_origin(of) in (tuple, list, dict, Mapping) for of in kinds):
            continue
        if inner:
            found += [(f"{name}_{column}", (name, *path)) for column, path in _columns(inner)]
        else:
            found.append((name, (name,)))
    return found + [(name, (name,)) for name, of in vars(kind).items() if isinstance(of, property)]


def _is_record(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind)


def _at(record: Any, path: Sequence[str]) -> Scalar:
    """The value at the end of a way; None where the way breaks off."""
    for name in path:
        record = getattr(record, name, None)
    return record if isinstance(record, str | int | float | bool) else None


def _properties(record: Any) -> dict[str, Any]:
    found = {name: getattr(record, name) for name, of in vars(type(record)).items() if isinstance(of, property)}
    return {name: msgspec.to_builtins(value, enc_hook=str) for name, value in found.items()}


def _builtins(record: Any) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(record, enc_hook=str)
    return built


def _safe(value: Scalar) -> Scalar:
    if not isinstance(value, str):
        return value
    clean = "".join(c if c.isprintable() else " " for c in value)
    return f"'{clean}" if clean.startswith(_FORMULA) else clean


def _whole(name: str) -> str:
    """The name of a file with what is no text in it replaced."""
    return name.encode(errors="replace").decode()
