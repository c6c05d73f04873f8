"""How far the run in a node's folder has come, read from its plan and its attempts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchsuite.errors import ResultError
from benchsuite.rundir import RunDir


@dataclass(frozen=True)
class Tally:
    """The tasks of a run.

    Attributes:
        total: all tasks of the plan.
        statuses: the number of ended tasks of each status. A task that was interrupted has not ended.
        now: the task that has started and not ended; None if there is none.
    """

    total: int
    statuses: Counter[str]
    now: str | None = None

    @property
    def ended(self) -> int:
        return self.statuses.total()

    @property
    def complete(self) -> bool:
        return self.ended >= self.total

    @property
    def words(self) -> str:
        """Such as "20 tasks: 18 ok, 2 failed"; with tasks to come "12 of 20 tasks: 12 ok"."""
        of = "" if self.complete else f"{self.ended} of "
        found = ", ".join(f"{count} {status}" for status, count in self.statuses.most_common())
        return f"{of}{self.total} {'task' if self.total == 1 else 'tasks'}" + (f": {found}" if found else "")


class Tallies:
    """Reads how far runs have come, and each plan only once for as long as it stays the same."""

    def __init__(self) -> None:
        self._totals: dict[Path, tuple[int, frozenset[str]]] = {}

    def of(self, folder: Path) -> Tally | None:
        """How far the run in a folder has come; None if no run has begun there."""
        try:
            planned = self._planned(folder)
            lines = RunDir(folder).attempts()
        except (OSError, ResultError):  # it is being written
            return None
        first: dict[str, str] = {}
        open_tasks: dict[str, None] = {}
        for line in lines:
            if line.event != "end":
                open_tasks[line.task] = None
                continue
            open_tasks.pop(line.task, None)
            if line.status and line.status != "interrupted":
                first.setdefault(line.task, line.status)
        statuses = Counter(status for task, status in first.items() if task in planned)
        return Tally(len(planned), statuses, next(reversed(open_tasks), None))

    def _planned(self, folder: Path) -> frozenset[str]:
        """The ids of the planned tasks. A resume with more repeats replaces the plan.

        Raises:
            OSError, ResultError: there is no plan, or it cannot be read.
        """
        written = (folder / "plan.json").stat().st_mtime_ns
        before = self._totals.get(folder)
        if before is None or before[0] != written:
            before = written, frozenset(task.id for task in RunDir(folder).plan().tasks)
            self._totals[folder] = before
        return before[1]
