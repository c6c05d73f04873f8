"""All that a run's folder holds, read once for all checks."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchsuite import manifest
from benchsuite.describe.tasks import Task
from benchsuite.errors import ResultError
from benchsuite.records import Result, Run
from benchsuite.report.read.load import Loaded, load
from benchsuite.report.read.summary import Summary
from benchsuite.report.stats.summarise import summarise
from benchsuite.rundir import Attempt, RunDir

Kept = tuple[Path, Result]


@dataclass(frozen=True)
class Evidence:
    """`tasks` is None if plan.json is missing or damaged, `attempts` if attempts.jsonl is. `kept` holds all results but
    reruns, also those of interrupted attempts. `counted` holds those that stand for a planned task."""

    path: Path
    loaded: Loaded
    summary: Summary
    tasks: Sequence[Task] | None
    attempts: Sequence[Attempt] | None
    seal: manifest.Seal | None

    @property
    def run(self) -> Run | None:
        return self.loaded.run

    @property
    def kept(self) -> Sequence[Kept]:
        return self.loaded.kept

    @property
    def counted(self) -> list[Result]:
        return [row.result for row in self.loaded.rows if row.result]

    @property
    def measured(self) -> list[Result]:
        """The counted results of tasks that reached their measurement."""
        return [result for result in self.counted if result.measurement.streams]


def gather(path: Path) -> Evidence:
    """Read a run's folder.

    Raises:
        ResultError: no such folder, nothing of a run in it, or it holds several.
    """
    if path.is_file():
        raise ResultError(f"{path}: a file cannot be verified; name the folder that 'benchsuite jobs' wrote")
    loaded = load(path)
    folder, tasks, attempts = RunDir(path), None, None
    with contextlib.suppress(ResultError):
        tasks = folder.plan().tasks
    with contextlib.suppress(OSError):
        attempts = folder.attempts() if (path / "attempts.jsonl").exists() else None
    return Evidence(
        path=path,
        loaded=loaded,
        summary=summarise(loaded),
        tasks=tasks,
        attempts=attempts,
        seal=manifest.read(path),
    )
