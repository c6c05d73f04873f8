"""Comparisons of two settings on one machine, in words: "bf16 is 2.70x fp32 over 6 jobs, on the same machine"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchsuite.report.format import bounds, count, few, one_line, percent, ratio
from benchsuite.report.show.document import Cell, Fact, Figure, Sentence, Span, Tone, fact, sentence
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.ratios import JobRatio
from benchsuite.report.stats.setting_ratios import SettingRatio
from benchsuite.report.stats.verdict import MOST_REPEATS

_NAMED = 4
# The longest value of a setting in words.
_VALUE = 60
_TONES: dict[str, Tone] = {"FASTER": "good", "SLOWER": "bad", "AMBIGUOUS": "warn"}
SAME_MACHINE = (
    "Settings are compared because both runs are of the same machine: host name, processor, memory and the UUIDs of "
    "the GPUs used agree. FASTER and SLOWER are about the setting, not about a machine."
)


def only_settings(comparisons: Sequence[Comparison]) -> bool:
    """Whether there is one baseline, and its only ratios are those of settings."""
    return len(comparisons) == 1 and _alone(comparisons[0])


def _alone(comparison: Comparison) -> bool:
    return comparison.overall.per_gpu is None and any(of.ratio for of in comparison.settings)


def setting_clause(comparison: Comparison) -> str:
    """The ratio of the setting that most jobs have: "bf16 is 2.70x (2.60 to 2.80, FASTER) fp32 over 6 jobs"."""
    shown = [of for of in comparison.settings if of.ratio]
    more = f", {count(len(shown) - 1, 'other difference')} below" if shown[1:] else ""
    where = f"on the same machine, {_unit(comparison)}"
    return f"{_ratio_words(shown[0])} over {_over(shown[0])}, {where}{more}{_left_out(comparison)}"


def _left_out(comparison: Comparison) -> str:
    """The number of jobs that no ratio of a setting covers; empty without such a job."""
    covered = {name for of in comparison.settings if of.ratio for name in of.jobs}
    others = {job.name for job in comparison.jobs} | {*comparison.only_here, *comparison.only_base}
    return f", {count(len(others - covered), 'job')} left out" if others - covered else ""


def setting_sentences(comparison: Comparison, first: str) -> Iterator[Sentence]:
    """A sentence for each of the first differences.

    Args:
        first: the headline. A ratio that it holds is not repeated.
    """
    for of in comparison.settings[:_NAMED]:
        if of.ratio is None:
            yield sentence(f"No ratio of {_short(of.difference.words)}: {of.reason}.", "warn")
            continue
        about = f" over {_over(of)}, on the same machine as {one_line(comparison.name)}, {_unit(comparison)}."
        verdict = of.ratio.verdict
        spans = [Span(_ratio_words(of), _TONES.get(verdict.word or "", "")), Span(about)]
        if _ratio_words(of) in first:
            spans = [Span("This is a ratio of settings, not of machines.")]
        if verdict.word is None and verdict.reason:
            spans.append(Span(f" No verdict: {verdict.reason}.", "warn"))
        if verdict.word == "AMBIGUOUS":
            repeats = f"{verdict.decides:,}" if verdict.decides else f"over {MOST_REPEATS:,}"
            spans.append(Span(f" {repeats} repeats would decide if the ratio holds.", "warn"))
        yield Sentence(tuple(spans))
    if len(comparison.settings) > _NAMED:
        yield sentence(f"... and {count(len(comparison.settings) - _NAMED, 'other difference')}.", "quiet")


def setting_figures(comparison: Comparison, which: str) -> Iterator[Figure | Fact]:
    """A ratio for each difference, with its verdict on the setting.

    Args:
        which: what follows each label, to name the baseline.
    """
    for of in comparison.settings:
        label = f"Setting{which}"
        if of.ratio is None:
            yield fact(label, f"no ratio of {_short(of.difference.words)}: {of.reason}", "warn")
            continue
        verdict = of.ratio.verdict
        word = [sentence(verdict.words, _TONES.get(verdict.word, ""), strong=True)] if verdict.word else []
        around = f"; 95 %: {bounds(verdict.low, verdict.high)}, margin {percent(comparison.margin)}"
        reason = f"; no interval: {verdict.reason}" if verdict.reason else around
        about = f"{_short(of.difference.words)}, {_unit(comparison)}, over {_over(of)}{reason}"
        yield Figure(label, Cell(f"{ratio(of.ratio.value)}x", of.ratio.value), (*word, sentence(about)))


def setting_word(job: JobRatio) -> str:
    """What follows a verdict: ": bf16 against fp32"; empty for the same workload."""
    return f": {_short(job.difference.words)}" if job.difference else ""


def _ratio_words(of: SettingRatio) -> str:
    assert of.ratio
    verdict = of.ratio.verdict
    around = f"{bounds(verdict.low, verdict.high)}, " if verdict.low is not None else ""
    judged = f" ({around}{verdict.word})" if verdict.word else " (no verdict)"
    return f"{_short(of.difference.here_words)} is {ratio(of.ratio.value)}x{judged} {_short(of.difference.base_words)}"


def _over(of: SettingRatio) -> str:
    names = ", ".join(few([one_line(name) for name in of.jobs], _NAMED))
    return f"{count(len(of.jobs), 'job')} ({names})"


def _unit(comparison: Comparison) -> str:
    return "per GPU" if any(comparison.overall.gpus) else "per task"


def _short(words: str) -> str:
    return one_line(words, _VALUE)
