"""A report as text: the table of jobs, what went wrong, and the score block last. Reads well without colour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from benchsuite.report import block
from benchsuite.report.compare import Comparison
from benchsuite.report.figures import number, one_line, percent, ratio, share
from benchsuite.report.score import Score
from benchsuite.report.summary import JobSummary, RerunSummary, Summary, TaskSummary
from benchsuite.report.window import STEADY_SPREAD

WIDE = 100
# How many tasks that failed alike are named.
_NAMED = 8
_LEGEND = (
    "perf: items/s in the measured window, mean over tasks. std%: between tasks. perf_adj = perf x (1 - std%) x "
    "(1 - fail/n). 95 %: interval over repeats (needs 3)."
)


@dataclass(frozen=True)
class Report:
    """All that is shown; `title` says which folder or file."""

    title: str
    summary: Summary
    score: Score
    comparison: Comparison | None = None


def render(report: Report, console: Console) -> None:
    """Print a report; the console must not read markup in names."""
    summary = report.summary
    console.print(Text(f"Results of {report.title}", style="bold"))
    _line(console, block.headline(summary))
    if summary.jobs:
        console.print()
        console.print(_job_table(summary, report.score, wide=console.width >= WIDE))
        _line(console, _LEGEND)
    if report.comparison:
        _section(console, f"Against {report.comparison.name}", _comparison(report.comparison))
    if summary.reruns:
        _section(console, "Reruns (in no figure above)", [_rerun_table(summary.reruns)])
    if troubles := list(_troubles(summary)):
        _section(console, "Not ok", [_troubles_table(troubles)])
    if unsteady := [task for job in summary.jobs for task in job.tasks if task.status == "ok" and task.steady is False]:
        title = f"Unsteady (slice rates spread more than {percent(STEADY_SPREAD, 0)}, or a single slice)"
        _section(console, title, [_unsteady_table(unsteady)])
    if summary.bad_files:
        pairs = [(bad.file, one_line(bad.reason)) for bad in summary.bad_files]
        title = f"Files that cannot be used ({len(pairs)}; counted as no task)"
        _section(console, title, [_grid(pairs)])
    if summary.jobs:
        _section(console, "Score", [block.score_block(summary, report.score, report.comparison)])


def _section(console: Console, title: str, body: Iterable[RenderableType]) -> None:
    console.print()
    console.rule(Text(title, style="bold"), align="left", style="dim")
    for part in body:
        console.print(Padding(part, (0, 0, 0, 2), expand=False))


def _line(console: Console, text: str) -> None:
    console.print(Text(text, style="dim"))


def _table(*columns: tuple[str, bool]) -> Table:
    """Plain aligned columns under their names; `True` is right-aligned."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for position, (name, right) in enumerate(columns):
        overflow = "fold" if position in (0, len(columns) - 1) else "ellipsis"
        justify = "right" if right else "left"
        table.add_column(name, justify=justify, no_wrap=right, overflow=overflow)  # type: ignore[arg-type]
    return table


def _grid(rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    return table


def _job_table(summary: Summary, score: Score, *, wide: bool) -> Table:
    names = ["job", "n", "fail", "perf", "unit", "std%", "perf_adj", "95 %", "weight", "slices", "seconds"]
    left = {"job", "unit"}
    shown = names if wide else names[:-2]
    table = _table(*((name, name not in left) for name in shown))
    table.padding = (0, 2, 0, 0) if wide else (0, 1, 0, 0)
    for job in summary.jobs:
        style = "red" if job.fail else None
        table.add_row(*_job_cells(job, score)[: len(shown)], style=style)
    return table


def _job_cells(job: JobSummary, score: Score) -> list[str]:
    per_gpu = " each" if job.group_gpus > 1 else ""
    return [
        job.name,
        str(job.n),
        str(job.fail),
        number(job.perf),
        f"{job.unit}/s{per_gpu}" if job.unit else "n/a",
        share(job.std),
        number(job.perf_adj),
        f"±{percent(job.interval.half)}" if job.interval else "n/a",
        f"{score.weighing.jobs[job.name]:g}" if job.name in score.weighing.jobs else "none",
        f"{job.slices:,}",
        f"{job.seconds:,.1f}",
    ]


def _comparison(comparison: Comparison) -> Iterable[RenderableType]:
    table = _table(
        ("job", False),
        *((name, True) for name in ("perf", "base", "ratio", "perf_adj", "base_adj", "ratio_adj")),
    )
    for job in comparison.jobs:
        factor = [number(job.perf), number(job.base_perf), ratio(job.ratio)]
        adjusted = [number(job.perf_adj), number(job.base_perf_adj), ratio(job.ratio_adj)]
        table.add_row(job.name, *factor, *adjusted)
    yield table
    yield Text("A ratio above 1 means faster than the base.", style="dim")
    yield Text(f"Base: {block.provenance(comparison.base)}")
    different = [job.name for job in comparison.jobs if job.same_workload is False]
    excluded = [f"{job.name} ({one_line(job.excluded)})" for job in comparison.jobs if job.excluded]
    for label, names in (
        ("Not the same workload", different),
        ("Only in this run", comparison.only_here),
        ("Only in the base", comparison.only_base),
        ("Left out of both scores, excluded", excluded),
        ("Left out of both scores, one side has no throughput", comparison.left_out),
    ):
        if names:
            yield Text(f"{label}: {', '.join(names)}", style="yellow")


def _rerun_table(reruns: Sequence[RerunSummary]) -> Table:
    table = _table(
        ("task", False), ("device", False), ("perf", True), ("original", True), ("ratio", True), ("of", False)
    )
    for rerun in reruns:
        original, perf = rerun.original_perf, rerun.task.perf
        factor = perf / original if perf is not None and original else None
        of = rerun.of if original is not None else f"{rerun.of} (not here, or not ok)"
        notes = [of, *(one_line(change) for change in rerun.changes)]
        if rerun.task.status != "ok":
            notes.append(f"{rerun.task.status}: {one_line(rerun.task.reason)}")
        table.add_row(rerun.task.id, rerun.task.device, number(perf), number(original), ratio(factor), "; ".join(notes))
    return table


def _troubles(summary: Summary) -> Iterator[tuple[str, str, str]]:
    """Status, tasks and reason of all that is not ok; tasks of one job with one reason share a line."""
    for job in summary.jobs:
        alike: dict[tuple[str, str], list[TaskSummary]] = defaultdict(list)
        for task in job.tasks:
            if task.status != "ok":
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


def _troubles_table(troubles: Sequence[tuple[str, str, str]]) -> Table:
    table = _table(("status", False), ("task", False), ("why", False))
    for status, task, reason in troubles:
        table.add_row(Text(status, style="red"), task, reason)
    return table


def _unsteady_table(tasks: Iterable[TaskSummary]) -> Table:
    table = _table(("task", False), ("device", False), ("spread", True), ("slices", True), ("seconds", True))
    for task in tasks:
        table.add_row(task.id, task.device, percent(task.spread), str(task.slices), f"{task.seconds:.1f}")
    return table
