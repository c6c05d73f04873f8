"""A report as text: the table of jobs, what went wrong, and the score block last. Reads well without colour."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from benchsuite.report.read.load import OPEN, RUNNING
from benchsuite.report.read.summary import JobSummary, RerunSummary, Summary, TaskSummary
from benchsuite.report.show import score_text
from benchsuite.report.show.comparison_table import comparison_table
from benchsuite.report.show.format import NONE, count, number, one_line, percent, ratio, share
from benchsuite.report.show.gpus_table import gpus_tables
from benchsuite.report.show.steadiness_table import unsteady_table
from benchsuite.report.show.tables import Column, fitted, pairs, plain
from benchsuite.report.show.use_table import slowed_table, use_table
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.gpus import GpuComparison
from benchsuite.report.stats.scaling import Curve, curves
from benchsuite.report.stats.score import Score

_INDENT = 2
# How many tasks that failed alike are named.
_NAMED = 8
_LEGEND = (
    "perf: items/s in the measured window, mean over tasks. std%: between tasks. perf_adj = perf x (1 - std%) x "
    "(1 - fail/n). 95 %: perf's interval over repeats (needs 3)."
)
# Up to here an interval is about as wide below as above.
_NARROW = 0.1
# The higher a column's rank, the sooner a narrow terminal goes without it.
_JOB_COLUMNS = (
    Column("job"),
    Column("n", right=True),
    Column("fail", right=True),
    Column("to run", right=True, rank=1),
    Column("unsteady", right=True, rank=1),
    Column("perf", right=True),
    Column("unit", rank=3),
    Column("std%", right=True, rank=4),
    Column("perf_adj", right=True, rank=2),
    Column("95 %", right=True, rank=5),
    Column("weight", right=True, rank=6),
    Column("slices", right=True, rank=8),
    Column("seconds", right=True, rank=7),
)
_RERUN_COLUMNS = (
    Column("task"),
    Column("device", rank=2),
    Column("perf", right=True),
    Column("original", right=True, rank=1),
    Column("ratio", right=True),
    Column("of", prose=True),
)
_SCALING_COLUMNS = (
    Column("job"),
    Column("GPUs", right=True),
    Column("total", right=True, rank=2),
    Column("per GPU", right=True, rank=1),
    Column("unit", rank=4),
    Column("efficiency %", right=True),
    Column("95 %", right=True, rank=3),
)
_TROUBLE_COLUMNS = (Column("status"), Column("task", prose=True), Column("why", prose=True))


@dataclass(frozen=True)
class Report:
    """All that is shown; `title` says which folder or file, `logs` where the children's output is, if it is kept.
    `price` is that of the machine, in any currency."""

    title: str
    summary: Summary
    score: Score
    comparisons: tuple[Comparison, ...] = ()
    logs: str | None = None
    price: float | None = None
    gpus: GpuComparison | None = None


def render(report: Report, console: Console) -> None:
    """Print a report; the console must not read markup in names. No control character of a file gets through."""
    summary, width = report.summary, console.width - 2 * _INDENT
    console.print(plain(Text(f"Results of {report.title}", style="bold")))
    _line(console, score_text.headline(summary))
    if summary.in_progress:
        _line(console, _progress(summary))
    if summary.jobs:
        _jobs(report, console)
    _section(console, "Use of the GPUs", use_table(summary, width))
    slowed = "Slowed by heat or hardware (perf as delivered, and without)"
    _section(console, slowed, slowed_table(summary, width))
    _section(console, "GPUs side by side (% of the row's best)", gpus_tables(report.gpus, width))
    if found := curves(summary):
        title = "Scaling (efficiency: the rate of a GPU in the group over that of one alone)"
        _section(console, title, [_scaling_table(found, summary, width)])
    for comparison in report.comparisons:
        _section(console, f"Against {comparison.name}", comparison_table(comparison, width, len(summary.jobs)))
    if summary.reruns:
        _section(console, "Reruns (in no figure above)", [_rerun_table(summary.reruns, width)])
    if troubles := list(_troubles(summary)):
        table, _ = fitted(_TROUBLE_COLUMNS, [(Text(s, style="red"), *more) for s, *more in troubles], width)
        logs = [plain(f"All that the tasks printed: {report.logs}")] if report.logs else []
        _section(console, "Not ok", [table, *logs])
    _section(console, "Unsteady (the rate does not hold within the window)", unsteady_table(summary, width))
    if summary.bad_files:
        title = f"Files that cannot be used ({len(summary.bad_files)}; counted as no task)"
        _section(console, title, [pairs((bad.file, one_line(bad.reason)) for bad in summary.bad_files)])
    if summary.jobs:
        _section(console, "Score", [score_text.score_block(summary, report.score, report.comparisons, report.price)])


def _jobs(report: Report, console: Console) -> None:
    console.print()
    table, without = _job_table(report.summary, report.score, console.width)
    console.print(table)
    _line(console, _LEGEND if report.score.penalized else _LEGEND.replace(" x (1 - std%)", ""))
    if without:
        _line(console, f"Not shown for want of width: {', '.join(without)}.")


def _section(console: Console, title: str, body: Iterable[RenderableType]) -> None:
    """Nothing where the body is empty."""
    if not (parts := list(body)):
        return
    console.print()
    console.rule(plain(Text(title, style="bold")), align="left", style="dim")
    for part in parts:
        console.print(Padding(part, (0, 0, 0, _INDENT), expand=False))


def _line(console: Console, text: str) -> None:
    console.print(plain(Text(text, style="dim")))


def _progress(summary: Summary) -> str:
    """How far a run in progress is."""
    to_run, n = sum(job.to_run for job in summary.jobs), sum(job.n for job in summary.jobs)
    running = [task for job in summary.jobs for task in job.tasks if task.status == RUNNING]
    now = "; ".join(f"{task.id} on {task.device}" for task in running[:_NAMED])
    more = f" and {len(running) - _NAMED} more" if len(running) > _NAMED else ""
    return f"In progress: {to_run:,} of {count(n, 'task')} still to run. Running now: {now or 'none'}{more}."


def _job_table(summary: Summary, score: Score, width: int) -> tuple[RenderableType, list[str]]:
    hidden = {"to run": not summary.in_progress, "unsteady": not any(job.unsteady for job in summary.jobs)}
    shown = [not hidden.get(column.name) for column in _JOB_COLUMNS]
    rows = ([Text(cell, style="red" if job.fail else "") for cell in _job_cells(job, score)] for job in summary.jobs)
    return fitted(
        list(itertools.compress(_JOB_COLUMNS, shown)), [list(itertools.compress(row, shown)) for row in rows], width
    )


def _job_cells(job: JobSummary, score: Score) -> list[str]:
    per_gpu = " each" if job.per > 1 else ""
    return [
        job.name,
        str(job.n),
        str(job.fail),
        str(job.to_run),
        f"{job.unsteady} of {job.ended - job.fail}",
        number(job.perf),
        f"{job.unit}/s{per_gpu}" if job.unit else "n/a",
        share(job.std),
        number(None if job.to_run and job.perf is None else job.perf_adj),
        _interval(job),
        f"{score.weighing.jobs[job.name]:g}" if job.name in score.weighing.jobs else "none",
        f"{job.slices:,}" if job.slices or job.perf is None else NONE,
        f"{job.seconds:,.1f}" if job.slices or job.perf is None else NONE,
    ]


def _interval(job: JobSummary) -> str:
    """Around perf; a wide one, which lies on a scale of ratios, as how far it reaches above and below. The larger comes
    first: the page sorts by it."""
    if job.interval is None or not job.perf:
        return NONE
    if job.interval.half <= _NARROW:
        return f"±{percent(job.interval.half)}"
    low, high = (100 * (end / job.perf - 1) for end in (job.interval.low, job.interval.high))
    return f"{high:+,.0f} {low:+.0f} %"


def _scaling_table(found: Sequence[Curve], summary: Summary, width: int) -> RenderableType:
    columns: Sequence[Column] = _SCALING_COLUMNS
    if not summary.gpus_used:  # on a CPU they are ranks
        names = {"GPUs": "ranks", "per GPU": "per rank"}
        columns = tuple(replace(column, name=names.get(column.name, column.name)) for column in columns)
    rows = [
        (
            curve.job,
            str(point.gpus),
            number(point.total),
            number(point.per_gpu),
            f"{curve.unit}/s",
            share(point.efficiency),
            f"{share(point.interval.low)} to {share(point.interval.high)}" if point.interval else NONE,
        )
        for curve in found
        for point in curve.points
    ]
    return fitted(columns, rows, width)[0]


def _rerun_table(reruns: Sequence[RerunSummary], width: int) -> RenderableType:
    rows = []
    for rerun in reruns:
        original, perf = rerun.original_perf, rerun.task.perf
        factor = perf / original if perf is not None and original else None
        of = rerun.of if original is not None else f"{rerun.of} (not here, or not ok)"
        notes = [of, *(one_line(change) for change in rerun.changes)]
        if rerun.task.status != "ok":
            notes.append(f"{rerun.task.status}: {one_line(rerun.task.reason)}")
        figures = [number(perf), number(original), ratio(factor)]
        rows.append([rerun.task.id, rerun.task.device, *figures, "; ".join(notes)])
    return fitted(_RERUN_COLUMNS, rows, width)[0]


def _troubles(summary: Summary) -> Iterator[tuple[str, str, str]]:
    """Status, tasks and reason of all that is not ok; tasks of one job with one reason share a line. What a run in
    progress has still to run is no trouble."""
    passed_over = {"ok", *OPEN} if summary.in_progress else {"ok"}
    for job in summary.jobs:
        alike: dict[tuple[str, str], list[TaskSummary]] = defaultdict(list)
        for task in job.tasks:
            if task.status not in passed_over:
                alike[task.status, one_line(task.reason)].append(task)
        for (status, reason), tasks in alike.items():
            yield status, _names(tasks), reason


def _names(tasks: Sequence[TaskSummary]) -> str:
    """ "vae.J0.0 on GPU 0"; of several "vae.J0.0 J0.1", ids after the first without the job's name."""
    first = tasks[0]
    if len(tasks) == 1:
        return f"{first.id} on {first.device}"
    rest = [task.id.rpartition(".J")[2] for task in tasks[1:_NAMED]]
    more = [f"and {len(tasks) - _NAMED} more"] if len(tasks) > _NAMED else []
    return " ".join([first.id, *(f"J{name}" for name in rest), *more])
