"""The vision models of the papers: sizes, updates, losses by hand, and the units of a chain."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torch
import torch.nn.functional as F
from support import build
from torch import Tensor, nn, optim

from benchsuite.describe import work
from benchsuite.errors import ModelError
from benchsuite.models import Share, Workload, convnet, detection, pointnet, wgan
from benchsuite.worker.ways import make_step

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

# torchvision's documentation gives its detectors' sizes with frozen batch norms, which have 53,120 weights.
NORMS = 53_120
SIZES: list[tuple[ModuleType, dict[str, Any], dict[str, int]]] = [
    (detection, {}, {"net": 41_755_286 + NORMS}),
    (detection, {"arch": "maskrcnn_resnet50_fpn"}, {"net": 44_401_393 + NORMS}),
    (wgan, {}, {"generator": 3_576_704, "critic": 2_765_568}),
    (pointnet, {}, {"net": 3_473_881}),
    (pointnet, {"task": "seg"}, {"net": 3_542_139}),
    (convnet, {"arch": "resnet18"}, {"net": 11_689_512}),
    (convnet, {"arch": "resnet50"}, {"net": 25_557_032}),
    (convnet, {"arch": "vgg16"}, {"net": 138_357_544}),
    (convnet, {"arch": "alexnet"}, {"net": 61_100_840}),
    (convnet, {"arch": "inception_v3", "image_size": 299}, {"net": 27_161_264}),
    (convnet, {"arch": "mobilenet_v2"}, {"net": 3_504_872}),
    (convnet, {"arch": "mobilenet_v3_small"}, {"net": 2_542_856}),
    (convnet, {"arch": "mobilenet_v3_large"}, {"net": 5_483_032}),
    (convnet, {"arch": "vit_l_16"}, {"net": 304_326_632}),
]


def on_meta(model: ModuleType, changed: dict[str, Any]) -> Workload:
    """Built once, without the arithmetic."""
    return built(model, tuple(changed.items()))


@cache
def built(model: ModuleType, changed: tuple[tuple[str, Any], ...]) -> Workload:
    with torch.device("meta"):
        workload: Workload = model.build(model.Params(**dict(changed)))
        return workload


def batch_of(workload: Workload) -> Any:
    return next(iter(workload.batches(Share())))


@pytest.mark.parametrize(
    ("model", "changed", "sizes"), SIZES, ids=[f"{m.__name__.split('.')[-1]}-{c}" for m, c, _ in SIZES]
)
def test_sizes_are_the_papers(model: ModuleType, changed: dict[str, Any], sizes: dict[str, int]) -> None:
    workload = on_meta(model, changed)
    assert {name: sum(p.numel() for p in net.parameters()) for name, net in workload.modules.items()} == sizes


# --- convnet ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "changed", "_"), SIZES[5:], ids=[c["arch"] for _, c, _ in SIZES[5:]])
def test_every_classifier_is_trained_whole(model: ModuleType, changed: dict[str, Any], _: Any) -> None:
    """On the meta device: shapes and gradients without the arithmetic."""
    workload = on_meta(model, changed)
    size = changed.get("image_size", 224)
    with torch.device("meta"):
        batch = torch.empty(2, 3, size, size), torch.empty(2, dtype=torch.long)
        loss, _ = workload.updates[0].loss(workload.modules, batch, None)
        loss.backward()
    assert [key for key, value in workload.modules["net"].named_parameters() if value.grad is None] == []


def layers_called(call: Any, net: nn.Module, images: Tensor) -> list[nn.Module]:
    """The layers without parts, in the order in which a call uses them."""
    called: list[nn.Module] = []
    leaves = [layer for layer in net.modules() if not list(layer.children())]
    handles = [layer.register_forward_hook(lambda layer, *_: called.append(layer)) for layer in leaves]
    call(images)
    for handle in handles:
        handle.remove()
    return called


@pytest.mark.parametrize("arch", ["resnet50", "vgg16", "alexnet"])
def test_the_units_of_a_chain_are_the_layers_in_order(arch: str) -> None:
    workload = on_meta(convnet, {"arch": arch})
    net, chain = workload.modules["net"], workload.chain
    assert chain is not None
    units = chain.units()

    def by_units(images: Tensor) -> None:
        for unit in units:
            before = images._version
            after = unit(images)
            assert images._version == before, "a unit does not change what the unit before it gave"
            images = after

    with torch.device("meta"):
        images = torch.empty(2, 3, 224, 224)
        assert layers_called(by_units, net, images) == layers_called(net, net, images)
    assert len(units) == {"resnet50": 18, "vgg16": 16, "alexnet": 8}[arch]


def test_auxiliary_losses_are_weighted() -> None:
    first, second = torch.randn(2, 3, 5)
    labels = torch.tensor([0, 4, 2])
    alone, other = F.cross_entropy(first, labels), F.cross_entropy(second, labels)
    assert torch.allclose(convnet.loss((first, second), labels, 0.4), alone + 0.4 * other)
    assert torch.equal(convnet.loss(first, labels, 0.4), alone)


def test_inception_refuses_images_that_its_auxiliary_classifier_cannot_take() -> None:
    with pytest.raises(ModelError, match="inception_v3 needs an image_size of 299 or more"):
        on_meta(convnet, {"arch": "inception_v3"})


# --- wgan -------------------------------------------------------------------------------------------------------------


class Counted(optim.RMSprop):
    """Counts the steps of each of its kind."""

    steps: list[int] = []

    def step(self, closure: Any = None) -> Any:
        self.steps.append(sum(p.numel() for p in self.param_groups[0]["params"]))
        return super().step(closure)


def test_the_critic_takes_five_steps_and_its_weights_stay_clipped() -> None:
    workload = build(wgan, batch_size=2, critic_steps=5)
    updates = [replace(one, optimiser=replace(one.optimiser, kind=Counted)) for one in workload.updates]
    workload = replace(workload, updates=tuple(updates))
    step = make_step(workload)
    critic, generator = (workload.modules[name] for name in ("critic", "generator"))
    assert max(float(p.detach().abs().max()) for p in critic.parameters()) > 0.01
    Counted.steps.clear()
    assert step.run(batch_of(workload)) == 10, "an item is a real image"
    each = [sum(p.numel() for p in net.parameters()) for net in (critic, generator)]
    assert Counted.steps == [each[0]] * 5 + [each[1]]
    assert max(float(p.detach().abs().max()) for p in critic.parameters()) <= 0.01
    assert max(float(p.detach().abs().max()) for p in generator.parameters()) > 0.01


# --- pointnet ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["cls", "seg"])
def test_the_order_of_points_does_not_matter(task: str) -> None:
    workload = build(pointnet, task=task)
    net = workload.modules["net"].eval()
    clouds, _ = batch_of(workload)
    order = torch.randperm(clouds.shape[2])
    with torch.no_grad():
        plain, turned = net(clouds)[0], net(clouds[:, :, order])[0]
    assert torch.allclose(turned, plain[..., order] if task == "seg" else plain, atol=1e-5)


def test_a_rotation_costs_nothing() -> None:
    angle = torch.tensor(0.3)
    rotation = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).view(1, 2, 2)
    assert pointnet.away_from_rotation(rotation).item() == pytest.approx(0, abs=1e-6)
    doubled = 2 * torch.eye(64).expand(3, 64, 64)
    assert pointnet.away_from_rotation(doubled).item() == 64 * 3**2  # of I - 4 I


# --- detection --------------------------------------------------------------------------------------------------------


def test_padding_is_nobodys_best_object() -> None:
    """Two objects and a padding one by four anchors: the second object's best anchor is taken, though it is poor."""
    overlaps = torch.tensor([[0.9, 0.5, 0.0, 0.0], [0.0, 0.0, 0.2, 0.1], [0.0, 0.0, 0.0, 0.0]])
    matcher = detection.PaddedMatcher(0.7, 0.3, allow_low_quality_matches=True)
    assert matcher(overlaps).tolist() == [0, matcher.BETWEEN_THRESHOLDS, 1, matcher.BELOW_LOW_THRESHOLD]


def test_more_padding_changes_no_target_of_the_anchors() -> None:
    net = on_meta(detection, {}).modules["net"]
    anchors = [torch.tensor([[0.0, 0.0, 10.0, 10.0], [20.0, 20.0, 40.0, 40.0], [-300.0, -300.0, 200.0, 200.0]])]
    boxes = torch.tensor([[1.0, 1.0, 10.0, 10.0], detection.OUTSIDE, detection.OUTSIDE])
    few, many = (net.rpn.assign_targets_to_anchors(anchors, [{"boxes": boxes[:count]}]) for count in (1, 3))
    assert torch.equal(few[0][0], many[0][0]) and torch.equal(few[1][0], many[1][0])


def test_masks_are_ellipses_that_fill_their_objects() -> None:
    objects = torch.tensor([[[0.5, 0.25, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0]]])
    masks = detection.drawn_masks(objects, 40)
    assert masks.shape == (1, 2, 40, 40) and masks.dtype == torch.uint8
    mask, padding = masks[0]
    assert int(padding.sum()) == 0
    assert mask.nonzero().amin(0).tolist() == [0, 10] and mask.nonzero().amax(0).tolist() == [19, 29]
    assert int(mask.sum()) == pytest.approx(3.1416 * 10 * 10, rel=0.03)


# --- atari ------------------------------------------------------------------------------------------------------------


def test_a_parameter_that_a_model_gained_does_not_change_its_work() -> None:
    def hash_of(**params: Any) -> str:
        return work.workload({"model": "atari", "params": params, "parallel": {}})

    assert hash_of(steps=128, algo="ppo") == hash_of(steps=128) != hash_of(steps=128, algo="a2c")
    assert "params.algo" not in work.work({"model": "atari", "params": {"algo": "ppo", "steps": 5}})
