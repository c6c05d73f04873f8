"""A report as data: one flat row for each job as CSV, the whole report as JSON. Absent is empty or null, never 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from pandas import DataFrame, Series, concat

from benchsuite.errors import encodable
from benchsuite.report.fleet.tournament import tournaments
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.escaped import csv_cell, json_text
from benchsuite.report.show.fleet.pairs import pairs_json
from benchsuite.report.show.report import Report, headline_text
from benchsuite.report.stats.bottlenecks import bottlenecks
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.explain import explain
from benchsuite.report.stats.frame import JOB_COLUMNS, flat, job_frame
from benchsuite.report.stats.gpus import GpuComparison
from benchsuite.report.stats.influence import influences
from benchsuite.report.stats.mfu import mfu
from benchsuite.report.stats.scaling import curves
from benchsuite.report.stats.subscores import sub_scores
from benchsuite.report.stats.sweeps import sweeps
from benchsuite.schema import SCHEMA

# The columns of a job beside a base.
_RATIO_COLUMNS = (
    "perf", "base_perf", "perf_adj", "base_perf_adj", "same_workload", "verdict.word", "verdict.low",
    "verdict.high", "verdict.df", "verdict.decides", "verdict.identical", "verdict.reason", "verdict.words",
    "unknown", "excluded", "difference.name", "difference.here", "difference.base", "unnamed", "forced", "factor",
    "base_factor", "refused", "ratio", "ratio_adj", "failures.p", "failures.adjusted",
)  # fmt: skip

# A column of a job's row -> the attribute of its `Mfu`; the last comes first.
_MFU_COLUMNS = {
    "mfu_reason": "reason",
    "peak_tflops": "peak_tflops",
    "mfu_causal": "causal",
    "mfu": "value",
    "model_tflops": "tflops",
}


def job_rows(report: Report) -> DataFrame:
    """One row for each job; all runs have the same columns.

    These are those of `job_frame`, the weight, what is the same for the whole run, and "compared_..." for a baseline
    ("compared2_..." for the second): its name, the ratio and more.
    """
    jobs = job_frame(report.summary)
    found = [mfu(job) for job in report.summary.jobs]
    for name, field in _MFU_COLUMNS.items():
        jobs.insert(len(JOB_COLUMNS), name, Series([getattr(one, field) for one in found], dtype=object))
    weights = [report.score.weighing.jobs.get(job.name) for job in report.summary.jobs]
    jobs.insert(len(JOB_COLUMNS), "weight", Series(weights, dtype=object))
    limits = {one.job: one for one in bottlenecks(report.summary)}
    for place, (name, value) in enumerate(_run_columns(report), start=len(JOB_COLUMNS) + 1):
        jobs.insert(place, name, Series([value] * len(jobs), dtype=object))
    limited = [limits.get(job.name) for job in report.summary.jobs]
    evidence = ["; ".join(one.evidence) or None if one else None for one in limited]
    jobs["limited_by"] = Series([one.by if one else None for one in limited], dtype=object)
    jobs["limited_by_evidence"] = Series(evidence, dtype=object)
    return concat([jobs, *_compared(report)], axis="columns")


def _run_columns(report: Report) -> Iterator[tuple[str, Any]]:
    """What is the same in every row, so that the rows of several files can be put together."""
    summary = report.summary
    models = Counter(gpu.name for machine in summary.machines for gpu in machine.gpus)
    hosts = [machine.host for machine in summary.machines]
    yield "profile", summary.profile.name if summary.profile else None
    yield "host", encodable(" ".join(hosts)) or None
    yield "gpu", encodable(", ".join(models)) or None
    yield "gpus_used", summary.gpus_used


def _compared(report: Report) -> Iterator[DataFrame]:
    for place, comparison in enumerate(report.comparisons, start=1):
        ratios = {ratio.name: ratio for ratio in comparison.jobs}
        frame = flat([ratios.get(job.name) for job in report.summary.jobs], _RATIO_COLUMNS)
        frame.insert(0, "base", encodable(comparison.name))
        yield frame.add_prefix(f"compared{place if place > 1 else ''}_")


def to_csv(report: Report) -> str:
    """The rows with a header; text that a spreadsheet would run as a formula begins with an apostrophe."""
    return str(job_rows(report).map(csv_cell).to_csv(index=False, lineterminator="\n"))


def to_json(report: Report) -> str:
    """Strict JSON: `jobs` are the rows of the CSV, `summary` is what `benchsuite summary` writes (but for perf_adj, if
    variance is not penalized). Control characters are escaped, so that it is safe on a terminal, too."""
    jobs = {job.name: job for job in report.summary.jobs}
    content = {
        "headline": headline_text(report),
        "resume": report.resume,
        "schema": SCHEMA,
        "kind": "report",
        "title": encodable(report.title),
        "score": _with(report.score, "failure_rate", "verdict", "provisional"),
        "price": _price(report),
        "power": _with(report.power) if report.power else None,
        "sub_scores": [_with(one) for one in sub_scores(jobs, report.weights)],
        "bottlenecks": [_with(one) for one in bottlenecks(report.summary)],
        "influence": [_with(one) for one in influences(jobs, report.weights)],
        "scaling": [_with(curve) for curve in curves(report.summary)],
        "sweeps": [_with(sweep) for sweep in sweeps(report.summary)],
        "pairs": [pairs_json(found) for found in tournaments(report.summary)],
        "gpus": _gpus(report.gpus) if report.gpus else None,
        "comparisons": [_comparison(report.summary, comparison) for comparison in report.comparisons],
        "jobs": job_rows(report).to_dict("records"),
        "summary": msgspec.structs.replace(report.summary, source=encodable(report.summary.source)),
    }
    return json_text(content)


def _price(report: Report) -> dict[str, float | None] | None:
    if report.price is None:
        return None
    of = None if report.score.partial or report.score.never else report.score.machine
    return {"price": report.price, "per_machine_score": report.price / of if of else None}


def _gpus(found: GpuComparison) -> dict[str, Any]:
    """Each job's rates by GPU and repeat, the GPUs that differ, fail or stand out, and what is not tested.

    The use of the GPUs stands with the tasks of the summary.
    """
    cells = {
        job: [{"gpu": _with(gpu), **_with(cell, "mean", "min", "max", without="uses")} for gpu, cell in of_job.items()]
        for job, of_job in found.cells.items()
    }
    return {
        "jobs": cells,
        "outliers": [_with(outlier) for outlier in found.outliers],
        "suspects": [_with(suspect) for suspect in found.suspects],
        "failing": [_with(gpu) for gpu in found.failing],
        "untested": dict(found.untested),
        "untested_gpus": [{"gpu": _with(gpu), "jobs": dict(jobs)} for gpu, jobs in found.untested_gpus.items()],
        "tests": found.tests,
        "power": _with(found.power) if found.power else None,
    }


def _comparison(summary: Summary, comparison: Comparison) -> dict[str, Any]:
    """The comparison with the source of the base in place of its summary, and the causes of its ratios."""
    own = _with(comparison, "tested", without="base")
    own["base_score"] = _with(comparison.base_score, "failure_rate", "verdict", "provisional", without="weighing")
    jobs = [_with(job, "refused", "ratio", "ratio_adj") for job in comparison.jobs]
    causes = [_with(one, "rest_share") for one in explain(summary, comparison)]
    return {**own, "base": encodable(comparison.base.source), "jobs": jobs, "explained": causes}


def _with(record: Any, *properties: str, without: str = "") -> dict[str, Any]:
    """The fields of a record except `without`, and these properties."""
    built: dict[str, Any] = msgspec.to_builtins(record, enc_hook=str)
    built.pop(without, None)
    return {**built, **{name: getattr(record, name) for name in properties}}
