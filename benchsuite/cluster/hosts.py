"""Start an agent on each of some hosts, over ssh or by srun within an allocation. This process records the run.

OpenSSH's own client is started with a list of arguments. What the remote shell reads is quoted word by word. The client
never asks a question, and refuses a host whose key it does not know.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchsuite.cluster import slurm
from benchsuite.cluster.gathering import greeting_of, printed_by, started
from benchsuite.cluster.link import Link
from benchsuite.cluster.messages import FromAgent
from benchsuite.cluster.team import Colleague
from benchsuite.errors import UsageError, one_line
from benchsuite.launch.process import last_lines

Launcher = Literal["ssh", "srun"]
# An agent has the usual grace for its ranks. A client that still connects is ended by SIGTERM.
END_LIMIT_S, TERM_LIMIT_S = 8.0, 2.0
# The first value of an option counts, so that neither the user's file nor --ssh-arg replaces these.
_SSH = (
    "-T",
    "-x",
    "-oBatchMode=yes",
    "-oStrictHostKeyChecking=yes",
    "-oControlMaster=no",  # a shared connection would outlive its client
    "-oControlPath=none",
    "-oClearAllForwardings=yes",
    "-oServerAliveInterval=10",
    "-oServerAliveCountMax=3",
    "-oConnectTimeout=20",
)
# What ssh prints -> the remedy.
_REMEDIES = (
    (r"host key|REMOTE HOST IDENTIFICATION", "check the key of the host and accept it once by hand: ssh {host} true"),
    (
        r"Permission denied|Too many authentication",
        "let the host accept your key: ssh-copy-id {host}; or load it: ssh-add",
    ),
    (
        r"resolve hostname|refused|timed out|No route|unreachable|closed by|reset by",
        "check that this works: ssh {host} true",
    ),
    (
        r"not found|No such file|No module|can't cd|cannot execute",
        "install benchsuite there at the same path, {python}",
    ),
)


@dataclass(frozen=True)
class Remote:
    """What an agent on another host is started with.

    Attributes:
        python: the words that start the interpreter, at the same path on all hosts.
        cwd: the working folder.
        environ: variables that it gets.
        ssh_args: further arguments of ssh.
    """

    launcher: Launcher
    python: tuple[str, ...]
    cwd: str
    environ: Mapping[str, str]
    ssh_args: tuple[str, ...] = ()

    def command(self, host: str, number: int) -> list[str]:
        """The command that starts the agent of a host."""
        agent = [*self.python, "-m", "benchsuite.cluster.agent", host, str(number), str(number)]
        variables = [f"{name}={value}" for name, value in sorted(self.environ.items())]
        words = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", self.cwd, "env", *variables, *agent]
        if self.launcher == "ssh":
            return ["ssh", *_SSH, *self.ssh_args, "--", host, shlex.join(words)]
        return ["srun", f"--nodelist={host}", "--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", *words]


def check_hosts(hosts: Sequence[str], launcher: Launcher) -> None:
    """Refuse names that are no hosts, and a launcher that is missing.

    Raises:
        UsageError: one of them is wrong.
    """
    if shutil.which(launcher) is None:
        package = "OpenSSH's client" if launcher == "ssh" else "Slurm's srun"
        raise UsageError(f"--launcher {launcher}: {launcher} is not on PATH; install {package}")
    if len(set(hosts)) < len(hosts):
        raise UsageError(f"--hosts {','.join(hosts)}: a host is named twice; name each once")
    for host in hosts:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*", host):  # a colon stands between a node and its agents
            raise UsageError(f"--hosts: '{one_line(host)}' is no name of a host; an IPv6 address needs one")


@contextmanager
def agents_on(
    hosts: Sequence[str], remote: Remote, environ: Mapping[str, str], stop: Callable[[], bool]
) -> Iterator[list[Colleague]]:
    """An agent on each host. At the end, or if this process ends, they end with their ranks.

    Args:
        environ: the environment of ssh or srun.
        stop: ends the wait for the agents.

    Raises:
        UsageError: a host cannot be reached, or no agent starts on it; none is left.
    """
    addresses = slurm.addresses(hosts) if remote.launcher == "srun" else {}
    with tempfile.TemporaryDirectory(prefix="benchsuite-") as folder, ExitStack() as opened:
        begun: list[tuple[str, Path, Link[FromAgent], subprocess.Popen[bytes]]] = []
        opened.callback(_end_all, begun)
        for number, host in enumerate(hosts):
            log = Path(folder, f"{number}.err")
            with log.open("wb") as err:
                link, process = started(remote.command(host, number), environ, err)
            begun.append((host, log, link, process))
        found = []
        for host, log, link, process in begun:
            words = _why(host, log, remote)
            hello = greeting_of(link, process, host, words, stop)
            address = addresses.get(host) or hello.address
            found.append(Colleague(link, hello, host, address, process, last_words=printed_by(log)))
        yield found


def _end_all(begun: Sequence[tuple[str, Path, Link[FromAgent], subprocess.Popen[bytes]]]) -> None:
    """End the clients of all agents. An agent ends its ranks as soon as its link is closed, and then itself."""
    for _, _, link, _ in begun:
        link.close()
    for limit_s, end in ((END_LIMIT_S, subprocess.Popen.terminate), (TERM_LIMIT_S, subprocess.Popen.kill)):
        deadline = time.monotonic() + limit_s
        for *_, process in begun:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        for *_, process in begun:
            end(process)  # does nothing to one that has ended
    for *_, process in begun:
        process.wait()


def _why(host: str, log: Path, remote: Remote) -> Callable[[], str]:
    """What a launcher has printed, with a remedy, as the end of a message."""

    def words() -> str:
        printed = last_lines(log)
        lines = [line for line in printed.splitlines() if line.strip()]
        last = f": {one_line(lines[-1])[:200]}" if lines else ""
        for pattern, remedy in _REMEDIES:
            if re.search(pattern, printed, re.IGNORECASE):
                return f"{last}; {remedy.format(host=host, python=remote.python[0])}"
        return last

    return words
