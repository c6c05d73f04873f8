"""Jobs over nodes: where their ranks go, who takes part, and what is refused. Nothing here needs torch or Slurm."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import environ, in_process, one_line_error, start

from benchsuite import __version__
from benchsuite.cluster import across, gathering, handshake, link, network, script
from benchsuite.cluster.fleet import ACROSS, Fleet
from benchsuite.cluster.hosts import Remote
from benchsuite.cluster.link import Link, LinkError
from benchsuite.cluster.messages import (
    Challenge,
    FromAgent,
    FromRecorder,
    Hello,
    Ping,
    Pong,
    Proof,
    Refused,
    Response,
    Say,
)
from benchsuite.cluster.network import free_port
from benchsuite.cluster.relay import MergedEvents, Relay
from benchsuite.cluster.seat import invited
from benchsuite.cluster.slurm import Node, SlurmError
from benchsuite.describe import jobs
from benchsuite.describe.plan import make_plan
from benchsuite.describe.spanning import Seat
from benchsuite.describe.tasks import Gpu, Job, Task
from benchsuite.describe.variables import JOIN_SECRET, looks_secret
from benchsuite.errors import ProfileError, UsageError
from benchsuite.events import LONGEST_LINE_BYTES, Exited, Raised, rank_file
from benchsuite.host import machine as host
from benchsuite.launch.ledger import Ledger
from benchsuite.report.fleet.folders import ACROSS as NO_NODE
from benchsuite.rundir import RunDir

VAE = {"model": "vae", "placement": {"devices": "all", "nodes": 2, "cpu_allowed": True}}


def job(**changed: Any) -> Job:
    return jobs.resolve("j", {**VAE, **changed}, "p.yaml")


def gpus(node: int, count: int) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(visible_index=i, nvml_index=i, uuid=f"GPU-{node}-{i}", name="H200", pci=f"0:{i}") for i in range(count)
    )


def seats(*counts: int) -> list[Seat]:
    return [Seat(name=f"n{i}", node=i, host=f"n{i}", gpus=gpus(i, count)) for i, count in enumerate(counts)]


def task(given: Job, on: list[Seat]) -> Task:
    (found,) = make_plan("p", [given], (), environ={}, seats=on).tasks
    return found


# --- where the ranks go -----------------------------------------------------------------------------------------------


def test_ranks_follow_the_order_of_nodes_and_then_of_gpus() -> None:
    found = task(job(), seats(2, 2, 2))
    assert [(share.node, share.ranks, share.gpus) for share in found.nodes] == [("n0", 2, 2), ("n1", 2, 2)]
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-0-0", "GPU-0-1", "GPU-1-0", "GPU-1-1"]
    assert (found.ranks, found.device) == (4, "2 nodes, 4 GPUs")


def test_fewer_ranks_than_gpus_are_divided_equally() -> None:
    found = task(job(parallel={"dp": 2}), seats(4, 8))
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-0-0", "GPU-1-0"]
    on_cpu = task(job(parallel={"pp": 4}), seats(0, 0))
    assert [share.ranks for share in on_cpu.nodes] == [2, 2]
    assert on_cpu.device == "2 nodes, 4 ranks on the CPU"


def test_several_agents_on_a_node_count_as_one_node() -> None:
    on = [Seat(name=f"n{i // 2}:{i % 2}", node=i // 2, host="n", gpus=gpus(i, 1)) for i in range(4)]
    found = task(job(), on)
    assert [share.node for share in found.nodes] == ["n0:0", "n0:1", "n1:0", "n1:1"]
    assert found.device == "2 nodes, 4 GPUs"


def test_ranks_that_a_driver_configuration_gives_may_differ() -> None:
    on = [msgspec.structs.replace(seat, ranks=of) for seat, of in zip(seats(0, 0), (2, 1), strict=True)]
    given = job(parallel={"pp": 2, "schedule": "pipedream", "replicas": [2, 1]})
    assert [share.ranks for share in task(given, on).nodes] == [2, 1]


@pytest.mark.parametrize(
    ("changed", "counts", "parts"),
    [
        ({}, (2,), ("spans 2 nodes", "the run has 1")),
        ({}, (2, 4), ("different numbers of GPUs", "n1 has 4", "parallel.dp")),
        ({"parallel": {"dp": 8}}, (2, 4), ("n0 gets 4 ranks and has 2 GPUs",)),
        ({"parallel": {"dp": 3}}, (2, 2), ("3 ranks cannot be divided equally among 2 nodes",)),
        ({"parallel": {"pp": 3, "microbatches": 4}}, (2, 2), ("4 ranks cannot be divided by 3",)),
    ],
)
def test_nodes_that_do_not_fit_a_job_are_refused(changed: Any, counts: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        task(job(**changed), seats(*counts))
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"placement": {"devices": "each", "nodes": 2}}, "give devices all"),
        ({"placement": {"devices": "all", "nodes": 0}}, "under 1"),
        ({"sharing": "concurrent", "copies": 2}, "sharing"),
        ({"params": {"batch_size": "auto"}}, "give batch_size as a number"),
        ({"container": "image"}, "--container"),
        ({"model": "minigrid"}, "cannot be trained by several ranks"),
    ],
)
def test_a_job_over_nodes_refuses_what_one_machine_alone_has(changed: Any, part: str) -> None:
    with pytest.raises(ProfileError, match=part):
        job(**changed)


def test_on_one_machine_a_job_over_nodes_is_skipped_with_its_reason() -> None:
    (found,) = make_plan("p", [job()], gpus(0, 8), environ={}).tasks
    assert found.skip and "spans 2 nodes: start it with --slurm" in found.skip
    assert not found.gpus
    single = job(placement="all_gpus_or_cpu")
    assert "runs on one node" in (task(single, seats(2, 2)).skip or "")


# --- who takes part ---------------------------------------------------------------------------------------------------

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "29500"}
SRUN = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURMD_NODENAME": "n7"}


def test_a_place_comes_from_the_variables_of_a_launcher() -> None:
    one = invited(TORCHRUN)
    assert (one.rank, one.size, one.node, one.address, one.port, one.store) == (3, 4, 3, "a", 29500, False)
    local = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    two = invited({**TORCHRUN, **local})
    assert (two.node, two.local_rank, two.local_size, two.store) == (1, 1, 2, True)
    assert [gpu.uuid for gpu in two.own(gpus(0, 4))] == ["GPU-0-2", "GPU-0-3"]
    by_slurm = invited({**SRUN, "SLURM_LOCALID": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"})
    assert (by_slurm.rank, by_slurm.size, by_slurm.node, by_slurm.name) == (1, 2, 1, "n7")


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"RANK": "4"}, "RANK 4 is not below WORLD_SIZE 4"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
        ({"MASTER_PORT": "x"}, "MASTER_PORT 'x' is no number"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT 70000 is no TCP port"),
        ({"LOCAL_WORLD_SIZE": "3", "LOCAL_RANK": "0"}, "do not fit 4 processes"),
    ],
)
def test_a_place_that_cannot_be_is_one_line(
    changed: dict[str, str], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**TORCHRUN, **changed}.items():
        monkeypatch.setenv(name, value)
    one_line_error(in_process("jobs", "smoke", "--join", cwd=tmp_path), "--join", part)


def test_gpus_that_cannot_be_divided_among_the_processes_of_a_node_are_refused() -> None:
    with pytest.raises(UsageError, match="3 GPUs of a node cannot be divided equally among its 2 processes"):
        invited({**TORCHRUN, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}).own(gpus(0, 3))


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--join", "--hosts", "a,b"], "does not go with --hosts"),
        (["--launcher", "ssh"], "needs --hosts"),
        (["--hosts", "a,b"], "give --launcher ssh"),
        (["--hosts", "a,a", "--launcher", "ssh"], "a host is named twice"),
        (["--hosts", "a,fe80::1", "--launcher", "ssh"], "an IPv6 address needs one"),
        (["--slurm", "--launcher", "ssh"], "--slurm: does not go with --launcher"),
        (["--hosts", "a,-oProxyCommand=b", "--launcher", "ssh"], "no name of a host"),
        (["--hosts", "a,b", "--launcher", "ssh", "--profile"], "--profile: does not go with --hosts"),
        (["--hosts", "a,b", "--launcher", "ssh", "-o", "-"], "does not go with --hosts"),
    ],
)
def test_options_that_do_not_fit_are_one_line(
    words: list[str], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    one_line_error(in_process("jobs", "smoke", *words, cwd=tmp_path), part)


def test_what_the_remote_shell_reads_is_quoted_word_by_word() -> None:
    remote = Remote("ssh", ("/opt/my python",), "/a;rm -rf b", {"X": "$(touch c)'"}, ("-p", "22"))
    *words, host_name, line = remote.command("n1", 0)
    assert (words[-3:], host_name) == (["-p", "22", "--"], "n1")
    assert "-oStrictHostKeyChecking=yes" in words and "-oBatchMode=yes" in words
    got = subprocess.run(["sh", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True).stdout
    assert got.splitlines()[4:8] == ["/a;rm -rf b", "env", "X=$(touch c)'", "/opt/my python"]


def test_agents_with_other_jobs_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    running, free = [], str(free_port())
    for rank, steps in enumerate(("5", "6")):
        env = environ(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=free)
        (tmp_path / "p.json").write_text(msgspec.json.encode({"j": VAE}).decode())
        words = ("jobs", "p.json", "--join", "-o", "out", "--", "--max-steps", steps)
        running.append(start(*words, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True))
    for process in running:
        _, printed = process.communicate(timeout=60)
        assert process.returncode == 2
        (line,) = printed.splitlines()
        assert "its jobs are not those of" in line and "start all with the same profile" in line
    assert not (tmp_path / "out").exists()


# --- what goes over the wire ------------------------------------------------------------------------------------------


def test_gloo_gets_an_interface_only_where_it_would_take_the_loopback_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "127.0.1.1")
    assert network.gloo_environ("eth0", {}) == {"GLOO_SOCKET_IFNAME": "eth0"}
    assert network.gloo_environ("eth0", {"GLOO_SOCKET_IFNAME": "ib0"}) == {}, "the user's word counts"
    assert network.gloo_environ("lo", {}) == network.gloo_environ(None, {}) == {}
    monkeypatch.setattr(socket, "gethostname", lambda: "192.0.2.1")
    assert network.gloo_environ("eth0", {}) == {}


def test_what_a_login_shell_prints_before_the_agent_is_skipped() -> None:
    given, taken = os.pipe()
    recorder = link.to_agent(given, os.open(os.devnull, os.O_WRONLY))
    os.write(taken, b"Welcome to n1!\n" + msgspec.json.encode(Pong(at_s=1.0)) + b"\n")
    assert recorder.receive(1.0) == [Pong(at_s=1.0)]
    os.write(taken, b"bye\n")
    with pytest.raises(LinkError, match="no message"):
        recorder.receive(1.0)
    os.close(taken)
    recorder.close()


@pytest.fixture
def ends() -> Iterator[tuple[Link[FromAgent], Link[FromRecorder]]]:
    one, other = socket.socketpair()
    to_agent, to_recorder = (
        link.Link(FromAgent, one.fileno(), one.fileno(), one),
        link.to_recorder(other.fileno(), other.fileno()),
    )
    yield to_agent, to_recorder
    to_agent.close()
    other.close()


def test_messages_arrive_in_order_and_an_end_is_seen(ends: tuple[Link[FromAgent], Link[FromRecorder]]) -> None:
    recorder, agent = ends
    for word in ("go", "stop"):
        recorder.send(Say(word=word))
    recorder.send(Ping())
    assert agent.receive(1.0) == [Say(word="go"), Say(word="stop"), Ping()]
    agent.send(Pong(at_s=1.0))
    assert recorder.receive(1.0) == [Pong(at_s=1.0)]
    recorder.close()
    assert agent.receive(1.0) == [] and agent.closed


def test_what_is_no_message_closes_the_link(ends: tuple[Link[FromAgent], Link[FromRecorder]]) -> None:
    recorder, agent = ends
    os.write(agent._out, b"GET / HTTP/1.1\n")
    with pytest.raises(LinkError, match="no message of benchsuite"):
        recorder.receive(1.0)
    assert recorder.closed


@pytest.fixture
def met() -> Iterator[tuple[gathering._Guest, Link[FromRecorder]]]:
    """A connection to a recorder, on both sides."""
    listener = socket.create_server(("127.0.0.1", 0))
    connected = socket.create_connection(listener.getsockname())
    guest, agent = gathering._guest(listener), link.recorder_at(connected)
    yield guest, agent
    guest.link.close()
    agent.close()
    listener.close()


Met = tuple[gathering._Guest, Link[FromRecorder]]
GREETING = Hello(version=__version__, name="n", rank=1, node=1, machine=host.describe({}))


def test_a_process_with_the_secret_of_the_run_is_let_in(met: Met, monkeypatch: pytest.MonkeyPatch) -> None:
    guest, agent = met
    monkeypatch.setenv(JOIN_SECRET, "s")

    def steps() -> bool:
        return guest.hello() is not None  # the recorder takes its turn each time the agent looks

    handshake.introduce(agent, "a", 30.0, steps)
    assert guest.known
    agent.send(GREETING)
    assert guest.hello() == GREETING
    assert looks_secret(JOIN_SECRET), "no file has it"


def test_a_process_with_another_secret_is_refused(met: Met, monkeypatch: pytest.MonkeyPatch) -> None:
    guest, agent = met
    monkeypatch.setenv(JOIN_SECRET, "s")
    (asked,) = agent.receive(30.0)
    assert isinstance(asked, Challenge)
    agent.send(Response(nonce="n", proof=handshake._proof("agent", "of another run", "n")))
    assert guest.hello() is None and not guest.known
    (answer,) = agent.receive(30.0)
    assert isinstance(answer, Refused) and JOIN_SECRET in answer.message
    agent.send(GREETING)
    assert guest.hello() is None and guest.link.closed, "a greeting without a proof is that of a stranger"


@pytest.mark.parametrize(
    ("said", "part"),
    [
        ([Challenge(nonce="c"), Proof(proof="guessed")], "has another secret"),
        ([Proof(proof="guessed")], "does not answer"),
        ([Say(word="go")], "does not answer"),
    ],
)
def test_a_process_obeys_no_recorder_that_does_not_know_the_secret(
    said: list[FromRecorder], part: str, ends: tuple[Link[FromAgent], Link[FromRecorder]]
) -> None:
    recorder, agent = ends
    for message in said:
        recorder.send(message)
    recorder.close()
    with pytest.raises(UsageError, match=part):
        handshake.introduce(agent, "a", 30.0, lambda: False)


def test_only_a_loopback_address_or_localhost_is_served_to_this_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian gives a host's own name 127.0.1.1, on that host."""
    monkeypatch.setattr(network, "is_loopback", lambda address: True)
    assert all(map(network.only_here, ("127.0.0.1", "127.0.1.1", "::1", "localhost")))
    assert not any(map(network.only_here, ("n1", "10.0.0.1", "fe80::1", "n1.cluster")))
    assert network.plain("::ffff:10.0.0.1") == "10.0.0.1"


def test_a_greeting_says_who_comes() -> None:
    machine = host.describe({})
    found = Hello(version=__version__, name="n", rank=0, node=0, machine=machine)
    assert msgspec.json.decode(msgspec.json.encode(found), type=FromAgent) == found


# --- one result of many clocks ----------------------------------------------------------------------------------------


def test_errors_have_an_order_whatever_the_clocks_of_their_hosts_say(tmp_path: Path) -> None:
    """The clock of the second host is 5,000 s ahead; its rank failed first."""
    given = task(job(parallel={"dp": 2}), seats(0, 0))
    (tmp_path / "logs").mkdir()
    ledger = Ledger(RunDir(tmp_path))
    relay = Relay(ledger, given, [0.0, 5000.0])
    events = ledger.log(given, "events.jsonl")

    def passed_on(place: int, name: str, *lines: Any) -> None:
        text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        relay.take(place, name, text[:-7])
        relay.take(place, name, text[-7:])  # a message ends anywhere

    boom = Raised(n=0, at_s=5010.0, kind="ValueError", message="boom", traceback="")
    late = Raised(n=0, at_s=11.0, kind="ValueError", message="late", traceback="")
    passed_on(1, "events.1.jsonl", boom)
    passed_on(0, "events.0.jsonl", late)
    passed_on(0, "events.1.jsonl", late)  # not of this node
    passed_on(0, "../evil", late)
    passed_on(1, "events.jsonl", Exited(n=0, at_s=5010.5, rank=1, code=1))
    passed_on(0, "events.jsonl", Exited(n=0, at_s=11.5, rank=0, code=1))
    passed_on(1, "err", "hello")
    merged = MergedEvents(events, 2, {0: 0.0, 1: 5000.0})
    merged.read()
    assert merged.seen.raised and merged.seen.raised.message == "rank 1 of 2: boom"
    assert merged.seen.raised.at_s == 10.0
    assert Path(rank_file(str(events), 1)).read_bytes() == msgspec.json.encode(boom) + b"\n", "as the rank wrote it"
    assert ledger.log(given, "err").read_text() == '[n1] "hello"\n'
    assert not (tmp_path.parent / "evil").exists()
    relay.take(0, "out", b"." * (LONGEST_LINE_BYTES + 1))
    assert ledger.log(given, "out").stat().st_size > LONGEST_LINE_BYTES, "a line without an end does not stay in memory"
    relay.note_beats({0: 7, 1: 5, 99: 1})
    assert merged.behind() == "rank 1 of 2 is behind the others"


# --- on a Slurm cluster -----------------------------------------------------------------------------------------------

NODES = [Node(f"n{i}", "idle", gpus=8) for i in (1, 2, 3)]
FLEET = Fleet(
    run_id="ab", created="now", command=(), profile="p", nodes=("n1", "n2", "n3"), across=("n1", "n2"),
    spanning=("v",), words=("p.yaml", "--exclude", "w", "-d", "/data"), partition="main", python="/py", cwd="/",
)  # fmt: skip


def test_jobs_over_nodes_are_one_more_submission_beside_those_of_the_nodes() -> None:
    single = jobs.resolve("s", {**VAE, "placement": "cpu"}, "p.yaml")
    assert across.spanning([single, job()]) == ("j",)
    assert across.most_nodes([single, job()], NODES) == ("n1", "n2")
    assert across.most_nodes([single], NODES) == ()
    found = across.with_across(FLEET, NODES)
    assert [node.name for node in found] == ["n1", "n2", "n3", ACROSS]
    assert (found[-1].members, found[-1].gpus) == (("n1", "n2"), 8)
    assert FLEET.runs == ("n1", "n2", "n3", ACROSS)
    assert ACROSS == NO_NODE, "the report of a fleet leaves this folder out"
    with pytest.raises(UsageError, match="spans 2 nodes, and the run has 1"):
        across.most_nodes([job()], NODES[:1])
    with pytest.raises(SlurmError, match="n2 has 4"):
        across.together(FLEET, [NODES[0], Node("n2", "idle", gpus=4)])


def test_the_script_starts_an_agent_on_each_node_in_the_image_if_there_is_one(tmp_path: Path) -> None:
    lines = script.text(FLEET, Path("/out"), 1, repeats=3).splitlines()
    step = "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --distribution=block --kill-on-bad-exit=1 --cpu-bind=none"
    assert f"    run=({step} /py -m benchsuite)" in lines
    assert '    words=(jobs p.yaml -d /data --name v --repeat 3 --join -o "$out/$node")' in lines
    assert '    resume=(jobs --resume "$out/$node" --repeat 3 --join)' in lines
    assert 'words=(jobs p.yaml --exclude w -d /data --exclude v --repeat 3 -o "$out/$node")' in lines
    (tmp_path / "s.sh").write_text("\n".join(lines))
    subprocess.run(["bash", "-n", tmp_path / "s.sh"], check=True)
    in_image = script.text(msgspec.structs.replace(FLEET, container="image"), Path("/out"), 1)
    assert f"    run=({step} --container-image=image --container-mounts=" in in_image
