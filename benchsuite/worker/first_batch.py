"""Check, in a process of its own before a group starts, that each rank can fill a batch and the model has its stages.

It reads an Assignment from standard input. The last line that it prints is JSON: the reason why the group
cannot train, or null.
"""

from __future__ import annotations

import sys

import msgspec

from benchsuite.errors import ModelError
from benchsuite.events import Assignment
from benchsuite.models import Share
from benchsuite.worker.build import build, module_of, seed_of
from benchsuite.worker.parent_death import die_with_parent


def problem(assignment: Assignment) -> str | None:
    """Why the last rank cannot make its first batch, or the model cannot be cut into stages; None if all is well.

    No rank has a smaller share than the last.
    """
    task = assignment.task
    if "workers" in task.job.params:  # one batch is not worth starting reader processes
        params = {**task.job.params, "workers": 0}
        task = msgspec.structs.replace(task, job=msgspec.structs.replace(task.job, params=params))
    workload = build(module_of(task), task, task.ranks - 1)
    part, parts = task.job.training.parallel.share(task.ranks - 1, task.ranks)
    share = Share(rank=part, ranks=parts, seed=seed_of(task), data=assignment.data)
    try:
        next(iter(workload.batches(share)), None)
        if task.job.training.parallel.pp:
            from benchsuite.worker.stages.prepared import check_cut

            check_cut(workload, task.job.training)
    except ModelError as error:
        return str(error)
    return None


if __name__ == "__main__":
    die_with_parent()
    found = problem(msgspec.json.decode(sys.stdin.buffer.read(), type=Assignment))
    sys.stdout.buffer.write(b"\n" + msgspec.json.encode(found))
