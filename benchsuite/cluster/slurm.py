"""The only door to Slurm's commands: sinfo, scontrol, sbatch, squeue, sacct and scancel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchsuite.errors import UsageError, one_line

# A controller that is busy may take this long to answer.
ANSWER_LIMIT_S = 120.0
_COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")
# These variables change what the commands print.
_FORMATS = re.compile(r"(SQUEUE|SINFO|SACCT|SCONTROL)_\w+|SLURM_TIME_FORMAT")
# States in which sinfo lists a node that can run jobs, now or when its present job has ended.
_USABLE = {"idle", "mixed", "allocated", "completing", "planned", "reserved"}
# Behind a state: ~ # % power saving, $ maintenance, @ ^ reboot, ! - planned. A node with * does not answer.
_STATE = re.compile(r"([a-z_]+)([*~#%$@^!-]*)")
_PENDING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
# No state of Slurm: benchsuite cancelled a job that would have waited for ever.
NEVER_STARTED = "NEVER_STARTED"
_ENDED = {
    NEVER_STARTED,
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "STOPPED",
    "TIMEOUT",
}


class SlurmError(UsageError):
    """Slurm's commands are missing, do not answer, or refuse a request."""


@dataclass(frozen=True)
class Node:
    """A node of a partition.

    Attributes:
        state: as sinfo prints it, such as "idle" or "down*".
        reason: why it is down or drained; empty if it is not.
        gpus: the number of GPUs that Slurm manages on it.
        members: of several nodes that one job is to have, their names; `gpus` is then that of each.
    """

    name: str
    state: str
    reason: str = ""
    gpus: int = 0
    members: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether the node can run a job, now or later, without an administrator."""
        found = _STATE.fullmatch(self.state)
        return bool(found and found[1] in _USABLE and "*" not in found[2])

    @property
    def idle(self) -> bool:
        return self.state.startswith("idle")


@dataclass(frozen=True)
class SlurmJob:
    """A job as squeue or sacct lists it.

    Attributes:
        comment: the comment of its submission; empty if the source does not have it.
        reason: why it waits.
        exit_code: the exit status of its script; None if it has not ended, or a signal ended it.
        restarts: how often Slurm has put it into the queue again.
    """

    id: str
    state: str
    comment: str = ""
    reason: str = ""
    exit_code: int | None = None
    restarts: int = 0

    @property
    def pending(self) -> bool:
        return self.state in _PENDING

    @property
    def ended(self) -> bool:
        return self.state in _ENDED


def check_present() -> None:
    """Raises SlurmError: Slurm's commands are not on PATH."""
    if missing := [name for name in _COMMANDS if shutil.which(name) is None]:
        raise SlurmError(
            f"--slurm: {missing[0]} is not on PATH; run this on a host that submits jobs to Slurm, or leave out --slurm"
        )


def partitions() -> tuple[list[str], str | None]:
    """The names of all partitions, and that of the default one (None without one).

    Raises:
        SlurmError: Slurm does not answer.
    """
    try:
        names = _call("sinfo", "--noheader", "--format=%P").split()
    except SlurmError as error:
        raise SlurmError(f"--slurm: Slurm does not answer: {error}; check it with: sinfo") from None
    default = next((name.rstrip("*") for name in names if name.endswith("*")), None)
    return list(dict.fromkeys(name.rstrip("*") for name in names)), default


def nodes(partition: str) -> list[Node]:
    """The nodes of a partition, in Slurm's order."""
    lines = _call("sinfo", "--noheader", "--Node", f"--partition={partition}", "--format=%N|%T|%G|%E").splitlines()
    found = {}
    for line in lines:
        name, state, gres, reason = line.split("|", 3)
        found[name.strip()] = Node(
            name.strip(), state.strip(), "" if reason == "none" else one_line(reason), _gpus(gres)
        )
    return list(found.values())


def _gpus(gres: str) -> int:
    """The number of GPUs in generic resources such as "gpu:h200:8(S:0-1),shard:16"."""
    counts = re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)", gres)
    return sum(map(int, counts))


def host_names(expression: str) -> list[str]:
    """The names in a list of hosts such as "n[1-3],n7"."""
    return list(dict.fromkeys(_call("scontrol", "show", "hostnames", expression).split()))


def addresses(names: Iterable[str]) -> dict[str, str]:
    """The address of each node, by which Slurm reaches it."""
    found = {}
    for name in names:
        shown = re.search(r"\bNodeAddr=(\S+)", _call("scontrol", "show", "node", "--oneliner", name))
        found[name] = shown[1] if shown else name
    return found


def try_submit(words: Sequence[str], environ: Mapping[str, str]) -> None:
    """Ask Slurm whether it would take a job, without submitting it.

    Raises:
        SlurmError: it would not.
    """
    _call("sbatch", "--test-only", *words, environ=environ)


def submit(words: Sequence[str], environ: Mapping[str, str]) -> str:
    """Submit a job.

    Returns:
        Its id.

    Raises:
        SlurmError: Slurm does not take it.
    """
    return _call("sbatch", "--parsable", *words, environ=environ).strip().partition(";")[0]


def jobs(name: str) -> list[SlurmJob]:
    """The jobs with this name that the controller still knows. It forgets an ended job after some time (MinJobAge)."""
    fields = "JobID:|,State:|,exit_code:|,RestartCnt:|,Comment:|,Reason:|"
    text = _call("squeue", "--noheader", "--states=all", f"--name={name}", f"--Format={fields}")
    found = []
    for line in text.splitlines():
        id, state, code, restarts, comment, reason, *_ = (*line.split("|"), "", "", "", "", "")
        found.append(
            SlurmJob(
                id=id.strip(),
                state=state.strip(),
                comment=comment.strip(),
                reason=reason.strip(),
                exit_code=_exit_code(code.strip()) if state.strip() in _ENDED else None,
                restarts=int(restarts) if restarts.strip().isdigit() else 0,
            )
        )
    return found


def _exit_code(text: str) -> int | None:
    """The exit status in "9:0" or in the raw status of wait(2), such as "2304"; None if a signal ended the job."""
    code, colon, signum = text.partition(":")
    if not code.isdigit():
        return None
    if colon:
        return int(code) if signum in ("", "0") else None
    return int(code) >> 8 if int(code) & 0x7F == 0 else None


def accounted(ids: Sequence[str]) -> list[SlurmJob]:
    """What the accounting of Slurm says of jobs; empty where there is no accounting."""
    if not ids or shutil.which("sacct") is None:
        return []
    words = ["--allocations", "--parsable2", "--noheader", f"--jobs={','.join(ids)}", "--format=JobID,State,ExitCode"]
    try:
        lines = _call("sacct", *words).splitlines()
    except SlurmError:
        return []
    found = []
    for line in lines:
        id, state, code, *_ = (*line.split("|"), "", "")
        found.append(SlurmJob(id=id, state=state.split()[0] if state else "", exit_code=_exit_code(code)))
    return found


def cancel(ids: Iterable[str]) -> None:
    """Cancel jobs. A job that has ended is no error."""
    if words := list(ids):
        _call("scancel", "--quiet", *words)


def ask_to_end(ids: Iterable[str]) -> None:
    """Send SIGTERM to the scripts of jobs, which pass it on. A job that has ended is no error."""
    if words := list(ids):
        _call("scancel", "--quiet", "--batch", "--signal=TERM", *words)


def _call(*words: str, environ: Mapping[str, str] | None = None) -> str:
    """What a command prints on stdout.

    Raises:
        SlurmError: it is missing, fails or does not answer; the message is its last line on stderr.
    """
    given = os.environ if environ is None else environ
    clean = {name: value for name, value in given.items() if not _FORMATS.fullmatch(name)}
    try:
        done = subprocess.run(words, env=clean, capture_output=True, timeout=ANSWER_LIMIT_S, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise SlurmError(f"{words[0]} is not on PATH") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{words[0]}: Slurm does not answer within {ANSWER_LIMIT_S:g} s") from None
    if done.returncode:
        printed = done.stderr.decode(errors="replace").strip().splitlines()
        lines = [line for line in printed if not line.startswith("Try ")]
        why = re.sub(r"^\w+: (error|fatal): ", "", lines[-1]) if lines else f"exit status {done.returncode}"
        raise SlurmError(f"{words[0]}: {one_line(why)}")
    return done.stdout.decode(errors="replace")
