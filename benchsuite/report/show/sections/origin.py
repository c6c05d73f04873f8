"""The origin of a summary in one line (profile, machine and date), and the progress of a run."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import PurePath

from benchsuite.describe.budget import BUDGET, written
from benchsuite.records import Machine
from benchsuite.report.format import count, few, one_line, percent
from benchsuite.report.read.load import RUNNING
from benchsuite.report.read.summary import Summary

# What is no trouble on a machine without GPUs.
_NO_GPU = ("NVML lists no GPU", "NVML: nvml shared library not found")
# The numbers of running tasks and of GPU models named.
_NAMED, _MODELS = 8, 3
MIDDLE_DOT = " · "
# The length of a date without a time.
_DATE = len("2020-08-06")


def title(summary: Summary) -> str:
    """The machine and what it ran: "2x NVIDIA H200 · standard"."""
    profile = one_line(summary.profile.name) if summary.profile else "profile unknown"
    return f"{hardware(summary, brand=True)}{MIDDLE_DOT}{profile}"


def hardware(summary: Summary, brand: bool = False) -> str:
    """The GPUs in use by their model, without a GPU the CPU, else the host or the name of the publication.

    Args:
        brand: keep the maker's name: "2x NVIDIA H200" for "2x H200".
    """
    models = list(dict.fromkeys(gpu.name for machine in summary.machines for gpu in machine.gpus))
    used = summary.gpus_used
    if used and len(models) == 1:
        return f"{used}x {_model(models[0], brand)}"
    if used and models:
        return f"{count(used, 'GPU')} ({', '.join(_model(model, brand) for model in few(models, _MODELS))})"
    # The file of one result is named by its job.
    one_job = len(summary.jobs) == 1 and not summary.planned and summary.source.endswith(".json")
    source = one_line(summary.jobs[0].name if one_job else PurePath(summary.source).stem, 60)
    if used:
        return f"{source} ({count(used, 'GPU')})"
    cpus = list(dict.fromkeys(machine.cpu for machine in summary.machines if machine.cpu))
    return _processor(cpus[0]) if cpus else source


def _model(name: str, brand: bool) -> str:
    name = one_line(name, 60)
    return name if brand else name.removeprefix("NVIDIA ").removeprefix("AMD ").removeprefix("Tesla ")


def _processor(name: str) -> str:
    """A CPU's model without trademarks and clock rate."""
    name = one_line(name.replace("(R)", "").replace("(TM)", "").partition(" @ ")[0], 60)
    return " ".join(name.removesuffix(" CPU").removesuffix(" Processor").split())


def about(summary: Summary) -> str:
    """Profile, machine, sessions, repeats, date, and the share of the wall time that is measured."""
    repeats = repeats_words(summary)
    sessions = f"{count(len(summary.sessions), 'session')}, " if summary.sessions else ""
    profile = f"profile {summary.profile.name}" if summary.profile else "profile unknown"
    going_on = "in progress" if summary.in_progress else ""
    repeated = f"{sessions}{repeats}" if repeats else ""
    measured = f"measured {percent(summary.wall.measured, 0)} of {took(summary.wall.seconds)}" if summary.wall else ""
    parts = [profile, machine(summary), repeated, date_words(summary.created), measured, going_on]
    return MIDDLE_DOT.join(part for part in parts if part)


def repeats_words(summary: Summary) -> str:
    """ "3 repeats", or "3 to 9 repeats, chosen by --budget 30m"; empty if no numbers per repeat are kept."""
    if summary.budget_s is None:
        repeats = len({(repeat.session, repeat.repeat) for job in summary.jobs for repeat in job.repeats})
        return count(repeats, "repeat") if repeats else ""
    least, most = (of((len(job.repeats) for job in summary.jobs if job.repeats), default=0) for of in (min, max))
    shown = count(most, "repeat") if least == most else f"{least} to {count(most, 'repeat')}"
    return f"{shown}, chosen by {BUDGET} {written(summary.budget_s)}" if most else ""


def took(seconds: float) -> str:
    """A time of a run: "48 s", "5.3 min" or "2.1 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def progress(summary: Summary) -> str:
    """The tasks still to run, and those that run now."""
    to_run, n = sum(job.to_run for job in summary.jobs), sum(job.n for job in summary.jobs)
    running = [task for job in summary.jobs for task in job.tasks if task.status == RUNNING]
    now = "; ".join(few((f"{task.id} on {task.device}" for task in running), _NAMED)) or "none"
    return f"In progress: {to_run:,} of {count(n, 'task')} still to run. Running now: {now}."


def provenance(summary: Summary) -> str:
    """Source, sessions, machine, date and provenance of a base."""
    going_on = "its run is still in progress" if summary.in_progress else ""
    sessions = count(len(summary.sessions), "session") if summary.sessions else ""
    parts = [summary.source, sessions, machine(summary), date_words(summary.created), going_on, summary.provenance]
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


def gpu_trouble(summary: Summary) -> list[str]:
    """Why GPUs of the machines are not used, by host; empty for a machine that has none."""
    known = ((machine.host, machine.gpu_note) for machine in summary.machines)
    troubles = [(host, note) for host, note in known if note and note not in _NO_GPU]
    return [f"{host}: {note}" if len(summary.machines) > 1 else note for host, note in troubles]


def date_words(created: str | None) -> str:
    """A date to the minute; other text and a date without a time as they stand, and none as an empty text."""
    try:
        found = datetime.fromisoformat(created or "")
    except ValueError:
        return created or ""
    return created if created and len(created) <= _DATE else found.strftime("%Y-%m-%d %H:%M %Z").strip()
