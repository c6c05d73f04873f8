"""Pairs of nodes: the rounds of their tournament, its tasks, and what its rates say of nodes and links."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
import pytest
from made_summaries import made_job, made_run
from test_over_nodes import job, seats

from benchsuite.cluster import across
from benchsuite.cluster.slurm import Node
from benchsuite.describe.pairing import rounds
from benchsuite.describe.plan import make_plan
from benchsuite.errors import UsageError
from benchsuite.report.fleet.folders import FleetFolders
from benchsuite.report.fleet.judge import Fleet, judge_fleet
from benchsuite.report.fleet.node import NodeRecord
from benchsuite.report.fleet.pairs import judge
from benchsuite.report.fleet.tournament import Tournament, tournaments
from benchsuite.report.read.summary import JobSummary, Summary, TaskSummary
from benchsuite.report.show.fleet.files import to_json
from benchsuite.report.show.fleet.pairs import pairs_section, verdict
from benchsuite.report.show.html.fleet import fleet_page
from benchsuite.report.show.html.pairs import pair_map

ON_PAIRS = {"placement": {"devices": "all", "nodes": "pairs", "cpu_allowed": True}}
GB_S = 48.0
Pair = tuple[str, str]


def names(count: int) -> tuple[str, ...]:
    return tuple(f"n{place}" for place in range(1, count + 1))


def logs(count: int, slow: dict[tuple[str, ...], float]) -> np.ndarray:
    """The log rates of an almost even cluster; a pair is as slow as the slowest of its nodes, and its link."""
    found = np.full((count, count), np.nan)
    for a, b in combinations(range(count), 2):
        pair = names(count)[a], names(count)[b]
        factor = min(slow.get((node,), 1.0) for node in pair) * slow.get(pair, 1.0)
        found[a, b] = found[b, a] = math.log(GB_S * factor) + 0.002 * math.sin(7 * a + 3 * b)
    return found


def named(count: int, slow: dict[tuple[str, ...], float]) -> list[str]:
    return [one.name for one in judge(names(count), logs(count, slow)).slow]


# --- the rounds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(2, 12))
def test_each_node_meets_each_other_once_and_never_two_at_once(count: int) -> None:
    found = rounds(count)
    assert len(found) == count - 1 + count % 2
    assert sorted(pair for met in found for pair in met) == list(combinations(range(count), 2))
    for met in found:
        assert len({node for pair in met for node in pair}) == 2 * (count // 2)


def test_a_job_on_pairs_of_nodes_has_a_wave_for_each_round() -> None:
    plan = make_plan("p", [job(**ON_PAIRS)], (), environ={}, repeats=2, seats=seats(8, 8, 8, 8))
    assert len(plan.waves) == 2 * 3
    assert len({task.id for task in plan.tasks}) == 2 * 6
    for wave in plan.waves:
        assert sorted(share.node for task in wave.tasks for share in task.nodes) == ["n0", "n1", "n2", "n3"]
    first = plan.waves[0].tasks[0]
    assert (first.id, first.wave, first.device, first.ranks) == ("j.J0.n0+n3", "j.R0.0", "n0 - n3", 16)
    assert [gpu.uuid for gpu in first.gpus] == [f"GPU-{node}-{gpu}" for node in (0, 3) for gpu in range(8)]


def test_pairs_of_a_single_node_are_refused() -> None:
    with pytest.raises(UsageError, match="runs on pairs of nodes, and the run has 1; start more"):
        make_plan("p", [job(**ON_PAIRS)], (), environ={}, seats=seats(8))


def test_a_run_on_pairs_takes_all_nodes_of_the_run() -> None:
    nodes = [Node(name, "idle") for name in names(5)]
    assert across.most_nodes([job(**ON_PAIRS)], nodes) == names(5)
    assert across.most_nodes([job()], nodes) == names(2)


# --- what the rates say -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [4, 5, 8, 13])
def test_a_slow_node_and_a_slow_link_are_told_apart(count: int) -> None:
    assert named(count, {}) == []
    assert named(count, {("n3",): 0.85}) == ["node n3"]
    assert named(count, {("n1", "n4"): 0.85}) == ["link n1 - n4"]


def test_a_slow_node_hides_no_slow_link_of_others() -> None:
    assert named(9, {("n3",): 0.8, ("n5", "n8"): 0.8}) == ["node n3", "link n5 - n8"]


def test_what_is_a_little_slower_is_not_named() -> None:
    assert named(8, {("n3",): 0.96, ("n1", "n4"): 0.96}) == []


def test_two_slow_nodes_blame_no_link_of_theirs() -> None:
    assert named(8, {("n2",): 0.7, ("n7",): 0.85}) == ["node n2", "node n7"]


def test_three_nodes_decide_nothing() -> None:
    found = judge(names(3), logs(3, {("n1", "n2"): 0.5}))
    assert (found.slow, found.fit) == ((), None)
    assert found.untested == "3 nodes: a slow pair does not say whether a node or the link is slow; 4 nodes can"


def test_a_fault_among_few_nodes_that_differ_much_is_named_without_proof() -> None:
    rates = logs(4, {("n2",): 0.4})
    noise = 0.06 * np.array([[0, 1, -1, 0], [1, 0, 0, -1], [-1, 0, 0, 1], [0, -1, 1, 0]])
    (found,) = judge(names(4), rates + noise).slow
    assert (found.name, found.significant, found.is_fault) == ("node n2", False, False)


def test_a_node_with_too_few_pairs_is_left_out_of_the_comparison() -> None:
    rates = logs(6, {("n2",): 0.8})
    rates[0, 2:] = rates[2:, 0] = np.nan
    found = judge(names(6), rates)
    assert [one.name for one in found.slow] == ["node n2"]
    assert found.fit and math.isnan(found.fit.effects[0])


# --- the report -------------------------------------------------------------------------------------------------------


def summary(count: int, slow: dict[tuple[str, ...], float], status: dict[Pair, str] | None = None) -> Summary:
    """The summary of a run with one job on each pair."""
    rates = np.exp(logs(count, slow))
    tasks = []
    for a, b in combinations(range(count), 2):
        pair = names(count)[a], names(count)[b]
        state = (status or {}).get(pair, "ok")
        perf = float(rates[a, b]) if state == "ok" else None
        tasks.append(
            TaskSummary(id="-".join(pair), repeat=0, device=" - ".join(pair), status=state, perf=perf, nodes=pair)
        )
    of = msgspec.structs.replace(
        made_job("links", [GB_S]), tasks=tuple(tasks), unit="GB", settings={"placement": {"nodes": "pairs"}}
    )
    return made_run(of)


def found(count: int, slow: dict[tuple[str, ...], float], status: dict[Pair, str] | None = None) -> Tournament:
    (one,) = tournaments(summary(count, slow, status))
    return one


def words(one: Tournament) -> list[str]:
    return [line.text for line in verdict(one)]


def test_the_verdict_names_the_node_with_its_rate() -> None:
    first, second, third = words(found(6, {("n3",): 0.75}))
    assert first.startswith("node n3 is 25.")
    assert first.endswith("35.98 GB/s in the median of its 5 pairs.")
    assert second.startswith("15 pairs: 3")
    assert third.startswith("The tests name in 80 % of cases: a node that is ")


def test_the_verdict_names_a_link_and_what_its_nodes_reach_with_others() -> None:
    line = words(found(6, {("n2", "n5"): 0.75}))[0]
    assert line.startswith("link n2 - n5 is 2")
    assert "36.01 GB/s, where its nodes reach 47.96 with others" in line


def test_an_even_fabric_is_called_even() -> None:
    assert words(found(6, {}))[0].startswith("The fabric as a whole is even. 15 pairs: 47.90 to 48.10 GB/s.")


def test_a_node_whose_pairs_all_fail_is_named_and_a_single_pair_that_fails_is_a_link() -> None:
    dead: dict[Pair, str] = {pair: "failed" for pair in combinations(names(6), 2) if "n4" in pair}
    assert words(found(6, {}, dead))[0] == "node n4: each of its pairs fails, and pairs of other nodes do not."
    assert words(found(6, {}, {("n1", "n2"): "timeout"}))[0] == "Pairs that fail: n1 - n2."


def test_pairs_that_are_still_to_run_are_counted() -> None:
    assert "2 pairs of 15 still to run." in words(found(6, {}, {("n1", "n2"): "not run", ("n1", "n3"): "running"}))


def test_the_table_and_the_map_have_the_slowest_node_first() -> None:
    one = found(12, {("n10",): 0.8})
    assert one.nodes[-1] == "n12"
    (table,) = [part for part in pairs_section(one, most=3).parts if hasattr(part, "rows")]
    assert [row[0].text for row in table.rows][:1] == ["n10"]
    drawn = pair_map(one)
    head, cells = drawn.rows[0]
    assert head == "n10"
    assert cells[0].text == ""
    assert all(cell.value is not None and cell.value < -0.15 for cell in cells[1:])


def fleet(one: Tournament) -> Fleet:
    records = [NodeRecord(name, name, problem="no results folder") for name in ("spare",)]
    return judge_fleet(FleetFolders(Path("out"), {}), records, 0.02, (one,))


def test_the_files_of_a_fleet_have_its_pairs() -> None:
    of = fleet(found(6, {("n3",): 0.75, ("n1", "n2"): 0.7}))
    (content,) = json.loads(to_json(of))["pairs"]
    assert [(one["kind"], one["nodes"], one["fault"]) for one in content["slow"]] == [
        ("node", ["n3"], True),
        ("link", ["n1", "n2"], True),
    ]
    assert len(content["pairs"]) == 15
    page = fleet_page(of)
    assert "Pairs of nodes: links" in page
    assert "n3 - n1: 3" in page


def test_a_slow_node_of_a_tournament_fails_and_the_ends_of_a_slow_link_are_warned() -> None:
    from benchsuite.report.fleet.judge import paired_reasons

    reasons = paired_reasons([found(6, {("n3",): 0.75, ("n1", "n2"): 0.7})])
    assert {node: [one.word for one in of] for node, of in reasons.items()} == {
        "n3": ["FAIL"],
        "n1": ["WARN"],
        "n2": ["WARN"],
    }


def test_a_job_on_one_machine_is_no_tournament() -> None:
    plain: JobSummary = made_job("vae", [1.0, 2.0])
    assert tournaments(made_run(plain)) == ()


def test_pairs_without_the_gpus_that_they_need_are_one_skipped_task() -> None:
    given = job(placement={"devices": "all", "nodes": "pairs"})
    (task,) = make_plan("p", [given], (), environ={}, seats=seats(0, 0, 0)).tasks
    assert task.skip == "no GPU is visible on the nodes, and the job's placement does not allow the CPU"
