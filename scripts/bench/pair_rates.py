#!/usr/bin/env python
"""Measure how often the tournament of pairs names something in an even cluster, and how often what is slow.

The rates are random numbers, without files. A pair is as fast as the slower of its two nodes, times the factor of its
link. Nodes and links have normal log rates, both with the standard deviation of the table. The tests are those of the
report.

    python scripts/bench/pair_rates.py                    # the table of docs/statistics.md, some minutes
    python scripts/bench/pair_rates.py --clusters 100 --only 8
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchsuite.report.fleet.pairs import judge

SIZES, SPREADS, SLOWER = (4, 6, 8, 16, 32, 64), (0.005, 0.01, 0.02), 0.10
NODE, LINK = ("n0",), ("n1", "n2")


def logs(rng: np.random.Generator, nodes: int, spread: float, slow: tuple[str, ...] = ()) -> NDArray[np.float64]:
    """The log rates of all pairs; the node or the link `slow` has a tenth less."""
    own = spread * rng.normal(size=nodes)
    if slow == NODE:
        own[0] += math.log(1 - SLOWER)
    links = np.triu(spread * rng.normal(size=(nodes, nodes)), 1)
    if slow == LINK:
        links[1, 2] += math.log(1 - SLOWER)
    found = np.minimum(own[:, None], own[None, :]) + links + links.T
    np.fill_diagonal(found, np.nan)
    return found


def named(rng: np.random.Generator, nodes: int, spread: float, slow: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The nodes and links that are named."""
    names = [f"n{place}" for place in range(nodes)]
    return {one.nodes for one in judge(names, logs(rng, nodes, spread, slow)).slow}


def rows(clusters: int, only: int | None) -> Iterator[str]:
    """A line of Markdown for each size of a cluster and spread."""
    heads = (
        "nodes",
        "spread",
        "clusters",
        "with an alarm",
        "node 10 % slower",
        "another",
        "link 10 % slower",
        "another",
    )
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---:|' * len(heads)}"
    for nodes in SIZES:
        for spread in SPREADS if only in (None, nodes) else ():
            rng = np.random.default_rng(nodes)
            some = max(20, clusters // 4)
            cells = [f"{100 * sum(bool(named(rng, nodes, spread)) for _ in range(clusters)) / clusters:.1f} %"]
            for slow in (NODE, LINK):
                found = [named(rng, nodes, spread, slow) for _ in range(some)]
                cells += [f"{100 * sum(slow in of for of in found) / some:.0f} %"]
                cells += [f"{100 * sum(bool(of - {slow}) for of in found) / some:.1f} %"]
            yield f"| {nodes} | {100 * spread:.1f} % | {clusters:,} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clusters", type=int, default=1000, help="of a size and spread (default: %(default)s)")
    parser.add_argument("--only", type=int, metavar="NODES", help="one size")
    chosen = parser.parse_args()
    for row in rows(chosen.clusters, chosen.only):
        print(row, flush=True)


if __name__ == "__main__":
    main()
