"""What runs for a task, on one machine or over nodes: what it reports, its time limit, and the words said to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchsuite.describe.tasks import Task
from benchsuite.launch.context import WaveContext
from benchsuite.launch.supervise import Ended, Exit
from benchsuite.launch.worker_events import EventFiles, TaskEvents

# A task that has measured and only holds is stopped at its deadline, and has this long to write its last event.
LAST_WORDS_S = 30.0


class Working:
    """The running processes of a task. A subclass starts and ends them.

    Args:
        attempt: the number of this attempt at the task.
        err: the file with what the processes print on stderr.
        events: their event files.
        asked_to_stop: has the user asked for the end of the run?

    Attributes:
        go_s: when the processes were allowed to begin, on CLOCK_MONOTONIC; None before.
        started_s: when they were started, on CLOCK_MONOTONIC.
        deadline_s: when they must have ended, on CLOCK_MONOTONIC.
        exit: how they went; None until `finish`.
    """

    def __init__(
        self,
        task: Task,
        attempt: int,
        wave: WaveContext,
        err: Path,
        events: EventFiles,
        asked_to_stop: Callable[[], bool],
    ) -> None:
        self.task, self.attempt, self.wave, self.err = task, attempt, wave, err
        self.go_s: float | None = None
        self.stop_said = False
        self.exit: Exit | None = None
        self.started_s = time.monotonic()
        self.deadline_s = self.started_s + task.job.timeout_s
        self._events, self._asked_to_stop = events, asked_to_stop
        self._behind: str | None = None

    @property
    def seen(self) -> TaskEvents:
        """What the processes have reported so far."""
        return self._events.seen

    def step(self) -> bool:
        """Read new events and end the processes if it is time; True once they are gone or given up. Never waits."""
        raise NotImplementedError

    def finish(self) -> Exit:
        """End what is left, and read the last events; how the processes went."""
        raise NotImplementedError

    def close(self) -> None:
        """End what is left and release what was opened. May be called twice."""
        raise NotImplementedError

    def say_go(self) -> None:
        """Let processes that are ready begin."""
        self.go_s = time.monotonic()
        self._say("go")

    def say_stop(self) -> None:
        """Let processes that hold for their neighbours end."""
        self.stop_said = True
        self._say("stop")

    def _say(self, word: str) -> None:
        raise NotImplementedError

    def _why_end(self) -> Ended | None:
        """Why the processes are to end now; None if they may go on."""
        if self._asked_to_stop():
            return "interrupted"
        if self.seen.damaged:
            return "damaged"
        if time.monotonic() <= self.deadline_s:
            return None
        if self.seen.measured and not self.stop_said:
            self.say_stop()
            self.deadline_s += LAST_WORDS_S
            return None
        self._behind = self._events.behind()
        return "timed_out"
