"""Sharded weights train as whole ones do: on the CPU over gloo, and on two GPUs over NCCL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import PROGRAMS, environ

pytest.importorskip("torch")

import torch

pytestmark = pytest.mark.torch

# Largest relative differences after four steps in fp32, of the losses and of the norm of each weight.
FP32 = 1e-5
ALL, PAIRS = {"fsdp": "all"}, {"dp": 2, "fsdp": 2}


def case(name: str, training: dict[str, Any], against: dict[str, Any] | None = None, **model: bool) -> dict[str, Any]:
    training = {"parallel": ALL, **training}
    return {"name": name, "training": training, "against": against or {}, "model": model}


OF_ONE = [case("compile", {"compile": "aot_eager", "checkpoint": True})]
OF_TWO = [
    case("plain", {}),
    case("accumulate", {"accumulate": 2}, {"accumulate": 2}),
    case("built on the CPU, two steps a batch, clipped", {}, meta=False, blocks=False, again=True),
    case("bf16", {"precision": "bf16"}, {"precision": "bf16"}),
]
OF_FOUR = [
    case("2 x 2", {"parallel": PAIRS, "checkpoint": True, "accumulate": 2}, {"accumulate": 2}),
    case("1 x 4", {}),
    case("4 x 1", {"parallel": {"fsdp": 1}, "checkpoint": True}),
]


def groups_of(tmp_path: Path, kind: str, groups: dict[int, list[dict[str, Any]]], **more: str) -> list[dict[str, Any]]:
    """What each group of ranks reports."""
    words = [sys.executable, "-W", "error", str(PROGRAMS / "sharding.py"), str(tmp_path / "pulse"), kind]
    env = environ(OMP_NUM_THREADS="1", **more)
    done = subprocess.run(
        [*words, json.dumps(groups)], env=env, capture_output=True, encoding="utf-8", check=False, timeout=400
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return groups_of(tmp_path_factory.mktemp("groups"), "cpu", {1: OF_ONE, 2: OF_TWO, 4: OF_FOUR})


@pytest.fixture
def of_two(reported: list[dict[str, Any]]) -> dict[str, Any]:
    return reported[1]


@pytest.fixture
def of_four(reported: list[dict[str, Any]]) -> dict[str, Any]:
    return reported[2]


def apart(reported: dict[str, Any], limit: float) -> dict[str, Any]:
    """The cases whose losses or weights differ by more than this from those of whole weights."""
    compared = {name: found for name, found in reported.items() if isinstance(found, dict) and "loss" in found}
    assert compared
    return {name: f for name, f in compared.items() if not max(f["loss"], f["weights"]) <= limit}


def test_two_ranks_learn_as_they_do_with_whole_weights(of_two: dict[str, Any]) -> None:
    of_bf16 = of_two["bf16"]
    assert apart({name: found for name, found in of_two.items() if name != "bf16"}, FP32) == {}
    assert apart({"bf16": of_bf16}, 0.05) == {}, "here the residual stream is in bf16 as well"
    assert of_two["built on the CPU, two steps a batch, clipped"]["moved"] <= 0.25
    assert of_two["beats"][0] == of_two["beats"][1] > 10


def test_four_ranks_learn_alike_as_one_replica_and_as_two(of_four: dict[str, Any]) -> None:
    assert apart(of_four, FP32) == {}


def test_a_rank_holds_its_part_of_the_weights(of_two: dict[str, Any], of_four: dict[str, Any]) -> None:
    ((dtype, count),) = of_two["plain"]["parameters"].items()
    assert dtype == "float32", "the weights that are kept, whatever format they are gathered in"
    assert of_two["plain"]["held"] == pytest.approx(count / 2, rel=0.05)
    assert of_four["2 x 2"]["held"] == pytest.approx(count / 2, rel=0.05)
    assert of_four["1 x 4"]["held"] == pytest.approx(count / 4, rel=0.05)
    assert of_four["4 x 1"]["held"] == 0
    assert of_four["4 x 1"]["notes"] == ["fsdp: a replica has one rank, so that its weights are not split"]


def test_in_bf16_weights_are_gathered_in_bf16_and_kept_in_fp32(of_two: dict[str, Any]) -> None:
    assert of_two["bf16"]["gathered"] == "torch.bfloat16"
    assert of_two["plain"]["gathered"] == "torch.float32"
    assert [*of_two["bf16"]["parameters"]] == ["float32"]


def test_blocks_are_compiled_without_breaks_into_one_graph(reported: list[dict[str, Any]]) -> None:
    found = reported[0]["compile"]
    assert apart(reported[0], FP32) == {}
    assert (found["graphs"], found["breaks"]) == (1, 0)
    assert found["notes"] == ["fsdp: compile covers each block, and not the loss"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("unchanged", "no parameter of 'net' has changed"),
        ("scalar", "'Net' cannot be sharded"),
        ("two updates", "fsdp shards models with one update, and this one has 2 updates; give parallel.dp alone"),
        ("by itself", "the model steps by itself"),
        ("no blocks", "checkpoint: the model names no blocks"),
        ("parts", "the parts of a weight of 'net' do not make up its (19, 20)"),
    ],
)
def test_what_cannot_be_sharded_is_named(fault: str, words: str, of_two: dict[str, Any]) -> None:
    assert words in of_two["faults"][fault]


def test_replicas_that_differ_are_found(of_four: dict[str, Any]) -> None:
    assert of_four["faults"]["changed"] is None
    assert "the replicas' weights of 'net' have drifted apart" in of_four["faults"]["drifted"]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs")
def test_two_gpus_learn_as_they_do_with_whole_weights(tmp_path: Path) -> None:
    """Compiled, bf16 and checkpointed as large models are trained; unequal rounding shows after some steps."""
    compiled = {"compile": "default", "checkpoint": True}
    cases = [
        case("plain", {}),
        case("accumulate", {"accumulate": 2}, {"accumulate": 2}),
        case("compiled", compiled),
        case("built on the CPU", {}, meta=False),
        case("bf16", {"precision": "bf16", **compiled}, {"precision": "bf16"}),
    ]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1")
    (reported,) = groups_of(tmp_path, "cuda", {2: cases}, CUDA_VISIBLE_DEVICES=visible)
    assert apart({name: found for name, found in reported.items() if name != "bf16"}, 1e-4) == {}
    assert apart({"bf16": reported["bf16"]}, 0.05) == {}
