"""Steps on the CPU: a plain one is training written by hand, and each way of running does what it says."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.describe.training import Precision, Training
from benchsuite.errors import ModelError
from benchsuite.models import Batch, Carry, Nets, Optimiser, Share, Update, Workload, polynome, supervised, vae
from benchsuite.worker.checks import Learning
from benchsuite.worker.compiling import read_compiled
from benchsuite.worker.device import Cpu, open_device
from benchsuite.worker.precision import set_precision
from benchsuite.worker.step import Step
from benchsuite.worker.warmup import WARM_UP_STEPS, warm_up
from benchsuite.worker.ways import make_step
from benchsuite.worker.ways.solo import own_step_notes

pytestmark = pytest.mark.torch
no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
on_gpu = pytest.param("cuda:0", marks=[pytest.mark.gpu, no_gpu])


def small_vae(steps: int = 3) -> tuple[Workload, list[Tensor]]:
    params = vae.Params(batch_size=4)
    torch.manual_seed(params.seed)
    workload = vae.build(params)
    return workload, list(islice(workload.batches(Share()), steps))


def line(optimiser: Optimiser) -> Workload:
    torch.manual_seed(0)
    return supervised(
        unit="example",
        batches=lambda share: iter(()),
        items=lambda batch: len(batch[0]),
        net=nn.Linear(4, 1),
        inputs=lambda batch: (batch[0],),
        loss=lambda output, batch: F.mse_loss(output, batch[1]),
        optimiser=optimiser,
    )


def points(count: int = 3, scale: float = 1.0) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(8, 4, generator=generator) * scale, torch.randn(8, 1, generator=generator) * scale)
        for _ in range(count)
    ]


def test_a_plain_step_is_training_written_by_hand() -> None:
    workload = line(Optimiser(optim.SGD, {"lr": 0.1, "momentum": 0.9}))
    net = copy.deepcopy(workload.modules["net"])
    optimiser = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    step = make_step(workload)
    for batch in points(5):
        assert step.run(batch) == 8
        loss = F.mse_loss(net(batch[0]), batch[1])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        assert torch.equal(step.losses[0], loss)
        assert not step.losses[0].requires_grad
    for mine, by_hand in zip(workload.modules["net"].parameters(), net.parameters(), strict=True):
        assert torch.equal(mine, by_hand)
    assert step.notes == ()


@pytest.mark.parametrize(
    ("precision", "output"), [("fp32", None), ("bf16", torch.bfloat16), ("amp-fp16", torch.float16)]
)
def test_each_precision_trains(precision: Precision, output: torch.dtype | None) -> None:
    workload, batches = small_vae()
    seen: list[torch.dtype] = []
    workload.modules["net"].register_forward_hook(lambda net, args, outputs: seen.append(outputs[0].dtype))
    step = make_step(workload, Training(precision=precision))
    before = copy.deepcopy(workload.modules["net"].state_dict())
    for batch in batches:
        step.run(batch)
        assert torch.isfinite(step.losses[0])
    assert set(seen) == {output or torch.float32}
    assert all(value.dtype is torch.float32 for value in workload.modules["net"].parameters())
    assert not all(torch.equal(before[key], value) for key, value in workload.modules["net"].state_dict().items())


def test_mixed_precision_stays_near_full_precision() -> None:
    losses = {}
    for precision in ("fp32", "bf16", "amp-fp16"):
        workload = line(Optimiser(optim.SGD, {"lr": 0.1}))
        step = make_step(workload, Training(precision=precision))
        for batch in points(4, scale=0.1):
            step.run(batch)
        losses[precision] = float(step.losses[0])
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.05)
    assert losses["amp-fp16"] == pytest.approx(losses["fp32"], rel=0.01)
    assert len(set(losses.values())) == 3


def test_an_overflow_in_half_precision_is_skipped() -> None:
    workload = line(Optimiser(optim.SGD, {"lr": 0.1}))
    before = copy.deepcopy(workload.modules["net"].state_dict())
    step = make_step(workload, Training(precision="amp-fp16"))
    step.run(points(1, scale=1e5)[0])
    assert all(torch.equal(before[key], value) for key, value in workload.modules["net"].state_dict().items())


@pytest.mark.parametrize("device", ["cpu", on_gpu])
def test_an_overflow_leaves_no_momentum_behind(device: str) -> None:
    """torch's fused SGD takes memory for its momentum as it is; freed memory full of infinities shows that."""
    of_plain, of_fused = ({"lr": 0.1, "momentum": 0.9, "fused": fused} for fused in (False, True))
    weights = []
    for settings in (of_plain, of_fused):
        workload = line(Optimiser(optim.SGD, settings))
        step = make_step(workload, Training(precision="amp-fp16"), device)
        dirty = [torch.full_like(param, torch.inf) for param in workload.modules["net"].parameters() for _ in range(99)]
        del dirty
        for batch in step.feed(iter([*points(1, scale=1e5), *points(3, scale=0.1)])):
            step.run(batch)
        weights.append(torch.cat([param.detach().ravel() for param in workload.modules["net"].parameters()]))
    assert torch.isfinite(weights[0]).all()
    assert torch.allclose(*weights, rtol=1e-5, atol=1e-6)


def test_tf32_is_noted_where_there_is_none() -> None:
    set_precision("tf32", "cpu")
    step = make_step(line(Optimiser(optim.SGD, {"lr": 0.1})), Training(precision="tf32"))
    assert step.notes == ("tf32: a CPU computes in fp32",)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_step_has_the_same_losses_and_reports_its_graphs() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    assert read_compiled().graphs == 0
    found = []
    for way in (Training(), Training(compile="aot_eager")):
        workload, batches = small_vae()
        step = make_step(workload, way)
        torch.manual_seed(3)
        for batch in batches:
            step.run(batch)
        found.append(float(step.losses[0]))
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert read_compiled().graphs == 1
    assert read_compiled().breaks == 0


class Broken(nn.Module):
    """A net in whose middle Dynamo has to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        torch._dynamo.graph_break()
        return y * 2


@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore::DeprecationWarning")
def test_graph_breaks_are_counted() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    whole = line(Optimiser(optim.SGD, {"lr": 0.1}))
    update = whole.updates[0]
    workload = Workload(whole.unit, whole.batches, whole.items, {"net": Broken()}, (update,))
    make_step(workload, Training(compile="aot_eager")).run(points(1)[0])
    assert read_compiled().breaks == 2, "one in the module, one in the loss that calls it"
    assert read_compiled().graphs == 3, "before it, behind it, and the loss"


@pytest.mark.parametrize("precision", ["fp32", "amp-fp16"])
def test_gradients_are_clipped_at_their_true_size(precision: Precision) -> None:
    """Under a scaler the gradients are 65,536 times too large until they are unscaled; SGD with lr 1 shows them."""
    workload = line(Optimiser(optim.SGD, {"lr": 1.0}, clip_norm=0.01))
    before = [value.detach().clone() for value in workload.modules["net"].parameters()]
    make_step(workload, Training(precision=precision)).run(points(1, scale=0.1)[0])
    moved = [a - b.detach() for a, b in zip(before, workload.modules["net"].parameters(), strict=True)]
    assert float(torch.cat([m.flatten() for m in moved]).norm()) == pytest.approx(0.01, rel=1e-3)


def two_updates(seen: list[Any]) -> Workload:
    """A writer whose output the reader is given, and a memory that passes on to the next step."""

    def write(nets: Nets, batch: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        seen.append(None if carry is None else carry["count"])
        count = torch.zeros(()) if carry is None else carry["count"]
        written = nets["writer"](batch)
        return nets["reader"](written).square().mean(), {"written": written, "count": count + written.sum()}

    def read(nets: Nets, batch: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        assert not carry["written"].requires_grad
        if len(seen) == 1:
            assert modules["reader"].weight.grad is None, "the writer's update gathered gradients for the reader"
        return (nets["reader"](carry["written"]) - 1).square().mean(), {"count": carry["count"] + 1}

    torch.manual_seed(0)
    modules = {"writer": nn.Linear(4, 3), "reader": nn.Linear(3, 1)}
    updates = (Update("writer", write, Optimiser(optim.SGD, {"lr": 0.1})), Update("reader", read, ADAM))
    return Workload("row", lambda share: iter(()), len, modules, updates)


ADAM = Optimiser(optim.Adam, {"lr": 0.01})


def test_several_updates_train_their_own_module_and_pass_a_carry() -> None:
    seen: list[Any] = []
    workload = two_updates(seen)
    writer, reader = (copy.deepcopy(workload.modules[name]) for name in ("writer", "reader"))
    step = make_step(workload)
    sgd, adam = optim.SGD(writer.parameters(), lr=0.1), optim.Adam(reader.parameters(), lr=0.01)
    batches = [batch[0] for batch in points(3)]
    counts = []
    for batch in batches:
        assert step.run(batch) == 8
        written = writer(batch)
        counts.append(written.sum().detach())
        first = reader(written).square().mean()
        writer.zero_grad()
        first.backward()
        sgd.step()
        reader.zero_grad()
        second = (reader(written.detach()) - 1).square().mean()
        second.backward()
        adam.step()
        assert [float(loss) for loss in step.losses] == [first.item(), second.item()]
    for name, net in (("writer", writer), ("reader", reader)):
        for mine, by_hand in zip(workload.modules[name].parameters(), net.parameters(), strict=True):
            assert torch.equal(mine, by_hand)
    assert seen[0] is None
    assert not seen[1].requires_grad
    assert [float(count) for count in seen[1:]] == pytest.approx([float(counts[0] + 1), float(sum(counts[:2]) + 2)])


@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_update_of_several_times_takes_the_batch_in_parts_and_is_followed_by_after(accumulate: int) -> None:
    (batch,) = points(1)
    workload = line(Optimiser(optim.SGD, {"lr": 0.5}))
    net = copy.deepcopy(workload.modules["net"])

    def clip(module: nn.Module) -> None:
        for param in module.parameters():
            param.clamp_(-0.3, 0.3)

    update = replace(workload.updates[0], times=2, after=clip)
    step = make_step(replace(workload, updates=(update,)), Training(accumulate=accumulate))
    assert step.run(batch) == 8
    sgd = optim.SGD(net.parameters(), lr=0.5)
    for rows in (slice(0, 4), slice(4, 8)):
        loss = F.mse_loss(net(batch[0][rows]), batch[1][rows])
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        with torch.no_grad():
            clip(net)
    for mine, by_hand in zip(workload.modules["net"].parameters(), net.parameters(), strict=True):
        assert torch.allclose(mine, by_hand, atol=1e-6)
        assert mine.abs().max() <= 0.3
    assert float(step.losses[0]) == pytest.approx(loss.item(), rel=1e-5)
    with pytest.raises(ModelError, match=r"Update.times 2: a batch has 1 samples"):
        make_step(replace(workload, updates=(update,))).run((batch[0][:1], batch[1][:1]))


def test_modules_of_the_meta_device_are_filled_name_by_name() -> None:
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    names: list[str] = []

    def fill(name: str, tensor: Tensor) -> None:
        names.append(name)
        tensor.fill_(len(names))

    workload = replace(line(ADAM), modules={"net": net}, fill=fill)
    make_step(workload)
    assert {param.device.type for param in net.parameters()} == {"cpu"}
    assert names == [f"net.{name}" for name in net.state_dict() if name in dict(net.named_parameters())] + [
        f"net.{name}" for name, _ in net.named_buffers()
    ]
    assert float(net[0].bias[0].detach()) == 2.0


def test_a_model_that_steps_by_itself_is_left_alone() -> None:
    net = nn.Linear(2, 1)
    workload = Workload("frame", lambda share: iter(()), lambda batch: 0, {"net": net}, step=lambda batch: 5)
    step = make_step(workload)
    assert step.run(None) == 5
    assert step.losses == [] and step.notes == ()
    assert own_step_notes(Training(precision="bf16", compile="default")) == (
        "the model steps by itself, without precision bf16 and compile default",
    )


def test_the_losses_of_a_model_that_steps_by_itself_are_seen() -> None:
    losses: list[torch.Tensor] = []

    def own_step(_: None) -> int:
        losses[:] = [torch.tensor(0.5)]
        return 1

    workload = Workload("frame", lambda share: iter(()), lambda batch: 0, step=own_step, losses=losses)
    step = make_step(workload)
    step.run(None)
    assert [float(loss) for loss in step.losses] == [0.5]
    assert own_step_notes(Training(channels_last=True)) == ("the model steps by itself, without channels_last",)


def test_channels_last_lays_out_images_and_convolutions_and_trains_alike() -> None:
    seen: list[torch.Tensor] = []

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            seen.append(images)
            return self.conv(images).mean((1, 2, 3))

    def trained(channels_last: bool) -> Net:
        torch.manual_seed(0)
        net, images = Net(), torch.randn(2, 3, 8, 8)
        workload = supervised(
            unit="image",
            batches=lambda share: iter(()),
            items=len,
            net=net,
            inputs=lambda batch: (batch,),
            loss=lambda output, batch: output.square().mean(),
            optimiser=Optimiser(optim.SGD, {"lr": 0.1}),
        )
        step = make_step(workload, Training(channels_last=channels_last))
        for batch in step.feed(iter([images] * 3)):
            step.run(batch)
        return net

    last, first = trained(True), trained(False)
    assert seen[0].is_contiguous(memory_format=torch.channels_last) and not seen[0].is_contiguous()
    assert last.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert seen[-1].is_contiguous()
    assert torch.allclose(last.conv.weight, first.conv.weight, atol=1e-6)


def in_half(loss: Callable[[Tensor], Tensor]) -> Step:
    """A step in fp16 over one weight, with a loss of its output."""
    workload = supervised(
        unit="example",
        batches=lambda share: iter(()),
        items=len,
        net=nn.Linear(1, 1),
        inputs=lambda batch: (batch,),
        loss=lambda output, batch: loss(output),
        optimiser=Optimiser(optim.SGD, {"lr": 1e-12}),
    )
    return make_step(workload, Training(precision="amp-fp16"))


ONES = torch.ones(2, 1)


def test_warm_up_in_fp16_lasts_until_the_loss_scale_fits() -> None:
    """The loss is so large that the first scales overflow, and each overflow skips a step."""
    step = in_half(lambda output: output.float().square().mean() * 1e4)
    warmed = warm_up(step, itertools.repeat(ONES), Cpu())
    assert warmed.steps > WARM_UP_STEPS + 1
    (scale,) = step.scales
    settled = scale()
    step.run(ONES)
    assert scale() == settled < 2**16


def test_gradients_that_no_scale_makes_fit_end_the_warm_up() -> None:
    """The loss is 0, its gradient has no value."""
    step = in_half(lambda output: (output.float() * 0).square().sum().sqrt())
    with pytest.raises(ModelError, match="the gradients still overflow after 30 steps"):
        warm_up(step, itertools.repeat(ONES), Cpu())


def test_a_loss_that_has_run_away_is_distinct_from_a_scale_that_does_not_fit() -> None:
    step = in_half(lambda output: (output.float().sum() * 1e30).square())
    with pytest.raises(ModelError, match="the loss is not finite: inf"):
        warm_up(step, itertools.repeat(ONES), Cpu())


def test_only_fp16_has_loss_scales() -> None:
    assert make_step(small_vae()[0]).scales == ()


def test_data_without_a_model_is_counted() -> None:
    workload = Workload("image", lambda share: iter(()), lambda batch: len(batch["x"]))
    assert make_step(workload).run({"x": torch.zeros(6, 2)}) == 6


def test_a_module_is_moved_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The meta device stands in for a GPU: parameters and batches go there, and the loss is found there."""
    monkeypatch.setattr(Learning, "_norms", lambda self: {})  # meta tensors hold no values
    workload = line(Optimiser(optim.SGD, {"lr": 0.1}))
    step = make_step(workload, device="meta")
    (batch,) = step.feed(iter(points(1)))
    step.run(batch)
    assert all(value.device.type == "meta" for value in workload.modules["net"].parameters())
    assert step.losses[0].device.type == "meta"


def test_the_cpu_says_which_torch_it_runs_and_how_much_memory() -> None:
    cpu = open_device("cpu")
    assert cpu.software() == {"torch": torch.__version__}
    cpu.sync()
    cpu.reset_peaks()
    peak = cpu.peak_memory()
    assert peak.device_allocated_bytes is None
    assert peak.host_rss_bytes and 10**7 < peak.host_rss_bytes < 10**11


def test_polynome_learns_its_polynomial() -> None:
    """Training is real: the loss falls over a few hundred steps."""
    params = polynome.Params()
    torch.manual_seed(params.seed)
    workload = polynome.build(params)
    step = make_step(workload)
    losses = []
    for batch in islice(workload.batches(Share()), 400):
        step.run(batch)
        losses.append(float(step.losses[0]))
    assert sum(losses[-20:]) < 0.5 * sum(losses[:20])
