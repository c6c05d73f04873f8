"""Real runs over nodes without Slurm: agents that ssh starts, by a server on the loopback interface, and torchrun."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support import benchsuite, environ, in_process, one_line_error, read_results, start, wait_for
from test_group_runs import write

from benchsuite.cluster.network import free_port

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

SSHD = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
NODES = {"placement": {"devices": "none", "nodes": 2}, "timeout_s": 250.0}
VAE = {"model": "vae", "params": {"batch_size": 16}, "min_time_s": 0.7, "loss_band": [1, 1000], **NODES}
SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/mine.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
"""
CLIENT = """\
Host n1 n2
  HostName 127.0.0.1
  Port {port}
  IdentityFile {folder}/{key}
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/{known}
  GlobalKnownHostsFile none
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of an ssh server with the files of its clients: `good`, `stranger` (a refused key), `new` (an unknown
    host) and `down` (a port at which nothing listens)."""
    if SSHD is None:
        pytest.skip("no sshd is installed")
    folder, port = tmp_path_factory.mktemp("ssh"), free_port()
    for name in ("host", "mine", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    key = " ".join((folder / "host.pub").read_text().split()[:2])
    (folder / "known").write_text(f"[127.0.0.1]:{port} {key}\n")
    (folder / "sshd_config").write_text(SERVER.format(port=port, folder=folder))
    for name, own, known, at in (
        ("good", "mine", "known", port),
        ("stranger", "other", "known", port),
        ("new", "mine", "none", port),
        ("down", "mine", "known", free_port()),
    ):
        (folder / name).write_text(CLIENT.format(port=at, folder=folder, key=own, known=known))
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    running = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL)
    try:
        ready = ["ssh", "-F", folder / "good", "-oBatchMode=yes", "n1", "true"]
        wait_for(lambda: subprocess.run(ready, capture_output=True).returncode == 0, 30)
        yield folder
    finally:
        running.terminate()
        running.wait()


def on_hosts(folder: Path, client: str = "good") -> tuple[str, ...]:
    return ("--launcher", "ssh", "--hosts", "n1,n2", "--ssh-arg=-F", f"--ssh-arg={folder / client}")


def test_two_hosts_train_one_model_and_leave_one_result(server: Path, tmp_path: Path) -> None:
    write(tmp_path / "p.json", v=VAE)
    done = benchsuite("jobs", "p.json", "-o", "out", *on_hosts(server), cwd=tmp_path, timeout=550)
    assert done.returncode == 0, done.stderr
    result = read_results(tmp_path / "out")["v"]
    one, other = result.measurement.streams
    assert (one.rank, other.rank) == (0, 1)
    assert [(s.steps, s.items) for s in one.slices] == [(s.steps, s.items) for s in other.slices]
    assert one.losses != other.losses, "each has data of its own"
    assert [part.node for part in result.parts] == ["n1", "n2"]
    assert [part.exit_code for part in result.parts] == [0, 0]
    assert all(part.telemetry and part.tenant.asked == "share" for part in result.parts)
    assert result.group and result.group.ranks == 2
    checked = in_process("verify", "out", cwd=tmp_path)
    assert "BAD" not in checked.stdout, checked.stdout
    shown = in_process("report", "out", cwd=tmp_path)
    assert "2 nodes, 2 ranks on the CPU" in " ".join(shown.stdout.split())
    again = in_process("jobs", "--resume", "out", cwd=tmp_path)
    one_line_error(again, "the run was started on other nodes (n1, n2)")


def test_what_runs_on_hosts_ends_with_the_process_that_records_it(server: Path, tmp_path: Path) -> None:
    write(tmp_path / "p.json", v={**VAE, "prepare": [["sleep", "600"]]})
    mark = f"TORCH_TEST_OF={tmp_path}"
    env = environ(TORCH_TEST_OF=str(tmp_path))
    running = start("jobs", "p.json", "-o", "out", *on_hosts(server), cwd=tmp_path, env=env, stderr=subprocess.DEVNULL)
    wait_for(lambda: running.poll() is not None or len(marked_by(mark, "sleep")) == 2, 200)
    assert len(marked_by(mark, "sleep")) == 2, "a set-up command on each host"
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    wait_for(lambda: not marked_by(mark), 60)


def marked_by(variable: str, name: str = "") -> list[int]:
    """The processes with a variable in their environment, all or those of a program."""
    found = []
    for process in psutil.process_iter():
        try:
            text = Path(f"/proc/{process.pid}/environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        with contextlib.suppress(psutil.Error):
            own = variable in text.split("\0") and process.status() != psutil.STATUS_ZOMBIE
            if own and name in process.name():
                found.append(process.pid)
    return found


@pytest.mark.parametrize(
    ("client", "parts"),
    [
        ("stranger", ["n1: ", "Permission denied", "ssh-copy-id n1"]),
        ("new", ["n1: ", "Host key verification failed", "accept it once by hand"]),
        ("down", ["n1: ", "Connection refused", "ssh n1 true"]),
    ],
)
def test_a_host_that_cannot_be_used_is_one_line_and_leaves_nothing(
    client: str, parts: list[str], server: Path, tmp_path: Path
) -> None:
    write(tmp_path / "p.json", v=VAE)
    done = in_process("jobs", "p.json", "-o", "out", *on_hosts(server, client), cwd=tmp_path)
    one_line_error(done, *parts)
    assert not (tmp_path / "out").exists()


def test_agents_that_torchrun_starts_join(tmp_path: Path) -> None:
    """Torch's launcher has a store at MASTER_PORT, by which the agents find each other."""
    write(tmp_path / "p.json", v={**VAE, "placement": {"devices": "all", "nodes": 2}})
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    command += ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    agent = ["--no-python", sys.executable, "-m", "benchsuite", "jobs", "p.json", "--join", "-o", "out"]
    running = [
        subprocess.Popen([*command, f"--node-rank={rank}", *agent], cwd=tmp_path, env=environ(), stderr=subprocess.PIPE)
        for rank in (0, 1)
    ]
    printed = [process.communicate(timeout=550)[1].decode() for process in running]
    assert "1 task: 0 passed, 0 failed, 1 not run" in printed[0], printed
    assert running[1].returncode == 0, printed
    result = read_results(tmp_path / "out")["v"]
    assert result.error and result.error.message.startswith("no GPU is visible on the nodes")
