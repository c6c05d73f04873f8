"""Model FLOPs against closed formulas."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchsuite.measurement import ModelFlops
from benchsuite.models import Optimiser, Update, Workload, supervised
from benchsuite.worker.flop_modes import product_flops
from benchsuite.worker.flops import BATCHES, FlopCount

pytestmark = pytest.mark.torch
SGD = Optimiser(torch.optim.SGD, {"lr": 0.1})
LAYERS, WIDTH, HEADS, TOKENS, VOCABULARY, SEQUENCES = 2, 16, 4, 8, 32, 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def trained(net: nn.Module, *batches: Any, items: Callable[[Any], int] = len, **loss: Any) -> Workload:
    """A workload that trains a network on these batches; its loss is the mean of the outputs unless one is given."""
    return supervised(
        unit="item",
        batches=lambda share: itertools.cycle(batches),
        items=items,
        net=net,
        inputs=lambda batch: (batch,),
        loss=loss.get("loss", lambda output, batch: output.square().mean()),
        optimiser=SGD,
    )


def counted(workload: Workload, batches: int = BATCHES, limit_s: float = 60) -> ModelFlops:
    count = FlopCount(workload, limit_s)
    seen = count.seen(workload.batches(None))  # type: ignore[arg-type]
    for _ in range(batches):
        next(seen)
    return count.counted()


def decoder(net: nn.Module) -> Workload:
    def loss(output: Tensor, batch: Tensor) -> Tensor:
        return F.cross_entropy(output.flatten(0, 1), batch.flatten())

    return trained(net, torch.zeros(SEQUENCES, TOKENS, dtype=torch.long), items=torch.numel, loss=loss)


def matmul_parameters(net: nn.Module) -> int:
    return sum(module.weight.numel() for module in net.modules() if isinstance(module, nn.Linear))


def test_a_decoder_costs_6_n_and_12_l_d_t_a_token() -> None:
    net = Decoder()
    found = counted(decoder(net))
    square = 12 * LAYERS * WIDTH * TOKENS
    assert found.per_item == 6 * matmul_parameters(net) + square
    assert found.causal_per_item == square / 2
    assert (found.batches, found.spread, found.reason) == (1, 0.0, None)


def test_a_frozen_weight_costs_no_gradient_of_its_own() -> None:
    net = Decoder()
    net.head.weight.requires_grad_(False)
    found = counted(decoder(net))
    whole = 6 * matmul_parameters(net) + 12 * LAYERS * WIDTH * TOKENS
    assert found.per_item == whole - 2 * net.head.weight.numel()


def test_the_model_that_trains_keeps_its_weights_and_the_random_state() -> None:
    net = Decoder()
    weights, state = [param.clone() for param in net.parameters()], torch.random.get_rng_state()
    counted(decoder(net))
    assert all(map(torch.equal, weights, net.parameters()))
    assert all(param.grad is None and param.device.type == "cpu" for param in net.parameters())
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_model_on_the_meta_device_is_counted_as_it_is() -> None:
    with torch.device("meta"):
        net = Decoder()
    assert counted(decoder(net)).per_item == counted(decoder(Decoder())).per_item


def test_a_convolution_costs_its_kernel_at_each_output() -> None:
    forward = 2 * (3 * 5 * 5) * 4 * (6 * 6)  # kernel, output channels, outputs of images of 10 x 10
    net = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.BatchNorm2d(4))
    assert counted(trained(net, torch.zeros(2, 3, 10, 10))).per_item == 2 * forward  # images get no gradient


def test_an_lstm_costs_its_two_matrices_at_each_step() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(5, 7, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.lstm(x)[0]

    steps, inputs, recurrent = 6, 2 * 5 * 28, 2 * 7 * 28
    # Inputs get no gradient. Neither does the state of zeros before the first step.
    by_hand = steps * (2 * inputs + 3 * recurrent) - recurrent
    assert counted(trained(Last(), torch.zeros(3, steps, 5))).per_item == by_hand


def test_each_update_counts_with_its_own_parameters() -> None:
    nets = {"one": nn.Linear(4, 4, bias=False), "two": nn.Linear(4, 4, bias=False)}

    def loss(nets: Any, batch: Tensor, carry: Any) -> Any:
        return nets["two"](nets["one"](batch)).mean(), carry

    def workload(times: int) -> Workload:
        updates = (Update("one", loss, SGD), Update("two", loss, SGD, times=times))
        return Workload("item", lambda share: itertools.cycle([torch.zeros(6, 4)]), len, nets, updates)

    product = 2 * 4 * 4
    # The first: both forward, the gradients of the second's input and the first's weight. The second: its weight's.
    assert counted(workload(1)).per_item == 4 * product + 3 * product
    assert counted(workload(3)).per_item == 4 * product + 3 * product  # three parts of a third of the batch


def test_batches_of_other_shapes_count_once_each() -> None:
    net = nn.Linear(4, 2, bias=False)
    found = counted(trained(net, torch.zeros(3, 5, 4), torch.zeros(3, 15, 4)))
    assert found.per_item == pytest.approx(10 * 4 * 4 * 2)
    assert (found.batches, found.spread) == (2, pytest.approx(1.0))


def test_a_model_that_cannot_be_counted_has_a_reason() -> None:
    class Exits(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise SystemExit("no")

    class Reads(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if x.sum().item() > 0 else x

    for net, why in ((Exits(), "SystemExit: no"), (Reads(4, 4), "RuntimeError")):
        found = counted(trained(net, torch.zeros(2, 4)))
        assert found.per_item is None and found.reason and why in found.reason
    steps = Workload("episode", lambda share: iter([1]), int, {"net": nn.Linear(1, 1)}, step=int)
    assert counted(steps, batches=1).reason == "the model steps by itself"
    assert counted(Workload("image", lambda share: iter([1]), int), batches=1).reason == "the model trains nothing"


def test_a_batch_that_cannot_be_noted_goes_to_the_model_all_the_same() -> None:
    def items(batch: Tensor) -> int:
        raise RuntimeError("not now")

    workload = trained(nn.Linear(4, 4), torch.zeros(2, 4), items=items)
    count = FlopCount(workload)
    assert next(count.seen(workload.batches(None))).shape == (2, 4)  # type: ignore[arg-type]
    assert "not now" in (count.counted().reason or "")


def test_counting_ends_at_its_limit() -> None:
    found = counted(decoder(Decoder()), limit_s=0.0)
    assert found.per_item is None and found.reason == "counting on the meta device takes over 0 s"


@pytest.mark.parametrize(
    ("left", "right", "multiplications"),
    [((6, 4), (4, 5), 6 * 4 * 5), ((6, 4), (3, 4, 5), 6 * 4 * 5), ((3, 6, 4), (3, 4, 5), 3 * 6 * 4 * 5)],
)
def test_a_grouped_product_counts_each_row_once(left: Any, right: Any, multiplications: int) -> None:
    assert product_flops(left, right) == 2 * multiplications


@pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="this torch has no grouped_mm")
def test_experts_cost_their_rows() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.Parameter(torch.zeros(2, 16, 32, dtype=torch.bfloat16))

        def forward(self, x: Tensor) -> Tensor:
            ends = torch.arange(1, 3, device=x.device, dtype=torch.int32) * 4
            return F.grouped_mm(x, self.weights, offs=ends)

    found = counted(trained(Experts(), torch.zeros(8, 16, dtype=torch.bfloat16)))
    assert found.per_item == 2 * 2 * 16 * 32
