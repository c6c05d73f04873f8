"""The units of a model, measured one by one, and the graph and plan that come of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import build, in_process, one_line_error

pytest.importorskip("torch")

import torch
from torch import Tensor

from benchsuite.describe.training import Training
from benchsuite.launch import unit_costs as launched
from benchsuite.launch.unit_costs import graph_of
from benchsuite.models import Share, gnmt, subpixel
from benchsuite.pipeline import graph
from benchsuite.pipeline.partition import plan
from benchsuite.pipeline.stages import Level
from benchsuite.searches import ChainCosts
from benchsuite.worker import unit_costs
from benchsuite.worker.device import Cpu
from benchsuite.worker.learner import Learner
from benchsuite.worker.unit_costs import HostMarks, Pass, answer, costs_of, measured

pytestmark = pytest.mark.torch

SMALL = ("--batch-size", "2", "--crop", "32", "--workers", "0")


class Counting:
    """Marks whose n-th interval lasts n seconds, in each pass anew."""

    def __init__(self, length: int) -> None:
        self.length, self.count = length, 0

    def mark(self) -> None:
        self.count += 1

    def intervals(self) -> list[float]:
        count, self.count = self.count, 0
        return [float(i % self.length) for i in range(1, count)]


def gradients(net: torch.nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("model", [gnmt, subpixel])
def test_a_pass_unit_by_unit_has_the_gradients_of_the_whole_model(model: Any) -> None:
    workload = build(model)
    net, chain = workload.modules["net"], workload.chain
    assert chain
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    batch = next(workload.batches(Share()))
    chain.loss(net(*chain.inputs(batch)), batch).backward()
    whole = gradients(net)
    net.zero_grad()
    still = Learner(clear=lambda: None, backward=Tensor.backward, update=lambda: None)
    units = chain.units()
    received, passed = Pass(chain, units, still, torch.enable_grad(), HostMarks()).run(batch)
    found = gradients(net)
    assert found.keys() == whole.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6)
    assert received == sum(t.nbytes for t in chain.inputs(batch))
    assert len(passed) == len(units)


def test_times_are_medians_of_the_repeats_between_the_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_costs, "LIMIT_S", 600.0)
    workload = build(subpixel)
    assert workload.chain
    units = workload.chain.units()
    still = Learner(clear=lambda: None, backward=Tensor.backward, update=lambda: None)
    one = Pass(workload.chain, units, still, torch.enable_grad(), Counting(2 * len(units) + 2))
    batch = next(workload.batches(Share()))
    (found,) = measured(one, iter([batch]), Cpu())
    assert found.repeats == unit_costs.REPEATS
    assert found.medians_s == [float(i) for i in range(1, 2 * len(units) + 2)]


def test_the_optimisers_step_is_shared_by_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_costs, "LIMIT_S", 0.0)
    workload = build(subpixel)
    assert workload.chain
    count = len(workload.chain.units())
    monkeypatch.setattr(unit_costs, "HostMarks", lambda: Counting(2 * count + 2))
    costs = costs_of(workload, Training(), Cpu(), Share())
    assert costs.update_s == 2 * count + 1
    assert [unit.forward_s for unit in costs.units] == [float(i) for i in range(1, count + 1)]
    whole = sum(unit.parameter_bytes for unit in costs.units)
    assert whole == sum(p.nbytes for p in workload.modules["net"].parameters())
    for place, unit in enumerate(costs.units):
        backward_s = 2 * count - place
        assert unit.backward_s == pytest.approx(backward_s + costs.update_s * unit.parameter_bytes / whole)


def in_this_process(words: Sequence[str], given: bytes, environ: Mapping[str, str]) -> Any:
    """Answer as the process that `launch.unit_costs` starts would."""
    import msgspec

    from benchsuite.events import Assignment
    from benchsuite.launch.supervise import Exit

    task = msgspec.json.decode(given, type=Assignment).task
    return msgspec.json.encode(answer(task)), "", Exit(0)


def test_a_model_is_measured_and_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_costs, "LIMIT_S", 0.0)
    monkeypatch.setattr(launched, "_run", in_this_process)
    files = ("--graph", "graph.txt", "-o", "plan.json")
    arguments = ("plan-stages", "subpixel", "--gpus", "2", "--bandwidth", "1e9", "--straight", *files, "--", *SMALL)
    done = in_process(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "subpixel, fp32 on cpu: 4 units, measured 1 time on each of 1 batch of 2 images" in done.stdout
    assert "Predicted: one minibatch every" in done.stdout
    kept = graph.read(tmp_path / "graph.txt")
    assert [unit.name for unit in kept.units] == [f"node{i}" for i in range(5)]
    again = plan(kept, (Level(parts=2, bandwidth=1e9),), straight=True)
    assert json.loads((tmp_path / "plan.json").read_text())["seconds"] == pytest.approx(again.seconds, rel=1e-3)


def test_costs_become_a_chain_in_order() -> None:
    costs = ChainCosts(device="cpu", batch="1 image", batches=1, repeats=1, input_bytes=4.0, units=(), update_s=0.0)
    assert [unit.description for unit in graph_of(costs).units] == ["Input"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["convnet", "--gpus", "2"], ["--bandwidth is missing", "no GPU is visible"]),
        (["convnet", "--gpus", "2,2"], ["--bandwidth is missing", "link between hosts"]),
        (["convent", "--gpus", "2"], ["no such file, and no such model", "did you mean 'convnet'?"]),
        (["convnet", "--gpus", "1", "--", "--compile"], ["--compile", "without compilation"]),
        (["convnet", "--gpus", "1", "--", "--arch", "vgg99"], ["has no classifier 'vgg99'"]),
        (["vae", "--gpus", "1"], ["vae: it names no units"]),
    ],
)
def test_a_model_that_cannot_be_measured_is_one_line(
    arguments: list[str], parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launched, "_run", in_this_process)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    one_line_error(in_process("plan-stages", *arguments, cwd=tmp_path), *parts)
