"""One node's part of a task over nodes: prepared, started, watched, and passed on to the recorder line by line."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from benchsuite.cluster.link import Link
from benchsuite.cluster.messages import Beats, Ended, FromRecorder, Hello, Prepare, Start, Text
from benchsuite.describe.tasks import Task
from benchsuite.events import PULSE_BYTES, pulse_file, rank_file
from benchsuite.host.monitor import Monitor
from benchsuite.isolation.fencing import Fencing
from benchsuite.launch import orphans
from benchsuite.launch.child import Child
from benchsuite.launch.context import RunContext, WaveContext, WaveError
from benchsuite.launch.datasets import data_set
from benchsuite.launch.ledger import Ledger
from benchsuite.launch.setup_commands import set_up
from benchsuite.launch.task_telemetry import follow, summary, telemetry
from benchsuite.measurement import read_clock
from benchsuite.provisions import Tenant
from benchsuite.records import Failure, NodePart
from benchsuite.rundir import RunDir
from benchsuite.telemetry import Telemetry

CHUNK_BYTES = 1 << 16
BEATS_EVERY_S = 1.0


class Part:
    """This node's part of a task, in a folder of its own that lasts as long as the task.

    Args:
        folder: where the ranks write.
        link: leads to the recorder.
        added: variables that the ranks get because of the network.
    """

    def __init__(
        self,
        asked: Prepare,
        folder: Path,
        link: Link[FromRecorder],
        environ: Mapping[str, str],
        fencing: Fencing,
        monitor: Monitor,
        added: Mapping[str, str],
    ) -> None:
        self._asked, self._link, self._environ = asked, link, environ
        self._fencing, self._monitor = fencing, monitor
        self._ledger = Ledger(RunDir(folder))
        for name in ("logs", "telemetry"):
            (folder / name).mkdir()
        self._offsets: dict[str, int] = {}
        self._beats_s = 0.0
        self._child: Child | None = None
        self._wave: WaveContext | None = None
        self._telemetry: Telemetry | None = None
        self._added = dict(added)

    def stopped_by(self, asked_to_stop: Callable[[], bool], hurried: Callable[[], bool]) -> None:
        """Set what says that the task is to end, and that it is to end at once."""
        self._context = RunContext(
            self._ledger, self._environ, self._fencing, self._monitor, _say_nothing, asked_to_stop, hurried
        )

    @property
    def _task(self) -> Task:
        return self._asked.task

    def prepare(self, given_back: ExitStack) -> None:
        """Run the set-up commands, find the data set, and make the fence.

        Raises:
            WaveError: one of them fails.
        """
        wave = WaveContext((self._task,))
        if (
            self._asked.checkpoints
            and not (out := Path(self._asked.checkpoints).parents[1]).joinpath("run.json").is_file()
        ):
            message = (
                f"does not see {out}, where checkpoints go; name a folder that all nodes see with -o, or give the job"
            )
            raise WaveError(Failure(kind="checkpoints", message=f"{message} checkpoints: none"))
        for mean in (set_up, data_set, self._fence, telemetry):
            wave = given_back.enter_context(mean(self._context, wave))
        self._wave = wave

    @contextmanager
    def _fence(self, run: RunContext, wave: WaveContext) -> Iterator[WaveContext]:
        """Provide the share of the machine. Its processors are divided among the ranks of this node."""
        own = msgspec.structs.replace(self._task, ranks=self._asked.ranks)
        with run.fenced([own]) as tenants:
            yield replace(wave, tenants=tenants)

    def run(self, start: Start, look: Callable[[], None], every_s: float) -> None:
        """Start the ranks and wait for their end; what they write goes to the recorder.

        Raises:
            BenchError, OSError: they cannot be started.
        """
        assert self._wave
        wave = replace(self._wave, environ={**self._wave.environ, **self._added})
        (tenant,) = wave.tenants
        paths = self._asked.checkpoints
        with closing(Child(self._context, self._task, tenant, wave, member=start.member, checkpoints=paths)) as child:
            self._child = child
            child.deadline_s = math.inf  # the recorder knows the time limit
            follow(self._monitor, child)
            reaper = orphans.Reaper()
            while not child.step():
                look()
                reaper.look()
                self._pass_on()
                time.sleep(every_s)
            child.finish()
            self._telemetry = summary(self._monitor, child, self._ledger.rundir)
            self._pass_on()
            self._pass_on_series()

    def say(self, word: str) -> None:
        """Pass a word of the recorder on to the ranks: go or stop."""
        if self._child:
            self._child.say_go() if word == "go" else self._child.say_stop()

    def ended(self, who: Hello) -> None:
        """Report the end of the part."""
        assert self._wave and self._child and self._child.exit
        exit = self._child.exit
        self._link.send(
            Ended(
                part=NodePart(
                    node=who.name,
                    host=who.machine.host,
                    clock=read_clock(),
                    facts_sha256=who.machine.sha256,
                    tenant=self._child.tenant.described(),
                    telemetry=self._telemetry,
                    data=self._wave.data.used if self._wave.data else None,
                    started_s=self._child.started_s,
                    ended_s=time.monotonic(),
                    exit_code=exit.code if exit.ended == "exited" else None,
                    environ=self._added,
                )
            )
        )

    def not_started(self, who: Hello) -> None:
        """Report the end of a part whose ranks were not started."""
        self._link.send(Ended(part=lost_part(who, self._task)))

    def _pass_on(self) -> None:
        """Send what is new in the files of the ranks."""
        log, task = self._ledger.log, self._task
        events = str(log(task, "events.jsonl"))
        for rank in range(self._asked.first_rank, self._asked.first_rank + self._asked.ranks):
            self._send_new(Path(rank_file(events, rank)), f"events.{rank}.jsonl")
        # The launcher's word on an exit comes after the rank's own.
        for name in ("events.jsonl", "err", "out", "prepare"):
            self._send_new(log(task, name), name)
        if time.monotonic() > self._beats_s:
            self._beats_s = time.monotonic() + BEATS_EVERY_S
            self._send_beats(Path(pulse_file(events)))

    def _send_beats(self, file: Path) -> None:
        try:
            counts = struct.unpack(f"={self._task.ranks}Q", file.read_bytes()[: self._task.ranks * PULSE_BYTES])
        except (OSError, struct.error):
            return
        self._link.send(Beats(counts={rank: count for rank, count in enumerate(counts) if count}))

    def _send_new(self, path: Path, name: str) -> None:
        """Send the bytes that were appended to a file since the last call."""
        try:
            with path.open("rb") as file:
                file.seek(self._offsets.get(name, 0))
                while text := file.read(CHUNK_BYTES):
                    self._offsets[name] = self._offsets.get(name, 0) + len(text)
                    self._link.send(Text(file=name, text=text.decode("latin-1")))
        except OSError:
            return

    def _pass_on_series(self) -> None:
        if self._telemetry and self._telemetry.series:
            self._send_new(self._ledger.rundir.path / self._telemetry.series, "series")


def lost_part(who: Hello, task: Task) -> NodePart:
    """The record of a part that has left none of its own."""
    return NodePart(
        node=who.name,
        host=who.machine.host,
        clock=read_clock(),
        facts_sha256=who.machine.sha256,
        tenant=Tenant(asked=task.job.tenant, reason="the part did not report its share"),
    )


def _say_nothing(line: str) -> None:
    """A set-up of a node has no terminal; what it prints is in the log."""
