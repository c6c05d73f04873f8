"""Tasks that measure, after their measurement, what measuring costs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from benchsuite.costs import CostAsked
from benchsuite.describe.plan import plan_of
from benchsuite.describe.tasks import Plan, Task

# A block may take longer than planned, on a busy machine for example.
LONGEST_FACTOR = 4.0


def costed(plan: Plan, asked: CostAsked) -> Plan:
    """The plan with blocks of steps after each measurement; a task that cannot have them is skipped."""
    return plan_of([_costed(task, asked, wave.tasks) for wave in plan.waves for task in wave.tasks])


def _costed(task: Task, asked: CostAsked, beside: Sequence[Task]) -> Task:
    if task.skip is not None:
        return task
    if why_not := _why_not(task, beside):
        return msgspec.structs.replace(task, skip=f"the cost of measuring is not measured for it: {why_not}")
    longest_s = LONGEST_FACTOR * 2 * asked.rounds * asked.block_s
    job = msgspec.structs.replace(task.job, timeout_s=task.job.timeout_s + longest_s)
    return msgspec.structs.replace(task, job=job, cost=asked)


def _why_not(task: Task, beside: Sequence[Task]) -> str | None:
    """Why a task cannot have such blocks."""
    if task.job.by_epochs:
        return "it trains by epochs"
    if task.ranks > 1:
        return "it has several ranks"
    return "another task runs beside it" if len(beside) > 1 else None
