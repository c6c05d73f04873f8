"""The name of the machine that a summary measured, as a title or a table of machines shows it."""

from __future__ import annotations

from collections import Counter

from benchsuite.report.format import count, one_line
from benchsuite.report.read.summary import Summary


def machine_name(summary: Summary) -> str:
    """The GPUs that were used, "2 x NVIDIA H200"; without any, the CPU; without a record of the machine, the source."""
    gpus = [gpu.name for machine in summary.machines for gpu in machine.gpus if gpu.uuid in machine.visible]
    if not summary.machines:
        used = f" ({count(summary.gpus_used, 'GPU')})" if summary.gpus_used else ""
        return f"{one_line(summary.source, 60)}{used}"
    if not summary.gpus_used or not gpus:
        machine = summary.machines[0]
        return one_line(f"{machine.cpu or 'CPU'}, {count(machine.cpus_usable, 'processor')}", 80)
    models = Counter(gpus)
    if len(models) == 1:
        return f"{summary.gpus_used} x {one_line(gpus[0], 60)}"
    return one_line(", ".join(f"{number} x {model}" for model, number in models.items()), 120)


def plot_title(what: str, summary: Summary) -> str:
    """The title of a plot: its subject, the machine with its host, and the profile."""
    hosts = ", ".join(dict.fromkeys(machine.host for machine in summary.machines))
    where = f"{machine_name(summary)}{f' ({one_line(hosts, 40)})' if hosts else ''}"
    profile = f", profile {one_line(summary.profile.name, 40)}" if summary.profile else ""
    return f"{what}: {where}{profile}"


def samples_words(summary: Summary) -> str:
    """The repeats and sessions behind each number, as a caption gives them; published numbers give their samples."""
    repeats = {(repeat.session, repeat.repeat) for job in summary.jobs for repeat in job.repeats}
    if repeats:
        sessions = f" in {count(len(summary.sessions), 'session')}" if len(summary.sessions) > 1 else ""
        return f"{count(len(repeats), 'repeat')}{sessions}"
    published = max((gpu.n for job in summary.jobs for gpu in job.gpus), default=0)
    return f"{published} published repeats" if published else "no repeats recorded"
