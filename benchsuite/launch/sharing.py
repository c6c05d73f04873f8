"""What the models that share a GPU need of it: MPS, MIG instances, or nothing but each other; and the proof of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from benchsuite.describe.tasks import Task
from benchsuite.errors import UsageError
from benchsuite.host.kernel_files import descendants
from benchsuite.launch import mig, mps
from benchsuite.launch.context import Proof, RunContext, WaveContext
from benchsuite.provisions import SharingUsed


def check(tasks: Sequence[Task], *, allow_mig: bool) -> None:
    """Refuse, before anything starts, a way of sharing that is not possible here.

    Raises:
        UsageError: MPS is not installed, or MIG is not allowed.
    """
    for task in tasks:
        name = task.job.name
        if task.skip is not None:
            continue
        if task.job.sharing == "mps" and shutil.which(mps.CONTROL) is None:
            raise UsageError(
                f"job '{name}': sharing mps needs {mps.CONTROL}, which is not on PATH; a part of the driver. "
                "To leave it out: -- --sharing serial,concurrent"
            )
        if task.job.sharing == "mig" and not allow_mig:
            raise UsageError(
                f"job '{name}': sharing mig changes how the GPU is divided, for all its users; allow it with "
                "--allow-mig, or leave it out: -- --sharing serial,concurrent"
            )
        if task.job.sharing == "mig" and shutil.which(mig.SMI) is None:
            raise UsageError(f"job '{name}': sharing mig needs {mig.SMI}, which is not on PATH")


@contextmanager
def shared(run: RunContext, wave: WaveContext) -> Iterator[WaveContext]:
    """Provide the way in which the models of a wave share their GPUs.

    A way other than MPS gets a folder without a daemon, so that no daemon of the machine serves it unseen.

    Raises:
        WaveError: MPS does not start, or the GPU cannot be divided.
    """
    job, axes = wave.tasks[0].job, wave.tasks[0].axes
    gpus = any(task.gpus for task in wave.tasks)
    if not gpus or (job.sharing == "serial" and "sharing" not in axes):
        proof = Plain() if job.sharing != "serial" else None
        yield replace(wave, sharing=proof)
    elif job.sharing == "mps":
        with mps.daemon(run, wave.tasks) as daemon:
            yield replace(wave, environ={**wave.environ, **daemon.environ}, sharing=OfMps(daemon))
    else:
        with mps.private_folder() as folder, _instances(run, wave) as wave:
            environ = {**wave.environ, mps.PIPES: str(folder / "pipe")}
            yield replace(wave, environ=environ, sharing=OfMig() if job.sharing == "mig" else Plain())


@contextmanager
def _instances(run: RunContext, wave: WaveContext) -> Iterator[WaveContext]:
    """The wave with a MIG instance in place of the GPU of each task, if its way is `mig`."""
    if wave.tasks[0].job.sharing != "mig":
        yield wave
        return
    with mig.divided(run, wave.tasks) as instances:
        tasks = []
        for task, instance in zip(wave.tasks, instances, strict=True):
            environ = {**task.environ, "CUDA_VISIBLE_DEVICES": instance.uuid}
            tasks.append(msgspec.structs.replace(task, gpus=(instance,), environ=environ))
        yield replace(wave, tasks=tuple(tasks))


class Plain(Proof):
    """Nothing needs a proof: the processes, or the models of one process, simply share the device."""

    def used(self, task: Task) -> SharingUsed:
        """The way and the number of copies."""
        return SharingUsed(way=task.job.sharing, copies=int(task.job.copies))


class OfMig(Proof):
    """Each task sees its own instance and nothing else of the GPU."""

    def used(self, task: Task) -> SharingUsed:
        """The instance of the task."""
        gpu = task.gpus[0]
        seen = f"instance {gpu.uuid} ({gpu.name})"
        return SharingUsed(way="mig", copies=int(task.job.copies), in_use=True, seen=seen)


class OfMps(Proof):
    """The daemon lists the process of a task among its clients."""

    def __init__(self, daemon: mps.Daemon) -> None:
        self._daemon = daemon
        self._seen: dict[str, str] = {}
        self._asked: set[str] = set()

    def look(self, running: Sequence[tuple[Task, int]]) -> None:
        """Ask the daemon once for each task that has become ready.

        If the daemon counts pids in another namespace, as many clients as ready tasks are proof enough: the folder is
        private, so that nobody else is its client.
        """
        new = [task.id for task, _ in running if task.id not in self._asked]
        if not new:
            return
        self._asked.update(new)
        clients = self._daemon.clients()
        for task, pid in running:
            own = clients & {pid, *descendants(pid)}
            if own:
                self._seen[task.id] = f"process {min(own)} is one of {len(clients)} clients of the MPS server"
            elif len(clients) >= len(running):
                self._seen[task.id] = f"the MPS server has {len(clients)} clients for {len(running)} tasks"

    def used(self, task: Task) -> SharingUsed:
        """Whether the daemon listed the task."""
        seen = self._seen.get(task.id)
        why = seen or "the MPS server did not list the task among its clients"
        return SharingUsed(way="mps", copies=int(task.job.copies), in_use=seen is not None, seen=why)
