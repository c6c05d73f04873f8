"""A comparison as text: how the runs differ, then the ratios with their verdicts, then what decides them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from benchsuite.report.measure.intervals import MIN_REPEATS
from benchsuite.report.show import score_text
from benchsuite.report.show.format import NONE, bounds, count, number, one_line, percent, ratio
from benchsuite.report.show.tables import Column, fitted, plain
from benchsuite.report.stats.compare import Comparison, JobRatio
from benchsuite.report.stats.differences import Difference
from benchsuite.report.stats.verdict import FAMILY_ERROR

_COLUMNS = (
    Column("job"),
    Column("perf", right=True, rank=4),
    Column("base", right=True, rank=3),
    Column("ratio", right=True),
    Column("95 %", right=True, rank=1),
    Column("verdict", prose=True),
    Column("adj. ratio", right=True, rank=2),
)
_DIFFERENCE_COLUMNS = (
    Column("differs", prose=True),
    Column("base", prose=True),
    Column("this run", prose=True),
    Column("jobs", prose=True),
)
# So many differences are told one by one, with so many jobs each.
_TOLD, _NAMED = 40, 6
# With numbers of repeats that differ by more than this factor, a noisy suite raises more alarms than it should.
_UNLIKE = 2.0
_STYLES = {"FASTER": "green", "SLOWER": "red", "AMBIGUOUS": "yellow"}


def comparison_table(comparison: Comparison, width: int, jobs: int) -> Iterator[RenderableType]:
    """What stands in a comparison's section, in order.

    Args:
        width: in cells.
        jobs: how many this run has.
    """
    yield plain(f"Base: {score_text.provenance(comparison.base)}")
    yield from _differences(comparison, width, jobs)
    table, _ = fitted(_COLUMNS, [_cells(job) for job in comparison.jobs], width)
    yield Padding(table, (1, 0, 0, 0), expand=False)
    yield Text("A ratio above 1 means faster than the base; adj. ratio: of perf_adj.", style="dim")
    yield plain(Text(_what_decides(comparison), style="dim"))
    for label, names in _remarks(comparison):
        yield plain(Text(f"{label}: {', '.join(names)}", style="yellow"))


def _cells(job: JobRatio) -> list[str | Text]:
    style = _STYLES.get(job.verdict.word or "", "")
    return [
        job.name,
        number(job.perf),
        number(job.base_perf),
        ratio(job.ratio) + ("*" if job.forced and job.ratio is not None else ""),
        bounds(job.verdict.low, job.verdict.high),
        Text(_job_verdict(job), style=style),
        ratio(job.ratio_adj),
    ]


def _job_verdict(job: JobRatio) -> str:
    if job.excluded:
        return "excluded"
    return _other_workload(job) if job.refused else job.verdict.words or NONE


def _other_workload(job: JobRatio) -> str:
    """Which fields make it another workload, as far as both sides tell."""
    if job.fields:
        return f"other workload: {'; '.join(one_line(field, 80) for field in job.fields)}"
    if job.unknown:
        return f"other profile, and the workload of {job.unknown} is not known"
    return "other workload"


def _differences(comparison: Comparison, width: int, jobs: int) -> Iterator[RenderableType]:
    found = comparison.differences.found
    if found:
        rows = [[d.what, one_line(d.base), one_line(d.here), _of(d, jobs)] for d in found[:_TOLD]]
        yield fitted(_DIFFERENCE_COLUMNS, rows, width)[0]
        if len(found) > _TOLD:
            yield Text(f"... and {count(len(found) - _TOLD, 'more difference')}", style="yellow")
    elif not comparison.differences.unknown:
        yield Text("No difference in machine, software, code, profile, isolation, settings and data.", style="dim")
    if comparison.differences.unknown:
        unknown = ", ".join(comparison.differences.unknown)
        yield Text(f"Not recorded, so that it may differ unseen: {unknown}", style="yellow")


def _of(difference: Difference, jobs: int) -> str:
    """The jobs that it concerns; blank for the whole run."""
    return "all" if len(difference.jobs) == jobs > 1 else " ".join(_some(difference.jobs))


def _some(names: Sequence[str]) -> list[str]:
    """The first of many names, and how many more there are."""
    return [*names[:_NAMED], *([f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else [])]


def _what_decides(comparison: Comparison) -> str:
    found = sorted({job.verdict.repeats for job in comparison.jobs if job.verdict.df is not None})
    if not found:
        same = any(job.verdict.identical for job in comparison.jobs)
        if same:
            return "Identical content needs no test."
        return f"No verdict: both sides need figures of {MIN_REPEATS} repeats each."
    repeats = " or ".join(f"{here} against {base}" for here, base in found[:3]) + (" ..." if len(found) > 3 else "")
    unlike = max(max(both) / min(both) for both in found)
    more = " (more with numbers of repeats so unlike)" if unlike > _UNLIKE else ""
    return (
        f"Verdicts: margin {percent(comparison.margin)}, family-wise error {percent(FAMILY_ERROR, 0)}{more} over "
        f"{count(comparison.tested, 'job')} (Holm), {repeats} repeats. SAME: within the margin; AMBIGUOUS: in brackets "
        "the repeats on both sides that would decide. An interval is one job's own 95 %."
    )


def _remarks(comparison: Comparison) -> Iterable[tuple[str, Sequence[str]]]:
    """Label and jobs of all that a reader must know of single ratios."""
    excluded = [f"{job.name} ({one_line(job.excluded)})" for job in comparison.jobs if job.excluded]
    forced = [f"{job.name} ({_other_workload(job)})" for job in comparison.jobs if job.forced]
    unknown: dict[str, list[str]] = defaultdict(list)
    untested: dict[str, list[str]] = defaultdict(list)
    for job in comparison.jobs:
        if job.same_workload is None:
            label = f"The workload of {job.unknown} is not known, taken to be the same by profile and name"
            unknown[label].append(job.name)
        if job.verdict.reason:
            untested[f"The ratio alone, {job.verdict.reason}"].append(job.name)
    here = [f"{job.name} x {job.factor:.4g}" for job in comparison.jobs if job.factor != 1]
    there = [f"{job.name} x {job.base_factor:.4g}" for job in comparison.jobs if job.base_factor != 1]
    remarks = (
        ("This run's rates, turned into what was trained", here),
        ("The base's rates, turned into what was trained", there),
        *((label, _some(names)) for label, names in untested.items()),
        ("Not the same workload, left out of both scores", comparison.different),
        ("* Not the same workload, compared because of --compare-unlike", forced),
        *((label, _some(names)) for label, names in unknown.items()),
        ("Only in this run", comparison.only_here),
        ("Only in the base", comparison.only_base),
        ("Left out of both scores, excluded", excluded),
        ("Left out of both scores, one side has no throughput", comparison.left_out),
    )
    return ((label, names) for label, names in remarks if names)
