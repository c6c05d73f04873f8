"""A running task over nodes, as the recorder sees it: its agents prepare it, start its ranks, and report."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchsuite.cluster.messages import Beats, End, Ended, FromAgent, NotPrepared, Prepare, Prepared, Say, Start, Text
from benchsuite.cluster.part import lost_part
from benchsuite.cluster.relay import MergedEvents, Relay
from benchsuite.describe.plan import NO_GPU
from benchsuite.describe.tasks import Task
from benchsuite.errors import reason
from benchsuite.events import Assignment, Member
from benchsuite.launch.context import RunContext, WaveContext
from benchsuite.launch.supervise import GRACE_S, STUCK_S, Exit
from benchsuite.launch.supervise import Ended as Why
from benchsuite.launch.working import Working
from benchsuite.records import Failure, NodePart, Status
from benchsuite.schema import to_json
from benchsuite.writing import write_new

if TYPE_CHECKING:
    from benchsuite.cluster.team import Colleague, Team

# After a part has failed, the ranks of the others have this long to report how they noticed it.
REPORT_S = 2.0
# After a part has ended well, the others have this long to end, too.
TOGETHER_S = 30.0
# A batch system sends SIGTERM to all processes of all nodes, not at the same instant: what fails this long before the
# recorder notices it counts as ended by it.
SWEPT_S = 2.0
# To find a data set, fill the page cache and make a fence, an agent has this long beside the limit of the set-up
# commands.
PREPARE_S = 3600.0
# An agent that was asked to end its part has the usual time for it, and this long to report.
LAST_REPORT_S = 15.0


class Spanned(Working):
    """A task over nodes.

    Args:
        team: the agents of the run.
        colleagues: the agents of this task, in the order of its ranks.

    Attributes:
        parts: what each agent reported at its end.
        problem: why the task failed, if its ranks cannot know it.

    Raises:
        OSError: the files of the task cannot be written.
    """

    def __init__(
        self, team: Team, colleagues: Sequence[Colleague], run: RunContext, task: Task, wave: WaveContext
    ) -> None:
        self._team, self.colleagues, self._hurried = team, colleagues, run.hurried
        self._relay = Relay(run.ledger, task, [one.offset_s for one in colleagues])
        offsets = {rank: colleagues[self._relay.place_of(rank)].offset_s for rank in range(task.ranks)}
        log = run.ledger.log
        events = MergedEvents(log(task, "events.jsonl"), task.ranks, offsets)
        super().__init__(task, run.ledger.attempt(task), wave, log(task, "err"), events, run.asked_to_stop)
        self.deadline_s = math.inf  # the set-up commands have a limit of their own
        self.parts: dict[int, NodePart] = {}
        self.problem: tuple[Status, Failure] | None = None
        self._prepared: dict[int, Prepared] = {}
        self._prepare_limit_s = task.job.timeout_s + PREPARE_S
        self._ended: Why | None = None
        self._asked_s: float | None = None
        self._first_over_s: float | None = None
        self._at_once = self._stuck = False
        write_new(
            log(task, "task.json"), to_json(Assignment(task=task, events=str(log(task, "events.jsonl"))), indent=2)
        )
        run.ledger.began("start", task, None)
        prefix = run.ledger.checkpoints(task)
        for place, colleague in enumerate(colleagues):
            colleague.task = self
            first_rank = sum(share.ranks for share in task.nodes[:place])
            colleague.link.send(
                Prepare(
                    task=self._own(place),
                    first_rank=first_rank,
                    ranks=task.nodes[place].ranks,
                    checkpoints=str(prefix.absolute()) if prefix else None,
                )
            )

    def _own(self, place: int) -> Task:
        """The task as the agent in this place sees it: with its own GPUs."""
        first = sum(share.gpus for share in self.task.nodes[:place])
        gpus = self.task.gpus[first : first + self.task.nodes[place].gpus]
        environ = {**self.task.environ, "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus) or NO_GPU}
        return msgspec.structs.replace(self.task, gpus=gpus, environ=environ)

    def _place(self, colleague: Colleague) -> int:
        return next(place for place, one in enumerate(self.colleagues) if one is colleague)

    def series(self, place: int) -> Path:
        """The file with the samples of the agent in this place."""
        return self._relay.series(place)

    def take(self, colleague: Colleague, message: FromAgent) -> None:
        """Take what an agent of the task says."""
        place = self._place(colleague)
        if isinstance(message, Text | Beats):
            try:
                if isinstance(message, Beats):
                    self._relay.note_beats(message.counts)
                else:
                    self._relay.take(place, message.file, message.text.encode("latin-1", errors="replace"))
            except OSError as error:
                self._fail("failed", Failure(kind="output", message=f"its logs cannot be written: {reason(error)}"))
        elif isinstance(message, Prepared):
            self._prepared[place] = message
            if len(self._prepared) == len(self.colleagues) and self._ended is None:
                self._start()
        elif isinstance(message, NotPrepared):
            self._is_over(place, lost_part(colleague.hello, self.task))
            named = msgspec.structs.replace(message.failure, message=f"{colleague.name}: {message.failure.message}")
            self._fail(message.status, named)
        elif isinstance(message, Ended):
            self._is_over(place, message.part)

    def lost(self, colleague: Colleague, why: str) -> None:
        """An agent of the task is gone."""
        place = self._place(colleague)
        if place not in self.parts:
            self._is_over(place, lost_part(colleague.hello, self.task))
            self._fail("interrupted", self._gone(why))

    def _gone(self, why: str) -> Failure:
        return Failure(kind="node", message=f"{why}; {len(self.seen.slices)} slices were finished")

    def _is_over(self, place: int, part: NodePart) -> None:
        colleague = self.colleagues[place]
        colleague.task = None
        self._first_over_s = self._first_over_s or time.monotonic()
        self.parts[place] = msgspec.structs.replace(
            part, node=colleague.name, offset_s=colleague.offset_s, offset_error_s=colleague.offset_error_s
        )

    def _fail(self, status: Status, failure: Failure) -> None:
        if self.problem is None and self._ended is None:
            self.problem = status, failure
            self._end("exited")

    def _start(self) -> None:
        """All agents are prepared: let them start their ranks."""
        first = self.colleagues[0]
        port = self.task.job.training.parallel.port or self._prepared[0].port
        for place, colleague in enumerate(self.colleagues):
            member = Member(
                node=place,
                nodes=len(self.colleagues),
                ranks=self.task.nodes[place].ranks,
                address=first.address,
                port=port,
            )
            colleague.link.send(Start(member=member))
        self.started_s = time.monotonic()
        self.deadline_s = self.started_s + self.task.job.timeout_s

    def _say(self, word: str) -> None:
        self.colleagues[0].link.send(Say(word=word))

    def step(self) -> bool:
        """Take what the agents say, and end the task if it is time; True once it is over or given up. Never waits."""
        self._team.look()
        self._events.read()
        now_s = time.monotonic()
        if self._ended is None and self._asked_to_stop():
            self._end("interrupted")
            self._asked_s = now_s - SWEPT_S
        if len(self.parts) == len(self.colleagues):
            return True
        if self._ended is None:
            if math.isinf(self.deadline_s) and now_s > self.started_s + self._prepare_limit_s:
                late = next(one for place, one in enumerate(self.colleagues) if place not in self._prepared)
                why_late = f"{late.name} has not prepared its part within {self._prepare_limit_s:g} s"
                self._fail("interrupted", Failure(kind="node", message=why_late))
            elif why := self._why_end():
                self._end(why)
            elif self._first_over_s is not None and now_s > self._first_over_s + self._patience_s():
                self._end("exited")
        elif self._hurried() and not self._at_once:
            self._say_end(at_once=True)
        elif self._asked_s is not None and now_s > self._asked_s + GRACE_S + STUCK_S + LAST_REPORT_S:
            self._stuck = True
        return self._stuck

    def _patience_s(self) -> float:
        """How long the other parts may go on after the first one that ended."""
        well = all(part.exit_code == 0 for part in self.parts.values())
        ended = all(
            self.seen.ranks[rank].end for rank in range(self.task.ranks) if self._relay.place_of(rank) in self.parts
        )
        return TOGETHER_S if well and ended else REPORT_S

    def _end(self, why: Why) -> None:
        self._ended, self._asked_s = why, time.monotonic()
        self._say_end(at_once=False)

    def _say_end(self, *, at_once: bool) -> None:
        self._at_once = at_once
        for place, colleague in enumerate(self.colleagues):
            if place not in self.parts:
                colleague.link.send(End(at_once=at_once))

    def finish(self) -> Exit:
        """How the task went. An agent that does not report is given up: its node takes no further task."""
        for place, colleague in enumerate(self.colleagues):
            if place not in self.parts:
                self._team.give_up(colleague, "it does not end its part")
                if self._ended == "exited" and self.problem is None and colleague.gone:
                    self.problem = "interrupted", self._gone(colleague.gone)
        self._relay.close()
        self._events.read()
        codes = [self.parts[place].exit_code for place in range(len(self.colleagues))]
        code = next((code for code in codes if code != 0), 0)
        asked_s = self._asked_s if self._ended not in (None, "exited") else None
        self.exit = Exit(code, self._ended or "exited", asked_s, self._behind, self._stuck)
        return self.exit

    def close(self) -> None:
        """End the task if it is not over. May be called twice."""
        if self.exit is not None:
            return
        if self._ended is None:
            self._end("interrupted")
        while not self.step():
            time.sleep(0.05)
        self.finish()
