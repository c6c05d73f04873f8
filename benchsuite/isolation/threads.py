"""The number of intra-op threads that a worker of torch has on the CPU."""

from __future__ import annotations

from benchsuite.describe.tasks import Task
from benchsuite.describe.variables import THREAD_VARIABLES


def thread_environ(task: Task, cpus: int | None) -> dict[str, str]:
    """The variables that the user and the job leave open, for each process of a task.

    A number that the user or the job gives in one variable holds for the other, too. Otherwise a task on GPUs has one
    thread, unless its job asks for `cpus`: more threads wait for work in a loop beside the one that launches kernels.

    Args:
        cpus: the CPUs that the task may keep busy, divided among its ranks; None if nothing bounds them.
    """
    unset = [name for name in THREAD_VARIABLES if name not in task.environ]
    given = [task.environ[name].partition(",")[0].strip() for name in THREAD_VARIABLES if name in task.environ]
    if given:
        size = given[0] if given[0].isdecimal() and int(given[0]) else None
    elif task.gpus and task.job.training.intra_op_threads == "auto":
        size = "1"
    else:
        size = None if cpus is None else str(max(1, cpus // task.ranks))
    return dict.fromkeys(unset, size) if size else {}
