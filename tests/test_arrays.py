"""Fused arrays: B models trained as one are the B models trained solo."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from itertools import islice
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from conftest import make_task
from made_arrays import Difference, compare, made, params_of
from test_step import line, points
from torch import Tensor, nn, optim

from benchsuite.arrays import recurrent
from benchsuite.arrays.learning import learner_of_each
from benchsuite.arrays.units import chosen
from benchsuite.describe import entries
from benchsuite.describe.tasks import Job
from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Optimiser, Share, Update, Workload
from benchsuite.worker.build import build_each, seed_of
from benchsuite.worker.ways import array, make_step

pytestmark = pytest.mark.torch

RATES = (1.0, 0.5, 0.25)  # of the models, times the default
# The tolerance of losses and weights, relative to the largest value of a tensor, in fp64.
EXACT = 1e-9
# With this environment variable, every model takes ten steps in fp64, which lasts minutes.
LONG = "ARRAYS_LONG" in os.environ
only_long = pytest.mark.skipif(not LONG, reason="computes for long; set ARRAYS_LONG")
ONLY_LONG = ("neural_style", "ssd")
# Two models take one step, in fp32 where that is enough; dit and the loss of decoder are always in fp32.
SLOW = ("convnet", "deepspeech2", "dcgan", "pointnet", "scaling", "subpixel")
IN_SINGLE = ("convnet", "dit")
LIMITS = {"convnet": 1e-3, "decoder": 1e-5, "dit": 1e-5, "neural_style": 1e-6, "pointnet": 1e-6, "ssd": 1e-6}
STEPS = {"bert": 2, "gnmt": 3, "transformer": 2, "translator": 3, "vae": 5, "wgan": 1, "dit": 3}
SMALLER: dict[str, dict[str, Any]] = {
    "convnet": {"batch_size": 4},
    "scaling": {"batch_size": 2, "image_size": 32},
    "pointnet": {"batch_size": 4, "points": 8},
    "neural_style": {"batch_size": 1, "image_size": 16, "style_size": 16},
    "deepspeech2": {"layers": 1, "max_seconds": 1},
}


def fusible_models() -> list[str]:
    models = [entries.declared(name, None) for name in entries.names()]
    return [model.name for model in models if model.parallel and not model.not_fused and "lr" in model.parameters]


def three(name: str, **changed: Any) -> list[dict[str, Any]]:
    """The parameters of three models, which differ in seed and learning rate."""
    rate = entries.declared(name, None).parameters["lr"].default
    return [{**SMALLER.get(name, {}), "seed": 1 + i, "lr": part * rate, **changed} for i, part in enumerate(RATES)]


def within(found: Difference, limit: float) -> bool:
    return found.losses <= limit and found.weights <= limit


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[only_long] if name in ONLY_LONG else []) for name in fusible_models()],
)
def test_an_array_is_its_models_trained_solo(name: str) -> None:
    model = import_module(f"benchsuite.models.{name}")
    if LONG:
        found = compare(model, three(name), 10, dtype=torch.float32 if name == "dit" else torch.float64)
    else:
        dtype = torch.float32 if name in IN_SINGLE else torch.float64
        each = three(name)[: 2 if name in SLOW else 3]
        found = compare(model, each, 1 if name in SLOW else STEPS.get(name, 10), dtype=dtype)
    assert within(found, LIMITS.get(name, EXACT)), found


def test_models_that_do_not_fuse_say_why_before_a_start() -> None:
    refused = {name: entries.declared(name, None) for name in entries.names() if name not in fusible_models()}
    models = {name for name in refused if not name.startswith("probe_")}
    assert models == {"atari", "cart_pole", "detection", "loader", "minigrid", "rollout"}
    assert all(model.not_fused or not model.parallel for model in refused.values())


def test_a_model_that_vmap_cannot_compute_is_refused_in_one_line() -> None:
    def counted(nets: Any, batch: Any, carry: Any) -> tuple[Tensor, Any]:
        output = nets["net"](batch[0])
        return output[output > 0].sum(), None

    workloads = [line(Optimiser(optim.SGD, {"lr": 0.1})) for _ in range(2)]
    workloads = [replace(one, updates=(replace(one.updates[0], loss=counted),)) for one in workloads]
    step = array.make(workloads, Training(array=2), "cpu")
    with pytest.raises(ModelError, match="array: the model cannot be fused: vmap"):
        step.run(points(1)[0])


@pytest.mark.parametrize(
    "training", [Training(accumulate=2), Training(compile="none")], ids=["micro-batches", "whole batches"]
)
def test_models_with_one_setting_are_one_parameter_group(training: Training) -> None:
    found = compare(import_module("benchsuite.models.polynome"), three("polynome", lr=0.1), 5, training)
    assert within(found, EXACT)


def test_a_carry_is_split_among_micro_batches() -> None:
    found = compare(import_module("benchsuite.models.wlm"), three("wlm"), 3, Training(accumulate=2))
    assert within(found, EXACT)


@pytest.mark.parametrize("count", [1, 10])
def test_unfused_units_train_as_fused_ones_do(count: int) -> None:
    model = import_module("benchsuite.models.transformer")
    known = len(made(model, torch.float64, tied=False).chain.units())  # type: ignore[union-attr]
    each = three("transformer", tied=False)
    found = compare(model, each, 2, Training(unfused_units=min(count, known)))
    assert within(found, EXACT), found


def test_units_leave_an_array_in_the_order_of_hfta() -> None:
    assert chosen(10, 3) == {1, 2, 3}
    assert chosen(10, 9) == set(range(1, 10))
    assert chosen(10, 10) == set(range(10))
    with pytest.raises(ModelError, match="unfused_units 11: the model has 10 units"):
        chosen(10, 11)


@pytest.mark.parametrize("precision", ["bf16", "amp-fp16"])
def test_losses_in_mixed_precision_are_in_fp32_as_those_of_solo_models(precision: Any) -> None:
    """Rounded to 16 bits, they would be off by more."""
    model = import_module("benchsuite.models.transformer")
    found = compare(model, three("transformer"), 2, Training(precision=precision), dtype=torch.float32)
    assert found.losses < 3e-4


def test_an_overflow_in_one_model_skips_no_step_of_another() -> None:
    workloads = [line(Optimiser(optim.SGD, {"lr": 0.1, "momentum": 0.9})) for _ in range(3)]
    with torch.no_grad():
        workloads[1].modules["net"].weight.fill_(3e4)
    step, fused = array.fuse(workloads, Training(precision="amp-fp16", array=3), "cpu")
    before = [next(fused.state(model)).clone() for model in range(3)]
    step.run(points(1, scale=0.1)[0])
    changed = [not torch.equal(next(fused.state(model)), was) for model, was in enumerate(before)]
    assert changed == [True, False, True]
    assert [scale() for scale in step.scales] == [2.0**16, 2.0**15, 2.0**16]


def test_gradients_are_clipped_model_by_model() -> None:
    specs = [Optimiser(optim.SGD, {"lr": 1.0}, clip_norm=limit) for limit in (0.5, 100.0)]
    weights = nn.Parameter(torch.zeros(2, 3))
    learns = learner_of_each([weights], specs, Training(array=2), "cpu", None)
    learns.clear()
    learns.backward((weights * torch.tensor([3.0, 4.0, 0.0])).sum(1))
    learns.update()
    assert weights[0].norm().item() == pytest.approx(0.5, rel=1e-4)
    assert weights[1].norm().item() == pytest.approx(5.0)


def test_dropout_differs_between_the_models() -> None:
    def net() -> Workload:
        torch.manual_seed(0)
        base = line(Optimiser(optim.SGD, {"lr": 0.0}))
        return replace(base, modules={"net": nn.Sequential(nn.Dropout(0.5), base.modules["net"])})

    step = array.make([net() for _ in range(3)], Training(array=3), "cpu")
    step.run(points(1)[0])
    assert len(set(step.losses[0].tolist())) == 3


def test_items_of_all_models_add_up_and_each_must_learn() -> None:
    step = array.make([line(Optimiser(optim.SGD, {"lr": lr})) for lr in (0.1, 0.0)], Training(array=2), "cpu")
    assert step.run(points(1)[0]) == 16
    with pytest.raises(ModelError, match="of model 1 has changed: nothing was learnt"):
        step.check()


def test_an_optimiser_that_looks_at_whole_matrices_is_refused() -> None:
    spec = Optimiser(optim.LBFGS, {"lr": 1.0})
    with pytest.raises(ModelError, match="array: LBFGS does not treat each weight by itself"):
        array.make([line(spec), line(spec)], Training(array=2), "cpu")


def test_models_of_other_sizes_are_refused() -> None:
    model = import_module("benchsuite.models.polynome")
    workloads = [made(model, torch.float32, poly_degree=degree) for degree in (3, 4)]
    with pytest.raises(ModelError, match="differ in the parameters of 'net'"):
        array.make(workloads, Training(array=2), "cpu")


@pytest.mark.parametrize(
    "settings", [{}, {"bidirectional": True}, {"num_layers": 2}, {"batch_first": True, "bias": False}]
)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_those_of_torch(kind: type[nn.RNNBase], settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    net = kind(3, 4, **settings).double()
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    wanted, states = net(x)
    rule = recurrent.RULES[{nn.LSTM: torch.lstm, nn.GRU: torch.gru, nn.RNN: torch.rnn_tanh}[kind]]
    begin = torch.zeros_like(states[0] if kind is nn.LSTM else states)
    flags = (net.bias, net.num_layers, 0.0, True, net.bidirectional, net.batch_first)
    output, *rest = rule(x, (begin, begin) if kind is nn.LSTM else begin, net._flat_weights, *flags)
    for mine, torchs in zip((output, *rest), (wanted, *(states if kind is nn.LSTM else (states,))), strict=True):
        torch.testing.assert_close(mine, torchs)


def test_models_with_another_dropout_are_refused() -> None:
    model = import_module("benchsuite.models.recommendation")
    workloads = [made(model, torch.float32) for _ in range(2)]
    workloads[1].modules["net"].mlp.append(nn.Dropout(0.5))
    with pytest.raises(ModelError, match="differ in a setting of 'net', such as dropout"):
        array.make(workloads, Training(array=2), "cpu")


def test_a_compiled_array_is_its_models_trained_solo() -> None:
    training = Training(compile="aot_eager")
    found = compare(import_module("benchsuite.models.polynome"), three("polynome"), 2, training, noisy=False)
    assert within(found, EXACT)


def test_each_model_is_built_with_its_own_parameters_and_seed() -> None:
    model = import_module("benchsuite.models.polynome")
    params = {"batch_size": 4, "poly_degree": 4, "lr": [0.1, 0.2], "seed": 5}
    job = Job(name="a", model="polynome", params=params, training=Training(array=2))
    task = make_task(job=job, gpu=None)
    workloads = build_each(model, task, 0)
    assert [one.updates[0].optimiser.settings["lr"] for one in workloads] == [0.1, 0.2]
    for index, one in enumerate(workloads):
        solo = made(model, torch.float32, seed=5 + index)
        assert torch.equal(one.modules["net"].weight, solo.modules["net"].weight)
    assert seed_of(task) == 5


def test_one_batch_serves_all_models() -> None:
    model = import_module("benchsuite.models.polynome")
    workloads = [made(model, torch.float32, seed=1 + index) for index in range(2)]
    batch = next(islice(workloads[0].batches(Share(seed=1)), 1))
    step = make_step(workloads[0], Training(array=2), others=workloads[1:])
    assert step.run(batch) == 2 * len(batch[1])
    assert step.losses[0].shape == (2,)
    assert params_of(model, seed=3).seed == 3


def test_weights_are_clipped_after_each_step_of_each_model() -> None:
    def clipped(net: nn.Module) -> None:
        for param in net.parameters():
            param.clamp_(-0.1, 0.1)

    workloads = []
    for rate in (0.1, 0.2):
        one = line(Optimiser(optim.SGD, {"lr": rate}))
        update: Update = replace(one.updates[0], after=clipped)
        workloads.append(replace(one, updates=(update,)))
    step, fused = array.fuse(workloads, Training(array=2), "cpu")
    step.run(points(1)[0])
    assert all(tensor.abs().max() <= 0.1 for model in range(2) for tensor in fused.state(model))
    step.run(points(1)[0])
    assert all(tensor.abs().max() <= 0.1 for model in range(2) for tensor in fused.state(model))
