"""Micro-batches add up to their batch, batches are copied ahead of their steps, and weights are checked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from itertools import islice
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Batch, Carry, Nets, Optimiser, Share, Update, Workload, on_tensors, supervised
from benchsuite.worker import feed as feeding
from benchsuite.worker.compiling import read_compiled
from benchsuite.worker.device import open_device
from benchsuite.worker.feed import LEAST_BYTES, feed, prefetched
from benchsuite.worker.microbatches import Splitter
from benchsuite.worker.step import Part, accumulated, detached
from benchsuite.worker.timing import Stop, TimedSlice
from benchsuite.worker.ways import make_step

pytestmark = pytest.mark.torch
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

# Without noise of their own: what one batch draws at once, its micro-batches draw in turns.
EXACT: dict[str, dict[str, Any]] = {
    "polynome": {},
    "vae": {"batch_size": 8},
    "convnet": {"batch_size": 4},
    "recommendation": {},
    "subpixel": {"batch_size": 5},
    "neural_style": {"batch_size": 3},
    "ssd": {"batch_size": 2},
    "translator": {"dropout": 0.0},
    "wlm": {"dropout": 0.0, "lr": 1.0},
    "dcgan": {"batch_size": 3},
}

PARTS = {name: 2 if name in ("convnet", "ssd", "neural_style") else 3 for name in EXACT}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small are slower on more threads, and much slower where other processes want the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def fp64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def double(tree: Any) -> Any:
    return on_tensors(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor, tree)


def trained(name: str, training: Training, steps: int) -> tuple[list[list[float]], list[Tensor], list[int]]:
    """Losses and items of some steps, and the last gradients; batch norm uses statistics that do not change."""
    model = import_module(f"benchsuite.models.{name}")
    torch.manual_seed(7)
    workload = model.build(model.Params(**{**model.SMALL, **EXACT[name]}))
    for net in workload.modules.values():
        net.double().eval()
    step = make_step(workload, training)
    losses, items = [], []
    for batch in islice(workload.batches(Share()), steps):
        items.append(step.run(double(batch)))
        losses.append([float(loss) for loss in step.losses])
    nets = workload.modules.values()
    return losses, [v.grad for net in nets for v in net.parameters() if v.grad is not None], items


@pytest.mark.usefixtures("fp64")
@pytest.mark.parametrize(("name", "count"), [("polynome", 2), ("wlm", 2), *((name, PARTS[name]) for name in EXACT)])
def test_micro_batches_train_as_their_batch_does(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where they differ in size; a hidden state and a GAN's images are carried on for each of them."""
    monkeypatch.setattr(torch, "randn_like", lambda tensor: torch.full_like(tensor, 0.3))
    if name == "dcgan":
        monkeypatch.setattr(torch, "randn", lambda *size, device: torch.full(size, 0.5, device=device))
    steps = 1 if name == "ssd" else 2
    losses, gradients, items = trained(name, Training(), steps)
    in_parts, gradients_in_parts, items_in_parts = trained(name, Training(accumulate=count), steps)
    assert items_in_parts == items, "items count once a step"
    for one, other in zip(losses, in_parts, strict=True):
        assert other == pytest.approx(one, rel=1e-9)
    for one, other in zip(gradients, gradients_in_parts, strict=True):
        assert float((one - other).abs().max()) <= 1e-9 * max(float(g.abs().max()) for g in gradients)


def line(**changed: Any) -> Workload:
    torch.manual_seed(0)
    return supervised(
        unit="row",
        batches=lambda share: iter(()),
        items=len,
        net=nn.Linear(4, 1),
        inputs=lambda batch: (batch,),
        loss=lambda output, batch: 0.1 * F.mse_loss(output, torch.ones_like(output)),
        optimiser=Optimiser(optim.SGD, {"lr": 1.0}, **changed),
    )


def moved(workload: Workload, training: Training, *batches: Tensor) -> Tensor:
    """How far the weights of a line go in one step for each batch."""
    before = torch.cat([p.detach().flatten() for p in workload.modules["net"].parameters()])
    step = make_step(workload, training)
    for batch in batches:
        step.run(batch)
    return torch.cat([p.detach().flatten() for p in workload.modules["net"].parameters()]) - before


def test_micro_batches_in_half_precision_share_one_loss_scale_and_one_clip() -> None:
    batch = torch.randn(8, 4, generator=torch.Generator().manual_seed(1)) * 0.1
    whole = moved(line(), Training(precision="amp-fp16"), batch)
    parts = moved(line(), Training(precision="amp-fp16", accumulate=4), batch)
    assert float(whole.norm()) > 0.01
    assert torch.allclose(whole, parts, rtol=5e-3)
    clipped = moved(line(clip_norm=0.01), Training(precision="amp-fp16", accumulate=4), batch)
    assert float(clipped.norm()) == pytest.approx(0.01, rel=1e-3)
    overflow = moved(line(), Training(precision="amp-fp16", accumulate=2), batch * 1e6)
    assert float(overflow.abs().max()) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_micro_batches_train_alike() -> None:
    torch._dynamo.reset()
    batch = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))
    plain, compiled = (moved(line(), Training(accumulate=2, compile=mode), batch) for mode in ("none", "aot_eager"))
    assert torch.allclose(plain, compiled, atol=1e-6)


class Block(nn.Module):
    """A layer that counts the passes in which Python runs it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.passes = nn.Linear(4, 4), 0

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self.passes += 1
        return x + self.layer(x).tanh()


def blocks() -> Workload:
    torch.manual_seed(0)
    net = nn.Sequential(Block(), Block(), nn.Linear(4, 1))
    return replace(line(), modules={"net": net}, blocks=(net[0], net[1]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("mode", ["none", "aot_eager"])
def test_checkpointed_blocks_run_again_in_the_backward_pass_and_train_alike(mode: Any) -> None:
    torch._dynamo.reset()
    batch = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))
    before = read_compiled().breaks
    plain, checkpointed = blocks(), blocks()
    moves = moved(checkpointed, Training(checkpoint=True, compile=mode), batch)
    assert torch.allclose(moved(plain, Training(), batch), moves, atol=1e-6)
    assert [block.passes for block in plain.blocks] == [1, 1]
    if mode == "none":
        assert [block.passes for block in checkpointed.blocks] == [2, 2]
    assert read_compiled().breaks == before
    with pytest.raises(ModelError, match="checkpoint: the model names no blocks"):
        make_step(line(), Training(checkpoint=True))


def counting() -> Workload:
    """What this model carries on is a number of its own, in no row of the batch."""

    def loss(nets: Nets, batch: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        return nets["net"](batch).square().mean(), (torch.zeros(()) if carry is None else carry) + 1

    update = Update("net", loss, Optimiser(optim.SGD, {"lr": 0.1}))
    return Workload("row", lambda share: iter(()), len, {"net": nn.Linear(4, 1)}, (update,))


@pytest.mark.parametrize(
    ("full", "count", "short", "sizes"),
    [
        (8, 4, 8, [2, 2, 2, 2]),
        (8, 4, 2, [2]),
        (8, 4, 3, [3]),  # not 2 and 1
        (8, 4, 5, [3, 2]),
        (12, 3, 6, [3, 3]),
        (12, 3, 1, [1]),
        (3, 3, 2, [1, 1]),  # as full batches are split
    ],
)
def test_a_short_last_batch_has_fewer_micro_batches(full: int, count: int, short: int, sizes: list[int]) -> None:
    splitter = Splitter(count)
    splitter.split(torch.zeros(full))
    parts = splitter.split(torch.arange(short))
    assert [part.samples for part in parts] == sizes
    assert torch.cat([part.batch for part in parts]).tolist() == list(range(short))
    assert sum(part.weight for part in parts) == pytest.approx(1)


def test_a_pass_that_ends_in_a_short_batch_trains_as_without_micro_batches() -> None:
    torch.manual_seed(1)
    batches = [torch.randn(8, 4), torch.randn(3, 4)]
    assert torch.allclose(*(moved(line(), training, *batches) for training in (Training(), Training(accumulate=4))))


def test_what_cannot_be_accumulated_is_refused() -> None:
    twice = Training(accumulate=2)
    by_itself = Workload("frame", lambda share: iter(()), len, {"net": nn.Linear(1, 1)}, step=lambda batch: 1)
    with pytest.raises(ModelError, match="accumulate 2: the model steps by itself"):
        make_step(by_itself, twice)
    with pytest.raises(ModelError, match="accumulate 2: the model trains nothing"):
        make_step(Workload("image", lambda share: iter(()), len), twice)
    with pytest.raises(ModelError, match="accumulate 3: a batch has 2 samples"):
        make_step(line(), Training(accumulate=3)).run(torch.zeros(2, 4))
    with pytest.raises(ModelError, match="samples are not the first dimension of every tensor"):
        make_step(line(), twice).run((torch.zeros(4, 4), torch.zeros(3)))
    with pytest.raises(ModelError, match="does not lie sample by sample"):
        make_step(counting(), twice).run(torch.zeros(4, 4))


def test_only_the_last_micro_batch_is_awaited_by_other_ranks() -> None:
    log: list[str] = []

    class Unfinished:
        def __enter__(self) -> None:
            log.append("alone")

        def __exit__(self, *error: object) -> None:
            log.append("end")

    def loss_of(batch: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        log.append("loss")
        return batch.mean(), None

    class Learns:
        clear = staticmethod(lambda: log.append("clear"))
        backward = staticmethod(lambda loss: log.append("backward"))
        update = staticmethod(lambda: log.append("update"))

    part = Part(loss_of, Learns(), Unfinished)  # type: ignore[arg-type]
    assert accumulated([part], len, detached, [], [None] * 3)(torch.zeros(6)) == 6
    alone = ["alone", "loss", "backward", "end"]
    assert log == ["clear", *alone, *alone, "loss", "backward", "update"]


def test_a_step_checks_that_its_weights_have_changed() -> None:
    step = make_step(line())
    with pytest.raises(ModelError, match="no parameter of 'net' has changed"):
        step.check()
    step.run(torch.ones(2, 4))
    step.check()


# --- batches copied ahead ---------------------------------------------------------------------------------------------


class Played:
    """Copies to an imagined device, and what was done in which order."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def start(self, batch: Tensor) -> Tensor:
        self.log.append(f"copy {int(batch[0])}")
        return batch + 100

    def wait(self) -> None:
        self.log.append("wait")


def numbered(count: int, size: int = LEAST_BYTES // 4) -> Iterator[Tensor]:
    return (torch.full((size,), float(number)) for number in range(count))


def ahead(batches: Iterator[Tensor], log: list[str]) -> Iterator[Tensor]:
    return prefetched(batches, place=lambda batch: batch + 50, copies_of=lambda: Played(log))


def test_the_next_batch_is_copied_before_a_step_begins_and_waited_for_before_its_own() -> None:
    log: list[str] = []
    for batch in ahead(numbered(3), log):
        log.append(f"step {int(batch[0])}")
    assert log == ["copy 0", "wait", "copy 1", "step 100", "wait", "copy 2", "step 101", "wait", "step 102"]


def test_a_batch_taken_ahead_is_kept_for_the_next_loop() -> None:
    from benchsuite.worker.loop import timed_loop

    seen: list[int] = []
    slices: list[TimedSlice] = []

    def step(batch: Tensor) -> int:
        seen.append(int(batch[0]))
        return 1

    batches = ahead(numbered(8), [])
    assert [int(batch[0]) for batch in islice(batches, 2)] == [100, 101], "warm-up"
    assert timed_loop(step, batches, Stop(max_steps=3), slices.append, sync=lambda: None) == "count"
    assert timed_loop(step, batches, Stop(max_steps=9), slices.append, sync=lambda: None) == "data"
    assert seen == [102, 103, 104, 105, 106, 107]
    assert sum(one.items for one in slices) == len(seen)


def test_small_batches_and_those_on_the_device_are_not_copied_ahead() -> None:
    def never() -> Played:
        raise AssertionError

    for batches in (numbered(3, size=4), iter([torch.zeros(1 << 20, device="meta")] * 3), iter(())):
        place: Any = lambda batch: batch  # noqa: E731
        assert len(list(prefetched(batches, place, never))) in (3, 0)
    assert [int(batch[0]) for batch in ahead(numbered(2, size=4), [])] == [50, 51]


def test_a_processor_gets_its_batches_as_they_are() -> None:
    batches = numbered(2)
    assert feed(Training(), "cpu")(batches) is batches


def test_a_gpu_without_prefetch_copies_each_batch_as_it_is_asked_for() -> None:
    """The meta device stands in for a GPU."""
    (batch,) = feed(Training(prefetch=False), "meta")(iter([(torch.zeros(2, 3, 4, 4), "text")]))
    assert batch[0].device.type == "meta" and batch[1] == "text"


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("channels_last", [False, True])
def test_batches_copied_ahead_are_the_same(channels_last: bool) -> None:
    """While long kernels run, and memory is given back and taken again."""
    made = [(torch.randn(64, 3, 64, 64).pin_memory(), torch.arange(64), "text") for _ in range(12)]
    busy = torch.randn(4096, 4096, device="cuda:0")
    open_device("cuda")
    for number, (images, labels, text) in enumerate(
        feed(Training(channels_last=channels_last), "cuda:0")(iter(made)),
    ):
        for _ in range(20):
            busy = (busy @ busy).clamp_(-1, 1)
        scratch = torch.full_like(images, torch.nan)  # memory of batches that are gone
        difference = (images - made[number][0].to("cuda:0")).abs().max() + (labels.cpu() - made[number][1]).abs().max()
        assert float(difference) == 0 and text == "text"
        assert images.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
        del scratch


@pytest.mark.gpu
@needs_gpu
# Inductor of torch 2.11 uses what torch itself has deprecated.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
# Its CUDA graphs begin with the capture of an empty graph.
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
@pytest.mark.parametrize("mode", ["none", "default", "reduce-overhead"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_gpu_trains_alike_however_its_step_is_made(mode: Any, accumulate: int) -> None:
    torch._dynamo.reset()
    found = []
    for training in (Training(prefetch=False), Training(compile=mode, accumulate=accumulate)):
        model = import_module("benchsuite.models.subpixel")
        torch.manual_seed(7)
        workload = model.build(model.Params(batch_size=8, crop=128))
        step = make_step(workload, training, "cuda:0")
        losses = []
        for batch in islice(step.feed(workload.batches(Share(device="cuda:0"))), 8):
            step.run(batch)
            losses.append(float(step.losses[0]))
        found.append(losses)
    assert found[1] == pytest.approx(found[0], rel=2e-2)


def test_the_least_size_is_what_a_copy_must_be_worth() -> None:
    batch = {"images": torch.zeros(LEAST_BYTES // 4), "there": torch.zeros(9, device="meta"), "text": "x"}
    assert feeding.host_bytes(batch) == LEAST_BYTES
    assert feeding.host_bytes(None) == 0
    assert list(itertools.islice(prefetched(iter([None, None]), lambda batch: batch, lambda: Played([])), 3)) == [
        None,
        None,
    ]
