#!/usr/bin/env python
"""Measure how often the report of a fleet names a healthy node, and how often it names a slow one.

The rates are random numbers, without files. Healthy nodes differ by 0.3 % over all jobs and by 0.4 % in a job, their
GPUs by 0.4 % and 0.5 %, all with normal distributions, and repeats by 0.5 %. The tests are those of the report.

    python scripts/bench/fleet_rates.py                     # the table of docs/statistics.md, some minutes
    python scripts/bench/fleet_rates.py --fleets 20 --only 64
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchsuite.report.fleet.folders import FleetFolders
from benchsuite.report.fleet.judge import Fleet, judge_fleet
from benchsuite.report.fleet.node import EVENTS, GAUGES, NodeJob, NodeRecord
from benchsuite.report.stats.gpu_cells import GpuKey

NODE, NODE_JOB, GPU, GPU_JOB, REPEAT = 0.003, 0.004, 0.004, 0.005, 0.005
JOBS, GPUS, REPEATS, LEAST = 20, 8, 3, 0.02
NO_FIGURES = np.full((GPUS, len(GAUGES) + len(EVENTS)), np.nan, dtype=np.float32)
KEYS = tuple(GpuKey("", index, "") for index in range(GPUS))


def drawn(rng: np.random.Generator, heavy: bool, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Normal, or Student's t with 5 degrees of freedom, of variance 1."""
    return rng.standard_t(5, shape) / math.sqrt(5 / 3) if heavy else rng.normal(size=shape)


def made_node(rng: np.random.Generator, name: str, repeats: int, heavy: bool, slower: float = 0.0) -> NodeRecord:
    """A node that is slower than the others by `slower`, as a difference of logs."""
    middle = NODE * rng.normal() + NODE_JOB * rng.normal(size=(JOBS, 1)) - slower
    gpus = middle + GPU * rng.normal(size=GPUS) + GPU_JOB * rng.normal(size=(JOBS, GPUS))
    logs = gpus[:, None] + REPEAT * drawn(rng, heavy, (JOBS, repeats, GPUS))
    return NodeRecord(
        name=name,
        folder=name,
        hardware={"GPU": "made up"},
        gpus=KEYS,
        jobs={f"job{j}": _job(f"job{j}", logs[j]) for j in range(JOBS)},
        repeats=repeats,
    )


def _job(name: str, logs: NDArray[np.float64]) -> NodeJob:
    repeats = len(logs)
    return NodeJob(
        name=name,
        workload="w",
        unit="item",
        each=True,
        logs=np.median(logs, axis=0),
        ok=np.full(GPUS, repeats, dtype=np.int32),
        fail=np.zeros(GPUS, dtype=np.int32),
        ended=np.full(GPUS, repeats, dtype=np.int32),
        figures=NO_FIGURES,
        by_repeat={r: float(np.median(logs[r])) for r in range(repeats)},
        n=GPUS * repeats,
        to_run=0,
        unsteady=0,
    )


def fleet(rng: np.random.Generator, nodes: int, repeats: int, heavy: bool, slower: float = 0.0) -> Fleet:
    """A judged fleet whose node 0 is slower."""
    records = [made_node(rng, f"n{n}", repeats, heavy, 0.0 if n else slower) for n in range(nodes)]
    return judge_fleet(FleetFolders(Path("made-up"), {}), records, LEAST)


def names_node_0(found: Fleet) -> bool:
    """Whether node 0 as a whole is an outlier."""
    return any(one.node == "n0" and one.gpu is None for one in found.outliers)


def rows(fleets: int, only: int | None) -> Iterator[str]:
    """A line of Markdown for each size of a fleet."""
    yield "| nodes | repeats | noise of repeats | fleets | with an alarm | node 3 % slower | 5 % slower |"
    yield "|---:|---:|---|---:|---:|---:|---:|"
    for nodes, repeats in ((4, 5), (12, 3), (64, 1), (64, 3), (256, 3)):
        if only not in (None, nodes):
            continue
        for heavy in (False, True):
            rng = np.random.default_rng(nodes + heavy)
            number = max(10, min(fleets, 12 * fleets // nodes))
            alarms = sum(bool(fleet(rng, nodes, repeats, heavy).outliers) for _ in range(number))
            some = max(10, number // 4)
            named = [
                sum(names_node_0(fleet(rng, nodes, repeats, heavy, slower)) for _ in range(some)) / some
                for slower in (-math.log(0.97), -math.log(0.95))
            ]
            powers = " | ".join(f"{100 * share:.0f} %" for share in named)
            noise = "t, 5 df" if heavy else "normal"
            yield f"| {nodes:,} | {repeats} | {noise} | {number} | {100 * alarms / number:.1f} % | {powers} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fleets", type=int, default=400, help="at most, of a size (default: %(default)s)")
    parser.add_argument("--only", type=int, metavar="NODES", help="one size")
    chosen = parser.parse_args()
    for row in rows(chosen.fleets, chosen.only):
        print(row, flush=True)


if __name__ == "__main__":
    main()
