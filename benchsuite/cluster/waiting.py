"""Wait until the jobs of a run have ended. A job that would wait for ever is cancelled."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from benchsuite.cluster.fleet import ACROSS
from benchsuite.cluster.slurm import SlurmError
from benchsuite.cluster.states import NodeStatus
from benchsuite.cluster.survey import Survey
from benchsuite.errors import ResultError

# Slurm may change its mind about why a job waits, at its next pass.
NEVER_S = 5.0
# A node that goes down while its job waits may be back soon, for instance after a reboot of some seconds.
DOWN_S = 60.0
# So long may the controller be away, for instance for an upgrade.
SILENT_S = 1800.0
# A shared file system may show the last words of a node late.
LATE_S = 10.0


def every_s(nodes: int) -> float:
    """Seconds between two looks at this many nodes: a look costs the controller one answer."""
    return min(30.0, max(1.0, nodes / 50))


class Waiting:
    """Waits for the jobs of a run.

    Args:
        show: called with the nodes after each look.
        say: called with a line about what the wait does.
        asked_to_stop: ends the wait.
    """

    def __init__(
        self,
        survey: Survey,
        show: Callable[[Sequence[NodeStatus]], None],
        say: Callable[[str], None],
        asked_to_stop: Callable[[], bool],
    ) -> None:
        self._survey, self._show, self._say, self._asked = survey, show, say, asked_to_stop
        self._since_s: dict[str, float] = {}
        self._silent_s: float | None = None
        self._lost_s: float | None = None

    def wait(self) -> list[NodeStatus]:
        """Wait until no job is left, or the wait is asked to end.

        Returns:
            How each node stood at the last look.

        Raises:
            SlurmError: Slurm has not answered for `SILENT_S`. The jobs go on.
        """
        statuses: list[NodeStatus] = []
        pause_s = every_s(len(self._survey.fleet.runs))
        while True:
            if (seen := self._look()) is not None:
                statuses = seen
                self._show(statuses)
                if not any(status.live for status in statuses) and not self._late(statuses):
                    return statuses
            deadline = time.monotonic() + pause_s
            while time.monotonic() < deadline:
                if self._asked():
                    return statuses
                time.sleep(0.1)

    def _look(self) -> list[NodeStatus] | None:
        """How the nodes stand; None if Slurm does not answer."""
        try:
            statuses = self._survey.look()
            if self._give_up(statuses):
                statuses = self._survey.look()
        except (SlurmError, ResultError) as error:  # the controller, or the file system
            now_s = time.monotonic()
            if self._silent_s is None:
                self._say(f"{error}; the jobs go on, and benchsuite asks again")
                self._silent_s = now_s
            if now_s - self._silent_s > SILENT_S:
                raise
            return None
        self._silent_s = None
        return statuses

    def _give_up(self, statuses: Sequence[NodeStatus]) -> bool:
        """Cancel the jobs that have said for some time that they never start; whether there were any."""
        now_s, given_up = time.monotonic(), False
        for status in statuses:
            key = f"{status.job_id} {status.stays}"
            if status.stays is None:
                continue
            since_s = self._since_s.setdefault(key, now_s)
            if now_s - since_s >= (NEVER_S if status.stays == "never" else DOWN_S):
                self._survey.give_up(status)
                given_up = True
        staying = {f"{status.job_id} {status.stays}" for status in statuses if status.stays}
        self._since_s = {key: since_s for key, since_s in self._since_s.items() if key in staying}
        return given_up

    def _late(self, statuses: Sequence[NodeStatus]) -> bool:
        """Whether a node seems lost and may still show its end."""
        if not any(status.word == "lost" for status in statuses):
            return False
        self._lost_s = self._lost_s or time.monotonic()
        return time.monotonic() - self._lost_s < LATE_S


def closing_words(statuses: Sequence[NodeStatus]) -> str:
    """Such as "4 nodes: 3 ok, 1 node failure; jobs over nodes: ok"."""
    each = [status for status in statuses if status.node != ACROSS]
    counts = Counter(status.word for status in each)
    nodes = f"{len(each)} node" if len(each) == 1 else f"{len(each)} nodes"
    words = [f"{nodes}: {', '.join(f'{count} {word}' for word, count in counts.most_common())}"] if each else []
    return "; ".join([*words, *(f"jobs over nodes: {status.word}" for status in statuses if status.node == ACROSS)])


def exit_status(statuses: Sequence[NodeStatus]) -> int:
    """The exit status: 0 if all nodes are ok, 2 if all were refused, 3 if no task ran on any, else 1."""
    words = {status.word for status in statuses}
    if words <= {"ok"}:
        return 0
    if words == {"refused"}:
        return 2
    if not any(status.tally and status.tally.ended for status in statuses):
        return 3
    return 1
