"""The slow node or link of a cluster, from the rates of all pairs of nodes. Arrays only; no files.

The log rate of a pair is a level, plus the effects of both nodes, plus a rest, which is that of the link between them.
Medians find the parts, so that a minority of slow nodes, and of slow links at each node, moves none of the others. A
slow node is slow with all others; a slow link with one.

The unit of a test is the standard deviation between healthy nodes or links. It is estimated by the median absolute
deviation, and never taken to be below `SPREAD`. Tests are one-sided, since a fast link is no fault. Holm's procedure
covers all nodes and links together. `scripts/bench/pair_rates.py` shows the rates of false alarms and the power.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from benchsuite.report.stats.gpu_tests import median
from benchsuite.report.stats.verdict import holm

Floats = NDArray[np.float64]
# The standard deviation between healthy nodes, and between healthy links: that of `link` in health/rules.yaml.
SPREAD = 0.02
# A node or link that is slower by less is not named; from the second value on it is a fault.
LEAST, FAULT = 0.05, 0.10
# Of even clusters whose nodes and links differ by no more than `SPREAD`, at most this share has an alarm.
ERROR = 0.01
# Where healthy places differ by more than `SPREAD`, few of them prove nothing. A fault from this many standard
# deviations on is then named as not significant.
SUSPECT_SDS = 3.0
# With three nodes, each pair has parts of its own: nothing tells a link from its ends.
MIN_NODES = 4
# The median of fewer pairs does not outvote a slow link.
MIN_PAIRS = 3
_POWER = 0.8
_SWEEPS, _CONVERGED = 200, 1e-9
# Makes the median absolute deviation that of a normal distribution, and its efficiency (Rousseeuw and Croux 1993).
_TO_SIGMA, _EFFICIENCY = 1.4826, 0.37
# The variance of a median of normal figures, times their number.
_OF_MEDIAN = math.pi / 2


@dataclass(frozen=True)
class Fit:
    """The parts of the log rates.

    Attributes:
        level: of a pair of median nodes.
        effects: of each node; their median is 0. NaN for a node with fewer than `MIN_PAIRS` pairs.
        rest: of each pair, of shape [nodes, nodes].
    """

    level: float
    effects: Floats
    rest: Floats


@dataclass(frozen=True)
class SlowPlace:
    """A node, or the link between two nodes, that is significantly slower than the others.

    Attributes:
        nodes: one name, or both ends of a link.
        effect: relative (-0.1: a tenth slower).
        adjusted: p after Holm's adjustment.
        significant: false if the others differ so much that chance may explain it.
    """

    nodes: tuple[str, ...]
    effect: float
    adjusted: float
    significant: bool = True

    @property
    def name(self) -> str:
        """ "node a" or "link a - b"."""
        return f"{'node' if len(self.nodes) == 1 else 'link'} {' - '.join(self.nodes)}"

    @property
    def is_fault(self) -> bool:
        return self.significant and self.effect <= -FAULT


@dataclass(frozen=True)
class Judged:
    """What the rates of all pairs say.

    Attributes:
        slow: nodes first, then links, the slowest first.
        smallest: "node" or "link" -> the slowdown that is named in 80 % of cases.
        untested: why nothing is judged; empty if it is.
    """

    fit: Fit | None
    slow: tuple[SlowPlace, ...] = ()
    smallest: Mapping[str, float] | None = None
    untested: str = ""


@dataclass(frozen=True)
class _Family:
    """Differences of logs that are tested in one way: their standard deviation, and its degrees of freedom."""

    values: Floats
    scale: float
    df: float

    @property
    def p(self) -> Floats:
        z = self.values / self.scale
        found: Floats = ndtr(z) if math.isinf(self.df) else stdtr(self.df, z)
        return found

    @property
    def suspects(self) -> NDArray[np.bool_]:
        """What stands out without proof, since the scatter is estimated from few places."""
        far: NDArray[np.bool_] = (self.values <= -SUSPECT_SDS * self.scale) & (self.values <= math.log1p(-FAULT))
        return far & math.isfinite(self.df)

    def reach(self, tests: int) -> float:
        """The slowdown that the first step of Holm's procedure finds in 80 % of cases."""
        level = ERROR / tests
        critical = -float(ndtri(level)) if math.isinf(self.df) else -float(stdtrit(self.df, level))
        return -math.expm1(-max(critical * self.scale, -math.log1p(-LEAST)) - float(ndtri(_POWER)) * self.scale)


def fit(logs: Floats) -> Fit:
    """Find the parts of the log rates by sweeps of medians, as Tukey's median polish does for a table of two factors.

    Args:
        logs: symmetric, of shape [nodes, nodes]; NaN on the diagonal and without a figure.
    """
    known = np.isfinite(logs).sum(axis=1) >= MIN_PAIRS
    rest = np.where(known[:, None] & known[None, :], logs, np.nan)
    level, effects = 0.0, np.where(known, 0.0, np.nan)
    for _ in range(_SWEEPS):
        step = float(median(rest.reshape(-1)))
        by_node = median(rest - step) / 2  # both nodes of a pair move at once: whole steps would go to and fro
        shift = float(median(effects + by_node))
        level, effects = level + step + 2 * shift, effects + by_node - shift
        rest = logs - level - effects[:, None] - effects[None, :]
        if max(abs(step), float(np.nanmax(np.abs(by_node), initial=0.0))) < _CONVERGED:
            break
    return Fit(level, effects, rest)


def judge(nodes: Sequence[str], logs: Floats) -> Judged:
    """Name the nodes and links that are slow.

    Args:
        logs: as for `fit`.
    """
    full = int((np.isfinite(logs).sum(axis=1) >= MIN_PAIRS).sum())
    if full < MIN_NODES:
        return Judged(None, untested=_too_few(len(nodes), full))
    found = fit(logs)
    tested = np.flatnonzero(np.isfinite(found.effects))
    ends = np.argwhere(np.triu(np.isfinite(found.rest), 1))
    links = _links(found.rest[ends[:, 0], ends[:, 1]], len(tested))
    of_nodes = _nodes(found.effects[tested], links.scale / _both_ends(len(tested)))
    adjusted = holm(np.concatenate([of_nodes.p, links.p]))
    places = [*((int(n),) for n in tested), *((int(a), int(b)) for a, b in ends)]
    effects = np.expm1(np.concatenate([of_nodes.values, links.values]))
    suspects = np.concatenate([of_nodes.suspects, links.suspects])
    slow = [
        SlowPlace(tuple(nodes[n] for n in place), float(effect), float(p), bool(p <= ERROR))
        for place, effect, p, suspect in zip(places, effects, adjusted, suspects, strict=True)
        if (p <= ERROR and effect <= -LEAST) or suspect
    ]
    smallest = {"node": of_nodes.reach(len(places)), "link": links.reach(len(places))}
    return Judged(found, tuple(sorted(slow, key=lambda one: (len(one.nodes), one.effect))), smallest)


def _too_few(nodes: int, full: int) -> str:
    if nodes < MIN_NODES:
        return f"{nodes} nodes: a slow pair does not say whether a node or the link is slow; {MIN_NODES} nodes can"
    return f"{full} of {nodes} nodes have a rate with {MIN_PAIRS} others or more, and {MIN_NODES} such nodes are needed"


def _links(rest: Floats, nodes: int) -> _Family:
    """The tests of links. The rest of a pair has the errors of both nodes' effects, too.

    The fit takes a part of the scatter for each node, by which the estimate is raised.
    """
    free = max(len(rest) - nodes, 1)
    scale, df = _scale(_TO_SIGMA * float(np.median(np.abs(rest))) * math.sqrt(len(rest) / free), free)
    return _Family(rest, scale * _both_ends(nodes), df)


def _both_ends(nodes: int) -> float:
    """The factor by which the errors of two effects raise the standard deviation of a link's rest."""
    return math.sqrt(1 + 2 * _OF_MEDIAN / (nodes - 1))


def _nodes(effects: Floats, of_links: float) -> _Family:
    """The tests of nodes. An effect has the error of the links from which it comes, and that of the median node."""
    n = len(effects)
    # The correction for few nodes is that of Croux and Rousseeuw (1992).
    scatter = _TO_SIGMA * n / (n - 0.8) * float(np.median(np.abs(effects)))
    scale, df = _scale(scatter, n - 1)
    error = math.sqrt(scale**2 * (1 + _OF_MEDIAN / (n - 1)) + _OF_MEDIAN * of_links**2 / (n - 2))
    return _Family(effects, error, df)


def _scale(scatter: float, free: int) -> tuple[float, float]:
    """The standard deviation, and its degrees of freedom: infinite for `SPREAD`, which is not estimated."""
    return (SPREAD, math.inf) if scatter <= SPREAD else (scatter, max(1.0, _EFFICIENCY * free))
