"""One result in one line. Light to import: no pandas."""

from __future__ import annotations

from benchsuite.records import Result
from benchsuite.report.measure.window import task_window
from benchsuite.report.show.format import number, one_line


def figure(result: Result) -> str:
    """A result's throughput with what it rests on, or why it has none."""
    if result.status != "ok":
        return one_line(result.error.message, 400) if result.error else result.status
    window = task_window(result)
    if window.perf is None:
        return f"no figure: {window.reason}"
    unit = one_line(result.measurement.streams[0].unit)
    shaky = "" if window.steady else ", not steady"
    return f"{number(window.perf)} {unit}/s ({window.slices} slices, {window.seconds:.1f} s{shaky})"
