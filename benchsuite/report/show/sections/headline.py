"""The first sentence of a report: what the machine is worth, what fails, and what varies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from benchsuite.report.format import around, bounds, count, few, number, one_line, percent, ratio
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.show.document import Sentence, Span, Tone, sentence
from benchsuite.report.show.sections.failures import never_place
from benchsuite.report.show.sections.named_difference import only_settings, setting_clause
from benchsuite.report.show.sections.origin import hardware
from benchsuite.report.show.sections.smoke import smoke_lead
from benchsuite.report.show.sections.trainings import trainings_lead
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.overall import Overall, Ratio
from benchsuite.report.stats.score import Score
from benchsuite.report.stats.sweeps import sweeps

# The numbers of failed jobs, of jobs behind a count of failures, and of baselines that are named.
_WORST, _FAILED, _BASELINES = 2, 3, 2
_RUNS_OUT = "runs out of memory at batch"
# A name up to this length stands in full.
_NAME = 24
# Below this standard deviation no job is worth naming as the one that varies most.
_VARIES = 0.01


def headline(summary: Summary, score: Score, comparisons: Sequence[Comparison]) -> Sentence:
    """One sentence: failures first, else the ratios to the baselines, else the score."""
    if trained := trainings_lead(summary):
        return trained
    if not summary.jobs:
        return sentence("Nothing to score: no job has a result.", "bad", strong=True)
    if (check := smoke_lead(summary)) and not only_settings(comparisons):
        return check[0]
    if check:
        return sentence(f"{hardware(summary)}: {setting_clause(comparisons[0])}.", strong=True)
    spans = list(_verdict(summary, score, comparisons))
    clauses = (
        _failures(summary, score, "".join(span.text for span in spans)),
        "no score" if score.reason and score.verdict == "FAIL" else "",
        _base_fails(comparisons),
        _varies(summary, score),
    )
    rest = [clause for clause in clauses if clause]
    return Sentence((*spans, Span("".join(f"; {clause}" for clause in rest) + ".")))


def short_names(comparisons: Sequence[Comparison]) -> list[str]:
    """The name of each baseline, without its folder and suffix unless two would then be alike."""
    full = [one_line(comparison.name) for comparison in comparisons]
    brief = [PurePath(name).stem if name.endswith(".json") else PurePath(name).name or name for name in full]
    alike = Counter(brief)
    names = (one if alike[one] == 1 and "," not in whole else whole for one, whole in zip(brief, full, strict=True))
    return [name if len(name) <= _NAME else f"...{name[3 - _NAME :]}" for name in names]


def _verdict(summary: Summary, score: Score, comparisons: Sequence[Comparison]) -> Iterator[Span]:
    machine = hardware(summary)
    compared = _compared(comparisons)
    if score.unfinished:
        to_run, n = sum(job.to_run for job in summary.jobs), sum(job.n for job in summary.jobs)
        yield Span(f"{machine} is UNFINISHED", "warn", strong=True)
        yield Span(f": {to_run:,} of {count(n, 'task')} still to run")
        return
    if score.verdict == "FAIL" and (worst := _worst(summary, score)):
        yield Span(f"{worst} on {machine}", "bad", strong=True)
    elif score.verdict == "FAIL" and any(job.fail for job in summary.jobs):
        yield Span(f"{machine} FAILS", "bad", strong=True)
    elif score.reason:
        yield Span(f"{machine} has no score", "warn", strong=True)
        first, *others = score.blocking or (score.reason,)
        more = f" and {count(len(others), 'other reason')}" if others else ""
        yield Span(f": {one_line(first, 80)}{more}")
        return
    elif only_settings(comparisons):
        yield Span(f"{machine}: {setting_clause(comparisons[0])}", strong=True)
        return
    elif compared:
        yield Span(f"{machine} is {compared}", _tone(comparisons), strong=True)
        return
    else:
        yield Span(f"{machine}: {_scored(score)}", strong=True)
        if comparisons:
            yield Span(f"; no ratio to {' or '.join(few(short_names(comparisons), _BASELINES))}")
        return
    if compared or score.value is not None:
        yield Span(f"; {compared or _scored(score)}")


def _worst(summary: Summary, score: Score) -> str:
    """The jobs that succeed nowhere, or never on a GPU: "vae FAILS in 6 of 6 tasks".

    Batches of a sweep that do not fit in memory are no failures of their job: "a runs out of memory at batch 128".
    """
    large = _too_large(summary)
    rows = {row for of in large.values() for row in of}
    lost = [job for job in summary.jobs if job.fail and job.perf is None and not job.unlike_machines]
    lost = [job for job in lost if job.name not in rows]
    lost.sort(key=lambda job: -job.fail)
    found = [f"{one_line(job.name)} FAILS in {job.fail} of {count(job.n, 'task')}" for job in lost]
    found += [
        f"{one_line(never.job)} FAILS {never_place(never, summary)} in {never.n} of {count(never.n, 'task')}"
        for never in score.never
        if never.others_ok
    ]
    found += [
        f"{one_line(job)} {_RUNS_OUT} {', '.join(few(map(str, of.values()), _FAILED))}" for job, of in large.items()
    ]
    more = f" and {count(len(found) - _WORST, 'other')}" if len(found) > _WORST else ""
    return f"{', '.join(found[:_WORST])}{more}"


def _too_large(summary: Summary) -> dict[str, dict[str, int]]:
    """The sweeps in which a batch has no rate because it does not fit -> row -> batch."""
    found = {one.job: {p.row: p.batch for p in one.points if p.oom and p.rate is None} for one in sweeps(summary)}
    return {job: of for job, of in found.items() if of}


def _scored(score: Score) -> str:
    """ "score 4,214 (speed ±1.2 %) over 18 jobs"."""
    if score.value is None:
        return "no score"
    spread = (
        f"speed {around(score.interval, score.speed)}" if score.interval else "PROVISIONAL" if score.provisional else ""
    )
    over = f"{score.scored} of {count(score.weighed, 'job')} only" if score.partial else count(score.scored, "job")
    return f"score {number(score.value)}{f' ({spread})' if spread else ''} over {over}"


def _compared(comparisons: Sequence[Comparison]) -> str:
    """The ratios to the first baselines, of the machines and per GPU; empty without a ratio."""
    names = short_names(comparisons)
    found = [(name, of) for name, of in zip(names, comparisons, strict=True) if of.overall.per_gpu]
    if not found:
        return ""
    without = [name for name, of in zip(names, comparisons, strict=True) if not of.overall.per_gpu]
    none = f", no ratio to {' or '.join(few(without, _BASELINES))}" if without else ""
    if len(found) == 1:
        name, one = found[0]
        return f"{_one(name, one)}{none}"
    more = f" ({len(found) - _BASELINES} more below)" if len(found) > _BASELINES else ""
    shown = found[:_BASELINES]
    machines = " and ".join(f"{_value(of.overall.machine)} {name}{_word(of.overall.machine)}" for name, of in shown)
    each = " and ".join(
        f"{_value(of.overall.per_gpu)}{_word(of.overall.per_gpu) or ' (no verdict)'}" for _, of in shown
    )
    return f"{machines} as a machine, {each} {_unit(shown[0][1].overall)}{more}{none}"


def _one(name: str, comparison: Comparison) -> str:
    """ "1.65x (1.58 to 1.72, FASTER) v100 as a machine, 0.84x a GPU (SLOWER)"."""
    found = comparison.overall
    assert found.per_gpu
    part = f", over {len(found.jobs)} of {count(found.suite, 'job')} only" if len(found.jobs) < found.suite else ""
    judged = found.per_gpu.verdict.word is not None
    none = "" if judged else " (no verdict)"
    own, unit = found.per_gpu, _unit(found)
    if found.machine is None:
        return f"{_with_bounds(own)} {name} {unit}, no ratio as a machine{none}{part}"
    machine = f"{_with_bounds(found.machine)} {name} as a machine"
    if _with_bounds(found.machine) == _with_bounds(own):
        return f"{machine} and {unit}{none}{part}"
    return f"{machine}, {_value(own)} {unit}{_word(own) or none}{part}"


def _unit(found: Overall) -> str:
    return "a GPU" if any(found.gpus) else "a task"


def _value(found: Ratio | None) -> str:
    return f"{ratio(found.value)}x" if found else "n/a"


def _word(found: Ratio | None) -> str:
    return f" ({found.verdict.word})" if found and found.verdict.word else ""


def _with_bounds(found: Ratio) -> str:
    """The ratio with its interval and the verdict's word."""
    verdict = found.verdict
    if verdict.word is None:
        return _value(found)
    around = "" if verdict.identical or verdict.low is None else f"{bounds(verdict.low, verdict.high)}, "
    return f"{_value(found)} ({around}{verdict.word})"


def _tone(comparisons: Sequence[Comparison]) -> Tone:
    """Of the only baseline's verdict on the machine; none with several baselines."""
    found = [one.overall.machine or one.overall.per_gpu for one in comparisons]
    word = found[0].verdict.word if len(found) == 1 and found[0] else None
    return "good" if word == "FASTER" else "bad" if word == "SLOWER" else "warn" if word == "AMBIGUOUS" else ""


def _failures(summary: Summary, score: Score, said: str) -> str:
    """ "3 of 54 tasks failed (convnet 2 of 6, vae 1 of 6)", or "no failures".

    Args:
        said: the sentence so far, in which the jobs that fail throughout stand with their tasks.
    """
    jobs = sorted((job for job in summary.jobs if job.fail), key=lambda job: -job.fail / job.ended)
    so_far = " so far" if score.unfinished else ""
    if not jobs:
        return f"no failures{so_far}"
    total = sum(job.fail for job in jobs)
    large = {row for of in _too_large(summary).values() for row in of} if _RUNS_OUT in said else set()
    named = [_share(job) for job in jobs if job.name not in large and f"{one_line(job.name)} FAILS in" not in said]
    also = "also " if len(named) < len(jobs) else ""
    beside = f" ({also}{', '.join(few(named, _FAILED))})" if named else ""
    return f"{total:,} of {count(score.ended, 'task')} failed{so_far}{beside}"


def _share(job: JobSummary) -> str:
    return f"{one_line(job.name)} {job.fail} of {job.ended}"


def _base_fails(comparisons: Sequence[Comparison]) -> str:
    """The baselines that FAIL, are incomplete, or are still measured."""
    found = []
    for name, one in zip(short_names(comparisons), comparisons, strict=True):
        fails = one.base_score.verdict == "FAIL" and any(job.fail for job in one.base.jobs)
        if fails or one.base_score.blocking:
            found.append(f"baseline {name} {'FAILS' if fails else 'is incomplete'}")
    return ", ".join(few(found, _BASELINES))


def _varies(summary: Summary, score: Score) -> str:
    """The weighed job whose tasks differ most; empty for one job, without a score, or if none varies."""
    found = [(job.std, job.name) for job in summary.jobs if job.std is not None and score.weighing.jobs.get(job.name)]
    if score.value is None or score.unfinished or len(found) < 2:
        return ""
    std, name = max(found, key=lambda one: one[0] or 0.0)
    if (std or 0.0) < _VARIES:
        return f"every job varies by under {percent(_VARIES, 0)}"
    return f"{one_line(name)} varies most ({percent(std, 0)})"
