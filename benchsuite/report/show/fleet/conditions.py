"""The conditions under which the report of a fleet ends with an exit status of its own, each with its nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from benchsuite.report.fleet.judge import Fleet
from benchsuite.report.format import count, few, one_line, signed

# The number of nodes that a condition names.
_NAMED = 4


def holding_fleet(fleet: Fleet, conditions: Iterable[str]) -> list[str]:
    """Those of `conditions` that hold, each as "slower: node07 -13.0 %"."""
    found = ((name, few(list(_CONDITIONS[name](fleet)), _NAMED)) for name in conditions)
    return [f"{name}: {'; '.join(why)}" for name, why in found if why]


def _failures(fleet: Fleet) -> Iterator[str]:
    """Nodes with a task that ended and is not ok."""
    for node in fleet.nodes:
        if fail := node.record.fail:
            ended = node.record.n - node.record.to_run
            yield f"{one_line(node.name, 60)} {fail:,} of {count(ended, 'task')}"


def _slower(fleet: Fleet) -> Iterator[str]:
    """Nodes and GPUs that are outliers to the slow side."""
    for outlier in fleet.outliers:
        if outlier.slower:
            gpu = f" GPU {outlier.gpu.index}" if outlier.gpu else ""
            worst = outlier.worst
            yield f"{one_line(outlier.node, 60)}{gpu} {signed(worst.effect)} % in {one_line(worst.job, 60)}"
    for grid, found in zip(fleet.grids, fleet.found, strict=True):
        if found.untested:
            names = ", ".join(few((one_line(node.name, 60) for node in grid.nodes), _NAMED))
            yield f"cannot be judged ({found.untested}): {names}"


def _incomplete(fleet: Fleet) -> Iterator[str]:
    """Nodes without results, with tasks to run, or without a score."""
    for node in fleet.nodes:
        record, name = node.record, one_line(node.name, 60)
        if record.problem:
            yield f"{name}: {one_line(record.problem, 100)}"
        elif record.to_run:
            yield f"{name}: {record.to_run:,} of {count(record.n, 'task')} still to run"
        elif record.score and record.score.value is None and record.score.reason:
            yield f"{name}: {one_line(record.score.reason, 100)}"


def _flagged(fleet: Fleet) -> Iterator[str]:
    """Nodes with a window that is not steady."""
    for node in fleet.nodes:
        if node.record.unsteady:
            yield f"{one_line(node.name, 60)} {count(node.record.unsteady, 'task')} not steady"


_CONDITIONS: Mapping[str, Callable[[Fleet], Iterator[str]]] = {
    "failures": _failures,
    "slower": _slower,
    "incomplete": _incomplete,
    "flagged": _flagged,
}
