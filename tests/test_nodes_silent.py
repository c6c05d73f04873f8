"""Agents of a run over nodes that fall silent. The agents here are the far ends of sockets; no process is started."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_over_nodes import job, seats, task

from benchsuite import __version__
from benchsuite.cluster import link, spanned
from benchsuite.cluster.link import Link
from benchsuite.cluster.messages import End, FromRecorder, Hello, NotPrepared, Prepare, Prepared, Start
from benchsuite.cluster.spanned import Spanned
from benchsuite.cluster.team import Colleague, Team
from benchsuite.host import machine as host
from benchsuite.host.monitor import Monitor
from benchsuite.isolation.fencing import Fencing
from benchsuite.launch.context import RunContext, WaveContext
from benchsuite.launch.ledger import Ledger
from benchsuite.launch.outcome import Setting
from benchsuite.launch.supervise import never
from benchsuite.records import Failure, Result
from benchsuite.rundir import RunDir

Agents = list[Link[FromRecorder]]
Started = tuple[Team, Spanned, Agents]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """A task over two nodes that both agents are to prepare."""
    (tmp_path / "logs").mkdir()
    agents, colleagues = [], []
    for rank in range(2):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            other = socket.create_connection(listener.getsockname())
            one, _ = listener.accept()
        hello = Hello(version=__version__, name=f"n{rank}", rank=rank, node=rank, machine=host.describe({}))
        colleagues.append(Colleague(link.agent_at(one), hello, hello.name, "127.0.0.1"))
        agents.append(link.recorder_at(other))
    team = Team(colleagues, never)
    run = RunContext(
        Ledger(RunDir(tmp_path)), {}, Fencing("none", require=False), Monitor([]), lambda line: None, never, never
    )
    given = task(job(), seats(0, 0))
    yield team, team.start(run, given, WaveContext((given,))), agents
    for end in (*agents, *(one.link for one in colleagues)):
        end.close()


def ended(started: Started) -> Result:
    """The result once the recorder gives up whom it has waited for."""
    team, working, _ = started
    while not working.step():
        pass
    working.finish()
    machine = host.describe({})
    return team.result(working, Setting(machine, machine.sha256, host.code(), 0.0))


def failure(result: Result) -> tuple[str, str]:
    assert result.error
    return result.status, result.error.message


def test_an_agent_that_never_prepares_its_part_is_given_up(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    team, working, (first, second) = started
    assert all(isinstance(agent.receive(30.0)[0], Prepare) for agent in (first, second))
    first.send(Prepared(port=20_000))
    assert not working.step()
    working._prepare_limit_s = 0.0
    monkeypatch.setattr(spanned, "LAST_REPORT_S", -100.0)
    status, message = failure(ended(started))
    assert (status, message) == ("interrupted", "n1 has not prepared its part within 0 s")
    assert End() in first.receive(30.0)
    assert team.lost([working.task]) == "node n0 is gone: it does not end its part"


def test_an_agent_that_does_not_report_its_end_is_named(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    _, working, (first, second) = started
    for agent in (first, second):
        agent.send(Prepared(port=20_000))
    assert not working.step()
    (_, start) = first.receive(30.0)
    assert isinstance(start, Start) and start.member.port == 20_000
    first.send(NotPrepared(status="failed", failure=Failure(kind="start", message="no memory")))
    monkeypatch.setattr(spanned, "LAST_REPORT_S", -100.0)
    assert failure(ended(started)) == ("failed", "n0: no memory"), "the first cause"


def test_an_agent_that_is_gone_interrupts_the_task_and_the_other_part_is_ended(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, (first, second) = started
    second.close()
    monkeypatch.setattr(spanned, "LAST_REPORT_S", -100.0)
    status, message = failure(ended(started))
    assert (status, message) == ("interrupted", "node n1 is gone: its agent has ended; 0 slices were finished")
    assert any(isinstance(message, End) for message in first.receive(30.0))
    assert [part.node for part in ended(started).parts] == ["n0", "n1"]
