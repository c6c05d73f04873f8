"""The jobs of a run that ran on each pair of nodes, and what their rates say of nodes and links."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from benchsuite.describe.placement import PAIRS
from benchsuite.report.fleet.pairs import Floats, Judged, judge
from benchsuite.report.read.load import OPEN
from benchsuite.report.read.summary import JobSummary, Summary, TaskSummary

Pair: TypeAlias = tuple[str, str]
# A node whose pairs all fail is at fault from this number of pairs on.
_MANY = 2


@dataclass(frozen=True)
class Tournament:
    """A job on each pair of nodes.

    Attributes:
        rates: items/s of each pair, median over repeats, of shape [nodes, nodes]; NaN without a rate.
        failed_nodes: nodes of which no pair has ever ended ok, while pairs of others have.
        failed_pairs: the other pairs that have ended and never ok.
        to_run: pairs that have not ended.
    """

    job: str
    unit: str | None
    nodes: tuple[str, ...]
    rates: Floats
    judged: Judged
    failed_nodes: tuple[str, ...] = ()
    failed_pairs: tuple[Pair, ...] = ()
    to_run: int = 0

    @property
    def known(self) -> Floats:
        """The rates of all pairs that have one, each once."""
        upper = self.rates[np.triu_indices(len(self.nodes), 1)]
        found: Floats = upper[np.isfinite(upper)]
        return found

    @property
    def pairs(self) -> int:
        """The number of pairs of the nodes."""
        return len(self.nodes) * (len(self.nodes) - 1) // 2

    def of_node(self, node: str) -> Floats:
        """The rates of a node's pairs."""
        row = self.rates[self.nodes.index(node)]
        found: Floats = row[np.isfinite(row)]
        return found


def tournaments(summary: Summary) -> tuple[Tournament, ...]:
    """The tournaments of a run, in the order of its plan."""
    return tuple(_tournament(job) for job in summary.jobs if _on_pairs(job))


def _on_pairs(job: JobSummary) -> bool:
    placement = job.settings.get("placement")
    return isinstance(placement, dict) and placement.get("nodes") == PAIRS and any(task.nodes for task in job.tasks)


def _tournament(job: JobSummary) -> Tournament:
    by_pair: dict[Pair, list[TaskSummary]] = defaultdict(list)
    for task in job.tasks:
        if len(task.nodes) == 2:
            by_pair[task.nodes[0], task.nodes[1]].append(task)
    nodes = tuple(sorted({node for pair in by_pair for node in pair}, key=_in_order))
    at = {node: place for place, node in enumerate(nodes)}
    rates = np.full((len(nodes), len(nodes)), np.nan)
    for (one, other), tasks in by_pair.items():
        if known := [task.perf for task in tasks if task.perf]:
            rates[at[one], at[other]] = rates[at[other], at[one]] = statistics.median(known)
    failed = {pair for pair, tasks in by_pair.items() if _never_ok(tasks)}
    dead = tuple(_dead(nodes, failed, by_pair))
    return Tournament(
        job=job.name,
        unit=job.unit,
        nodes=nodes,
        rates=rates,
        judged=judge(nodes, np.log(rates)),
        failed_nodes=dead,
        failed_pairs=tuple(sorted(pair for pair in failed if not set(pair) & set(dead))),
        to_run=sum(all(task.status in OPEN for task in tasks) for tasks in by_pair.values()),
    )


def _in_order(name: str) -> tuple[int, str]:
    """n2 before n10."""
    return len(name), name


def _never_ok(tasks: Sequence[TaskSummary]) -> bool:
    ended = [task for task in tasks if task.status not in OPEN and task.status != "skipped"]
    return bool(ended) and all(task.status != "ok" for task in ended)


def _dead(nodes: Sequence[str], failed: set[Pair], by_pair: Mapping[Pair, object]) -> Iterator[str]:
    """The nodes whose pairs all fail, if a pair of others does not."""
    for node in nodes:
        own = {pair for pair in by_pair if node in pair}
        if len(own) >= _MANY and own <= failed and len(failed) < len(by_pair):
            yield node
