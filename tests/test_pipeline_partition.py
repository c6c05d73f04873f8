"""The partitioner gives the results of PipeDream's optimiser, and the fastest of all plans."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from support import in_process, one_line_error

from benchsuite.errors import PipelineError
from benchsuite.pipeline import graph, stage_map
from benchsuite.pipeline.cuts import cuts_of
from benchsuite.pipeline.graph import Graph, Unit
from benchsuite.pipeline.partition import plan
from benchsuite.pipeline.stages import Level, StagePlan

BRANCHING = Path(__file__).parent / "data" / "branching-graph.txt"
PROFILES = Path(__file__).resolve().parents[2] / "shared/data/pipedream/profiles"
shipped = pytest.mark.skipif(not PROFILES.is_dir(), reason="the profiles of PipeDream are not here")
ONE_HOST = (Level(parts=4, bandwidth=1e9),)
FAST_HOST = (Level(parts=4, bandwidth=1e10),)
HOSTS = (Level(parts=4, bandwidth=1e10), Level(parts=4, bandwidth=1.25e9))


def profile(name: str) -> Graph:
    return graph.read(PROFILES / name / "graph.txt")


def speeds(found: StagePlan) -> tuple[float, float, float]:
    """The plan over one GPU, data parallelism over one GPU, and the plan over data parallelism."""
    one, dp = found.one_gpu_s, found.data_parallel_s
    return one / found.seconds, one / dp, dp / found.seconds


# --- the results of PipeDream's optimiser on its own profiles ---------------------------------------------------------


@shipped
def test_vgg16_on_four_gpus_is_three_and_one() -> None:
    found = plan(profile("vgg16"), ONE_HOST)
    assert found.replicas == "3-1"
    assert [len(stage.units) for stage in found.stages] == [17, 40 - 17]
    assert [stage.compute_s for stage in found.stages] == pytest.approx([0.514238, 0.158297], abs=1e-9)
    assert found.seconds == pytest.approx(0.205520896, rel=1e-12)
    assert speeds(found) == pytest.approx((3.2723, 1.1532, 2.8377), abs=5e-5)


@shipped
def test_straight_vgg16_is_bound_by_one_transfer() -> None:
    """Many cuts share the least time: those of PipeDream's optimiser and ours."""
    found = plan(profile("vgg16"), ONE_HOST, straight=True)
    assert found.replicas == "1-1-1-1"
    assert len(found.stages[0].units) == 10
    assert found.seconds == pytest.approx(0.411041792, rel=1e-12)
    assert speeds(found) == pytest.approx((1.6362, 1.1532, 1.4188), abs=5e-5)
    cuts = cuts_of(profile("vgg16"))
    assert len(cuts.compute_s) - 1 == 40
    theirs = (0, 10, 22, 29, 40)
    compute = np.diff(cuts.compute_s[list(theirs)])
    assert max(*compute, *(2 * cuts.passed_bytes[list(theirs)] / 1e9)) == pytest.approx(found.seconds, rel=1e-12)


@shipped
def test_vgg16_on_four_hosts_replicates_its_convolutions_on_three() -> None:
    found = plan(profile("vgg16"), HOSTS)
    on_three = [stage for stage in found.stages if min(stage.ranks) < 12]
    assert sum(len(stage.units) for stage in on_three) == 31
    assert {rank for stage in on_three for rank in stage.ranks} == set(range(12))
    assert found.seconds == pytest.approx(0.067134, abs=5e-7)
    assert speeds(found) == pytest.approx((10.018, 4.966, 2.017), abs=5e-4)


@shipped
def test_resnet50_on_four_hosts_is_replicated_on_all() -> None:
    found = plan(profile("resnet50"), HOSTS)
    assert all(len({rank // 4 for rank in stage.ranks}) == 4 for stage in found.stages)
    assert speeds(found) == pytest.approx((10.262, 9.861, 1.041), abs=5e-4)
    # The shape and the ranks of the configuration that PipeDream ships for 16 GPUs.
    assert found.replicas == "8-4-4"
    assert found.stages[0].ranks == (0, 1, 4, 5, 8, 9, 12, 13)


@shipped
def test_alexnet_on_four_hosts() -> None:
    assert speeds(plan(profile("alexnet"), HOSTS)) == pytest.approx((5.651, 1.832, 3.085), abs=5e-4)


@shipped
def test_straight_gnmt_of_sixteen_layers_without_transfers() -> None:
    found = plan(profile("gnmt_large"), FAST_HOST, straight=True, transfers=False)
    assert len(cuts_of(profile("gnmt_large")).compute_s) - 1 == 1495
    assert found.seconds == pytest.approx(0.137129, abs=1e-9)
    assert speeds(found)[0] == pytest.approx(3.795, abs=5e-4)
    assert speeds(found)[2] == pytest.approx(1.556, abs=5e-4)


# --- all plans, one by one --------------------------------------------------------------------------------------------


def chain(chance: random.Random, length: int) -> Graph:
    units = tuple(
        Unit(
            name=f"u{i}",
            description="Linear",
            forward_s=chance.random(),
            backward_s=chance.random(),
            activation_bytes=chance.random() * chance.choice((0.1, 1)),
            parameter_bytes=chance.random() * chance.choice((0, 1)),
        )
        for i in range(length)
    )
    return Graph(units=units, edges=tuple((f"u{i}", f"u{i + 1}") for i in range(length - 1)))


def least_s(
    units: tuple[Unit, ...], levels: tuple[Level, ...], behind: float, straight: bool, transfers: bool
) -> float:
    """The least time of a chain on all parts of the last level, by trying all plans.

    Args:
        behind: bytes that the last unit sends on.
    """
    if not levels:
        return sum(of.forward_s + of.backward_s for of in units)
    *below, level = levels
    inner = math.prod(of.parts for of in below)
    times = []
    for stages in range(1, min(len(units), level.parts) + 1):
        for places in itertools.combinations(range(1, len(units)), stages - 1):
            bounds = list(itertools.pairwise((0, *places, len(units))))
            for replicas in itertools.product(range(1, level.parts + 1), repeat=stages):
                if sum(replicas) != level.parts or (straight and max(replicas) > 1):
                    continue
                worst = 0.0
                for (start, end), r in zip(bounds, replicas, strict=True):
                    sent = units[end - 1].activation_bytes if end < len(units) else behind
                    one = least_s(units[start:end], tuple(below), sent, straight, transfers)
                    exchange = 4 * (r - 1) / r * sum(of.parameter_bytes for of in units[start:end]) / level.bandwidth
                    worst = max(worst, (one + exchange / (1 if start else inner)) / r)
                    if transfers and start:
                        received = units[start - 1].activation_bytes
                        worst = max(worst, 2 * max(received, sent) / level.bandwidth / r)
                times.append(worst)
    return min(times, default=math.inf)


@pytest.mark.parametrize("transfers", [True, False])
@pytest.mark.parametrize("straight", [True, False])
def test_no_plan_of_a_chain_is_faster(straight: bool, transfers: bool) -> None:
    chance = random.Random(2)
    for sizes in ((1,), (2,), (3,), (3,), (5,), (5,), (2, 2), (2, 3), (2, 3)):
        levels = tuple(Level(parts=parts, bandwidth=chance.choice((0.3, 1, 5))) for parts in sizes)
        made = chain(chance, 6)
        least = least_s(made.units, levels, 0.0, straight, transfers)
        if math.isinf(least):
            continue
        found = plan(made, levels, straight=straight, transfers=transfers)
        assert found.seconds == pytest.approx(least)
        assert max(stage.seconds for stage in found.stages) == pytest.approx(least)


def test_a_plan_uses_each_gpu_and_each_unit_once() -> None:
    made = chain(random.Random(3), 9)
    for levels in (ONE_HOST, HOSTS, (*HOSTS, Level(parts=2, bandwidth=1.0))):
        found = plan(made, levels)
        ranks = sorted(rank for stage in found.stages for rank in stage.ranks)
        assert ranks == list(range(math.prod(level.parts for level in levels)))
        assert [name for stage in found.stages for name in stage.units] == [of.name for of in made.units]


def test_of_plans_of_one_time_the_even_one_is_chosen() -> None:
    """One long unit sets the time of all plans; the short ones go to one stage each."""
    costs = (9.0, 1.0, 1.0, 1.0, 1.0)
    units = tuple(
        Unit(name=f"u{i}", description="", forward_s=s, backward_s=0, activation_bytes=0, parameter_bytes=0)
        for i, s in enumerate(costs)
    )
    made = Graph(units=units, edges=tuple((f"u{i}", f"u{i + 1}") for i in range(4)))
    found = plan(made, (Level(parts=3, bandwidth=1.0),), straight=True)
    assert found.seconds == 9
    assert [len(stage.units) for stage in found.stages] == [1, 2, 2]


def test_parameters_that_are_slow_to_exchange_are_not_replicated() -> None:
    slow = plan(graph.read(BRANCHING), (Level(parts=2, bandwidth=1e6),))
    fast = plan(graph.read(BRANCHING), (Level(parts=2, bandwidth=1e12),))
    assert slow.replicas == "1-1"
    assert fast.replicas == "2"
    assert slow.data_parallel_s == pytest.approx((12.1e-3 + 2 * 403_000 / 1e6) / 2)
    assert fast.seconds == fast.data_parallel_s


def test_what_cannot_be_planned_is_refused() -> None:
    short = chain(random.Random(4), 3)
    for levels, stages in ((ONE_HOST, 4), (HOSTS, 16)):
        with pytest.raises(PipelineError, match=f"cannot be cut into {stages} stages"):
            plan(short, levels, straight=True)
    idle = Unit(name="a", description="", forward_s=0, backward_s=0, activation_bytes=1, parameter_bytes=1)
    with pytest.raises(PipelineError, match="the units take no time"):
        plan(Graph(units=(idle,), edges=()), ONE_HOST)


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_plan_is_a_table(tmp_path: Path) -> None:
    done = in_process("plan-stages", str(BRANCHING), "--gpus", "2", "--bandwidth", "1e6", cwd=tmp_path)
    assert done.returncode == 0
    found = plan(graph.read(BRANCHING), (Level(parts=2, bandwidth=1e6),))
    assert "7 units on 2 GPUs, links of 0.001 GB/s\n" in done.stdout
    assert f"one minibatch every {found.seconds:.4g} s" in done.stdout
    assert f"{found.data_parallel_s / found.seconds:.2f}x data parallel" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line[:1].isdigit()]
    assert [row[0] for row in rows] == ["0", "1"]
    assert max(float(row[-5]) for row in rows) == pytest.approx(found.seconds, rel=1e-3)


def test_an_assumed_bandwidth_is_named(tmp_path: Path) -> None:
    arguments = ("plan-stages", str(BRANCHING), "--gpus", "2")
    assert "assumed; set it with --bandwidth" in in_process(*arguments, cwd=tmp_path).stdout
    assert "assumed" not in in_process(*arguments, "--bandwidth", "1e10", cwd=tmp_path).stdout


def test_a_plan_is_kept_as_a_stage_configuration(tmp_path: Path) -> None:
    arguments = ("plan-stages", str(BRANCHING), "--gpus", "2", "--bandwidth", "1e6", "-o", "plan.json")
    assert in_process(*arguments, cwd=tmp_path).returncode == 0
    kept = json.loads((tmp_path / "plan.json").read_text())
    assert kept["schema"] == 4
    assert kept["module_to_stage_map"] == [0, 1, 1]
    assert kept["stage_to_rank_map"] == {"0": [0], "1": [1]}
    assert stage_map.read(tmp_path / "plan.json").ranks == ((0,), (1,))
    assert json.loads(in_process(*arguments[:-1], "-", cwd=tmp_path).stdout) == kept
    one_line_error(in_process(*arguments, cwd=tmp_path), "plan.json", "not overwritten", "-o")


def test_a_graph_is_kept_with_the_stage_of_each_unit(tmp_path: Path) -> None:
    arguments = ("plan-stages", str(BRANCHING), "--gpus", "2", "--bandwidth", "1e6", "-o", "graph.txt")
    assert in_process(*arguments, cwd=tmp_path).returncode == 0
    stages = {of.name: of.stage for of in graph.read(tmp_path / "graph.txt").units}
    assert stages["node1"] == 0  # an input
    assert stages["node5"] == stages["node3"]  # a part of an output that nothing reads
    found = plan(graph.read(BRANCHING), (Level(parts=2, bandwidth=1e6),))
    for number, stage in enumerate(found.stages):
        assert {stages[name] for name in stage.units} == {number}


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--gpus", "0"], ["--gpus", "numbers of 1 to 256"]),
        (["--gpus", "four"], ["--gpus", "found 'four'"]),
        (["--gpus", "4", "--bandwidth", "fast"], ["--bandwidth", "numbers above 0"]),
        (["--gpus", "4", "--bandwidth", "0"], ["--bandwidth", "numbers above 0"]),
        (["--gpus", "4,2"], ["--gpus has 2 numbers and --bandwidth 0"]),
        (["--gpus", "4", "--bandwidth", "1e9,1e9"], ["--gpus has 1 number", "--bandwidth 2"]),
        (["--gpus", "2", "-o", "plan.yaml"], ["-o plan.yaml", ".json or .txt"]),
        (["--gpus", "32", "--straight"], ["branching-graph.txt", "cannot be cut into 32 stages"]),
        ([], ["--gpus"]),
    ],
)
def test_a_wrong_call_is_one_line(arguments: list[str], parts: list[str], tmp_path: Path) -> None:
    one_line_error(in_process("plan-stages", str(BRANCHING), *arguments, cwd=tmp_path), *parts)


def test_a_missing_or_malformed_graph_is_one_line(tmp_path: Path) -> None:
    one_line_error(in_process("plan-stages", "vgg16", "--gpus", "2", cwd=tmp_path), "vgg16", "no such file")
    (tmp_path / "bad.txt").write_text("node1 - Linear\n")
    one_line_error(in_process("plan-stages", "bad.txt", "--gpus", "2", cwd=tmp_path), "bad.txt: line 1: not a unit")
