"""The row of key numbers below the verdict: speed, scores, tasks and GPUs, and a price or power if the user asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from benchsuite.report.format import around, count, number, one_line
from benchsuite.report.read.load import INSUFFICIENT
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Document, Tone
from benchsuite.report.show.report import Report
from benchsuite.report.stats.smoke import smoke_check

# The figures of a price and of power begin like this.
_ASKED = ("Price", "Machine score / watt", "Score / watt")


@dataclass(frozen=True)
class KeyNumber:
    """A number under its label, with a remark beside it."""

    label: str
    value: str
    beside: str = ""
    tone: Tone = ""


def key_numbers(report: Report, document: Document) -> Iterator[KeyNumber]:
    """The numbers that a reader looks for first."""
    summary, score = report.summary, report.score
    if check := smoke_check(summary):
        yield KeyNumber(
            "Jobs that train", f"{check.train:,} of {len(check.jobs):,}", tone="bad" if check.failed else ""
        )
    elif summary.jobs and score.value is None:
        yield KeyNumber("Score", "none", tone="warn")
    elif summary.jobs:
        spread = around(score.interval, score.speed) if score.interval else "no interval"
        yield KeyNumber("Speed per GPU" if summary.gpus_used else "Speed", number(score.speed), spread)
        if report.price is not None and score.machine is not None:
            yield KeyNumber("Machine score", number(score.machine), "with penalties")
        elif score.machine_speed is not None and summary.gpus_used > 1:
            yield KeyNumber("Speed of the machine", number(score.machine_speed))
        yield KeyNumber(
            "Score per GPU, with penalties" if summary.gpus_used else "Score, with penalties", number(score.value)
        )
    if score.n:
        yield _tasks(report)
    yield _gpus(summary)
    for figure in document.score.figures if document.score else ():
        if figure.label.startswith(_ASKED):
            fails = score.verdict == "FAIL" and figure.value.value is not None
            yield KeyNumber(figure.label, figure.value.text, "FAIL" if fails else "", "bad" if fails else "")


def _tasks(report: Report) -> KeyNumber:
    score = report.score
    ok = score.ended - score.fail
    left = f", {score.n - score.ended:,} to run" if score.n > score.ended else ""
    statuses = (task.status for job in report.summary.jobs for task in job.tasks)
    short = min(score.fail, sum(status == INSUFFICIENT for status in statuses))
    too_short = f", {short:,} too short for a number" if short else ""
    failed = score.fail - short
    return KeyNumber("Tasks", f"{ok:,} ok", f"{failed:,} failed{too_short}{left}", "bad" if failed else "")


def _gpus(summary: Summary) -> KeyNumber:
    models = Counter(gpu.name for machine in summary.machines for gpu in machine.gpus if gpu.uuid in machine.visible)
    if not summary.gpus_used:
        return KeyNumber("Machine", "no GPU", one_line(summary.machine.cpu) if summary.machine else "")
    names = ", ".join(one_line(name) for name in models)
    return KeyNumber(
        "GPUs", f"{summary.gpus_used:,}", f"x {names}" if names else count(len(summary.machines), "machine")
    )
