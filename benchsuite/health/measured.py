"""The figures of a run folder that the checks name, each with its place: a GPU, a link of two GPUs, or the node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from benchsuite.describe.tasks import Gpu
from benchsuite.health.probes import is_probe
from benchsuite.health.rules import Check, Rules
from benchsuite.measurement import Reading
from benchsuite.records import FAILURES
from benchsuite.report.read.load import INSUFFICIENT, Loaded, Row

LINKED = 2  # GPUs at the ends of a link
# States of tasks that a signal stopped, or kept from starting.
CUT_SHORT = ("interrupted", "not run")
_LINK = re.compile(r"(\d+)<?>(\d+)")


@dataclass(frozen=True)
class Place:
    """Where a figure was measured.

    Attributes:
        gpus: one GPU, both ends of a link, or none for the node.
        arrow: between the ends of a link, `>` or `<>`; empty for a GPU and for the node.
    """

    gpus: tuple[Gpu, ...] = ()
    arrow: str = ""

    @property
    def words(self) -> str:
        """ "GPU 3", "link 0>1" or "node"."""
        numbers = [str(gpu.visible_index) for gpu in self.gpus]
        if self.arrow:
            return f"link {self.arrow.join(numbers)}"
        return f"GPU {numbers[0]}" if numbers else "node"

    @property
    def gpu(self) -> Gpu | None:
        """The GPU, if the place is one."""
        return self.gpus[0] if len(self.gpus) == 1 else None


@dataclass
class Measured:
    """The figures of a check at one place, one for each repeat that has one.

    Attributes:
        values: in the unit of the check; words are in `said` instead.
        rows: the tasks that they come from.
    """

    check: str
    place: Place
    values: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row, value: float | str) -> None:
        """Add the figure of a task."""
        self.rows.append(row)
        if isinstance(value, str):
            self.said.append(value)
        else:
            self.values.append(value)


@dataclass(frozen=True)
class Gap:
    """A check without a figure.

    Attributes:
        missing: it was to be measured; false: it does not apply to this node, or another line reports the failure.
    """

    check: str
    place: Place
    reason: str
    missing: bool
    row: Row | None = None


@dataclass(frozen=True)
class Found:
    """What a run folder holds for the checks.

    Attributes:
        failed: the tasks that failed, of all jobs, without those that the model refuses to do.
    """

    measured: tuple[Measured, ...]
    gaps: tuple[Gap, ...]
    failed: tuple[Row, ...]


def place_of(row: Row) -> Place:
    """The place of a task: its GPU, or the node if it has none or several."""
    return Place(row.task.gpus) if len(row.task.gpus) == 1 else Place()


def figures(loaded: Loaded, rules: Rules) -> Found:
    """The figures of a run. A shipped check whose job is not in the plan makes neither a figure nor a gap."""
    measured: dict[tuple[str, Place], Measured] = {}
    gaps: dict[tuple[str, Place], Gap] = {}
    for name, check in rules.checks.items():
        rows = [row for row in loaded.rows if is_probe(row.task.job, check.job, exactly=bool(check.against))]
        if not rows and name in rules.own:
            gaps[name, Place()] = Gap(name, Place(), f"the run has no job '{check.job}'", missing=False)
        for row in rows:
            found = list(_values(row, check))
            for place, value in found:
                of = measured.setdefault((name, place), Measured(name, place))
                of.add(row, value)
            if not found:
                gaps.setdefault((name, place_of(row)), _gap(name, check, row))
    done = {(of.check, row.task.gpus) for of in measured.values() for row in of.rows}
    rest = tuple(
        gap
        for key, gap in gaps.items()
        if (key not in measured or gap.missing) and not (gap.row and _made_up_for(gap.row, gap.check, done))
    )
    failed = tuple(row for row in loaded.rows if row.status in FAILURES and not _refused(row))
    return Found(tuple(measured.values()), rest, failed)


def _made_up_for(row: Row, check: str, done: Set[tuple[str, tuple[Gpu, ...]]]) -> bool:
    """Whether a task was stopped, or never started, and another pass has the figure of the same GPUs."""
    return row.status in CUT_SHORT and (check, row.task.gpus) in done


def _gap(name: str, check: Check, row: Row) -> Gap:
    place, reason = place_of(row), row.reason or row.status
    least = row.task.job.placement.at_least
    if row.status == "skipped" and least > 1 and "at least" in reason:
        return Gap(name, place, _needs(least), missing=False, row=row)
    if row.status == "skipped" or _refused(row):
        return Gap(name, place, reason, missing=False, row=row)
    if row.status in FAILURES:
        return Gap(name, place, f"its probe {ended(row.status)}", missing=False, row=row)
    if check.reading is not None and row.result is not None and row.result.status == "ok":
        words, missing = _without(row, check, check.reading)
        return Gap(name, place, words, missing=missing, row=row)
    words = reason if row.status in (INSUFFICIENT, "not run") else f"{row.status}: {reason}"
    return Gap(name, place, words, missing=True, row=row)


def _without(row: Row, check: Check, name: str) -> tuple[str, bool]:
    """Why a result has no figure for a check, and whether it should have one."""
    reading = reading_of(row, name)
    if reading is None:
        return f"the result has no reading '{name}'", True
    if not row.task.gpus:
        return "the probe ran on no GPU", False
    if check.each == "link" and len(row.task.gpus) < LINKED:
        return _needs(LINKED), False
    if check.label is not None and check.label not in reading.labels:
        return f"the reading '{name}' has no value for {check.label}", True
    # Null on purpose: without a majority nobody knows which results are wrong; or two GPUs have no link.
    return f"the probe gives no value for '{name}'", False


def _needs(gpus: int) -> str:
    return f"it needs at least {gpus} GPUs"


def ended(status: str) -> str:
    """ "timed out", "ran out of memory" or "ended as 'failed'"."""
    return {"timeout": "timed out", "oom": "ran out of memory", "failed": "failed"}.get(status, f"ended as '{status}'")


def _refused(row: Row) -> bool:
    """Whether the probe does not exist for this hardware, such as products in fp8 on older cards: no fault of it."""
    error = row.result.error if row.result else None
    return row.status == "failed" and error is not None and error.kind == "model"


def _values(row: Row, check: Check) -> Iterator[tuple[Place, float | str]]:
    if check.reading is None:
        if row.perf is not None:
            yield place_of(row), row.perf * check.factor
        return
    if row.result is None or row.result.status != "ok":
        return
    reading = reading_of(row, check.reading)
    if reading is None:
        return
    if reading.value is not None:
        value = reading.value
        yield place_of(row), value if isinstance(value, str) else float(value) * check.factor
    for label, number in zip(reading.labels, reading.values, strict=False):
        if number is not None and check.label in (None, label):
            place = _labelled(row, check, label)
            if place is not None:
                yield place, float(number) * check.factor


def reading_of(row: Row, name: str) -> Reading | None:
    """The reading of the first rank that has it."""
    streams = row.result.measurement.streams if row.result else ()
    return next((stream.readings[name] for stream in streams if name in stream.readings), None)


def _labelled(row: Row, check: Check, label: str) -> Place | None:
    """The place that a label names; None if the task has no such GPU."""
    gpus = row.task.gpus
    if check.each == "task":
        return place_of(row)
    if check.each == "gpu":
        return Place((gpus[int(label)],)) if label.isdecimal() and int(label) < len(gpus) else None
    if not (ends := _LINK.fullmatch(label)):
        return None
    numbers = [int(ends[1]), int(ends[2])]
    if max(numbers) >= len(gpus):
        return None
    return Place(tuple(gpus[n] for n in numbers), "<>" if "<>" in label else ">")
