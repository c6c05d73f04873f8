"""The batch script that Slurm runs on each node."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchsuite.cluster.fleet import ACROSS, FOLDER, Fleet
from benchsuite.describe.invocation import EXCLUDE, JOIN, ONLY
from benchsuite.describe.variables import JOIN_SECRET, RENDEZVOUS, looks_secret, recorded_environ

# Exit statuses of the script besides those of benchsuite.
NO_OUT, NO_PYTHON, NO_CWD, TIME_LIMIT = 71, 72, 73, 74
# Slurm sends SIGUSR1 to the script this many seconds before the time limit of the job, or up to a minute earlier.
NOTICE_S = 30
# Slurm chooses the GPUs of a job.
_BY_SLURM = {"CUDA_VISIBLE_DEVICES", *RENDEZVOUS}
# What sbatch and the script need of the user's environment.
_OF_THE_SHELL = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "SLURM_CONF", "TZ", "USER")

_SCRIPT = """\
#!/bin/bash
# {title}, submission {submission}.
# Slurm runs this script on each node, with the node's name as its argument.
# Its exit status is that of benchsuite, or
#   {no_out}  the node does not see the results folder, or cannot write to it
#   {no_python}  benchsuite does not start on the node
#   {no_cwd}  the node does not see the working folder
#   {time_limit}  the time limit of the job is near
set -u
node=$1
out={out}
log=$out/{folder}/$node.{submission}.log
end=$out/{folder}/$node.{submission}.end
grep -qs {run_id} "$out/{folder}/fleet.json" && touch "$log" 2>/dev/null || exit {no_out}
exec >>"$log" 2>&1
rm -f "$end"

leave() {{
    echo "$1" >"$end"
    exit "$1"
}}
cd {cwd} || leave {no_cwd}
{exports}
run=({run})
words=({words})
resume=({resume})
{across}"${{run[@]}}" --version || leave {no_python}
if [ -e "$out/$node/run.json" ]; then # Slurm or 'jobs --resume' starts this node again
    words=("${{resume[@]}}")
fi

# benchsuite gets SIGTERM if the job is asked to end, so that it keeps what is finished. srun would kill its tasks at
# once: of the jobs over nodes, the process on this host that records them gets the signal.
near_limit=
ask() {{
    pid=
    [ "$node" != {across_name} ] || pid=$(sed -n 's/.*"pid":\\([0-9]*\\).*/\\1/p' "$out/$node/.lock" 2>/dev/null)
    grep -qs -e {join} "/proc/$pid/cmdline" || pid= # the lock of an earlier run
    kill -TERM "${{pid:-$child}}"
}}
trap ask TERM
trap 'near_limit=yes; ask' USR1
"${{run[@]}}" "${{words[@]}}" &
child=$!
while true; do
    wait "$child"
    status=$?
    kill -0 "$child" 2>/dev/null || break
done
wait "$child" # the status above is that of a trap, if the child ended at the same moment
again=$?
[ $again -eq 127 ] || status=$again
[ -z "$near_limit" ] || [ $status -lt 128 ] || status={time_limit}
leave $status
"""

# Where the agents meet: at the first node of the job, on which this script runs, and a port that nothing listens on.
_ACROSS = """\
if [ "$node" = {across} ]; then # the jobs over nodes: an agent on each node
    MASTER_ADDR=$(scontrol show node -o "$SLURMD_NODENAME" | sed -n 's/.* NodeAddr=\\([^ ]*\\).*/\\1/p')
    export MASTER_ADDR=${{MASTER_ADDR:-$SLURMD_NODENAME}}
    for MASTER_PORT in $(shuf -i 20000-29999 -n 50); do
        (exec 3<>"/dev/tcp/127.0.0.1/$MASTER_PORT") 2>/dev/null || break
    done
    export MASTER_PORT
    export {secret}=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK
    run=({run})
    words=({words})
    resume=({resume})
fi
"""


def text(fleet: Fleet, out: Path, submission: int, repeats: int | None = None) -> str:
    """The batch script of a submission.

    Args:
        out: the results folder, an absolute path.
        submission: its number.
        repeats: a new value of --repeat; None for that of the run. A node that continues knows its own.
    """
    repeat = ["--repeat", str(repeats or fleet.repeats)] if repeats or fleet.repeats else []
    more = ["--repeat", str(repeats)] if repeats else []
    changes = ["--", *fleet.changes] if fleet.changes else []
    exports = (f"export {name}={shlex.quote(value)}" for name, value in sorted(fleet.environ.items()))
    without = [word for name in fleet.spanning for word in (EXCLUDE, name)]
    return _SCRIPT.format(
        title=f"Run {fleet.run_id} of benchsuite: the profile {' '.join(fleet.profile.split())}",
        submission=submission,
        no_out=NO_OUT,
        no_python=NO_PYTHON,
        no_cwd=NO_CWD,
        time_limit=TIME_LIMIT,
        out=shlex.quote(str(out)),
        folder=FOLDER,
        run_id=shlex.quote(f'"{fleet.run_id}"'),
        cwd=shlex.quote(fleet.cwd),
        exports="\n".join(exports),
        run=" ".join(map(shlex.quote, _run(fleet, out))),
        words=_words([*fleet.words, *without, *repeat], changes),
        resume=f'jobs --resume "$out/$node" {shlex.join(more)}'.rstrip(),
        across_name=ACROSS,
        join=JOIN,
        across=_across(fleet, out, repeat, more, changes) if fleet.across else "",
    )


def _words(given: Sequence[str], changes: Sequence[str]) -> str:
    return f'jobs {shlex.join(given)} -o "$out/$node" {shlex.join(changes)}'.rstrip()


def _across(fleet: Fleet, out: Path, repeat: Sequence[str], more: Sequence[str], changes: Sequence[str]) -> str:
    """The part of the script for the jobs over nodes."""
    # srun ends all agents if one fails. The first node has number 0, also where a site distributes tasks otherwise.
    nodes = len(fleet.across)
    step = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--distribution=block"]
    step += ["--kill-on-bad-exit=1", "--cpu-bind=none"]
    chosen = [word for name in fleet.spanning for word in (ONLY, name)]
    return _ACROSS.format(
        across=ACROSS,
        secret=JOIN_SECRET,
        run=" ".join(map(shlex.quote, _run(fleet, out, step))),
        words=_words([*without_names(fleet.words), *chosen, *repeat, JOIN], changes),
        resume=f'jobs --resume "$out/$node" {shlex.join([*more, JOIN])}',
    )


def without_names(words: Sequence[str]) -> list[str]:
    """The arguments of `benchsuite jobs` without the choice of jobs."""
    found, rest = [], iter(words)
    for word in rest:
        if word in (ONLY, EXCLUDE):
            next(rest, None)
        else:
            found.append(word)
    return found


def _run(fleet: Fleet, out: Path, step: Sequence[str] = ()) -> list[str]:
    """The words that start benchsuite on a node: the interpreter of the submitting host, or that of an image.

    Args:
        step: the words that start it on several nodes.
    """
    image = fleet.container
    if image is None:
        return [*step, fleet.python, "-m", "benchsuite"]
    places = dict.fromkeys([str(out), fleet.cwd, *fleet.mounts])
    if image.endswith(".sif") or "://" in image:
        binds = [word for place in places for word in ("--bind", place)]
        return [*step, "apptainer", "exec", "--nv", *binds, "--pwd", fleet.cwd, image, "benchsuite"]
    mounts = ",".join(f"{place}:{place}" for place in places)
    return [
        *(step or ("srun", "--ntasks=1", "--cpu-bind=none")),
        f"--container-image={image}",
        f"--container-mounts={mounts}",
        f"--container-workdir={fleet.cwd}",
        "benchsuite",
    ]


def set_in_script(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the user's environment that the script sets: those that a run records, and benchsuite's own."""
    own = {n: v for n, v in environ.items() if n.startswith(("BENCHSUITE_", "XDG_")) and not looks_secret(n)}
    given = {**recorded_environ(environ), **own}
    return {name: value for name, value in given.items() if name not in _BY_SLURM and not name.startswith("XDG_RUN")}


def handed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of sbatch, which jobs inherit: the shell's, sbatch's own, and secrets, which no file records."""
    return {
        name: value
        for name, value in environ.items()
        if name in _OF_THE_SHELL or name.startswith(("LC_", "SBATCH_")) or looks_secret(name)
    }
