"""The conditions under which a table of systems ends with an exit status of its own, each with its systems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchsuite.report.read.summary import Summary
from benchsuite.report.show.fail_on import reasons
from benchsuite.report.show.systems_row import system_names
from benchsuite.report.stats.compare import Comparison
from benchsuite.report.stats.score import Score
from benchsuite.report.stats.systems import Group


@dataclass(frozen=True)
class _One:
    """One system as the conditions read it; the reference is compared with nothing."""

    summary: Summary
    score: Score
    comparisons: tuple[Comparison, ...]


def holding_systems(groups: Sequence[Group], conditions: Iterable[str]) -> list[str]:
    """Those of `conditions` that hold for any system, each as "slower: node7: slower than h200 per GPU (0.84x)"."""
    systems = [
        (name, _One(system.named.summary, system.score, (system.against,) if system.against else ()))
        for name, system in zip(system_names(groups), (one for group in groups for one in group.systems), strict=True)
    ]
    found = ((name, [f"{of}: {why}" for of, one in systems if (why := reasons(one, name))]) for name in conditions)
    return [f"{name}: {'; '.join(held)}" for name, held in found if held]
