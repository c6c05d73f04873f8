"""The nodes and GPUs of a fleet that are slower or faster than the others of their kind, with likely causes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from benchsuite.report.fleet.grid import Grid
from benchsuite.report.fleet.node import Floats, NodeRecord, use_of
from benchsuite.report.fleet.spread import MIN_PLACES, Spreads, over_jobs, spread_tests, tail_of
from benchsuite.report.measure.intervals import MIN_REPEATS
from benchsuite.report.read.use import Use
from benchsuite.report.stats.causes import NO_TELEMETRY, NOTHING_DIFFERS, likely_cause
from benchsuite.report.stats.gpu_cells import GpuKey
from benchsuite.report.stats.gpu_tests import MIN_GPUS, compare_speeds, median
from benchsuite.report.stats.gpus import ALL_JOBS
from benchsuite.report.stats.verdict import FAMILY_ERROR

# The facts of a node that may explain its speed.
_FACTS = ("driver", "torch", "kernel", "isolation", "processors", "memory")


@dataclass(frozen=True)
class NodeDeviation:
    """A significant difference from the fleet's median.

    Attributes:
        job: the job, or `ALL_JOBS`.
        effect: relative (-0.1: a tenth slower).
        adjusted: p after Holm's adjustment over the family.
        ok: ok repeats behind it, over all GPUs concerned.
    """

    job: str
    effect: float
    adjusted: float
    ok: int


@dataclass(frozen=True)
class FleetOutlier:
    """A node that differs from the other nodes, or a GPU that differs from the other GPUs of its node."""

    node: str
    gpu: GpuKey | None
    deviations: tuple[NodeDeviation, ...]
    causes: tuple[str, ...]

    @property
    def worst(self) -> NodeDeviation:
        """The deviation over all jobs, else the slowest."""
        return min(self.deviations, key=lambda one: (one.job != ALL_JOBS, one.effect))

    @property
    def slower(self) -> bool:
        return min(one.effect for one in self.deviations) < 0


@dataclass(frozen=True)
class Found:
    """The outliers among the nodes of one kind.

    Attributes:
        effects: of each node over all jobs, relative to the median node; NaN without a figure.
        tests: the number of tests.
        smallest: what is tested -> the slowdown that is named in 80 % of cases.
        untested: why nodes are not compared; empty if they are.
    """

    outliers: tuple[FleetOutlier, ...]
    effects: Floats
    tests: int
    smallest: Mapping[str, float]
    untested: str = ""


@dataclass(frozen=True)
class _Tested:
    """Effects and adjusted p of nodes, or of GPUs in a row: over all jobs, and of shape [jobs, places]."""

    together: tuple[Floats, Floats] | None
    jobs: tuple[Floats, Floats]
    tests: int
    smallest: tuple[float | None, float | None]


def find_outliers(grid: Grid, least: float, groups: int = 1) -> Found:
    """The outliers among the nodes and GPUs of a grid.

    At most 5 % of fleets of equal nodes name any. The error is shared evenly among the tests of nodes and of GPUs, over
    all jobs and of single jobs, in all groups.

    Args:
        least: the smallest effect that counts.
        groups: the number of grids of the fleet.
    """
    nodes, untested = _nodes(grid, least, FAMILY_ERROR / 2 / groups)
    by_gpu = grid.gpu_deviations.reshape(len(grid.jobs), -1)
    several = int(np.isfinite(by_gpu).any(axis=0).sum()) >= MIN_PLACES
    gpus = _by_spread(by_gpu, least, FAMILY_ERROR / 2 / groups) if several else None
    telemetry = _Telemetry(grid)
    outliers = [*_named_nodes(grid, nodes, least, telemetry), *_named_gpus(grid, gpus, least, telemetry)]
    smallest = {**_smallest("node", nodes), **_smallest("GPU", gpus)}
    tests = sum(of.tests for of in (nodes, gpus) if of)
    return Found(tuple(outliers), _effects(grid), tests, smallest, untested)


def _effects(grid: Grid) -> Floats:
    """Each node over all jobs; with few nodes the plain mean over jobs."""
    found = over_jobs(grid.deviations)
    if np.isfinite(found).any():
        return np.array(np.expm1(found))
    known = np.isfinite(grid.deviations)
    total, n = np.where(known, grid.deviations, 0).sum(axis=0), known.sum(axis=0)
    return np.array(np.expm1(np.divide(total, n, out=np.full(len(grid.nodes), np.nan), where=n > 0)))


def _nodes(grid: Grid, least: float, error: float) -> tuple[_Tested | None, str]:
    """The tests of nodes: by their spread, or with few nodes by the repeats of each; else why there are none."""
    n = len(grid.nodes)
    if n >= MIN_PLACES:
        return _by_spread(grid.deviations, least, error), ""
    if n < MIN_GPUS:
        return None, f"{n} of its kind, and {MIN_GPUS} are needed"
    jobs, together = compare_speeds(grid.repeats)
    if not jobs.tests:
        return None, f"fewer than {MIN_PLACES} of its kind, and fewer than {MIN_REPEATS} repeats"
    share = error / FAMILY_ERROR
    over_all = (together.effect, np.minimum(1, together.adjusted / share)) if together else None
    tests = jobs.tests + (together.tests if together else 0)
    return _Tested(over_all, (jobs.effect, np.minimum(1, jobs.adjusted / share)), tests, (None, None)), ""


def _by_spread(deviations: Floats, least: float, error: float) -> _Tested:
    several = int(np.isfinite(deviations).any(axis=1).sum()) > 1
    if not several:
        jobs = spread_tests(deviations, error, least, tail_of(deviations))
        return _Tested(None, (jobs.effect, jobs.adjusted), jobs.tests, (None, jobs.smallest))
    # The tail of a mean over jobs is that of a job over their number, about.
    together = spread_tests(over_jobs(deviations), error / 2, least, tail_of(deviations) / len(deviations))
    jobs = spread_tests(deviations, error / 2, least, tail_of(_without(deviations, together, least)))
    return _Tested(
        (together.effect, together.adjusted),
        (jobs.effect, jobs.adjusted),
        together.tests + jobs.tests,
        (together.smallest, jobs.smallest),
    )


def _without(deviations: Floats, together: Spreads, least: float) -> Floats:
    """The deviations of the places that are not named over all jobs."""
    found: Floats = np.where(together.outliers(least)[None], np.nan, deviations)
    return found


def _smallest(what: str, tested: _Tested | None) -> dict[str, float]:
    if tested is None:
        return {}
    over = {f"{what} over all jobs": tested.smallest[0], f"{what} in one job": tested.smallest[1]}
    return {name: value for name, value in over.items() if value is not None}


def _significant(effect: Floats, adjusted: Floats, least: float) -> NDArray[np.bool_]:
    return (adjusted <= FAMILY_ERROR) & (np.abs(effect) >= least)


def _places(tested: _Tested, least: float) -> Iterator[tuple[int, list[tuple[int | None, float, float]]]]:
    """Each place that is named, with (job, effect, p) of its deviations; the job is None over all jobs.

    A job of a place that is named over all jobs is named only if it differs from this by half of it or more.
    """
    effect, adjusted = tested.jobs
    named = _significant(effect, adjusted, least)
    over_all = _significant(*tested.together, least) if tested.together else np.zeros(effect.shape[1], dtype=bool)
    for place in np.flatnonzero(over_all | named.any(axis=0)).tolist():
        found: list[tuple[int | None, float, float]] = []
        around, far = 0.0, least
        if tested.together and over_all[place]:
            around = float(tested.together[0][place])
            far = max(least, abs(around) / 2)
            found.append((None, around, float(tested.together[1][place])))
        jobs = np.flatnonzero(named[:, place] & (np.abs(effect[:, place] - around) >= far)).tolist()
        found += sorted(((j, float(effect[j, place]), float(adjusted[j, place])) for j in jobs), key=lambda one: one[1])
        if found:
            yield place, found


def _named_nodes(grid: Grid, tested: _Tested | None, least: float, telemetry: _Telemetry) -> Iterator[FleetOutlier]:
    for n, found in _places(tested, least) if tested else ():
        deviations = _deviations(grid, found, n, None)
        causes = [*_unlike_facts(grid.nodes[n], grid.nodes), *telemetry.causes(deviations, n, None)]
        yield FleetOutlier(grid.nodes[n].name, None, deviations, _informative(causes))


def _named_gpus(grid: Grid, tested: _Tested | None, least: float, telemetry: _Telemetry) -> Iterator[FleetOutlier]:
    for place, found in _places(tested, least) if tested else ():
        n, g = divmod(place, grid.width)
        deviations = _deviations(grid, found, n, g)
        causes = _informative(telemetry.causes(deviations, n, g))
        yield FleetOutlier(grid.nodes[n].name, grid.nodes[n].gpus[g], deviations, causes)


def _deviations(
    grid: Grid, found: Sequence[tuple[int | None, float, float]], n: int, g: int | None
) -> tuple[NodeDeviation, ...]:
    def ok(j: int) -> int:
        job = grid.job(grid.jobs[j], grid.nodes[n])
        return 0 if job is None or (g is not None and not job.each) else grid.ok(j, n, g)

    return tuple(
        NodeDeviation(
            ALL_JOBS if j is None else grid.jobs[j],
            effect,
            p,
            sum(map(ok, range(len(grid.jobs)))) if j is None else ok(j),
        )
        for j, effect, p in found
    )


def _informative(causes: Sequence[str]) -> tuple[str, ...]:
    """The causes without "nothing differs" where another one is known."""
    known = tuple(cause for cause in causes if cause not in (NO_TELEMETRY, NOTHING_DIFFERS))
    return known or tuple(causes)


def _unlike_facts(node: NodeRecord, nodes: Sequence[NodeRecord]) -> Iterator[str]:
    """How a node differs in software or hardware from most nodes."""
    for what in _FACTS:
        usual = usual_fact(what, nodes)
        own = fact_of(what, node)
        if usual and own and own != usual:
            yield unlike_fact(what, own, usual)


def unlike_fact(what: str, own: str, usual: str) -> str:
    """How a node differs in one fact, in words."""
    return f"its {what} is {own} (others {usual})"


def fact_of(what: str, node: NodeRecord) -> str | None:
    return node.software.get(what) or node.hardware.get(what)


def usual_fact(what: str, nodes: Sequence[NodeRecord]) -> str | None:
    """The value that most nodes have; None if no node records it, or no value has a majority."""
    values = Counter(value for node in nodes if (value := fact_of(what, node)))
    if not values:
        return None
    value, times = values.most_common(1)[0]
    return value if 2 * times > values.total() else None


class _Telemetry:
    """The telemetry of a grid, read for the jobs that are asked for."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._figures: dict[str, NDArray[np.float32]] = {}

    def causes(self, deviations: Sequence[NodeDeviation], n: int, g: int | None) -> tuple[str, ...]:
        """The likely causes of a slower node, or of a slower GPU; empty for a faster one."""
        slower = [one.job for one in deviations if one.effect < 0]
        if not slower:
            return ()
        names = [name for name in slower if name != ALL_JOBS] if ALL_JOBS not in slower else list(self._grid.jobs)
        jobs = [name for name in names if g is None or self._each(name, n)]
        own = [[self._own(name, n, g)] for name in jobs]
        return likely_cause(own, [[[self._usual[name]]] for name in jobs])

    def _each(self, name: str, n: int) -> bool:
        job = self._grid.job(name, self._grid.nodes[n])
        return job is not None and job.each

    def _of(self, name: str) -> NDArray[np.float32]:
        if name not in self._figures:
            self._figures[name] = self._grid.figures(name)
        return self._figures[name]

    def _own(self, name: str, n: int, g: int | None) -> Use:
        figures = self._of(name)[n]
        return use_of(median(figures.T.astype(np.float64)) if g is None else figures[g])

    @cached_property
    def _usual(self) -> dict[str, Use]:
        """Job -> the median figures over all places."""
        every = {name: self._of(name) for name in self._grid.jobs}
        return {name: use_of(median(of.reshape(-1, of.shape[-1]).T.astype(np.float64))) for name, of in every.items()}
