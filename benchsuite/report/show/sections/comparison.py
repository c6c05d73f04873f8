"""A comparison with a base: the differences of the runs, the ratios with their verdicts, and how these are decided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from benchsuite.report.measure.intervals import MIN_REPEATS
from benchsuite.report.show.document import Cell, Column, Part, Section, Tone, sentence, table
from benchsuite.report.show.format import NONE, bounds, count, few, number, one_line, percent, ratio
from benchsuite.report.show.sections.origin import provenance
from benchsuite.report.stats.compare import Comparison, JobRatio
from benchsuite.report.stats.differences import Difference
from benchsuite.report.stats.verdict import FAMILY_ERROR

# The number of differences listed, and of jobs named at each.
_LISTED, _NAMED = 40, 6
# If the numbers of repeats differ by more than this factor, a noisy suite raises more than 5 % false alarms.
_UNLIKE = 2.0
_TONES: dict[str, Tone] = {"FASTER": "good", "SLOWER": "bad", "AMBIGUOUS": "warn"}

_COLUMNS: tuple[Column[JobRatio], ...] = (
    Column("job", lambda job: job.name),
    Column("perf", lambda job: job.perf, number, right=True, rank=4),
    Column("base", lambda job: job.base_perf, number, right=True, rank=3),
    Column("ratio", lambda job: _ratio(job), right=True),
    Column("95 %", lambda job: Cell(bounds(job.verdict.low, job.verdict.high), job.verdict.low), right=True, rank=1),
    Column("verdict", lambda job: _verdict(job), prose=True),
    Column("adj. ratio", lambda job: job.ratio_adj, ratio, right=True, rank=2),
)


def comparison_section(comparison: Comparison, jobs: int) -> Section:
    """One comparison; `jobs` is the number of this run's jobs."""
    return Section(f"Against {comparison.name}", tuple(_parts(comparison, jobs)))


def _parts(comparison: Comparison, jobs: int) -> Iterator[Part]:
    yield sentence(f"Base: {provenance(comparison.base)}")
    yield from _differences(comparison, jobs)
    yield table(_COLUMNS, comparison.jobs, "A ratio above 1 means faster than the base; adj. ratio: of perf_adj.")
    yield sentence(_what_decides(comparison), "quiet")
    for label, names in _remarks(comparison):
        yield sentence(f"{label}: {', '.join(names)}", "warn")


def _ratio(job: JobRatio) -> Cell:
    return Cell(ratio(job.ratio) + ("*" if job.forced and job.ratio is not None else ""), job.ratio)


def _verdict(job: JobRatio) -> Cell:
    text = _other_workload(job) if job.refused else job.verdict.words or NONE
    return Cell("excluded" if job.excluded else text, job.verdict.word, _TONES.get(job.verdict.word or "", ""))


def _other_workload(job: JobRatio) -> str:
    """The fields that make it another workload, if both sides record them."""
    if job.fields:
        return f"other workload: {'; '.join(one_line(field, 80) for field in job.fields)}"
    if job.unknown:
        return f"other profile, and the workload of {job.unknown} is not known"
    return "other workload"


def _differences(comparison: Comparison, jobs: int) -> Iterator[Part]:
    found, unknown = comparison.differences.found, comparison.differences.unknown
    if found:
        columns: tuple[Column[Difference], ...] = (
            Column("differs", lambda difference: difference.what, prose=True),
            Column("base", lambda difference: one_line(difference.base), prose=True),
            Column("this run", lambda difference: one_line(difference.here), prose=True),
            Column("jobs", lambda difference: _jobs_of(difference, jobs), prose=True),
        )
        yield table(columns, found[:_LISTED])
        if len(found) > _LISTED:
            yield sentence(f"... and {count(len(found) - _LISTED, 'more difference')}", "warn")
    elif not unknown:
        yield sentence("No difference in machine, software, code, profile, isolation, settings and data.", "quiet")
    if unknown:
        yield sentence(f"Not recorded, so that it may differ unseen: {', '.join(unknown)}", "warn")


def _jobs_of(difference: Difference, jobs: int) -> str:
    """The jobs that a difference concerns; blank for the whole run."""
    return "all" if len(difference.jobs) == jobs > 1 else " ".join(few(difference.jobs, _NAMED))


def _what_decides(comparison: Comparison) -> str:
    found = sorted({job.verdict.repeats for job in comparison.jobs if job.verdict.df is not None})
    if not found:
        if any(job.verdict.identical for job in comparison.jobs):
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
    """Remarks on single ratios: each label with its jobs."""
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
        *((label, few(names, _NAMED)) for label, names in untested.items()),
        ("Not the same workload, left out of both scores", comparison.different),
        ("* Not the same workload, compared because of --compare-unlike", forced),
        *((label, few(names, _NAMED)) for label, names in unknown.items()),
        ("Only in this run", comparison.only_here),
        ("Only in the base", comparison.only_base),
        ("Left out of both scores, excluded", excluded),
        ("Left out of both scores, one side has no throughput", comparison.left_out),
    )
    return ((label, names) for label, names in remarks if names)
