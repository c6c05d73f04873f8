"""A comparison with a base: the differences of the runs, the ratios with their verdicts, and how these are decided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from benchsuite.report.format import NONE, bounds, count, few, number, one_line, percent, ratio
from benchsuite.report.show.document import Cell, Column, Part, Section, sentence, table
from benchsuite.report.show.sections.against import VERDICT_TONES
from benchsuite.report.show.sections.named_difference import SAME_MACHINE, setting_word
from benchsuite.report.show.sections.origin import provenance
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.differences import Difference
from benchsuite.report.stats.planning import POWER, Power
from benchsuite.report.stats.ratios import JobRatio
from benchsuite.report.stats.verdict import FAMILY_ERROR, MOST_REPEATS

# The number of differences listed, and of jobs named at each.
_LISTED, _NAMED = 40, 6
# The characters of a value that are shown.
_VALUE = 160

_COLUMNS: tuple[Column[JobRatio], ...] = (
    Column("job", lambda job: job.name),
    Column("perf", lambda job: job.perf, number, right=True, rank=4),
    Column("baseline", lambda job: job.base_perf, number, right=True, rank=3),
    Column("ratio", lambda job: _ratio(job), right=True),
    Column("95 %", lambda job: Cell(bounds(job.verdict.low, job.verdict.high), job.verdict.low), right=True, rank=1),
    Column("verdict", lambda job: _verdict(job), prose=True),
    Column("failed / baseline", lambda job: _failed(job), right=True, rank=2, optional=True),
)
_LEGEND = (
    "ratio: of the speeds per task, geometric means over the repeats' ok tasks; above 1: faster than the baseline. "
    "95 %: the job's own interval (Welch)."
)


def comparison_section(comparison: Comparison, jobs: int) -> Section:
    """One comparison; `jobs` is the number of this run's jobs."""
    return Section(f"Against {comparison.name}", tuple(_parts(comparison, jobs)))


def _parts(comparison: Comparison, jobs: int) -> Iterator[Part]:
    yield sentence(f"Baseline: {provenance(comparison.base)}")
    yield from _differences(comparison, jobs)
    yield table(_COLUMNS, comparison.jobs, _LEGEND)
    if comparison.settings:
        yield sentence(SAME_MACHINE)
    yield sentence(_what_decides(comparison), "quiet")
    if comparison.power:
        yield sentence(_power(comparison.power), "quiet")
    for label, names in _remarks(comparison):
        yield sentence(f"{label}: {', '.join(names)}", "warn")


def _ratio(job: JobRatio) -> Cell:
    return Cell(ratio(job.ratio) + ("*" if job.forced and job.ratio is not None else ""), job.ratio)


def _verdict(job: JobRatio) -> Cell:
    text = _other_workload(job) if job.refused else (job.verdict.words or NONE) + setting_word(job)
    if job.verdict.df is not None and any(job.unsteady):
        text += ", on flagged windows"
    return Cell("excluded" if job.excluded else text, job.verdict.word, VERDICT_TONES.get(job.verdict.word or "", ""))


def _failed(job: JobRatio) -> Cell:
    """The failed tasks of this run, and of the baseline; blank without any."""
    test = job.failures
    if test is None or not test.fail + test.base_fail:
        return Cell(NONE)
    return Cell(f"{test.fail} of {test.n} / {test.base_fail} of {test.base_n}", float(test.fail))


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
            Column("baseline", lambda difference: one_line(difference.shown(_VALUE)[0], _VALUE), prose=True),
            Column("this run", lambda difference: one_line(difference.shown(_VALUE)[1], _VALUE), prose=True),
            Column("jobs", lambda difference: _jobs_of(difference, jobs), prose=True),
        )
        yield table(columns, found[:_LISTED])
        if len(found) > _LISTED:
            yield sentence(f"... and {count(len(found) - _LISTED, 'more difference')}", "warn")
    elif not unknown:
        yield sentence("No difference in machine, software, code, profile, isolation, settings and data.", "quiet")
    if unknown:
        yield sentence(f"Not recorded for both, so unknown: {', '.join(unknown)}", "warn")


def _jobs_of(difference: Difference, jobs: int) -> str:
    """The jobs that a difference concerns; blank for the whole run."""
    return "all" if len(difference.jobs) == jobs > 1 else " ".join(few(difference.jobs, _NAMED))


def _what_decides(comparison: Comparison) -> str:
    found = sorted({job.verdict.repeats for job in comparison.jobs if job.verdict.df is not None})
    if not found:
        if any(job.verdict.identical for job in comparison.jobs):
            return "Identical content needs no test."
        return "No job is tested; the reasons stand below."
    repeats = " or ".join(f"{here} against {base}" for here, base in found[:3]) + (" ..." if len(found) > 3 else "")
    return (
        f"Verdicts: margin {percent(comparison.margin)}, family-wise error at most {percent(FAMILY_ERROR, 0)} over "
        f"{count(comparison.tested, 'job')} (Holm), {repeats} repeats. SAME: within the margin; AMBIGUOUS: in brackets "
        "the repeats on both sides that would decide."
    )


def _power(power: Power) -> str:
    """The chance to find a difference, and the repeats that would do if it is low."""
    here, base = power.repeats
    change = percent(power.difference, 0)
    words = (
        f"Power: with {here} against {base} repeats, a job of median noise ({percent(power.noise)} between repeats) "
        f"that is {change} faster or slower is found in {percent(power.found, 0)} of cases"
    )
    if power.found >= POWER:
        return f"{words}."
    needed = f"{power.needed:,}" if power.needed else f"over {MOST_REPEATS:,}"
    return f"{words}; {needed} repeats on both sides find it in {percent(POWER, 0)}."


def _remarks(comparison: Comparison) -> Iterable[tuple[str, Sequence[str]]]:
    """Remarks on single ratios: each label with its jobs."""
    excluded = [f"{job.name} ({one_line(job.excluded)})" for job in comparison.jobs if job.excluded]
    forced = [f"{job.name} ({_other_workload(job)})" for job in comparison.jobs if job.forced]
    here = [f"{job.name} x {job.factor:.4g}" for job in comparison.jobs if job.factor != 1]
    there = [f"{job.name} x {job.base_factor:.4g}" for job in comparison.jobs if job.base_factor != 1]
    unsteady = [
        f"{job.name} ({job.unsteady[0]} here, {job.unsteady[1]} in the baseline)"
        for job in comparison.jobs
        if job.verdict.df is not None and any(job.unsteady)
    ]
    remarks = (
        *_without_verdict(comparison),
        ("Fails more often (exact test, family-wise error 5 %)", _failing(comparison)),
        ("The verdict rests on windows that are not steady", unsteady),
        ("This run's rates were converted to our units", here),
        ("Baseline rates were converted to our units", there),
        ("Not the same workload, not compared; --compare-unlike compares them", _refused(comparison)),
        ("* Not the same workload, compared because of --compare-unlike", forced),
        *_unknown(comparison),
        ("Only in this run", comparison.only_here),
        ("Only in the baseline", comparison.only_base),
        ("Left out of the ratio over the suite, excluded", excluded),
    )
    return ((label, names) for label, names in remarks if names)


def _refused(comparison: Comparison) -> list[str]:
    """The jobs of another workload, with the reason why the difference is not compared."""
    return [f"{job.name} ({job.unnamed})" if job.unnamed else job.name for job in comparison.jobs if job.refused]


def _without_verdict(comparison: Comparison) -> Iterator[tuple[str, Sequence[str]]]:
    """Why jobs with a ratio have no verdict, and why jobs have no ratio."""
    alone: dict[str, list[str]] = defaultdict(list)
    missing: list[str] = []
    for job in comparison.jobs:
        if job.verdict.reason and job.ratio is not None:
            alone[f"No verdict, {job.verdict.reason}"].append(job.name)
        elif job.verdict.reason:
            missing.append(f"{job.name} ({job.verdict.reason})")
    yield "No ratio", missing
    yield from ((label, few(names, _NAMED)) for label, names in alone.items())


def _failing(comparison: Comparison) -> list[str]:
    """The jobs whose failures differ from the baseline's, with the side that fails more often."""
    tests = [(job.name, job.failures) for job in comparison.jobs if job.failures]
    return [
        f"{name} ({'here' if test.fail * test.base_n > test.base_fail * test.n else 'in the baseline'})"
        for name, test in tests
        if test.adjusted <= FAMILY_ERROR
    ]


def _unknown(comparison: Comparison) -> Iterator[tuple[str, Sequence[str]]]:
    found: dict[str, list[str]] = defaultdict(list)
    for job in comparison.jobs:
        if job.same_workload is None:
            label = f"The workload of {job.unknown} is not known, taken to be the same by profile and name"
            found[label].append(job.name)
    yield from ((label, few(names, _NAMED)) for label, names in found.items())
