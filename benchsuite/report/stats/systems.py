"""Machines side by side: each run with its scores, and its ratio to one of them, in groups whose scores compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchsuite.errors import UsageError
from benchsuite.report.format import count, one_line
from benchsuite.report.read.summary import Summary
from benchsuite.report.stats.compare import Comparison, compare, find_base
from benchsuite.report.stats.score import Score, score, without_penalty
from benchsuite.report.stats.weights import Weighing, weigh, weights_for

BENCHSUITE = "benchsuite"
_NAMED = 3
# The options that do not go with --systems, with the reason.
_BESIDE = {
    "compare": "its ratios are to the system named first, so name the baseline there",
    "compare-unlike": "a system with other workloads gets a table of its own",
    "compare-gpus": "it compares machines; report one machine with --compare-gpus",
    "power": "its table has no power; report one machine with --power",
    "explain": "it explains the ratios of one machine; report it with --compare BASELINE --explain",
}


@dataclass(frozen=True)
class Named:
    """A summary under the name that the user gave it, with the price of its machine if there is one."""

    name: str
    summary: Summary
    price: float | None = None


@dataclass(frozen=True)
class System:
    """A machine beside the others.

    Attributes:
        against: its comparison with the reference; None for the reference itself.
    """

    named: Named
    score: Score
    weighing: Weighing
    against: Comparison | None = None

    @property
    def machine_score(self) -> float | None:
        """The score of all GPUs together; None unless every job has a number and succeeds on every GPU."""
        return None if self.score.partial or self.score.never else self.score.machine

    @property
    def price_per_score(self) -> float | None:
        """The price of the machine over its machine score: the lower, the better."""
        price, value = self.named.price, self.machine_score
        return price / value if price and value else None


@dataclass(frozen=True)
class Group:
    """Systems whose scores compare: of one program and profile, with the same workloads and weights.

    Attributes:
        program: the program that measured.
        profile: the profile's name, or that of the profile it is based on.
        apart: how the workloads differ from those of an earlier group of the same program and profile.
        systems: the best first.
    """

    program: str
    profile: str | None
    systems: tuple[System, ...]
    apart: str = ""


@dataclass
class _Open:
    """A group while systems are added; its first system is its head."""

    key: tuple[str, str | None, str | None]
    apart: str
    systems: list[System] = field(default_factory=list)


def check_systems(outs: Sequence[Path], prices: Sequence[float], beside: Sequence[str]) -> None:
    """Refuse a use of `--systems` that has no meaning.

    Args:
        beside: the names of the given options that do not go with it, of those in `_BESIDE`.

    Raises:
        UsageError: no system is named, another option does not go with --systems, or the prices do not match.
    """
    if beside:
        raise UsageError(f"--systems: does not go with --{beside[0]}; {_BESIDE[beside[0]]}")
    if not outs:
        raise UsageError("--systems: name the systems: results folders, summary files or baselines")
    if prices and len(prices) != len(outs):
        found = f"{count(len(prices), 'price')} for {count(len(outs), 'system')}"
        raise UsageError(f"--systems: {found}; give one --price for each system, in their order")
    for place, out in enumerate(outs):
        if out in outs[:place]:
            raise UsageError(f"--systems: {one_line(str(out))} is named twice; name each system once")


def named_systems(
    outs: Sequence[Path],
    prices: Sequence[float],
    weights: str | None,
    margin: float,
    penalized: bool,
    partial: bool,
) -> tuple[Group, ...]:
    """Read the systems and group them, as `group_systems`.

    Args:
        outs: each a path, the name of a shipped baseline, or several runs of one machine, separated by commas.
        prices: one for each system, or none.

    Raises:
        BenchError: a system cannot be read, or its runs cannot be sessions of one machine.
    """
    adjusted = (lambda summary: summary) if penalized else without_penalty
    given: Sequence[float | None] = prices or [None] * len(outs)
    named = [Named(str(out), adjusted(find_base(str(out))), price) for out, price in zip(outs, given, strict=True)]
    return group_systems(named, weights, margin=margin, penalized=penalized, partial=partial)


def program(summary: Summary) -> str:
    """The program that measured a summary."""
    if summary.origin:
        return summary.origin
    return BENCHSUITE if summary.code or not summary.provenance else "another program"


def measured_by_another(summary: Summary, base: Summary, name: str) -> str:
    """The side that another program than benchsuite measured, in words; empty if one program measured both."""
    if program(summary) == program(base):
        return ""
    foreign = program(summary) != BENCHSUITE
    side, which = ("this run", summary.source) if foreign else ("the baseline", name)
    return f"another program measured {side} ({one_line(which, 60)})"


def group_systems(
    named: Sequence[Named],
    weights: str | None = None,
    *,
    margin: float,
    penalized: bool = True,
    partial: bool = False,
) -> tuple[Group, ...]:
    """The groups, that of the first system first. The first system is the reference of all ratios.

    Args:
        weights: of the jobs, as the user names them; None for the profile's own.
        margin: the largest relative difference of speeds that counts as the same.
        penalized: false for summaries `without_penalty`.
        partial: also score a part of the jobs.

    Raises:
        ProfileError: the weights are not found or not valid.
    """
    reference = named[0]
    groups: list[_Open] = []
    for one in named:
        weighing = weigh(weights_for(one.summary.profile, weights), one.summary)
        scored = score(one.summary, weighing, penalized=penalized, partial=partial)
        against = None
        if one is not reference:
            against = compare(one.summary, reference.summary, weighing, reference.name, margin, partial=partial)
        _add(groups, System(one, scored, weighing, against), margin)
    return tuple(
        Group(group.key[0], group.key[1], tuple(sorted(group.systems, key=_rank)), group.apart) for group in groups
    )


def _add(groups: list[_Open], system: System, margin: float) -> None:
    """Add a system to the group that it belongs to, or to a new one."""
    profile = system.named.summary.profile
    name = (profile.based_on or profile.name) if profile else None
    key, apart = (program(system.named.summary), name, system.weighing.weights.sha256), ""
    for group in groups:
        if group.key == key:
            unlike = _unlike(system, group.systems[0], margin)
            if not unlike:
                group.systems.append(system)
                return
            apart = apart or f"another workload than {group.systems[0].named.name}: {unlike}"
    groups.append(_Open(key, apart, [system]))


def _unlike(system: System, head: System, margin: float) -> str:
    """The weighed jobs that train something else than in the head of a group, with the fields; empty without any."""
    found = system.against
    if found is None or found.base is not head.named.summary:
        found = compare(system.named.summary, head.named.summary, system.weighing, head.named.name, margin)
    jobs = [job for job in found.jobs if job.refused and system.weighing.jobs.get(job.name, 0.0) > 0]
    fields = dict.fromkeys(field for job in jobs for field in job.fields)
    names = [job.name for job in jobs]
    more = f" and {len(names) - _NAMED} more jobs" if len(names) > _NAMED else ""
    changes = f" ({', '.join(list(fields)[:_NAMED])})" if fields else ""
    return f"{', '.join(names[:_NAMED])}{more}{changes}" if names else ""


def _rank(system: System) -> tuple[float, float]:
    """A sort key: the best machine score first, then the best score per GPU; systems without a score come last."""
    return -(system.machine_score or 0.0), -(system.score.value or 0.0)
