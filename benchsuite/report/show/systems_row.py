"""A system as one flat record: a row of the tables, the CSV and the JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from benchsuite.describe.invocation import pasteable
from benchsuite.report.format import count, few, one_line
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.machine_name import machine_name
from benchsuite.report.show.sections.against import covered, withheld_words
from benchsuite.report.show.sections.failures import never_label, never_words
from benchsuite.report.stats.overall import Ratio
from benchsuite.report.stats.systems import Group, System

# Options of `jobs` that name a folder, which another run cannot take again.
_OF_ONE_RUN = ("-o", "--output")
_NAMED = 4


@dataclass(frozen=True)
class SystemRow:
    """The facts of a system; a number is None where there is none, and `remarks` gives the reason.

    `jobs_measured` are the weighed jobs with a number, `jobs_scored` those behind the score: none without a score.
    `ratio_...` are ratios of speed to the reference, without penalties. `group` numbers the groups, from 0.
    """

    name: str
    machine: str
    gpus: int
    profile: str | None
    program: str
    group: int
    reference: str
    score_per_gpu: float | None
    machine_score: float | None
    ratio_per_gpu: float | None
    ratio_per_gpu_low: float | None
    ratio_per_gpu_high: float | None
    ratio_per_gpu_verdict: str
    ratio_machine: float | None
    ratio_machine_low: float | None
    ratio_machine_high: float | None
    ratio_machine_verdict: str
    jobs_measured: int
    jobs_scored: int
    jobs_weighed: int
    failed: int
    tasks: int
    verdict: str
    repeats: int | None
    sessions: int
    flagged: int | None
    price: float | None
    price_per_machine_score: float | None
    driver: str | None
    torch: str | None
    created: str | None
    command: str | None
    source: str
    remarks: tuple[str, ...]


def system_rows(groups: Sequence[Group]) -> list[SystemRow]:
    """The rows of all groups, in order."""
    systems = [(place, group, system) for place, group in enumerate(groups) for system in group.systems]
    names = system_names(groups)
    reference = next(name for name, (_, _, system) in zip(names, systems, strict=True) if system.against is None)
    return [
        _row(system, name, reference, group, place) for name, (place, group, system) in zip(names, systems, strict=True)
    ]


def system_names(groups: Sequence[Group]) -> list[str]:
    """The short name of each system, in the order of the rows."""
    return _short([system.named.name for group in groups for system in group.systems])


def _short(names: Sequence[str]) -> list[str]:
    """The last parts of paths without `.json`; whole names where two would be the same."""
    short = [one_line(PurePath(name).name.removesuffix(".json") or name, 60) for name in names]
    times = Counter(short)
    return [brief if times[brief] == 1 else one_line(name) for brief, name in zip(short, names, strict=True)]


def _row(system: System, name: str, reference: str, group: Group, place: int) -> SystemRow:
    summary, scored = system.named.summary, system.score
    found = system.against.overall if system.against else None
    per_gpu, machine = (found.per_gpu, found.machine) if found else (None, None)
    own = 1.0 if found is None else None
    return SystemRow(
        name=name,
        machine=machine_name(summary),
        gpus=summary.gpus_used,
        profile=group.profile,
        program=group.program,
        group=place,
        reference=reference,
        score_per_gpu=scored.value,
        machine_score=system.machine_score,
        ratio_per_gpu=per_gpu.value if per_gpu else own,
        ratio_per_gpu_low=_low(per_gpu),
        ratio_per_gpu_high=_high(per_gpu),
        ratio_per_gpu_verdict=_word(per_gpu),
        ratio_machine=machine.value if machine else own,
        ratio_machine_low=_low(machine),
        ratio_machine_high=_high(machine),
        ratio_machine_verdict=_word(machine),
        jobs_measured=sum(job.perf_adj > 0 and system.weighing.jobs.get(job.name, 0.0) > 0 for job in summary.jobs),
        jobs_scored=scored.scored,
        jobs_weighed=scored.weighed,
        failed=scored.fail,
        tasks=scored.n,
        verdict=scored.verdict,
        repeats=_repeats(summary),
        sessions=max(1, len(summary.sessions)),
        flagged=sum(job.unsteady for job in summary.jobs) if any(job.tasks for job in summary.jobs) else None,
        price=system.named.price,
        price_per_machine_score=system.price_per_score,
        driver=_each(machine.driver for machine in summary.machines),
        torch=_each(machine.packages.get("torch") for machine in summary.machines),
        created=summary.created,
        command=repeatable(summary.command),
        source=one_line(summary.provenance or system.named.name, 400),
        remarks=tuple(_remarks(system)),
    )


def _low(ratio: Ratio | None) -> float | None:
    return ratio.verdict.low if ratio else None


def _high(ratio: Ratio | None) -> float | None:
    return ratio.verdict.high if ratio else None


def _word(ratio: Ratio | None) -> str:
    return (ratio.verdict.word or "") if ratio else ""


def _repeats(summary: Summary) -> int | None:
    own = {(repeat.session, repeat.repeat) for job in summary.jobs for repeat in job.repeats}
    return len(own) or max((gpu.n for job in summary.jobs for gpu in job.gpus), default=0) or None


def _each(values: Iterator[str | None]) -> str | None:
    return ", ".join(dict.fromkeys(one_line(value, 40) for value in values if value)) or None


def repeatable(command: Sequence[str]) -> str | None:
    """The command line that measures the same again, without the folder of the run; None if none is recorded."""
    words = list(command)
    if not words:
        return None
    kept: list[str] = []
    skip = False
    for word in words:
        if skip or word in _OF_ONE_RUN:
            skip = not skip
        elif not word.startswith("--output="):
            kept.append(word)
    return one_line(pasteable(kept), 2000)


def _remarks(system: System) -> Iterator[str]:
    """Why a number is missing, covers only a part, or is in doubt."""
    scored, summary = system.score, system.named.summary
    if scored.reason:
        yield f"no score: {'; '.join(few(scored.blocking or (scored.reason,), _NAMED))}"
    elif scored.partial:
        reasons = "; ".join(few(scored.incomplete, _NAMED))
        yield f"score over {scored.scored} of {count(scored.weighed, 'job')} only: {reasons}"
    if scored.never:
        never = "; ".join(few(never_words(scored.never, summary), _NAMED))
        yield f"no machine score, {never_label(scored).lower()}: {never}"
    elif scored.value and scored.machine is None:
        yield "no machine score: no numbers per repeat are kept"
    if system.against:
        yield from _of_ratio(system)


def _of_ratio(system: System) -> Iterator[str]:
    assert system.against
    found = system.against.overall
    if found.per_gpu is None:
        yield f"no ratio: {withheld_words(found, brief=True)}"
        return
    if found.withheld:
        yield f"ratio over {covered(system.against)}: {withheld_words(found, brief=True)}"
    elif len(found.jobs) < system.score.weighed:
        yield f"ratio over {covered(system.against)}"
    if found.machine is None and found.machine_withheld:
        yield f"no ratio of the machines: {one_line(found.machine_withheld)}"
    if found.per_gpu.verdict.reason:
        yield f"no interval of the ratio: {found.per_gpu.verdict.reason}"
