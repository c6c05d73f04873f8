"""Tasks whose last steps a profiler records."""

from __future__ import annotations

import msgspec

from benchsuite.describe.plan import plan_of
from benchsuite.describe.tasks import Plan, Task, Trace

# The measurement before a recording, and the time that a recording may take.
MEASURED_S = 5.0
LONGEST_S = 1200.0


def recording(task: Task, asked: Trace, start: int | None = None) -> Task:
    """The task with a recording after a short measurement.

    Args:
        start: the steps that are measured before; None for those of `MEASURED_S`.
    """
    measured_s = 0.0 if start else MEASURED_S
    job = msgspec.structs.replace(
        task.job,
        max_count=None,
        max_steps=start,
        min_time_s=measured_s,
        max_time_s=LONGEST_S if start else measured_s,
        timeout_s=max(task.job.timeout_s, LONGEST_S),
    )
    return msgspec.structs.replace(task, job=job, trace=asked)


def all_recorded(plan: Plan, asked: Trace) -> Plan:
    """The plan with a recording in each task."""
    return plan_of([recording(task, asked) for task in plan.tasks])
