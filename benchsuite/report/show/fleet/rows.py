"""A node and a job of a fleet as flat records: rows of the tables, the CSV and the JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchsuite.report.fleet.grid import Grid
from benchsuite.report.fleet.judge import Fleet, FleetNode
from benchsuite.report.fleet.spread import spread_of
from benchsuite.report.format import one_line


@dataclass(frozen=True)
class NodeRow:
    """The facts of a node; a number is None where there is none.

    `effect` is the rate over all jobs relative to the median node of its kind, `speed_half` the relative half width of
    the 95 % interval of its speed.
    """

    node: str
    verdict: str
    rank: int | None
    machine_score: float | None
    score_per_gpu: float | None
    no_score: str | None
    speed: float | None
    speed_low: float | None
    speed_high: float | None
    speed_half: float | None
    effect: float | None
    gpus: int
    repeats: int
    failed: int
    tasks: int
    to_run: int
    flagged: int
    host: str | None
    hardware: str | None
    driver: str | None
    torch: str | None
    created: str | None
    folder: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class JobRow:
    """A job over the nodes of one kind.

    Attributes:
        nodes: the number of nodes with a rate.
        median: items/s of the median node; of its median GPU if the job runs on each GPU.
        spread: the robust standard deviation between nodes, relative; None with too few nodes.
        slowest, fastest: node and its difference from the median node; None without a rate.
    """

    job: str
    hardware: str
    unit: str | None
    nodes: int
    median: float | None
    spread: float | None
    slowest: tuple[str, float] | None
    fastest: tuple[str, float] | None
    failed: int
    tasks: int


def node_row(node: FleetNode, fleet: Fleet) -> NodeRow:
    """A node as a row."""
    record, scored = node.record, node.record.score
    interval = scored.interval if scored else None
    return NodeRow(
        node=one_line(record.name),
        verdict=node.word,
        rank=node.rank,
        machine_score=scored.machine if scored else None,
        score_per_gpu=scored.value if scored else None,
        no_score=one_line(scored.reason) if scored and scored.reason else None,
        speed=scored.speed if scored else None,
        speed_low=interval.low if interval else None,
        speed_high=interval.high if interval else None,
        speed_half=interval.half if interval else None,
        effect=node.effect,
        gpus=len(record.gpus),
        repeats=record.repeats,
        failed=record.fail,
        tasks=record.n,
        to_run=record.to_run,
        flagged=record.unsteady,
        host=record.host,
        hardware=fleet.grids[node.group].kind if node.group is not None else None,
        driver=record.software.get("driver"),
        torch=record.software.get("torch"),
        created=record.created,
        folder=record.folder,
        reasons=tuple(f"{reason.word}: {reason.text}" for reason in node.reasons),
    )


def job_rows(fleet: Fleet) -> Iterator[JobRow]:
    """The jobs of each kind of hardware, in the order of the plans."""
    for grid in fleet.grids:
        spreads = spread_of(grid.deviations)
        for j, job in enumerate(grid.jobs):
            yield _job_row(grid, j, job, float(spreads[j]))


def _job_row(grid: Grid, j: int, job: str, spread: float) -> JobRow:
    logs, effects = grid.logs[j], np.expm1(grid.deviations[j])
    known = np.flatnonzero(np.isfinite(logs)).tolist()
    in_order = sorted(known, key=lambda n: float(effects[n]))
    cells = [of for node in grid.nodes if (of := grid.job(job, node))]
    middle = float(np.exp(np.median(logs[known]))) if known else None

    def end(n: int) -> tuple[str, float]:
        return one_line(grid.nodes[n].name), float(effects[n])

    return JobRow(
        job=job,
        hardware=grid.kind,
        unit=grid.workloads[job][1],
        nodes=len(known),
        median=middle,
        spread=spread if math.isfinite(spread) else None,
        slowest=end(in_order[0]) if in_order else None,
        fastest=end(in_order[-1]) if in_order else None,
        failed=sum(int(of.fail.sum()) for of in cells),
        tasks=sum(of.n for of in cells),
    )


def rates(fleet: Fleet) -> dict[str, dict[str, tuple[float, float]]]:
    """Node -> job -> items/s and the relative difference from the median node."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for grid in fleet.grids:
        perfs, effects = np.exp(grid.logs), np.expm1(grid.deviations)
        for n, node in enumerate(grid.nodes):
            known = np.flatnonzero(np.isfinite(perfs[:, n])).tolist()
            found[node.name] = {grid.jobs[j]: (float(perfs[j, n]), float(effects[j, n])) for j in known}
    return found
