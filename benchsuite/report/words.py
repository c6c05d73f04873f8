"""One result in one line. Light to import: no pandas."""

from __future__ import annotations

from benchsuite.records import Result
from benchsuite.report.window import task_window


def figure(result: Result) -> str:
    """A result's throughput with what it rests on, or why it has none."""
    if result.status != "ok":
        return result.error.message if result.error else result.status
    window = task_window(result)
    if window.perf is None:
        return f"no figure: {window.reason}"
    unit = result.measurement.streams[0].unit
    shaky = "" if window.steady else ", not steady"
    return f"{rate(window.perf)} {unit}/s ({window.slices} slices, {window.seconds:.1f} s{shaky})"


def rate(value: float) -> str:
    """A throughput at about five significant digits."""
    return f"{value:,.0f}" if value >= 10_000 else f"{value:,.2f}" if value >= 1 else f"{value:.4g}"
