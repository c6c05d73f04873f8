"""The ratios of a run to a base over their common suite: per GPU and of the whole machines, or why there is none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from benchsuite.report.format import NONE, bounds, count, few, number, one_line, percent, ratio
from benchsuite.report.show.document import Cell, Fact, Figure, Tone, fact, sentence
from benchsuite.report.show.sections.failures import differs, failure_words, never_words
from benchsuite.report.show.sections.named_difference import only_settings, setting_figures
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.overall import NOT_COMPARABLE, Overall, Ratio
from benchsuite.report.stats.verdict import Verdict

VERDICT_TONES: dict[str, Tone] = {
    "SAME": "",
    "FASTER": "good",
    "SLOWER": "bad",
    "AMBIGUOUS": "warn",
    "FAILS": "bad",
    "BASE FAILS": "bad",
}
_HERE, _BASE = "this run: ", "the baseline: "
_NAMED, _BRIEF = 8, 4
# The longest name of a base in a label: labels are never folded.
_LABEL = 24


def against(comparison: Comparison, named: bool) -> Iterator[Figure | Fact]:
    """The ratios with their verdicts, the jobs that stand apart, and the baseline's own failures.

    Args:
        named: give the baseline's name, for there are several bases.
    """
    found = comparison.overall
    which = f" / {_short(comparison.name)}" if named else ""
    if found.per_gpu:
        about = f"over {covered(comparison)}{interval_words(found.per_gpu.verdict, comparison.margin)}"
        per = "GPU" if any(found.gpus) else "task"
        yield _figure(f"Per {per}{which}", found.per_gpu, about)
        machines = (
            f"{count(found.gpus[0], 'GPU')} against {found.gpus[1]}" if any(found.gpus) else "no GPU on either side"
        )
        if found.machine:
            verdict = found.machine.verdict
            failures = ", tasks that fail count like ok ones" if _some_fail(comparison) else ""
            # Without an interval the reason is that of the ratio per GPU.
            interval = interval_words(verdict, comparison.margin) if verdict.df is not None else ""
            yield _figure(f"Whole machine{which}", found.machine, f"{machines}{failures}{interval}")
        else:
            yield fact(
                f"Whole machine{which}", f"no ratio ({machines}): {one_line(found.machine_withheld, 400)}", "warn"
            )
    yield from setting_figures(comparison, which)
    if found.withheld and not only_settings([comparison]):
        label = "Only a part" if found.per_gpu else "No ratio"
        remedy = "" if found.partial or NOT_COMPARABLE in found.withheld else "; --partial compares the other jobs"
        yield fact(f"{label}{which}", f"{withheld_words(found)}{remedy}", "warn")
    if found.apart and not only_settings([comparison]):
        yield fact(f"Stand apart{which}", apart_words(found))
    if comparison.base_score.value:
        yield fact(f"Baseline's score{which}", f"{number(comparison.base_score.value)}, with its penalties", "quiet")
    if comparison.base_score.verdict == "FAIL":
        yield fact(f"Baseline{which}", f"FAIL: {_failed(comparison)}", "bad")
    if words := failure_words(comparison.failures):
        yield fact(f"Failures{which}", words, "warn" if differs(comparison.failures) else "")


def _short(name: str) -> str:
    """The name of a base, or the end of a long path."""
    name = one_line(name)
    return name if len(name) <= _LABEL else f"...{name[3 - _LABEL :]}"


def _some_fail(comparison: Comparison) -> bool:
    """Whether tasks of the jobs that the ratios cover fail on either side."""
    tests = (job.failures for job in comparison.jobs if job.name in comparison.overall.jobs)
    return any(test and test.fail + test.base_fail for test in tests)


def withheld_words(found: Overall, brief: bool = False) -> str:
    """Why there is no ratio over the whole suite, with each side named once.

    Args:
        brief: do not repeat the reasons of this run, and give the first few of the baseline.
    """
    here = [reason.removeprefix(_HERE) for reason in found.withheld if reason.startswith(_HERE)]
    base = [reason.removeprefix(_BASE) for reason in found.withheld if reason.startswith(_BASE)]
    other = [reason for reason in found.withheld if not reason.startswith((_HERE, _BASE))]
    own = "this run is incomplete" if found.partial else "this run has no score"
    parts = [own if brief else f"{_HERE}{', '.join(here)}"] if here else []
    parts += [f"{_BASE}{', '.join(few(base, _BRIEF) if brief else base)}"] if base else []
    return "; ".join([*parts, *other])


def covered(comparison: Comparison) -> str:
    """The number of jobs that the ratios cover, of how many, and how many of them train something else."""
    found = comparison.overall
    unlike = sum(job.forced and job.name in found.jobs for job in comparison.jobs)
    other = f", {unlike} of another workload" if unlike else ""
    if len(found.jobs) == found.suite:
        return f"{count(found.suite, 'common job')}{other}"
    return f"{len(found.jobs)} of {count(found.suite, 'common job')} only{other}"


def apart_words(found: Overall) -> str:
    """The jobs that stand apart from the common suite, by reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, why in found.apart.items():
        by_reason[why].append(one_line(name))
    return "; ".join(f"{', '.join(few(names, _NAMED))} ({one_line(why)})" for why, names in by_reason.items())


def _failed(comparison: Comparison) -> str:
    score = comparison.base_score
    never = "; ".join(few(never_words(score.never, comparison.base), _NAMED))
    return f"{score.fail:,} of its {count(score.n, 'task')} not ok{f'; never ok: {never}' if never else ''}"


def _figure(label: str, found: Ratio, about: str) -> Figure:
    verdict = found.verdict
    word = [sentence(verdict.words, VERDICT_TONES[verdict.word], strong=True)] if verdict.word else []
    return Figure(label, Cell(f"{ratio(found.value)}x", found.value), (*word, sentence(about)))


def interval_words(verdict: Verdict, margin: float) -> str:
    """The interval of a ratio after what it is over, or why it has none; empty for identical content."""
    if verdict.identical:
        return ""
    if verdict.reason:
        return f"; no interval: {verdict.reason}"
    return f"; 95 %: {bounds(verdict.low, verdict.high) or NONE}, margin {percent(margin)}"
