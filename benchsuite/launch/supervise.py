"""Bring a process tree to its end: ask it at the right time, kill it after a grace, give it up if nothing ends it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from benchsuite.launch.process import KILL_LIMIT_S, Tree

GRACE_S = 5.0
# A process that SIGKILL does not end within this time is stuck in the kernel: the run continues without it.
STUCK_S = 10.0
# A batch system sends SIGTERM to all processes of a job. A worker may end by it before the run notices its own.
SWEPT_S = 0.5


def never() -> bool:
    """No: what was asked to end has its whole grace."""
    return False


Ended = Literal["exited", "timed_out", "interrupted", "damaged"]


@dataclass(frozen=True)
class Exit:
    """How a tree went.

    Attributes:
        code: the exit code of its root, negative for a signal; None if even SIGKILL did not end it.
        ended: why it was asked to end; "exited" if it ended by itself, "damaged" if its event file holds something else
            than events.
        asked_s: when it was asked to end, on CLOCK_MONOTONIC.
        behind: of a group that timed out, the ranks that were behind the others at that moment, in words.
        stuck: SIGKILL did not end it.
    """

    code: int | None
    ended: Ended = "exited"
    asked_s: float | None = None
    behind: str | None = None
    stuck: bool = False


class Supervision:
    """Supervises one tree without ever waiting for it, so that several trees can be supervised side by side.

    The tree runs until there is a reason to end it. Then it gets SIGTERM, after `GRACE_S` SIGKILL, and is given up
    `STUCK_S` later.

    Args:
        hurried: does the user want the end now? The grace is then over.
    """

    def __init__(self, tree: Tree, hurried: Callable[[], bool] = never) -> None:
        self._tree, self._hurried = tree, hurried
        self._ended: Ended = "exited"
        self._asked_s: float | None = None
        self._swept_s: float | None = None
        self._stuck = False

    def step(self, why_end: Callable[[], Ended | None]) -> bool:
        """Take the next step that is due; True once the root has exited or the tree is given up.

        Args:
            why_end: the reason to end the tree now, or None; not called again after it gave one.
        """
        now_s = time.monotonic()
        if (code := self._tree.poll()) is not None:
            return self._asked_s is not None or code != -signal.SIGTERM or self._swept(why_end, now_s)
        if self._asked_s is None:
            if why := why_end():
                self._ended, self._asked_s = why, now_s
                self._tree.terminate()
        elif now_s > self._asked_s + GRACE_S + STUCK_S:
            self._stuck = True
        elif self.grace_left_s() == 0.0:
            self._tree.kill(limit_s=0.2)  # short, and repeated at the next step: other trees wait for theirs
        return self._stuck

    def _swept(self, why_end: Callable[[], Ended | None], now_s: float) -> bool:
        """A tree that SIGTERM ended is interrupted if the run is asked to end at the same time.

        Returns:
            Whether that is decided.
        """
        self._swept_s = self._swept_s or now_s
        if why_end() == "interrupted":
            self._ended, self._asked_s = "interrupted", self._swept_s
            return True
        return now_s > self._swept_s + SWEPT_S

    def grace_left_s(self) -> float:
        """The rest of the grace of a tree that was asked to end; 0 for one that ended by itself, or in a hurry."""
        if self._asked_s is None or self._hurried():
            return 0.0
        return max(0.0, self._asked_s + GRACE_S - time.monotonic())

    def finish(self) -> Exit:
        """Kill what is left of the tree; how its root went."""
        self._tree.kill(limit_s=0.2 if self._stuck else KILL_LIMIT_S)
        return Exit(self._tree.poll(), self._ended, self._asked_s, stuck=self._stuck)


def wait(step: Callable[[], bool], every_s: float = 0.05) -> None:
    """Repeat a step until it returns True."""
    while not step():
        time.sleep(every_s)


def supervise(tree: Tree, why_end: Callable[[], Ended | None], hurried: Callable[[], bool] = never) -> Exit:
    """Wait for the end of one tree; nothing of it is left.

    If the tree was asked to end, what outlives its root has the rest of the grace.

    Args:
        hurried: see `Supervision`.
    """
    supervision = Supervision(tree, hurried)
    try:
        wait(lambda: supervision.step(why_end))
        wait(lambda: supervision.grace_left_s() == 0.0 or not tree.members())
    finally:
        exit = supervision.finish()
    return exit


def bounded(deadline_s: float, asked_to_stop: Callable[[], bool]) -> Callable[[], Ended | None]:
    """The reasons to end a tree that has a deadline (CLOCK_MONOTONIC) and that the user may stop."""

    def why_end() -> Ended | None:
        if asked_to_stop():
            return "interrupted"
        return "timed_out" if time.monotonic() > deadline_s else None

    return why_end
