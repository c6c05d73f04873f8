"""Submit one Slurm job for each node of a run, and one for its jobs over nodes."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

import benchsuite
from benchsuite.cluster import script, slurm
from benchsuite.cluster.fleet import Fleet, FleetDir, Submitted
from benchsuite.cluster.slurm import Node, SlurmError
from benchsuite.errors import OutputError


def interpreter() -> str:
    """The Python of this process, which the nodes use too."""
    return sys.executable


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that the script sets, with the folder of this package in PYTHONPATH if it is not installed."""
    found = script.set_in_script(environ)
    home = Path(benchsuite.__file__).resolve().parents[1]
    if home not in (Path(sysconfig.get_paths()[name]).resolve() for name in ("purelib", "platlib")):
        paths = found.get("PYTHONPATH", "").split(os.pathsep)
        found["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, [*paths, str(home)])))
    return found


def sbatch_options(fleet: Fleet, node: Node, submission: int, more: Sequence[str] = ()) -> list[str]:
    """The options of sbatch for one node.

    Args:
        more: further arguments of sbatch for this submission, after those of the run.
    """
    given = [*fleet.sbatch_args, *more]
    words = [
        f"--job-name={fleet.job_name}",
        f"--comment={fleet.comment(node.name, submission)}",
        f"--partition={fleet.partition}",
        f"--nodelist={','.join(node.members) or node.name}",
        f"--nodes={len(node.members) or 1}",
        f"--ntasks={len(node.members) or 1}",
        "--chdir=/",
        "--output=/dev/null",  # the script itself writes its log, once it knows that the node sees the folder
        "--no-requeue",  # a node that fails is a finding; 'jobs --resume' continues
        "--kill-on-invalid-dep=yes",
        "--export=ALL",
        f"--signal=B:USR1@{script.NOTICE_S}",
    ]
    if not _gives(given, "--oversubscribe", "--exclusive", "-s"):
        words.append("--exclusive")
    if not _gives(given, "--mem"):
        words.append("--mem=0")  # all of the node's
    if node.gpus and not _gives(given, "--gpus", "--gres", "-G"):
        words.append(f"--gres=gpu:{node.gpus}")
    return [*words, *given]


def _gives(words: Sequence[str], *options: str) -> bool:
    return any(word.startswith(options) for word in words)


def check(fleet: Fleet, nodes: Sequence[Node], environ: Mapping[str, str], more: Sequence[str] = ()) -> None:
    """Ask Slurm whether it would take the jobs. Nodes with equally many GPUs are asked for alike: one of them is tried.

    Args:
        nodes: the nodes, and several nodes that one job is to have.

    Raises:
        SlurmError: it would not; the message names the node.
    """
    for node in {(node.gpus, node.members): node for node in nodes}.values():
        options = sbatch_options(fleet, node, 1, more)
        try:
            slurm.try_submit([*options, "--wrap=true"], script.handed_on(environ))
        except SlurmError as error:
            given = " ".join([*fleet.sbatch_args, *more])
            remedy = f"check --sbatch-arg ({given})" if given else "name other nodes, or another partition"
            raise SlurmError(f"node {node.name}: Slurm refuses the job: {error}; {remedy}") from None


def submit(
    folder: FleetDir,
    nodes: Sequence[Node],
    environ: Mapping[str, str],
    more: Sequence[str] = (),
    repeats: int | None = None,
    asked_to_stop: Callable[[], bool] = lambda: False,
) -> int:
    """Submit a job for each node. If Slurm does not take one of them, none of them is left.

    Args:
        more: further arguments of sbatch, after those of the run.
        repeats: a new number of repeats of the run.
        asked_to_stop: looked at before each job; those that are not submitted then are left to a resume.

    Returns:
        The number of jobs that were submitted.

    Raises:
        SlurmError: Slurm does not take a job; those of this submission are cancelled.
        OutputError: the folder cannot be written.
    """
    fleet = folder.fleet()
    number = folder.new_submission(lambda n: script.text(fleet, folder.path, n, repeats))
    submitted: list[str] = []
    try:
        for node in nodes:
            if asked_to_stop():
                break
            words = [*sbatch_options(fleet, node, number, more), str(folder.script(number)), node.name]
            submitted.append(slurm.submit(words, script.handed_on(environ)))
            at = datetime.now(timezone.utc).isoformat()
            folder.note(Submitted(node=node.name, submission=number, job_id=submitted[-1], at=at))
    except (SlurmError, OutputError):
        slurm.cancel(submitted)
        raise
    return len(submitted)
