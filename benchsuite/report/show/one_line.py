"""One result in one line. Light to import: no pandas."""

from __future__ import annotations

from dataclasses import dataclass

from benchsuite.records import Result
from benchsuite.report.format import count, number, one_line
from benchsuite.report.measure.window import task_window
from benchsuite.report.read.trainings import training
from benchsuite.report.show.readings import readings_words
from benchsuite.report.show.sections.flops import mfu_words
from benchsuite.report.stats.mfu import result_mfu


@dataclass(frozen=True)
class Figure:
    """A result's throughput with its slices and seconds, or the reason why it has no throughput."""

    words: str
    has_figure: bool = False


def traced_figure(result: Result) -> Figure:
    """What one traced result holds: the time of a step, recorded and not."""
    traced = next((stream.traced for stream in result.measurement.streams if stream.traced), None)
    if result.status != "ok" or traced is None:
        return figure(result)
    recorded_s = traced.elapsed_s / traced.steps
    before = "" if traced.step_s is None else f"; an unrecorded step takes {number(1e3 * traced.step_s)} ms"
    steps = "1 step" if traced.steps == 1 else f"{traced.steps} steps"
    return Figure(f"recorded {steps} of {number(1e3 * recorded_s)} ms{before}", has_figure=True)


def figure(result: Result) -> Figure:
    """The figure of one result."""
    if result.status != "ok":
        return Figure(one_line(result.error.message, 400) if result.error else result.status)
    if result.task.job.by_epochs:
        return _trained(result)
    window = task_window(result)
    more = f"; {found}" if (found := readings_words(result)) else ""
    if window.perf is None:
        return Figure(f"no number: {window.reason}{more}")
    unit = one_line(result.measurement.streams[0].unit)
    shaky = "" if window.steady else ", not steady"
    words = f"{number(window.perf)} {unit}/s ({window.slices} slices, {window.seconds:.1f} s{shaky})"
    used = _mfu(result, window.perf)
    return Figure(f"{words}, {used}{more}" if used else f"{words}{more}", has_figure=True)


def _trained(result: Result) -> Figure:
    """How far a training by epochs went."""
    found = training(result.task.id, result)
    aim = "" if found.target is None else f", {found.target} {'met' if found.met else 'not met'}"
    curve = [(one.loss, "loss") for one in found.epochs[-1:]] + [(one.bleu, "BLEU") for one in found.epochs[-1:]]
    last = "".join(f", {what} {number(value)}" for value, what in curve if value is not None)
    return Figure(f"{count(len(found.epochs), 'epoch')} in {number(found.trained_s)} s{last}{aim}", has_figure=True)


def _mfu(result: Result, rate: float) -> str:
    """The MFU of a result, or the error that it shows; empty if there is none, or a file of cards is not valid."""
    found = result_mfu(result, rate)
    if found is None:
        return ""
    return f"MFU: {one_line(found.reason, 400)}" if found.impossible else mfu_words(found)
