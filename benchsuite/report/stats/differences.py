"""The differences between two runs beside their figures: machine, software, code, profile, isolation, settings."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from benchsuite.describe import work
from benchsuite.describe.changes import flat
from benchsuite.describe.tasks import Gpu
from benchsuite.errors import one_line
from benchsuite.provisions import DataUsed
from benchsuite.records import Machine
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.read.workload import cache_state

_NONE = "none"
# Process ids in the words of a fence, which differ between any two runs.
_PROCESSES = re.compile(r" \(process \d+(, process \d+)*\)")
# The characters of the common begin that stay before what differs.
_BEFORE = 20
# The launcher sets it for each task; the GPUs of a run are compared with its machine.
_PLACE = "environ.CUDA_VISIBLE_DEVICES"
# Facts of these groups are compared only if both sides record the group; else the side that does not is named once.
_GROUPS = ("host", "machine", "GPUs used", "code", "profile's hash", "isolation")


@dataclass(frozen=True)
class Difference:
    """A fact that differs between both sides, in words; it concerns the named jobs, or without `jobs` the whole run."""

    what: str
    base: str
    here: str
    jobs: tuple[str, ...] = ()

    def shown(self, limit: int) -> tuple[str, str]:
        """The values of the base and of this run on one line each.

        If they are the same up to `limit` characters, "..." stands for most of their common begin.
        """
        base, here = one_line(self.base), one_line(self.here)
        pairs = enumerate(zip(base, here, strict=False))
        common = next((at for at, (one, other) in pairs if one != other), min(len(base), len(here)))
        if common <= limit - 2 * _BEFORE:
            return base, here
        return f"...{base[common - _BEFORE :]}", f"...{here[common - _BEFORE :]}"


@dataclass(frozen=True)
class Differences:
    """All differences found; `unknown` names the facts that a side does not record, and that may differ unseen."""

    found: tuple[Difference, ...]
    unknown: tuple[str, ...]


def differences(summary: Summary, base: Summary) -> Differences:
    """Compare all that can explain a ratio, the machine first."""
    sides = [list(_run_facts(side)) for side in (summary, base)]
    here, there = ({group for group, _, _ in facts} for facts in sides)
    one_sided = (here ^ there) & set(_GROUPS)
    own, others = ({what: fact for group, what, fact in facts if group not in one_sided} for facts in sides)
    found = [Difference(*difference) for difference in _unequal(own, others)]
    by_name = {job.name: job for job in base.jobs}
    common = [(job, by_name[job.name]) for job in summary.jobs if job.name in by_name]
    return Differences((*found, *_of_jobs(common)), tuple(_unknown(here, there, common)))


def trained_changes(settings: Mapping[str, Any], base: Mapping[str, Any]) -> tuple[str, ...]:
    """The settings, old -> new, that make two jobs train different things; empty if a side keeps no settings."""
    return tuple(f"{what} {old} -> {new}" for what, old, new in trained_differences(settings, base))


def trained_differences(settings: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Each setting of the workload that differs: (name, the baseline's value, this run's value)."""
    if settings and base:
        here, there = (_in_words(work.work(side)) for side in (settings, base))
        yield from _unequal(here, there)


def _unknown(
    here: Collection[str], base: Collection[str], common: Sequence[tuple[JobSummary, JobSummary]]
) -> Iterator[str]:
    """Each group that a side does not record, with the side; `here` and `base` are the groups that each records."""
    known = {group: (group in here, group in base) for group in _GROUPS}
    if common:
        known["settings of jobs"] = (any(a.settings for a, _ in common), any(b.settings for _, b in common))
        known["data"] = (any(a.data_used for a, _ in common), any(b.data_used for _, b in common))
    sides = {(False, False): "both", (False, True): "this run", (True, False): "the baseline"}
    yield from (f"{group} ({sides[of]})" for group, of in known.items() if of in sides)


def _run_facts(summary: Summary) -> Iterator[tuple[str, str, str]]:
    """The known facts of a whole run: group, name, and value in words."""
    yield from _setup_facts(summary)
    if summary.isolation:
        yield "isolation", "isolation", _joined(_PROCESSES.sub("", of) for of in summary.isolation)
    if summary.wall and summary.wall.forked:
        tasks = sum(job.tasks for job in summary.wall.jobs)
        yield "workers", "forked workers", "all" if summary.wall.forked == tasks else "some"


def _setup_facts(summary: Summary) -> Iterator[tuple[str, str, str]]:
    """The machines, the code and the profile of a run."""
    for number, machine in enumerate(summary.machines, 1):
        which = f" of machine {number}" if number > 1 else ""
        yield from ((group, f"{what}{which}", fact) for group, what, fact in _machine_facts(machine))
    hosts = sorted({task.host for job in summary.jobs for task in job.tasks if task.host})
    if hosts and not summary.machines:
        yield "host", "host", ", ".join(hosts)
    if summary.machines or summary.gpus_used:
        yield "GPUs used", "GPUs used", str(summary.gpus_used)
    if summary.code:
        yield "code", "benchsuite", _joined(code.version for code in summary.code)
        if any(code.commit for code in summary.code):
            yield "code", "commit", _joined((code.commit or "not known")[:12] for code in summary.code)
        dirty = {None: "not known", True: "yes", False: "no"}
        yield "code", "uncommitted changes", _joined(dirty[code.dirty] for code in summary.code)
    if profile := summary.profile:
        yield "profile", "profile", profile.name
        if profile.sha256:
            yield "profile's hash", "profile hash", profile.sha256[:12]
        if profile.differences:
            yield "profile", f"changes to {profile.based_on or 'the profile'}", "; ".join(profile.differences)


def _machine_facts(machine: Machine) -> Iterator[tuple[str, str, str]]:
    models = Counter(gpu.name for gpu in machine.gpus)
    facts = {
        "system": machine.system,
        "kernel": machine.kernel,
        "CPU": machine.cpu,
        "CPUs": f"{machine.cpus}, {machine.cpus_usable} usable",
        "memory": _bytes(machine.memory_bytes),
        "driver": machine.driver or _NONE,
        "GPUs": ", ".join(f"{number} x {name}" for name, number in models.items()) or _NONE,
        **({"GPU limits": _joined(map(_limits, machine.gpus))} if machine.gpus else {}),
        "Python": machine.python,
        **{f"package {name}": version for name, version in sorted(machine.packages.items())},
    }
    yield "host", "host", machine.host
    yield from (("machine", what, fact) for what, fact in facts.items())


def _limits(gpu: Gpu) -> str:
    facts = (
        None if gpu.memory_bytes is None else _bytes(gpu.memory_bytes),
        None if gpu.power_limit_w is None else f"{gpu.power_limit_w:g} W",
        None if gpu.max_sm_clock_mhz is None else f"{gpu.max_sm_clock_mhz} MHz",
    )
    return ", ".join(fact for fact in facts if fact) or "not known"


def _of_jobs(common: Iterable[tuple[JobSummary, JobSummary]]) -> Iterator[Difference]:
    """The differences between jobs, each once with all jobs that have it."""
    alike: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for job, base in common:
        for difference in _unequal(dict(_job_facts(job)), dict(_job_facts(base)), both=True):
            alike[difference].append(job.name)
        if job.settings and base.settings:
            for difference in _unequal(_in_words(flat(job.settings)), _in_words(flat(base.settings))):
                if difference[0] != _PLACE:
                    alike[difference].append(job.name)
    yield from (Difference(*difference, jobs=tuple(jobs)) for difference, jobs in alike.items())


def _job_facts(job: JobSummary) -> Iterator[tuple[str, str]]:
    """The known facts of a job's tasks, in words."""
    if job.repeats:
        yield "ok tasks a repeat", ", ".join(str(ok) for ok in sorted({repeat.ok for repeat in job.repeats}))
    if job.batch_size is not None:
        yield "batch size found", f"{job.batch_size:,}"
    if job.ranks > 1:
        yield "ranks", str(job.ranks)
    if job.backend:
        yield "backend", job.backend
    if job.data_used:
        fields = (field for field in DataUsed.__struct_fields__ if field not in ("cached", "page_cache"))
        for name in fields:
            yield f"data.{name}", _joined(_value(getattr(data, name)) for data in job.data_used)
        yield "data in the page cache", _joined(cache_state(data.cached) for data in job.data_used)


def _unequal(here: Mapping[str, str], base: Mapping[str, str], both: bool = False) -> Iterator[tuple[str, str, str]]:
    """(fact, the base's value, this run's value) of each unequal fact; `both`: only facts that both sides record."""
    for what in {**base, **here}:
        old, new = base.get(what), here.get(what)
        if old != new and not (both and None in (old, new)):
            yield what, old or _NONE, new or _NONE


def _in_words(fields: Mapping[str, Any]) -> dict[str, str]:
    return {name: _value(value) for name, value in fields.items()}


def _value(value: object) -> str:
    """A value as a profile spells it: text as it is, all else as JSON."""
    if value is None:
        return _NONE
    return value if isinstance(value, str) else json.dumps(msgspec.to_builtins(value))


def _joined(values: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(values))


def _bytes(number: int | None) -> str:
    return _NONE if number is None else f"{number / 2**30:.1f} GiB"
