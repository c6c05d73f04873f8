"""Models in stages learn as whole ones do: on the CPU over gloo, by every schedule and on two and four ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from support import PROGRAMS, environ

pytest.importorskip("torch")

pytestmark = pytest.mark.torch

SCHEDULES = ("gpipe", "1f1b", "interleaved-1f1b", "zero-bubble")
DECODER = {"model": "decoder", "params": {"batch_size": 6}}
UNTIED = {"dropout": 0.0, "tied": False}
GNMT = {"model": "gnmt", "params": {"dropout": 0.0, "batch_size": 2, "layers": 4, "max_length": 6}}
EXACT = {**GNMT, "double": True, "steps": 4}


def case(name: str, what: dict[str, Any], *, more: dict[str, Any] | None = None, **parallel: Any) -> dict[str, Any]:
    return {"name": name, **what, "training": {"parallel": parallel, **(more or {})}}


OF_TWO = [
    *(case(s, DECODER, pp=2, schedule=s, microbatches=2) for s in SCHEDULES),
    case("three micro-batches, clipped", {**DECODER, "clip": 0.01}, pp=2, microbatches=3),
    case("integers between stages", EXACT, pp=2, microbatches=2, stages=[2, 5]),
    case("zero-bubble of LSTMs", GNMT, pp=2, microbatches=2, schedule="zero-bubble"),
    case(
        "batches of many sizes",
        {"model": "transformer", "params": {**UNTIED, "nlayers": 1, "batch_size": 60}, "steps": 3},
        pp=2,
        microbatches=2,
    ),
    case(
        "bf16",
        {"model": "bert", "params": {**UNTIED, "nlayers": 1, "batch_size": 4}},
        pp=2,
        microbatches=2,
        more={"precision": "bf16"},
    ),
    case("bubble", {**DECODER, "observe": True}, pp=2, microbatches=3),
    case("pipedream", EXACT, pp=2, schedule="pipedream", stages=[3, 4]),
]
OF_FOUR = [
    *(case(s, {**DECODER, "steps": 1}, pp=4, schedule=s, microbatches=6) for s in SCHEDULES if "interleaved" not in s),
    case(
        "interleaved-1f1b",
        {"model": "decoder", "params": {"batch_size": 4, "layers": 6}, "steps": 1},
        pp=4,
        schedule="interleaved-1f1b",
        microbatches=4,
    ),
    case("2 x 2", {**DECODER, "clip": 0.01}, pp=2, dp=2, microbatches=2),
    case("pipedream, straight", {**EXACT, "steps": 6}, pp=4, schedule="pipedream", stages=[2, 1, 2, 2]),
    case("pipedream, 3-1", {**EXACT, "steps": 3}, pp=2, schedule="pipedream", stages=[3, 4], replicas=[3, 1]),
    case("pipedream, 2-1-1", {**EXACT, "steps": 3}, pp=3, schedule="pipedream", stages=[2, 2, 3], replicas=[2, 1, 1]),
]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the groups of two and of four ranks report."""
    pulse = tmp_path_factory.mktemp("groups") / "pulse"
    groups = json.dumps({2: OF_TWO, 4: OF_FOUR})
    words = [sys.executable, "-W", "error", str(PROGRAMS / "pipelines.py"), str(pulse), "cpu", groups]
    env = environ(OMP_NUM_THREADS="1")
    done = subprocess.run(words, env=env, capture_output=True, encoding="utf-8", check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def apart(found: dict[str, Any], limit: float, *names: str) -> dict[str, Any]:
    return {name: found[name] for name in names if not max(found[name]["loss"], found[name]["weights"]) <= limit}


def test_the_gradients_of_every_schedule_are_those_of_the_whole_model(reported: list[dict[str, Any]]) -> None:
    of_two, of_four = reported
    assert apart(of_two, 1e-5, *SCHEDULES, "three micro-batches, clipped", "zero-bubble of LSTMs") == {}
    assert apart(of_two, 1e-5, "batches of many sizes") == {}
    assert apart(of_four, 1e-5, *SCHEDULES, "2 x 2") == {}
    assert apart(of_two, 1e-9, "integers between stages") == {}, "in fp64"
    assert apart(of_two, 0.1, "bf16") == {}


def test_items_count_once(reported: list[dict[str, Any]]) -> None:
    counted = [one["items"] for found in reported for name, one in found.items() if name not in ("beats", "bubble")]
    assert len(counted) == len(OF_TWO) + len(OF_FOUR) - 1
    assert all(items == of_whole for items, of_whole in counted)


def test_pipedream_learns_as_the_simulation_of_its_weight_versions(reported: list[dict[str, Any]]) -> None:
    of_two, of_four = reported
    names = ("pipedream, straight", "pipedream, 3-1", "pipedream, 2-1-1")
    assert apart(of_two, 1e-9, "pipedream") == {} == apart(of_four, 1e-9, *names)
    assert of_two["pipedream"]["notes"] == ["pipedream: stages compute with weights of different ages"]


def test_a_rank_holds_its_stages_only(reported: list[dict[str, Any]]) -> None:
    of_two, of_four = reported
    assert of_four["1f1b"]["held"] < of_two["1f1b"]["held"]


def test_the_bubble_is_measured_beside_its_theory(reported: list[dict[str, Any]]) -> None:
    used = reported[0]["bubble"]["used"]
    assert (used["schedule"], used["microbatches"], used["cut_by"]) == ("1f1b", 3, "flops")
    assert used["ideal_bubble"] == 0.25
    assert 0 < used["bubble"] < 1
    assert used["bubble"] == pytest.approx(sum(used["idle"]) / 2, abs=1e-4)
    assert [stage["ranks"] for stage in used["stages"]] == [[0], [1]]
    assert sum(stage["units"] for stage in used["stages"]) == 4


def test_ranks_report_progress(reported: list[dict[str, Any]]) -> None:
    assert all(count > 10 for found in reported for count in found["beats"])
