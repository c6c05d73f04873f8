"""The origin of a summary in one line (profile, machine and date), and the progress of a run."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from benchsuite.records import Machine
from benchsuite.report.read.load import RUNNING
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.format import count, few, one_line

# The number of running tasks named.
_NAMED = 8


def headline(summary: Summary) -> str:
    """Profile, machine, repeats and date."""
    repeats = len({repeat.repeat for job in summary.jobs for repeat in job.repeats})
    profile = f"profile {summary.profile.name}" if summary.profile else "profile unknown"
    going_on = "in progress" if summary.in_progress else ""
    parts = [profile, machine(summary), count(repeats, "repeat") if repeats else "", _date(summary), going_on]
    return " | ".join(part for part in parts if part)


def progress(summary: Summary) -> str:
    """The tasks still to run, and those that run now."""
    to_run, n = sum(job.to_run for job in summary.jobs), sum(job.n for job in summary.jobs)
    running = [task for job in summary.jobs for task in job.tasks if task.status == RUNNING]
    now = "; ".join(few((f"{task.id} on {task.device}" for task in running), _NAMED)) or "none"
    return f"In progress: {to_run:,} of {count(n, 'task')} still to run. Running now: {now}."


def provenance(summary: Summary) -> str:
    """Source, machine, date and provenance of a base."""
    going_on = "its run is still in progress" if summary.in_progress else ""
    parts = [summary.source, machine(summary), _date(summary), going_on, summary.provenance]
    return "; ".join(one_line(part, 400) for part in parts if part)


def machine(summary: Summary) -> str:
    """Host, GPUs and driver of each machine; the tasks' hosts if no machine is recorded."""
    if not summary.machines:
        return ", ".join(sorted({task.host for job in summary.jobs for task in job.tasks if task.host}))
    return "; ".join(map(_one_machine, summary.machines))


def _one_machine(machine: Machine) -> str:
    models = Counter(gpu.name for gpu in machine.gpus)
    gpus = ", ".join(f"{number_of} x {name}" for name, number_of in models.items()) or "no GPU"
    return f"{machine.host}: {gpus}{f', driver {machine.driver}' if machine.driver else ''}"


def _date(summary: Summary) -> str:
    """`created` to the minute if it is a date, else as it stands."""
    created = summary.created or ""
    try:
        return datetime.fromisoformat(created).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        return created
