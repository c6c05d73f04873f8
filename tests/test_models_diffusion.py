"""dit beyond the contract: sizes, patches, modulation, noise and first weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
import support

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import Tensor

from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Share, Workload, dit
from benchsuite.worker.ways import make_step

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def build(**changed: Any) -> Workload:
    return support.build(dit, **changed)


def randomised(**changed: Any) -> dit.Dit:
    """A net whose modulations and output are not 0."""
    torch.manual_seed(0)
    net = build(**changed).modules["net"]
    assert isinstance(net, dit.Dit)
    with torch.no_grad():
        for value in net.parameters():
            value.normal_(0, 0.3)
    return net


@pytest.mark.parametrize(
    ("size", "count", "millions"),
    [("s", 32_858_896, 33), ("b", 130_303_504, 130), ("l", 457_824_272, 458), ("xl", 674_816_272, 675)],
)
def test_sizes_are_those_of_the_paper_without_the_variance(size: Any, count: int, millions: int) -> None:
    """The paper's code counts the fixed embedding of places as well, and predicts 4 channels of variance."""
    (net,) = dit.build(dit.Params(size=size)).modules.values()
    layers, width, _ = dit.SIZES[size]
    patch = 4 * 2 * 2
    blocks = layers * (18 * width**2 + 15 * width)
    ends = patch * width + width + 256 * width + width**2 + 2 * width + 1001 * width
    head = 2 * width**2 + 2 * width + width * patch + patch
    assert sum(value.numel() for value in net.parameters()) == blocks + ends + head == count
    whole = count + 256 * width + (width + 1) * patch
    assert whole / 1e6 == pytest.approx(millions, abs=0.6)
    assert size != "xl" or whole == 675_129_632


def test_blocks_are_the_layers_in_order() -> None:
    workload = build()
    assert workload.blocks == tuple(workload.modules["net"].blocks) and len(workload.blocks) == 2


def test_each_block_begins_as_the_identity_and_the_noise_as_zero() -> None:
    workload = build()
    net, batch = workload.modules["net"], next(workload.batches(Share()))
    x, conditions = net.embed(*batch[:3])
    assert torch.equal(net.blocks[0](x, conditions)[0], x)
    assert (net(*batch[:3]) == 0).all()
    loss, _ = workload.updates[0].loss(workload.modules, batch, None)
    assert float(loss.detach()) == pytest.approx(float(batch.noise.square().mean()))


def test_patches_return_to_their_places() -> None:
    """A head whose output is a patch's own pixels gives the picture again."""
    images = torch.randn(2, 4, 8, 8)
    head = dit.Head(16, 2)
    with torch.no_grad():
        head.modulation.weight.zero_()
        head.modulation.bias.zero_()
        head.output.weight.copy_(torch.eye(16))
        head.output.bias.zero_()
    pixels = F.unfold(images, 2, stride=2).transpose(1, 2)
    expected = F.fold(F.layer_norm(pixels, (16,), eps=1e-6).transpose(1, 2), 8, 2, stride=2)
    assert torch.allclose(head(pixels, torch.zeros(2, 16)), expected, atol=1e-6)


def test_the_noise_depends_on_latents_time_class_and_place() -> None:
    net = randomised()
    latents, times, labels = torch.randn(1, 4, 8, 8), torch.tensor([500]), torch.tensor([2])
    usual = net(latents, times, labels)
    for others in ((latents + 0.1, times, labels), (latents, times + 100, labels), (latents, times, labels + 1)):
        assert not torch.allclose(net(*others), usual, atol=1e-3)
    turned = net(latents.flip(2, 3), times, labels).flip(2, 3)
    assert not torch.allclose(turned, usual, atol=1e-3)


def test_places_differ_by_row_and_column() -> None:
    table = dit.places(4, 16)[0]
    assert table.shape == (16, 16)
    assert torch.equal(table[0, :8], table[4, :8]) and torch.equal(table[0, 8:], table[1, 8:])
    assert len({tuple(row.tolist()) for row in table}) == 16


def test_waves_begin_at_one_and_slow_down() -> None:
    table = dit.waves(torch.tensor([0, 1]), 8)
    assert table[0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert table[1, 4:].tolist() == pytest.approx([math.sin(10_000 ** (-k / 4)) for k in range(4)], rel=1e-5)


def test_batches_have_noise_of_the_schedule_and_dropped_labels() -> None:
    batch = next(build(batch_size=2000, latent=2).batches(Share()))
    dropped = float((batch.labels == 5).float().mean())
    assert 0.07 < dropped < 0.13 and int(batch.labels.max()) == 5
    assert float(batch.latents.std()) == pytest.approx(1, rel=0.05)
    late = batch.times > 950
    assert float((batch.latents - batch.noise)[late].abs().mean()) < 0.05
    early = batch.times < 20
    assert float((batch.latents - batch.noise)[early].std()) > 1


def correlated(a: Tensor, b: Tensor) -> float:
    return abs(float(torch.corrcoef(torch.stack((a.flatten(), b.flatten())))[0, 1]))


def test_first_weights_have_values_of_their_own() -> None:
    first, other = (dict(build(width=32, seed=seed).modules["net"].named_parameters()) for seed in (1, 2))
    weights = [f"blocks.{layer}.qkv.weight" for layer in (0, 1)]
    assert correlated(first[weights[0]].detach(), first[weights[1]].detach()) < 0.1
    assert not torch.equal(first[weights[0]], other[weights[0]])
    bound = math.sqrt(6 / (32 + 96))
    assert 0.95 * bound < float(first[weights[0]].detach().abs().max()) <= bound
    assert all((value == 0).all() for name, value in first.items() if "modulation" in name or name.endswith("bias"))


def test_the_loss_of_one_batch_falls_in_bf16() -> None:
    workload = build(lr=3e-3)
    step = make_step(workload, Training(precision="bf16"))
    batch = next(workload.batches(Share()))
    losses = []
    for _ in range(30):
        step.run(batch)
        losses.append(step.losses[0])
    assert float(losses[-1]) < 0.9 * float(losses[0])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"width": 18}, "width 18 is no multiple of both 4 and heads 2"),
        ({"latent": 9}, "latent 9 is no multiple of patch 2"),
    ],
)
def test_a_net_that_cannot_be_built_is_refused_in_one_line(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=f"^dit: {words}$"):
        build(**changed)
