"""Ratios of two runs, worst first, on a logarithmic axis: of all jobs, per GPU and per machine, and of each job."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from benchsuite.errors import ResultError, UsageError
from benchsuite.report.format import bounds, count, few, one_line, ratio
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.axes import GREY, caption
from benchsuite.report.show.machine_name import machine_name, samples_words
from benchsuite.report.show.sections.against import apart_words, withheld_words
from benchsuite.report.stats.compare import Comparison, compare
from benchsuite.report.stats.overall import Ratio
from benchsuite.report.stats.ratios import JobRatio
from benchsuite.report.stats.samples import job_mean, repeat_rates
from benchsuite.report.stats.systems import measured_by_another
from benchsuite.report.stats.verdict import Verdict
from benchsuite.report.stats.weights import weigh, weights_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from benchsuite.report.plots import Source

_MOST_JOBS = 120
_NAMED = 4
# Verdict -> colour, marker, meaning.
_MARKS = {
    "FASTER": ("#0072B2", ">", "faster"),
    "SLOWER": ("#D55E00", "<", "slower"),
    "SAME": ("#000000", "s", "the same"),
    "AMBIGUOUS": ("#555555", "o", "ambiguous"),
    "": (GREY, "o", "no verdict"),
}
_UNLIKE = "another workload"


@dataclass(frozen=True)
class _Line:
    """One row: a ratio with its verdict and the repeats behind it; `value` is None for a job that fails."""

    name: str
    value: float | None
    verdict: Verdict
    repeats: tuple[float, ...] = ()
    unlike: bool = False


def draw(source: Source) -> Figure:
    """One row for each ratio; right of 1 this run is faster than the baseline.

    Raises:
        UsageError: there is no baseline.
        ResultError: no job has a ratio.
    """
    if source.base is None:
        raise UsageError("--kind compare: needs --base, a baseline, a summary file or another results folder")
    weighing = weigh(weights_for(source.summary.profile, None), source.summary)
    comparison = compare(source.summary, source.base, weighing, source.base_name, unlike=source.compare_unlike)
    ratios = [job for job in comparison.jobs if job.ratio and not job.excluded]
    if not ratios:
        remedy = (
            "; --compare-unlike compares other workloads too" if any(job.refused for job in comparison.jobs) else ""
        )
        name = one_line(source.base_name)
        raise ResultError(f"{source.summary.source}: no job has a ratio to {name} to plot{remedy}")
    failing = [_Line(job.name, None, job.verdict) for job in comparison.jobs if job.verdict.word in _FAILS]
    jobs = [_line(job, source.summary, source.base) for job in sorted(ratios, key=lambda job: job.ratio or 0.0)]
    overall = list(_overall(comparison))
    shown = [*overall, *failing, *jobs][: _MOST_JOBS + len(overall)]
    figure = Figure(figsize=(10.0, 1.9 + 0.27 * len(shown)), layout="constrained")
    axes = figure.subplots()
    _scale(axes, [end for line in shown for end in (line.value, line.verdict.low, line.verdict.high, *line.repeats)])
    for place, line in enumerate(shown):
        _row(axes, place, line)
    if overall:
        axes.axhline(len(overall) - 0.5, color="0.4", linewidth=0.8)
    _names(axes, shown, len(overall), bool(source.summary.gpus_used))
    _legend(axes, shown)
    left = [line.name for line in [*failing, *jobs][_MOST_JOBS:]]
    caption(figure, _title(source), list(_notes(source, comparison, left)))
    return figure


_FAILS = ("FAILS", "BASE FAILS")


def _overall(comparison: Comparison) -> Iterator[_Line]:
    found = comparison.overall
    machine, per_gpu = found.machine, found.per_gpu
    of = f"all {count(len(found.jobs), 'job')}" if not found.withheld else count(len(found.jobs), "job")
    unlike = any(job.forced and job.name in found.jobs for job in comparison.jobs)
    if machine and any(found.gpus):
        name = f"whole machine, {count(found.gpus[0], 'GPU')} against {found.gpus[1]}"
        yield _of_ratio(name, machine, unlike)
    if per_gpu:
        yield _of_ratio(f"per {'GPU' if any(found.gpus) else 'task'}, {of}", per_gpu, unlike)
    for setting in comparison.settings:
        if setting.ratio:
            yield _of_ratio(f"{setting.difference.words}, {count(len(setting.jobs), 'job')}", setting.ratio, False)


def _of_ratio(name: str, found: Ratio, unlike: bool) -> _Line:
    return _Line(name, found.value, found.verdict, unlike=unlike)


def _line(ratio_of: JobRatio, summary: Summary, base: Summary) -> _Line:
    """A job with the ratio of each of its repeats to the mean of the baseline's."""
    job = next(job for job in summary.jobs if job.name == ratio_of.name)
    other = next(job for job in base.jobs if job.name == ratio_of.name)
    mean = job_mean(other)
    rate = (mean.rate if mean else other.perf) or other.perf or 0.0
    rates = repeat_rates(job).values() if rate else ()
    scale = ratio_of.factor / (rate * ratio_of.base_factor) if rate else 0.0
    repeats = tuple(one * scale for one in rates if one > 0)
    name = f"{job.name}: {ratio_of.difference.words}" if ratio_of.difference else job.name
    return _Line(name, ratio_of.ratio, ratio_of.verdict, repeats if len(repeats) > 1 else (), ratio_of.forced)


def _mark(line: _Line) -> tuple[str, str, str]:
    if line.unlike:
        return GREY, "D", _UNLIKE
    return _MARKS.get(line.verdict.word or "", _MARKS[""])


def _row(axes: Axes, place: int, line: _Line) -> None:
    colour, marker, _ = _mark(line)
    low, high = line.verdict.low, line.verdict.high
    text = f"{ratio(line.value)}   {bounds(low, high)}" if low is not None else ratio(line.value)
    if line.verdict.identical:
        text = f"{ratio(line.value)}   identical"
    if line.value is None:
        text, colour = f"{line.verdict.word}: {one_line(line.verdict.reason, 60)}", "#B3261E"
    else:
        if low is not None and high is not None and not line.verdict.identical:
            axes.errorbar([line.value], [place], xerr=[[line.value - low], [high - line.value]], fmt="none",
                          ecolor=colour, elinewidth=2, capsize=3)  # fmt: skip
        if line.repeats:
            axes.plot(line.repeats, [place] * len(line.repeats), "|", color="0.2", markersize=7, alpha=0.6)
        face = "white" if line.unlike or line.verdict.word == "AMBIGUOUS" else colour
        axes.plot([line.value], [place], marker, color=colour, markerfacecolor=face, markersize=6)
    ink = colour if line.value is None else "k"
    axes.annotate(text, (1.0, place), xycoords=("axes fraction", "data"), xytext=(6, 0), textcoords="offset points",
                  va="center", fontsize="small", color=ink, parse_math=False)  # fmt: skip


def _names(axes: Axes, shown: Sequence[_Line], bold: int, gpus: bool) -> None:
    axes.set_yticks(range(len(shown)), [one_line(line.name, 50) for line in shown])
    for place, label in enumerate(axes.get_yticklabels()):
        label.set_parse_math(False)
        label.set_fontweight("bold" if place < bold else "normal")
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.axvline(1.0, color="0.4", linewidth=1, zorder=1)
    per = "per GPU" if gpus else "per task"
    axes.set_xlabel(f"ratio of speed {per}, above 1 is faster than the baseline (logarithmic)")


def _legend(axes: Axes, shown: Sequence[_Line]) -> None:
    marks = dict.fromkeys(_mark(line) for line in shown if line.value is not None)
    handles = [
        Line2D([], [], linestyle="none", color=colour, marker=marker, label=meaning,
               markerfacecolor="white" if meaning in (_UNLIKE, "ambiguous") else colour)
        for colour, marker, meaning in marks
    ]  # fmt: skip
    if any(line.repeats for line in shown):
        handles.append(Line2D([], [], linestyle="none", color="0.2", alpha=0.6, marker="|", label="each repeat"))
    if any(line.verdict.low is not None for line in shown):
        handles.append(Line2D([], [], color="0.4", linewidth=2, label="95 % interval"))
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=7, fontsize="small", frameon=False,
                borderaxespad=0.2, handletextpad=0.3, columnspacing=1.2)  # fmt: skip


def _scale(axes: Axes, ends: Sequence[float | None]) -> None:
    """A logarithmic axis around all ends and 1, at least 5 % wide on each side of 1."""
    logs = [math.log(end) for end in ends if end]
    low, high = min(0.0, *logs), max(0.0, *logs)
    margin = max(0.05 * (high - low), math.log(1.05))
    axes.set_xscale("log")
    axes.set_xlim(math.exp(low - margin), math.exp(high + margin))
    reach = math.exp(high - low)
    if reach < 5:
        axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    elif reach < 100:  # decades alone would leave the axis almost without numbers
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}" if math.isfinite(value) else ""))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="x", alpha=0.3)


def _title(source: Source) -> str:
    assert source.base
    base = source.base.source if source.base.sessions else PurePath(source.base_name).name
    profile = f", profile {source.summary.profile.name}" if source.summary.profile else ""
    here = f"{machine_name(source.summary)} ({source.summary.source})"
    there = machine_name(source.base)
    return f"{here} against {base}{'' if there.startswith(base) else f' ({there})'}{profile}"


def _notes(source: Source, comparison: Comparison, beyond: Sequence[str]) -> Iterator[str]:
    """The samples behind the figure, and each job that it leaves out, with the reason."""
    assert source.base
    yield f"n: {samples_words(source.summary)} here, {samples_words(source.base)} in the baseline."
    if foreign := measured_by_another(source.summary, source.base, source.base_name):
        yield f"The ratios are rough: {foreign}."
    found = comparison.overall
    if found.per_gpu is None:
        yield f"No ratio over all jobs: {withheld_words(found, brief=True)}."
    elif found.apart:
        yield f"Not in the ratios over all jobs: {apart_words(found)}."
    if found.per_gpu and found.machine is None and found.machine_withheld:
        yield f"No ratio of the whole machines: {one_line(found.machine_withheld)}."
    yield from _without_verdict(comparison)
    left_out: dict[str, list[str]] = defaultdict(list)
    for name, why in _left_out(comparison):
        left_out[why].append(one_line(name, 40))
    for why, names in left_out.items():
        yield f"Left out, {why}: {', '.join(few(names, _NAMED))}."
    if beyond:
        yield f"Left out, {len(beyond)} jobs with the largest ratios: {', '.join(few(beyond, _NAMED))}."


def _without_verdict(comparison: Comparison) -> Iterator[str]:
    without: dict[str, list[str]] = defaultdict(list)
    for job in comparison.jobs:
        if job.ratio and not job.excluded and job.verdict.reason:
            without[job.verdict.reason].append(one_line(job.name, 40))
    for why, names in without.items():
        yield f"No verdict, {one_line(why)}: {', '.join(few(names, _NAMED))}."


def _left_out(comparison: Comparison) -> Iterator[tuple[str, str]]:
    for job in comparison.jobs:
        if job.excluded:
            yield job.name, one_line(job.excluded, 80)
        elif job.refused:
            fields = f": {one_line(', '.join(job.fields), 60)}" if job.fields else ""
            yield job.name, f"{_UNLIKE}{fields}"
        elif not job.ratio and job.verdict.word not in _FAILS:
            yield job.name, one_line(job.verdict.reason or "no number", 80)
    yield from ((name, "not in the baseline") for name in comparison.only_here)
    yield from ((name, "not in this run") for name in comparison.only_base)
