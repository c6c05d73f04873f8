"""The facts that belong to every score: profile, weights, machine, isolation, data, code."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import PurePath

from benchsuite.report.format import NONE, count, few, one_line, percent
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.read.workload import overlap_words
from benchsuite.report.show.document import Fact, fact
from benchsuite.report.show.sections.origin import machine
from benchsuite.report.show.sections.sessions import session_facts
from benchsuite.report.stats.score import Score
from benchsuite.telemetry import STOLEN_LIMIT


def basis(summary: Summary, score: Score) -> Iterator[Fact]:
    """All facts on which a score rests."""
    if not score.penalized:
        yield fact("Variance", "not penalized: perf_adj = perf x (1 - fail/n), on both sides of a comparison")
    if summary.provenance:
        yield fact("Provenance", one_line(summary.provenance, 400))
    yield fact("Profile", _profile(summary))
    yield fact("Weights", _weights(score))
    if score.weighing.unweighted:
        yield fact("Without weight", ", ".join(score.weighing.unweighted))
    if score.weighing.beyond:
        yield fact("Do not apply", f"{', '.join(score.weighing.beyond)} (the machine has fewer GPUs)")
    yield from _machine_facts(summary)
    yield from _work_facts(summary)
    yield fact("Code", "; ".join(code.words for code in summary.code) or NONE)
    slices, seconds = sum(job.slices for job in summary.jobs), math.fsum(job.seconds for job in summary.jobs)
    yield fact("Measured", f"{seconds:,.0f} s in {count(slices, 'slice')}" if slices else NONE)
    if not summary.planned:
        unread = f"; {count(len(summary.bad_files), 'file')} could not be used" if summary.bad_files else ""
        yield fact("Tasks", f"no plan.json: n counts the results found, lost tasks are not seen{unread}")


def _machine_facts(summary: Summary) -> Iterator[Fact]:
    yield fact("Machine", machine(summary) or NONE)
    present = "an unknown number" if summary.gpus_present is None else str(summary.gpus_present)
    notes = dict.fromkeys(one_line(machine.gpu_note) for machine in summary.machines if machine.gpu_note)
    yield fact("GPUs", f"{summary.gpus_used} used of {present} present{''.join(f'; {note}' for note in notes)}")
    yield from session_facts(summary)
    yield fact("Isolation", _tally(summary.isolation))
    none = "not recorded" if summary.provenance else "no two tasks ran at the same time"
    yield fact("Overlap", f"{NONE} ({none})" if summary.overlap is None else overlap_words(summary.overlap))
    if stolen := _stolen(summary):
        yield fact("Stolen CPU", stolen, "warn")


def _work_facts(summary: Summary) -> Iterator[Fact]:
    yield fact("Data", _tally(summary.data))
    if groups := [_group(job) for job in summary.jobs if job.ranks > 1]:
        yield fact("Groups", "; ".join(groups))
    if found := [f"{job.name} {job.batch_size:,}" for job in summary.jobs if job.batch_size is not None]:
        yield fact("Batch size", f"{', '.join(found)} (the largest that fits)")


def _stolen(summary: Summary) -> str:
    """The jobs from which a hypervisor withheld processor time, the worst first; empty below `STOLEN_LIMIT`."""
    shares = [(job.use.cpu_stolen, job.name) for job in summary.jobs if job.use and job.use.cpu_stolen is not None]
    most = [f"{name} {percent(share)}" for share, name in sorted(shares, reverse=True) if share >= STOLEN_LIMIT]
    return f"a hypervisor withheld processor time that jobs wanted: {', '.join(few(most, 5))}" if most else ""


def _group(job: JobSummary) -> str:
    size = job.batch_each
    batch = f"batch of {size:,} for each of {job.ranks} ranks, {size * job.ranks:,} in all" if size else ""
    return f"{job.name}: {batch or count(job.ranks, 'rank')}{f', over {job.backend}' if job.backend else ''}"


def _profile(summary: Summary) -> str:
    profile = summary.profile
    if profile is None:
        return NONE
    sha256 = f"sha256 {profile.sha256[:12]}" if profile.sha256 else "sha256 unknown"
    if profile.official is None:
        return f"{profile.name}, {sha256}"
    if profile.official:
        return f"{profile.name}, official, {sha256}"
    if not profile.based_on:
        return f"{profile.name}, not a shipped profile, {sha256}"
    shown = "; ".join(few((one_line(text, 80) for text in profile.differences), 5))
    differences = f": {shown}" if shown else ""
    return f"{profile.name}, MODIFIED from {profile.based_on}, {sha256}{differences}"


def _weights(score: Score) -> str:
    weights = score.weighing.weights
    if weights.values is None:
        return "every job weighs 1 (no weights are shipped for this profile)"
    kind = "official" if weights.official else "not the shipped weights of this profile"
    return f"{PurePath(weights.name or '').name}, {kind}, sha256 {(weights.sha256 or '')[:12]}"


def _tally(settings: dict[str, int]) -> str:
    """Each setting, with its number of tasks if there are several settings."""
    if len(settings) == 1:
        return one_line(next(iter(settings)))
    return "; ".join(f"{one_line(setting)} [{count(tasks, 'task')}]" for setting, tasks in settings.items()) or NONE
