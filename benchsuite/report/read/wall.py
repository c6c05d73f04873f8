"""Figures of a kept summary on the time that its run took."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from benchsuite.schema import Record


class JobTime(Record, frozen=True, kw_only=True):
    """What the tasks of a job took, seconds as a mean over the tasks that were started."""

    name: Annotated[str, Meta(description="the name under which rates pool")]
    tasks: Annotated[int, Meta(description="tasks that were started and have ended")]
    seconds: Annotated[float, Meta(description="up to the end, from the start of its process or of its preloading")]
    phases: Annotated[dict[str, float], Meta(description="phase -> seconds")]


class WallTime(Record, frozen=True, kw_only=True):
    """What the wall time of a run went to.

    An instant is measured time if any task measures. Otherwise it belongs to the phase of the task that is least
    advanced, for which the others wait.
    """

    seconds: Annotated[float, Meta(description="from the start of each invocation to the end of its last task")]
    measured_s: Annotated[float, Meta(description="of these, seconds in which a task measured")]
    phases: Annotated[dict[str, float], Meta(description="phase -> seconds of wall time; they add up to `seconds`")]
    jobs: tuple[JobTime, ...] = ()
    forked: Annotated[
        int, Meta(description="tasks whose worker was forked from a preloaded process; the others started anew")
    ] = 0

    @property
    def measured(self) -> float:
        """The share of the wall time that is measured."""
        return self.measured_s / self.seconds if self.seconds else 0.0
