"""One word for each node of a fleet: PASS, WARN, FAIL or NOT RUN, with the reasons and the rank of its score."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchsuite.report.fleet.failing import failing_places, never_words
from benchsuite.report.fleet.folders import FleetFolders
from benchsuite.report.fleet.grid import Grid, grids
from benchsuite.report.fleet.node import NodeRecord
from benchsuite.report.fleet.outliers import FleetOutlier, Found, fact_of, find_outliers, unlike_fact, usual_fact
from benchsuite.report.fleet.tournament import Tournament
from benchsuite.report.format import count, few, one_line, signed
from benchsuite.report.measure.intervals import MIN_REPEATS
from benchsuite.report.stats.causes import NO_TELEMETRY, NOTHING_DIFFERS
from benchsuite.report.stats.gpus import ALL_JOBS

Word = Literal["PASS", "WARN", "FAIL", "NOT RUN"]
# From the worst on, as `benchsuite health` ranks them.
WORDS: tuple[Word, ...] = ("FAIL", "NOT RUN", "WARN", "PASS")
# A node is to be drained if it is slower by this much; by less it is only to be watched.
FAIL_EFFECT = 0.05
# Facts in which the nodes of a fleet should agree.
MIXABLE = (
    "GPU",
    "processor",
    "processors",
    "memory",
    "driver",
    "torch",
    "kernel",
    "isolation",
    "profile",
    "benchsuite",
)
_NAMED = 3

Kind = Literal["not run", "failures", "slower", "faster", "hardware", "unlike", "software", "files", "pairs"]


@dataclass(frozen=True)
class Reason:
    """Why a node is not PASS."""

    word: Word
    kind: Kind
    text: str


@dataclass(frozen=True)
class FleetNode:
    """A node with its verdict.

    Attributes:
        effect: its rate over all jobs, relative to the median node of its kind; None without a figure.
        rank: of its score among all nodes, from 1; None without a score.
        group: the place of its kind of hardware among the fleet's; None without results.
    """

    record: NodeRecord
    word: Word
    reasons: tuple[Reason, ...]
    effect: float | None = None
    rank: int | None = None
    group: int | None = None

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def words(self) -> str:
        """The reasons in one line."""
        return "; ".join(reason.text for reason in self.reasons) or "nothing stands out"


@dataclass(frozen=True)
class Fleet:
    """All nodes, the worst first, with what was compared.

    Attributes:
        grids: the nodes of each kind of hardware, the largest group first.
        found: the outliers of each grid.
        mixed: fact -> value -> number of nodes, for facts with several values.
        one_host: host -> the folders that hold runs of it, if several do.
        least: the smallest effect that counts.
        tournaments: of jobs on pairs of the nodes.
    """

    folders: FleetFolders
    nodes: tuple[FleetNode, ...]
    grids: tuple[Grid, ...]
    found: tuple[Found, ...]
    mixed: Mapping[str, Mapping[str, int]]
    one_host: Mapping[str, tuple[str, ...]]
    least: float
    tournaments: tuple[Tournament, ...] = ()

    @property
    def outliers(self) -> tuple[FleetOutlier, ...]:
        return tuple(one for found in self.found for one in found.outliers)

    @property
    def counts(self) -> Counter[Word]:
        return Counter(node.word for node in self.nodes)

    @property
    def any_ok(self) -> bool:
        return any(node.record.any_ok for node in self.nodes)


def judge_fleet(
    folders: FleetFolders, records: Sequence[NodeRecord], least: float, tournaments: tuple[Tournament, ...] = ()
) -> Fleet:
    """Compare the nodes of each kind, and judge each node.

    Args:
        records: of the folders; missing nodes are added.
        least: the smallest effect that counts.
        tournaments: of jobs on pairs of the nodes, which give reasons, too.
    """
    every = [*records, *(NodeRecord(name, "", problem="no results folder") for name in folders.missing)]
    of_kind = grids(every)
    found = tuple(find_outliers(grid, least, len(of_kind)) for grid in of_kind)
    in_pairs = paired_reasons(tournaments)
    judged = [node for g, grid in enumerate(of_kind) for node in _judged(g, grid, found[g], in_pairs)]
    judged += [FleetNode(record, "NOT RUN", (_problem(record),)) for record in every if record.problem]
    ranks = _ranks(judged)
    nodes = [_ranked(node, ranks.get(node.name)) for node in judged]
    in_order = tuple(sorted(nodes, key=_order))
    return Fleet(folders, in_order, of_kind, found, _mixed(every), _one_host(every), least, tournaments)


def paired_reasons(found: Iterable[Tournament]) -> dict[str, list[Reason]]:
    """Node -> why its pairs make it suspicious. A slow link is a warning for both ends: the fabric may be at fault."""
    reasons: dict[str, list[Reason]] = defaultdict(list)
    for one in found:
        for node in one.failed_nodes:
            text = f"each of its pairs fails in {one_line(one.job, 60)}, and pairs of other nodes do not"
            reasons[node].append(Reason("FAIL", "pairs", text))
        for slow in one.judged.slow:
            size = f"{signed(abs(slow.effect)).lstrip('+')} % slower in {one_line(one.job, 60)}"
            if len(slow.nodes) == 1:
                text = f"{size} with each other node"
                reasons[slow.nodes[0]].append(Reason("FAIL" if slow.is_fault else "WARN", "pairs", text))
                continue
            for node, other in (slow.nodes, slow.nodes[::-1]):
                reasons[node].append(Reason("WARN", "pairs", f"its link with {one_line(other, 60)} is {size}"))
    return reasons


def _ranked(node: FleetNode, rank: int | None) -> FleetNode:
    return FleetNode(node.record, node.word, node.reasons, node.effect, rank, node.group)


def _order(node: FleetNode) -> tuple[int, float, str]:
    """The worst word first; of one word the slowest first."""
    return WORDS.index(node.word), node.effect if node.effect is not None else 0.0, node.name


def _ranks(nodes: Iterable[FleetNode]) -> dict[str, int]:
    scores = [(node, node.record.score) for node in nodes]
    known = [(score.machine or 0.0, score.value, node.name) for node, score in scores if score and score.value]
    in_order = sorted(known, key=lambda one: (-one[0], -one[1], one[2]))
    return {name: place for place, (_, _, name) in enumerate(in_order, start=1)}


def _problem(record: NodeRecord) -> Reason:
    return Reason("NOT RUN", "not run", one_line(record.problem, 300))


def _judged(g: int, grid: Grid, found: Found, in_pairs: Mapping[str, Sequence[Reason]]) -> Iterator[FleetNode]:
    by_node: dict[str, list[FleetOutlier]] = {}
    for outlier in found.outliers:
        by_node.setdefault(outlier.node, []).append(outlier)
    failing = failing_places(grid)
    usual_gpus = Counter(len(node.gpus) for node in grid.nodes).most_common(1)[0][0]
    facts = {what: usual_fact(what, grid.nodes) for what in MIXABLE}
    for n, node in enumerate(grid.nodes):
        reasons = [
            *_unfinished(node),
            *never_words_of(grid, node),
            *(Reason("FAIL", "failures", text) for text in failing.get(node.name, ())),
            *(_slow(outlier) for outlier in by_node.get(node.name, ())),
            *in_pairs.get(node.name, ()),
            *_fewer_gpus(node, usual_gpus),
            *_unlike_facts(node, facts, {cause for of in by_node.get(node.name, ()) for cause in of.causes}),
            *_unlike_work(grid, node),
            *_plain(node, node.name in failing),
            *_alone(node, found.untested),
        ]
        in_order = tuple(sorted(reasons, key=lambda reason: WORDS.index(reason.word)))
        effect = float(found.effects[n])
        word: Word = in_order[0].word if in_order else "PASS"
        yield FleetNode(node, word, in_order, effect if math.isfinite(effect) else None, group=g)


def _unfinished(node: NodeRecord) -> Iterator[Reason]:
    if not node.any_ok:
        yield Reason("NOT RUN" if node.to_run == node.n else "FAIL", "not run", f"no task of {node.n:,} is ok")
    if node.to_run:
        going = "in progress" if node.in_progress else "interrupted"
        yield Reason("NOT RUN", "not run", f"{going}: {node.to_run:,} of {count(node.n, 'task')} still to run")


def never_words_of(grid: Grid, node: NodeRecord) -> Iterator[Reason]:
    """The jobs that never succeed on the node: a fault of the node if they do on half of the others."""
    for text, of_node in never_words(grid, node):
        yield Reason("FAIL" if of_node else "WARN", "failures", text)


def _slow(outlier: FleetOutlier) -> Reason:
    where = f"GPU {outlier.gpu.index} ({outlier.gpu.uuid}) is " if outlier.gpu else ""
    named = [_deviation(one.job, one.effect) for one in outlier.deviations]
    text = f"{where}{', '.join(few(named, _NAMED))}{_causes(outlier)}"
    slow = [one for one in outlier.deviations if one.effect <= -FAIL_EFFECT and one.ok >= MIN_REPEATS]
    return Reason("FAIL" if slow else "WARN", "slower" if outlier.slower else "faster", text)


def _causes(outlier: FleetOutlier) -> str:
    if not outlier.causes:
        return ""
    label = "" if outlier.causes[0] in (NO_TELEMETRY, NOTHING_DIFFERS) else "likely cause: "
    return f"; {label}{', '.join(few(outlier.causes, _NAMED))}"


def _deviation(job: str, effect: float) -> str:
    way = "slower" if effect < 0 else "faster"
    size = signed(abs(effect)).lstrip("+")
    return f"{size} % {way} {'over all jobs' if job == ALL_JOBS else f'in {one_line(job, 60)}'}"


def _fewer_gpus(node: NodeRecord, usual: int) -> Iterator[Reason]:
    if len(node.gpus) < usual:
        yield Reason("FAIL", "hardware", f"{count(len(node.gpus), 'GPU')} used, {usual} on most nodes")
    elif len(node.gpus) > usual:
        yield Reason("WARN", "hardware", f"{count(len(node.gpus), 'GPU')} used, {usual} on most nodes")


def _unlike_facts(node: NodeRecord, facts: Mapping[str, str | None], causes: Collection[str]) -> Iterator[Reason]:
    """The facts in which a node differs from most; those that are named as a likely cause are not repeated."""
    for what, usual in facts.items():
        own = fact_of(what, node)
        if usual and own and own != usual and unlike_fact(what, own, usual) not in causes:
            text = f"{what} {one_line(own, 80)} (most nodes: {one_line(usual, 80)})"
            yield Reason("WARN", "hardware" if what in node.hardware else "software", text)


def _unlike_work(grid: Grid, node: NodeRecord) -> Iterator[Reason]:
    """The jobs that train something else, and those that the node's run lacks."""
    if node.name in grid.unlike:
        jobs = ", ".join(few((one_line(job, 60) for job in grid.unlike[node.name]), _NAMED))
        yield Reason("WARN", "unlike", f"trains something else than most nodes, so not compared: {jobs}")
    half = len(grid.nodes) / 2
    absent = [job for job in grid.jobs if job not in node.jobs and sum(job in one.jobs for one in grid.nodes) > half]
    if absent:
        yield Reason("WARN", "unlike", f"its run lacks {', '.join(few(absent, _NAMED))}")


def _plain(node: NodeRecord, failing: bool) -> Iterator[Reason]:
    # Jobs that never succeed here have a reason of their own.
    fail = sum(int(job.fail.sum()) for job in node.jobs.values() if int(job.ok.sum()) or job.to_run)
    if fail and not failing:
        yield Reason("WARN", "failures", f"{fail:,} of {count(node.n - node.to_run, 'task')} failed")
    if node.bad_files:
        yield Reason("WARN", "files", f"{count(node.bad_files, 'file')} cannot be used")


def _alone(node: NodeRecord, untested: str) -> Iterator[Reason]:
    if untested and node.any_ok:
        yield Reason("WARN", "unlike", f"its speed is not judged: {untested}")


def _mixed(records: Iterable[NodeRecord]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {what: Counter() for what in MIXABLE}
    for record in records:
        for what in MIXABLE:
            if value := fact_of(what, record):
                found[what][value] += 1
    return {what: dict(values.most_common()) for what, values in found.items() if len(values) > 1}


def _one_host(records: Iterable[NodeRecord]) -> dict[str, tuple[str, ...]]:
    folders: dict[str, list[str]] = {}
    for record in records:
        if record.host:
            folders.setdefault(record.host, []).append(record.name)
    return {host: tuple(names) for host, names in folders.items() if len(names) > 1}
