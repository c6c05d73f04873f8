"""The vision models on the CPU: their sizes, losses beside naive ones, compiled and in bf16; the loader's crops."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import islice, pairwise
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torch
import torch.nn.functional as F
import torchvision.models
from support import build
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Share, Workload, dcgan, loader, neural_style, on_tensors, scaling, ssd, subpixel
from benchsuite.worker.compiling import read_compiled
from benchsuite.worker.step import Step
from benchsuite.worker.ways import make_step

pytestmark = pytest.mark.torch

TRAINED = [dcgan, neural_style, scaling, ssd, subpixel]
SIZES = [
    (dcgan, {"generator": 3_576_704, "discriminator": 2_765_568}),
    (neural_style, {"net": 1_679_235, "vgg": 7_635_264, "style": 0}),
    (scaling, {"net": 61_100_840}),
    (ssd, {"net": 19_972_534}),
    (subpixel, {"net": 58_212}),
]


def named(model: Any) -> str:
    return model.__name__.rpartition(".")[2] if isinstance(model, ModuleType) else ""


def first_batch(workload: Workload) -> Any:
    return next(iter(workload.batches(Share())))


def losses(step: Step, batch: Any, steps: int) -> list[list[float]]:
    torch.manual_seed(3)
    found = []
    for _ in range(steps):
        step.run(batch)
        found.append([float(loss) for loss in step.losses])
    return found


@pytest.mark.parametrize(("model", "sizes"), SIZES, ids=named)
def test_default_sizes(model: ModuleType, sizes: dict[str, int]) -> None:
    with torch.device("meta"):
        workload = model.build(model.Params())
    assert {name: sum(p.numel() for p in net.parameters()) for name, net in workload.modules.items()} == sizes


@pytest.mark.parametrize(
    ("model", "changed"),
    [(neural_style, {}), (scaling, {"network": "resnet18", "batch_size": 4}), (ssd, {}), (subpixel, {})],
    ids=named,
)
def test_the_loss_falls_on_a_fixed_batch(model: ModuleType, changed: dict[str, Any]) -> None:
    workload = build(model, **changed)
    found = [one for [one] in losses(make_step(workload), first_batch(workload), steps=8)]
    assert min(found[-2:]) < 0.9 * found[0]


@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore::DeprecationWarning")
@pytest.mark.parametrize("model", TRAINED, ids=named)
def test_compiled_it_is_whole_and_has_the_same_losses(model: ModuleType) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    found = []
    for how in (Training(), Training(compile="aot_eager")):
        workload = build(model)
        found.append(losses(make_step(workload, how), first_batch(workload), steps=2))
    for plain, compiled in zip(*found, strict=True):
        assert compiled == pytest.approx(plain, rel=1e-3)
    assert read_compiled().graphs >= len(workload.updates)
    assert read_compiled().breaks == 0


@pytest.mark.parametrize("model", TRAINED, ids=named)
def test_bf16_is_near_fp32(model: ModuleType) -> None:
    found = []
    for how in (Training(), Training(precision="bf16")):
        workload = build(model)
        found.append(losses(make_step(workload, how), first_batch(workload), steps=1)[0])
        assert all(p.dtype is torch.float32 for net in workload.modules.values() for p in net.parameters())
    assert found[0] != found[1]
    assert found[1] == pytest.approx(found[0], rel=0.05)


@pytest.mark.parametrize("model", TRAINED, ids=named)
def test_no_loss_reads_a_tensor(model: ModuleType) -> None:
    """Which would be a sync: these tensors hold no values, and raise where one is asked for."""
    with FakeTensorMode():
        workload = build(model)
        batch = first_batch(workload)
        carry: Any = None
        for update in workload.updates:
            loss, carry = update.loss(workload.modules, batch, on_tensors(Tensor.detach, carry))
            loss.backward()
            assert loss.shape == ()


# --- dcgan ------------------------------------------------------------------------------------------------------------


def test_gan_images_reach_the_discriminator_detached_and_each_update_trains_its_own_net() -> None:
    workload = build(dcgan)
    fool, tell = workload.updates
    carries: list[Any] = []
    changed: list[dict[str, bool]] = []

    def watched(update: Any) -> Any:
        def loss(nets: Any, batch: Any, carry: Any) -> Any:
            carries.append(carry)
            now = {name: copy.deepcopy(list(net.parameters())) for name, net in workload.modules.items()}
            weights.append(now)
            return update.loss(nets, batch, carry)

        return type(update)(update.trains, loss, update.optimiser)

    weights: list[dict[str, list[Tensor]]] = []
    step = make_step(
        Workload(workload.unit, workload.batches, workload.items, workload.modules, (watched(fool), watched(tell))),
        Training(),
    )
    batch = first_batch(workload)
    assert step.run(batch) == step.run(batch) == 2
    assert carries[0] is None and carries[2] is None
    assert carries[1].shape == batch.shape == (2, 3, 64, 64) and not carries[1].requires_grad
    assert not torch.equal(carries[1], carries[3]), "the noise is drawn anew"
    for before, after in pairwise(weights):
        changed.append(
            {k: any(not torch.equal(a, b) for a, b in zip(before[k], after[k], strict=True)) for k in before}
        )
    generator, discriminator = {"generator": True, "discriminator": False}, {"generator": False, "discriminator": True}
    assert changed == [generator, discriminator, generator]


def test_a_discriminator_learns_to_tell() -> None:
    workload = build(dcgan, batch_size=8)
    tells = [tell for _, tell in losses(make_step(workload), first_batch(workload), steps=12)]
    assert tells[0] == pytest.approx(2 * 0.693, rel=0.3)
    assert tells[-1] < 0.8 * tells[0]


# --- subpixel ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "small", "large"), [(2, 16, 32), (3, 10, 30)])
def test_every_pixel_of_the_large_image_is_made_of_channels(factor: int, small: int, large: int) -> None:
    workload = build(subpixel, upscale_factor=factor)
    images, targets = first_batch(workload)
    assert images.shape == (2, 1, small, small) and targets.shape == (2, 1, large, large)
    assert float(targets.min()) >= 0 and float(targets.max()) <= 1 and float(targets.std()) > 0.1
    assert F.mse_loss(F.interpolate(images, scale_factor=factor, mode="bilinear"), targets) < 0.01
    net = workload.modules["net"]
    assert net(images).shape == targets.shape
    channels = net[:3](images)
    channels = net[3][0](channels)
    assert torch.equal(net(images)[:, 0, 1::factor, 0::factor], channels[:, factor])


def test_a_crop_must_hold_a_pixel() -> None:
    with pytest.raises(ModelError, match="a crop of 2 is too small for upscale_factor 3"):
        build(subpixel, crop=2, upscale_factor=3)


# --- neural_style -----------------------------------------------------------------------------------------------------


def test_the_critic_is_vgg16_and_stays_as_it_is() -> None:
    with torch.device("meta"):
        theirs = torchvision.models.vgg16(weights=None).features[:23]
    workload = build(neural_style)
    vgg = workload.modules["vgg"]
    assert [p.shape for p in vgg.parameters()] == [p.shape for p in theirs.parameters()]
    layers = [layer for part in vgg.parts for layer in part]
    assert [type(layer) for layer in layers] == [type(layer) for layer in theirs]
    before = copy.deepcopy(vgg.state_dict())
    step = make_step(workload)
    batch = first_batch(workload)
    assert step.run(batch) == 2
    assert all(p.grad is None and not p.requires_grad for p in vgg.parameters())
    assert all(torch.equal(value, before[key]) for key, value in vgg.state_dict().items())
    assert [tuple(one.shape[1:]) for one in vgg(batch)] == [(64, 16, 16), (128, 8, 8), (256, 4, 4), (512, 2, 2)]
    assert all(0.1 < float(one.std()) < 10 for one in vgg(batch)), "signals neither vanish nor explode"


def test_the_style_of_the_style_image_is_perfect() -> None:
    vgg = neural_style.Vgg()
    features = vgg(neural_style.photographs(1, 16))
    style = neural_style.Style(features)
    assert float(style([torch.cat([one, one]) for one in features])) == pytest.approx(0, abs=1e-12)
    others = vgg(neural_style.photographs(3, 32))
    naive = sum(
        ((torch.einsum("nchw,ndhw->ncd", one, one) / one[0].numel() - getattr(style, f"gram{i}")) ** 2).mean()
        for i, one in enumerate(others)
    )
    assert float(style(others)) == pytest.approx(float(naive), rel=1e-4)


@pytest.mark.parametrize("changed", [{"image_size": 18}, {"image_size": 12}, {"style_size": 8}], ids=str)
def test_sizes_that_do_not_come_back_are_refused(changed: dict[str, int]) -> None:
    with pytest.raises(ModelError, match="image_size must be a multiple of 4, and both 16 or more"):
        build(neural_style, **changed)


# --- ssd --------------------------------------------------------------------------------------------------------------


def corners(box: list[float]) -> list[float]:
    x, y, width, height = box
    return [x - width / 2, y - height / 2, x + width / 2, y + height / 2]


def overlap(a: list[float], b: list[float]) -> float:
    (ax, ay, bx, by), (cx, cy, dx, dy) = corners(a), corners(b)
    shared = max(0.0, min(bx, dx) - max(ax, cx)) * max(0.0, min(by, dy) - max(ay, cy))
    return shared / (a[2] * a[3] + b[2] * b[3] - shared)


def naive_matches(objects: list[list[float]], boxes: list[list[float]]) -> dict[int, int]:
    """Box -> object: first those over a half, then the best box of each object whatever its overlap."""
    found = {}
    for index, box in enumerate(boxes):
        overlaps = [overlap(one, box) for one in objects]
        if max(overlaps) > 0.5:
            found[index] = overlaps.index(max(overlaps))
    best = [max(range(len(boxes)), key=lambda index, one=one: overlap(one, boxes[index])) for one in objects]
    for index in set(best):
        rivals = [number for number, own in enumerate(best) if own == index]
        found[index] = max(rivals, key=lambda number: overlap(objects[number], boxes[index]))
    return found


def test_boxes_are_those_of_the_paper() -> None:
    boxes = ssd.default_boxes()
    assert boxes.shape == (8732, 4)
    assert boxes[0].tolist() == pytest.approx([4 / 300, 4 / 300, 21 / 300, 21 / 300])
    assert boxes[1].tolist() == pytest.approx([12 / 300, 4 / 300, 21 / 300, 21 / 300])
    wide = 21 * 2**0.5 / 300
    assert boxes[2 * 38 * 38].tolist() == pytest.approx([4 / 300, 4 / 300, wide, wide / 2])
    assert boxes[-1].tolist() == pytest.approx([0.5, 0.5, 261 / 300 / 2**0.5, 1.0])
    net = build(ssd).modules["net"]
    with torch.no_grad():
        offsets, logits, own = net(torch.zeros(1, 3, 300, 300))
    assert offsets.shape == (1, 4, 8732) and logits.shape == (1, 3, 8732)
    assert torch.equal(own, boxes)


def test_heads_and_boxes_are_in_the_same_order() -> None:
    """A head that says the place of its cell and its shape gives them where the box of that cell and shape is."""
    net = build(ssd).modules["net"]
    boxes = net.boxes
    cells = (torch.arange(38) + 0.5) * 8 / 300
    grid = torch.stack([cells.expand(38, 38), cells.unsqueeze(1).expand(38, 38)])  # x along a row, y down
    head = grid.new_zeros(1, 4 * 4, 38, 38)
    for shape in range(4):
        head[0, 0 * 4 + shape], head[0, 1 * 4 + shape], head[0, 2 * 4 + shape] = grid[0], grid[1], float(shape)
    read = head.reshape(1, 4, -1)[0]
    assert torch.allclose(read[:2].T, boxes[: 4 * 38 * 38, :2].clamp(max=1), atol=1e-6)
    assert torch.equal(read[2].view(4, -1)[:, 0], torch.arange(4.0))


def test_objects_are_matched_as_a_naive_search_matches_them() -> None:
    boxes = ssd.default_boxes()[::7]
    objects, labels = ssd.drawn_objects(3, 81, torch.Generator().manual_seed(5))
    objects[0, 1], labels[0, 1] = objects[0, 0] + torch.tensor([0, 0, 0.002, 0]), 7  # two rivals for one box
    found, names = ssd.matched(objects, labels, boxes)
    for image in range(3):
        count = int((labels[image] > 0).sum())
        expected = naive_matches(objects[image, :count].tolist(), boxes.tolist())
        assert expected
        assert names[image].nonzero().flatten().tolist() == sorted(expected)
        for box, number in expected.items():
            assert torch.equal(found[image, box], objects[image, number])
            assert names[image, box] == labels[image, number]


def test_hard_negatives_are_those_of_a_naive_search() -> None:
    generator = torch.Generator().manual_seed(2)
    values = torch.rand(4, 50, generator=generator)
    positive = torch.rand(4, 50, generator=generator) < torch.tensor([[0.1], [0.2], [0.6], [0.0]])
    naive = []
    for row, mask in zip(values.tolist(), positive.tolist(), strict=True):
        negatives = sorted((value for value, yes in zip(row, mask, strict=True) if not yes), reverse=True)
        naive.append(sum(negatives[: 3 * sum(mask)]))
    assert ssd.hardest(values, positive).tolist() == pytest.approx(naive)
    assert naive[3] == 0


def test_the_loss_of_boxes_is_that_of_a_naive_one() -> None:
    generator = torch.Generator().manual_seed(4)
    boxes = ssd.default_boxes()[::17]
    objects, labels = ssd.drawn_objects(2, 5, generator)
    offsets = torch.randn(2, 4, len(boxes), generator=generator)
    logits = torch.randn(2, 5, len(boxes), generator=generator)
    expected = 0.0
    for image in range(2):
        count = int((labels[image] > 0).sum())
        match = naive_matches(objects[image, :count].tolist(), boxes.tolist())
        names = torch.zeros(len(boxes), dtype=torch.long)
        total = 0.0
        for box, number in match.items():
            (x, y, w, h), (ox, oy, ow, oh) = boxes[box], objects[image, number]
            target = torch.stack([(ox - x) / w / 0.1, (oy - y) / h / 0.1, (ow / w).log() / 0.2, (oh / h).log() / 0.2])
            total += float(F.smooth_l1_loss(offsets[image, :, box], target, reduction="sum"))
            names[box] = labels[image, number]
        wrong = F.cross_entropy(logits[image].T, names, reduction="none")
        total += float(wrong[names > 0].sum()) + float(wrong[names == 0].sort().values[-3 * len(match) :].sum())
        expected += total / len(match) / 2
    assert float(ssd.loss((offsets, logits, boxes), (offsets, objects, labels))) == pytest.approx(expected, rel=1e-4)


def test_an_image_without_objects_costs_nothing() -> None:
    boxes = ssd.default_boxes()
    offsets, logits = torch.randn(1, 4, 8732, requires_grad=True), torch.randn(1, 3, 8732, requires_grad=True)
    nothing = (offsets, torch.zeros(1, 50, 4), torch.zeros(1, 50, dtype=torch.long))
    loss = ssd.loss((offsets, logits, boxes), nothing)
    loss.backward()
    assert float(loss.detach()) == 0
    assert offsets.grad is not None and torch.isfinite(offsets.grad).all()


def test_objects_are_as_many_and_as_large_as_those_of_coco() -> None:
    objects, labels = ssd.drawn_objects(2000, 81, torch.Generator().manual_seed(1))
    real = labels > 0
    counts = real.sum(1)
    assert counts.min() >= 1 and counts.max() <= 50 and 6 < counts.float().mean() < 8.5
    assert int(labels.max()) == 80 and float(objects[~real].abs().max()) == 0
    inside = objects[real]
    assert (inside[:, :2] - inside[:, 2:] / 2).min() > -1e-6 and (inside[:, :2] + inside[:, 2:] / 2).max() < 1 + 1e-6
    assert 0.08 < inside[:, 2:].prod(1).sqrt().median() < 0.18


def test_there_must_be_a_class_beside_the_background() -> None:
    with pytest.raises(ModelError, match="must be 2 or more"):
        build(ssd, classes=1)


# --- scaling ----------------------------------------------------------------------------------------------------------


def test_scaling_trains_any_classifier() -> None:
    with torch.device("meta"):
        net = build(scaling, network="resnet50", classes=1000).modules["net"]
    assert isinstance(net, torchvision.models.ResNet)
    with pytest.raises(ModelError, match=r"'alexnett'; did you mean 'alexnet'\?"):
        build(scaling, network="alexnett")


# --- loader -----------------------------------------------------------------------------------------------------------


def loaded(share: Share | None = None, **changed: Any) -> Iterator[Tensor]:
    return iter(build(loader, **changed).batches(share or Share()))


def test_crops_are_the_same_whoever_makes_them() -> None:
    here = list(islice(loaded(), 4))
    there = loaded(workers=2)
    for crop, other in zip(here, islice(there, 4), strict=True):
        assert torch.equal(crop, other)
    assert not torch.equal(here[0], here[1])
    assert here[0].shape == (4, 3, 32, 32) and here[0].dtype is torch.float32


def test_a_crop_leaves_torchs_generator_alone() -> None:
    crops = loader.Crops([loader.jpeg(64, torch.Generator().manual_seed(1))], 32, Share())
    before = torch.get_rng_state()
    one, other = crops[0], crops[1]
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(one, other) and torch.equal(one, crops[0])


def test_ranks_share_the_files_and_take_crops_in_turn() -> None:
    alone = list(islice(loaded(), 4))
    first, second = (list(islice(loaded(Share(rank=rank, ranks=2)), 2)) for rank in (0, 1))
    for crop, other in zip(alone, [first[0], second[0], first[1], second[1]], strict=True):
        assert torch.equal(crop, other)


def test_files_are_as_dense_as_imagenets() -> None:
    file = loader.jpeg(512, torch.Generator().manual_seed(1))
    assert file[:3] == b"\xff\xd8\xff"
    assert 0.4 < len(file) / 512**2 < 0.8


def test_a_loading_step_counts_the_images_moved() -> None:
    """The meta device stands in for a GPU."""
    workload = build(loader)
    step = make_step(workload, device="meta")
    (moved,) = step.feed(iter([first_batch(workload)]))
    assert moved.device.type == "meta"
    assert step.run(moved) == 4
    with pytest.raises(ModelError, match="workers is -1"):
        build(loader, workers=-1)
