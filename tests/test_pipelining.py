"""Pipelines before anything starts: what a profile may ask for, the cut, the order, and the theory of bubbles."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import make_gpu

from benchsuite.describe.jobs import resolve
from benchsuite.describe.plan import places
from benchsuite.describe.tasks import Job
from benchsuite.describe.training import Parallel
from benchsuite.errors import ProfileError, UsageError
from benchsuite.pipeline.balance import balanced
from benchsuite.pipeline.stages import Level, Stage, StagePlan
from benchsuite.schema import to_json
from benchsuite.worker.pipedream.order import Order, Turn, version, warm_up
from benchsuite.worker.stages.layout import Layout, ideal_bubble, num_microbatches


def job(parallel: Any, where: str = "p.yaml", **fields: Any) -> Job:
    raw = {"model": "gnmt", "params": {"batch_size": 64}, "placement": "all_gpus", "parallel": parallel, **fields}
    return resolve("job", raw, where)


@pytest.mark.parametrize(
    ("parallel", "fields", "words"),
    [
        ({"pp": 4, "microbatches": 2}, {}, "1f1b on 4 ranks needs at least 4, found 2"),
        ({"pp": 4, "microbatches": 10, "schedule": "interleaved-1f1b"}, {"params": {"batch_size": 20}}, None),
        ({"pp": 3, "microbatches": 7, "schedule": "zero-bubble"}, {}, "needs a multiple of 2, such as 6, found 7"),
        ({"pp": 2, "microbatches": 6}, {}, "6 micro-batches do not divide a batch_size of 64"),
        ({"pp": 3}, {}, "12 micro-batches do not divide a batch_size of 64"),
        ({"pp": 2}, {"placement": "per_gpu"}, "field 'parallel.pp': each task has one GPU; give placement all_gpus"),
        ({"pp": 1}, {}, "a pipeline has 2 ranks or more"),
        ({"schedule": "1f1b"}, {}, "field 'parallel.schedule': there is no pipeline"),
        ({"pp": 2, "schedule": "1f1"}, {}, "unknown '1f1'; did you mean '1f1b'?"),
        ({"pp": 2, "fsdp": 2}, {}, "the weights of stages are not split"),
        ({"pp": 2, "stages": [3, 3, 3]}, {}, "it has 3 stages, and 1f1b on 2 ranks has 2"),
        ({"pp": 2, "stages": [3, 6], "schedule": "interleaved-1f1b"}, {}, "on 2 ranks has 4"),
        ({"pp": 2, "replicas": [3, 1]}, {}, "1f1b has equally many replicas of each stage; give parallel.dp"),
        ({"pp": 2, "schedule": "pipedream", "replicas": [3]}, {}, "it has 1 numbers for 2 stages"),
        ({"pp": 2, "schedule": "pipedream", "dp": 2}, {}, "as parallel.replicas instead"),
        ({"pp": 2, "schedule": "pipedream", "microbatches": 2}, {}, "pipedream passes on whole batches"),
        ({"pp": 2}, {"precision": "amp-fp16"}, "field 'precision': amp-fp16 cannot"),
        ({"pp": 2}, {"accumulate": 2}, "field 'accumulate': a pipeline splits batches"),
        ({"pp": 2}, {"channels_last": True}, "field 'channels_last'"),
        ({"pp": 2}, {"compile": "reduce-overhead"}, "field 'compile': the CUDA graphs"),
        ({"pp": 2, "schedule": "zero-bubble"}, {"compile": True}, "zero-bubble cannot run compiled stages"),
        ({"pp": 2, "schedule": "pipedream"}, {"checkpoint": True}, "pipedream cannot compute activations again"),
        ({"pp": 2}, {"model": "cart_pole", "params": {}}, "steps by itself"),
    ],
)
def test_a_pipeline_that_cannot_run_is_refused_in_one_line(
    parallel: dict[str, Any], fields: dict[str, Any], words: str | None
) -> None:
    if words is None:
        assert job(parallel, **fields)
        return
    with pytest.raises(ProfileError) as refused:
        job(parallel, **fields)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_batch_size_that_counts_no_samples_need_not_divide() -> None:
    assert job({"pp": 2, "microbatches": 6}, model="transformer", params={"batch_size": 2048, "tied": False})


def plan_file(folder: Path, *replicas: int) -> dict[str, Any]:
    """A plan of stages with two units each, in a file."""
    first = [sum(replicas[:place]) for place in range(len(replicas))]
    stages = tuple(
        Stage(
            units=(f"node{2 * place}", f"node{2 * place + 1}"),
            ranks=tuple(range(start, start + size)),
            compute_s=1.0,
            seconds=1.0,
            parameter_bytes=1.0,
            activation_bytes=1.0,
            passed_bytes=1.0,
        )
        for place, (start, size) in enumerate(zip(first, replicas, strict=True))
    )
    plan = StagePlan(
        levels=(Level(parts=sum(replicas), bandwidth=1e9),),
        seconds=1.0,
        one_gpu_s=1.0,
        data_parallel_s=1.0,
        stages=stages,
        module_to_stage_map=(0,),
        stage_to_rank_map={},
    )
    (folder / "plan.json").write_bytes(to_json(plan))
    (folder / "p.yaml").write_text("", encoding="utf-8")
    return {"plan": "plan.json"}


def test_a_plan_beside_the_profile_gives_stages_and_replicas(tmp_path: Path) -> None:
    found = job(plan_file(tmp_path, 3, 1), str(tmp_path / "p.yaml")).training.parallel
    assert found == Parallel(pp=2, schedule="pipedream", stages=(2, 2), replicas=(3, 1))
    assert (found.ranks, found.multiple) == (4, 4)


def test_an_even_plan_runs_by_any_schedule_and_an_uneven_one_does_not(tmp_path: Path) -> None:
    even = {**plan_file(tmp_path, 2, 2), "schedule": "1f1b"}
    found = job(even, str(tmp_path / "p.yaml")).training.parallel
    assert (found.dp, found.pp, found.stages, found.replicas) == (2, 2, (2, 2), None)
    uneven = {**plan_file(tmp_path, 3, 1), "schedule": "1f1b"}
    with pytest.raises(ProfileError, match="its stages have 3-1 replicas"):
        job(uneven, str(tmp_path / "p.yaml"))


def test_a_file_that_is_no_plan_is_refused(tmp_path: Path) -> None:
    plan_file(tmp_path, 1, 1)
    (tmp_path / "plan.json").write_text('{"module_to_stage_map": [0, 1]}', encoding="utf-8")
    with pytest.raises(ProfileError, match=r"plan.json is no plan of stages .*benchsuite plan-stages -o"):
        job({"plan": "plan.json"}, str(tmp_path / "p.yaml"))
    with pytest.raises(ProfileError, match="the plan gives pp; remove one of them"):
        job({"plan": "plan.json", "pp": 2}, str(tmp_path / "p.yaml"))


def test_the_gpus_of_a_machine_hold_replicas_of_a_pipeline() -> None:
    gpus = [make_gpu(i) for i in range(4)]
    assert [place.ranks for place in places(job({"pp": 2}), gpus)] == [4]
    assert [place.ranks for place in places(job({"pp": 2, "dp": 1}), gpus)] == [2]
    assert [place.ranks for place in places(job({"pp": 2}, placement="gpu_progression"), gpus)] == [2, 4]
    pipedream = {"pp": 2, "schedule": "pipedream", "replicas": [2, 1]}
    assert [place.ranks for place in places(job(pipedream), gpus)] == [3]
    assert [place.ranks for place in places(job({"pp": 2}, placement="cpu"), [])] == [2]
    with pytest.raises(UsageError, match="parallel asks for 8 ranks, over the 4 visible GPUs"):
        list(places(job({"pp": 8, "microbatches": 8}), gpus))
    with pytest.raises(
        UsageError, match="pp 4 does not divide the 5 visible GPUs; give a divisor of it, or both dp and pp"
    ):
        list(places(job({"pp": 4}), [*gpus, make_gpu(4)]))


def test_ranks_of_a_pipeline_read_the_same_data() -> None:
    four = [Parallel(pp=2).share(rank, 4) for rank in range(4)]
    assert four == [(0, 2), (1, 2), (0, 2), (1, 2)]
    assert {Parallel(pp=2, schedule="pipedream").share(rank, 4) for rank in range(4)} == {(0, 1)}
    assert [Parallel(dp=2).share(rank, 2) for rank in range(2)] == [(0, 2), (1, 2)]


def test_a_layout_has_replicas_side_by_side_and_interleaved_stages_apart() -> None:
    assert Layout.of(Parallel(pp=2), 4).ranks == ((0, 1), (2, 3))
    interleaved = Layout.of(Parallel(pp=2, schedule="interleaved-1f1b"), 2)
    assert [interleaved.own_stages(rank) for rank in range(2)] == [(0, 2), (1, 3)]
    uneven = Layout.of(Parallel(pp=3, schedule="pipedream", replicas=(4, 2, 1)), 7)
    assert (uneven.ranks[1], uneven.replica(5), uneven.minibatches) == ((4, 5), 1, 4)
    assert num_microbatches(Parallel(pp=4)) == 16


def test_the_cut_has_the_least_largest_cost() -> None:
    costs = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
    for stages in range(1, 6):
        sizes = balanced(costs, stages)
        ends = [0, *itertools.accumulate(sizes)]
        assert (len(sizes), ends[-1], min(sizes) > 0) == (stages, 8, True)
        largest = max(sum(costs[a:b]) for a, b in itertools.pairwise(ends))
        every = ([0, *cut, 8] for cut in itertools.combinations(range(1, 8), stages - 1))
        assert largest == min(max(sum(costs[a:b]) for a, b in itertools.pairwise(cut)) for cut in every)
    assert balanced([0.0, 1.0, 1.0, 0.0], 2) == (2, 2)
    assert balanced([1.0] * 8, 2, replicas=(3, 1)) == (6, 2), "three replicas share the work of their stage"


def test_the_bubbles_of_theory_are_those_of_the_papers() -> None:
    assert ideal_bubble("gpipe", 4, 8) == ideal_bubble("1f1b", 4, 8) == 3 / 11
    assert ideal_bubble("interleaved-1f1b", 4, 8) == 3 / 19
    assert ideal_bubble("zero-bubble", 4, 8) == 3 / 27
    assert ideal_bubble("pipedream", 4, 1) == 0


def test_a_straight_pipeline_keeps_as_many_minibatches_in_flight_as_stages_follow() -> None:
    assert [warm_up([1, 1, 1, 1], stage) for stage in range(4)] == [3, 2, 1, 0]
    assert [warm_up([3, 1], stage) for stage in range(2)] == [1, 0]
    assert [warm_up([15, 1], stage) for stage in range(2)] == [1, 0]
    order = Order([1, 1, 1], 1, 0)
    assert list(order.turns(3)) == [Turn(None, 0), Turn(None, 1), Turn(0, 2)]
    assert list(order.rest()) == [1, 2]
    assert [version([1, 1, 1], 0, minibatch) for minibatch in range(5)] == [0, 0, 0, 1, 2]


def test_replicas_take_minibatches_in_turn() -> None:
    orders = [Order([3, 1], 0, replica) for replica in range(3)]
    taken = [[turn.forward for turn in order.turns(3)] for order in orders]
    assert taken == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


@pytest.mark.parametrize("replicas", [(1, 1, 1, 1), (3, 1), (2, 1, 1), (4, 2, 2), (1, 3), (8, 3, 1), (2, 3, 1)])
def test_no_turn_waits_for_one_of_a_later_step(replicas: tuple[int, ...]) -> None:
    """Ranks meet between steps. Within their steps they wait for each other, and must not do so in a ring."""
    layout = Layout.of(Parallel(pp=len(replicas), schedule="pipedream", replicas=replicas), sum(replicas))
    orders = {
        (stage, replica): Order(replicas, stage, replica)
        for stage, size in enumerate(replicas)
        for replica in range(size)
    }
    done: set[tuple[str, int, int]] = set()
    for _ in range(6):
        todo = {
            (stage, replica): [
                action
                for turn in order.turns(layout.minibatches // replicas[stage])
                for action in (("back", turn.backward), ("forth", turn.forward))
                if action[1] is not None
            ]
            for (stage, replica), order in orders.items()
        }
        while any(todo.values()):
            ready = [key for key, actions in todo.items() if actions and _can(actions[0], key[0], replicas, done)]
            assert ready, f"all ranks wait: {todo}"
            for key in ready:
                kind, number = todo[key].pop(0)
                done.add((kind, key[0], number))


def _can(action: tuple[str, int], stage: int, replicas: tuple[int, ...], done: set[tuple[str, int, int]]) -> bool:
    kind, number = action
    if kind == "forth":
        return stage == 0 or ("forth", stage - 1, number) in done
    return stage == len(replicas) - 1 or ("back", stage + 1, number) in done


def test_the_parallel_fields_of_a_pipeline_are_recorded() -> None:
    fields = msgspec.to_builtins(job({"pp": 2, "microbatches": 8, "stages": [4, 7]}).training.parallel)
    assert json.loads(json.dumps(fields))["stages"] == [4, 7]
