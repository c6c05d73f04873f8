"""The ratios of a run to a base over their common suite: per GPU and of the whole machines, or why there is none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from benchsuite.report.show.document import Cell, Fact, Figure, fact, sentence
from benchsuite.report.show.format import NONE, bounds, count, few, number, one_line, percent, ratio
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.failures import FailureTest
from benchsuite.report.stats.overall import Overall, Ratio
from benchsuite.report.stats.verdict import FAMILY_ERROR, Verdict

_NAMED = 8


def against(comparison: Comparison, named: bool) -> Iterator[Figure | Fact]:
    """The ratios with their verdicts, the jobs that stand apart, and the base's own failures.

    Args:
        named: give the base's name, for there are several bases.
    """
    found = comparison.overall
    which = f" / {one_line(comparison.name)}" if named else ""
    if found.per_gpu:
        yield _figure(f"Per GPU{which}", found.per_gpu, comparison, f"over {covered(found)}")
        machines = f"{count(found.gpus[0], 'GPU')} against {found.gpus[1]}"
        if found.machine:
            yield _figure(f"Whole machine{which}", found.machine, comparison, machines)
        else:
            yield fact(
                f"Whole machine{which}", f"no ratio ({machines}): {one_line(found.machine_withheld, 400)}", "warn"
            )
    if found.withheld:
        label = "Only a part" if found.per_gpu else "No ratio"
        remedy = "" if found.partial or not found.suite else "; --partial gives that of the other jobs"
        yield fact(f"{label}{which}", f"{'; '.join(found.withheld)}{remedy}", "warn")
    if found.apart:
        yield fact(f"Stand apart{which}", apart_words(found))
    if comparison.base_score.value:
        yield fact(f"Base's score{which}", f"{number(comparison.base_score.value)}, with its penalties", "quiet")
    if comparison.base_score.verdict == "FAIL":
        yield fact(f"Base{which}", f"FAIL: {_failed(comparison)}", "bad")
    if words := failure_words(comparison.failures):
        yield fact(f"Failures{which}", words, "warn" if differs(comparison.failures) else "")


def covered(found: Overall) -> str:
    """The number of jobs that the ratios cover, and of how many."""
    if len(found.jobs) == found.suite:
        return count(found.suite, "common job")
    return f"{len(found.jobs)} of {count(found.suite, 'common job')} only"


def apart_words(found: Overall) -> str:
    """The jobs that stand apart from the common suite, by reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, why in found.apart.items():
        by_reason[why].append(one_line(name))
    return "; ".join(f"{', '.join(few(names, _NAMED))} ({one_line(why)})" for why, names in by_reason.items())


def differs(test: FailureTest) -> bool:
    """Whether the failures of both sides differ by the exact test."""
    return test.p <= FAMILY_ERROR


def failure_words(test: FailureTest) -> str:
    """The failures of both sides with the exact test; empty without a failure."""
    if not test.fail + test.base_fail:
        return ""
    p = f"p {test.p:.2g}" if test.p >= 1e-4 else "p < 0.0001"
    more = (
        "this run fails more often"
        if test.fail * test.base_n > test.base_fail * test.n
        else "the base fails more often"
    )
    result = more if differs(test) else "no proof of a difference"
    return (
        f"{test.fail} of {test.n} tasks here, {test.base_fail} of {test.base_n} in the base: {result} (exact test, {p})"
    )


def _failed(comparison: Comparison) -> str:
    score = comparison.base_score
    never = f"; {len(score.never)} jobs never succeed on a GPU or machine" if score.never else ""
    return f"{score.fail:,} of {count(score.n, 'task')} of the base are not ok{never}"


def _figure(label: str, found: Ratio, comparison: Comparison, about: str) -> Figure:
    beside = [sentence(found.verdict.words, strong=True)] if found.verdict.word else []
    beside.append(sentence(f"{about}; {interval_words(found.verdict, comparison.margin)}"))
    return Figure(label, Cell(f"{ratio(found.value)}x", found.value), tuple(beside))


def interval_words(verdict: Verdict, margin: float) -> str:
    """The interval of a ratio, or why it has none."""
    if verdict.identical:
        return "identical content"
    if verdict.reason:
        return f"no interval: {verdict.reason}"
    return f"95 %: {bounds(verdict.low, verdict.high) or NONE}, margin {percent(margin)}"
