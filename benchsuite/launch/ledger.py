"""What a run writes about its tasks: a line at each start and end, and exactly one result."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from benchsuite.describe.tasks import Task
from benchsuite.errors import reason
from benchsuite.host.kernel_files import started_ticks
from benchsuite.launch.process import Tree
from benchsuite.measurement import read_boot_id
from benchsuite.records import Result
from benchsuite.rundir import Attempt, RunDir, write_result

# The disk is full, or the quota of the user is used up.
FULL = (errno.ENOSPC, errno.EDQUOT)


class NoRoom(Exception):
    """The disk is full, or the user's quota is used up."""


class Ledger:
    """Writes the attempts and results of one invocation.

    Args:
        attempts: the number of this attempt at a task, by task id; 1 for a task that is not in it.
    """

    def __init__(self, rundir: RunDir, attempts: Mapping[str, int] | None = None) -> None:
        self.rundir = rundir
        self._attempts = attempts or {}
        self._boot_id = read_boot_id()
        self._parent = os.getpid(), started_ticks(os.getpid())

    def attempt(self, task: Task) -> int:
        """The number of this attempt at a task."""
        return self._attempts.get(task.id, 1)

    def log(self, task: Task, what: str) -> Path:
        """This attempt's file below `logs/`, see `RunDir.log`."""
        return self.rundir.log(task, self.attempt(task), what)

    def checkpoints(self, task: Task) -> Path | None:
        """The path of this attempt's checkpoints, see `RunDir.checkpoints`; None for a task that writes none."""
        if not task.job.by_epochs or task.job.checkpoints == "none":
            return None
        return self.rundir.checkpoints(task, self.attempt(task))

    def began(self, event: str, task: Task, tree: Tree | None) -> None:
        """Note a started process and this one, its parent; pid, boot and start time identify both later.

        Args:
            tree: the process; None for a task over nodes, whose processes the agents start.

        Raises:
            OSError: the line cannot be written.
        """
        self.rundir.note_attempt(
            Attempt(
                event=event,
                task=task.id,
                attempt=self.attempt(task),
                at=_now().isoformat(),
                monotonic_s=time.monotonic(),
                boot_id=self._boot_id,
                pid=tree.pid if tree else None,
                ticks=tree.ticks if tree else None,
                parent_pid=self._parent[0],
                parent_ticks=self._parent[1],
                mark=tree.mark if tree else None,
            )
        )

    def keep(self, result: Result) -> tuple[Path | None, str | None]:
        """Write a result and note the end of its task.

        Returns:
            The file, and why something could not be written. Without a file the result is lost, which the report
            counts as a failure.

        Raises:
            NoRoom: the disk is full. Nothing is noted; the result can be written later.
        """
        path, problem = None, None
        try:
            path = write_result(self.rundir.path, result, _now())
        except OSError as error:
            if error.errno in FULL:
                raise NoRoom from None
            where = error.filename or self.rundir.path
            problem = f"{where}: the result could not be written: {reason(error)}"
        end = Attempt(
            event="end",
            task=result.task.id,
            attempt=self.attempt(result.task),
            at=_now().isoformat(),
            status=result.status if path else "lost",
            result=path.name if path else None,
        )
        try:
            self.rundir.note_attempt(end)
        except OSError as error:
            problem = f"{self.rundir.path / 'attempts.jsonl'}: could not be written: {reason(error)}"
        return path, problem


def _now() -> datetime:
    return datetime.now(timezone.utc)
