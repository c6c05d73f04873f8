"""The contract of a model's file: it builds a Workload, which every way of training can run.

A model is one file of this folder, and the file's name is its name. It holds

- a docstring: a short title on the first line, then the application, the paper, the data set, and what an item is;
- `Params`, a frozen dataclass: the model's command line, recorded in full in every result. It is parsed, not executed:
  annotations are int, `Positive` (an int over 0), float, str, bool, `X | None`, `tuple[...]` or
  `Literal[...]`, defaults are literals or `fusible(literal)`;
- `READS`, a literal tuple of the kinds of data sets that it can read (the `reader` of a descriptor; see
  `models/readers`); left out if it reads none;
- `NOT_FUSED`, a literal text, if copies of it cannot be trained as a fused array: the reason in a few words;
- `PARALLEL = False` if several ranks cannot train it together, for example because it steps by itself without
  `by_ranks`;
- `VARIES = True` if its batches differ in their number of samples; `batch_size` then counts something else;
- `build(params) -> Workload`, which is called after torch was seeded with `params.seed`;
- `SMALL`, literal parameters with which a test makes two steps on a CPU in about a second.

Rules for its author:

- Modules are built on the CPU, without a wrapper and without an optimiser; every trainable one of their parameters gets
  a gradient in each step. A large model builds them on torch's meta device, which holds no values, and gives `fill`.
- A loss calls the `nets` that it receives and captures no module: these nets may be compiled, wrapped or stacked.
- A loss is a mean over the batch, so that batches and gradients can be split and averaged.
- Nothing syncs: no `.item()`, no `.cpu()`, no printing of tensors.
- A module keeps no state between steps except its buffers. Other state passes on as the carry.
- A carry with one row a sample, in every tensor, lets gradients be accumulated over micro-batches.
- Randomness comes from torch; batches are a function of the share, weights of the seed.

This module imports no torch, so a model that does not use torch need not load it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from benchsuite.describe.tasks import DataFolder
from benchsuite.measurement import Reading

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn, optim

Batch: TypeAlias = Any  # a tensor, or tuples, lists and dicts of them; samples are the first dimension of each
Carry: TypeAlias = Any  # a tensor, or tuples, lists and dicts of them; None at the first step
Positive: TypeAlias = Annotated[int, Meta(gt=0)]
Nets: TypeAlias = "Mapping[str, Callable[..., Any]]"
Loss: TypeAlias = "Callable[[Nets, Batch, Carry], tuple[Tensor, Carry]]"


@dataclass(frozen=True)
class Share:
    """The part of the data that this process reads: that of `rank` of `ranks`.

    `seed` determines orders and generated data. `data` is the job's data set, complete and of a kind that the model
    `READS`; it is None if the job names none, and input is made in memory. `device` is where the step runs.
    """

    rank: int = 0
    ranks: int = 1
    seed: int = 1234
    data: DataFolder | None = None
    device: str = "cpu"


@dataclass(frozen=True)
class Optimiser:
    """The description of an optimiser. Each way of training makes its own from it, for example one for each stage.

    `kind` is a class of torch.optim, `settings` its keyword arguments, `clip_norm` the largest norm of all gradients
    together. `schedule(step)` is the factor of the learning rate at each step, counted from 0; None for a constant
    rate. A job's `lr_schedule` takes precedence.
    """

    kind: Callable[..., optim.Optimizer]
    settings: Mapping[str, Any]
    clip_norm: float | None = None
    schedule: Callable[[int], float] | None = None


@dataclass(frozen=True)
class Update:
    """One backward pass and one optimiser step for the module named `trains`.

    `loss(nets, batch, carry)` returns the mean loss (a tensor of no dimensions) and the carry. The next update receives
    the carry detached.

    With `times` over 1 the batch is cut into as many parts, and each part in turn gets a backward pass and an optimiser
    step. `after(module)` changes the trained module after each of them, without gradients; it clips weights, for
    example.
    """

    trains: str
    loss: Loss
    optimiser: Optimiser
    times: int = 1
    after: Callable[[nn.Module], None] | None = None


@dataclass(frozen=True)
class Chain:
    """The forward pass as a sequence of modules, which can be cut between any two of them.

    `units()` applied in order to `inputs(batch)` gives what `loss(output, batch)` takes. Units pass on tensors, whose
    first dimension is samples. With `varies`, batches differ in their number of samples.
    """

    units: Callable[[], Sequence[nn.Module]]
    inputs: Callable[[Batch], tuple[Tensor, ...]]
    loss: Callable[[Any, Batch], Tensor]
    varies: bool = False


@dataclass(frozen=True)
class Workload:
    """What is trained, on what, and how it is counted.

    `unit` names an item; `batches(share)` yields batches in host memory; `items(batch)` counts their items without a
    sync. A model has `modules` and `updates`. A model for which no loss fits (an episode of reinforcement learning) has
    a `step` of its own instead, which returns the items that it processed, takes its device from its modules and may
    leave its last losses, on the device, in `losses`. A model that only loads data has neither.

    `fill(name, tensor)` is given if the modules are on the meta device. It draws the values of one parameter or buffer
    in place, on the tensor's device. `name` is `MODULE.PATH`. Each name has random numbers of its own, so that a way of
    training can fill the tensors one by one. No tensor of such a model has two names.

    `blocks` are the repeated modules of a large model, in the order of the forward pass. A way of training shards them,
    or checkpoints their activations, one by one.

    `products` names the number format of most matrix products if the model converts their inputs itself. The report
    then relates its FLOPs to the card's peak in that format, not to that of the job's precision.

    `by_ranks` says what several ranks do with a `step` of the model's own; None: such a model has one rank. With `meet`
    each rank takes the step, which communicates by torch.distributed, so that all ranks take equally many. With `lead`
    only rank 0 takes it, on the devices of all ranks: cuda:0, cuda:1 and so on. In both cases only the items of rank 0
    count: its figure is that of the group.

    `readings()` is called once after the measurement, on each rank that steps. It returns further figures by name,
    which the result keeps.
    """

    unit: str
    batches: Callable[[Share], Iterator[Batch]]
    items: Callable[[Batch], int]
    modules: Mapping[str, nn.Module] = field(default_factory=dict)
    updates: tuple[Update, ...] = ()
    chain: Chain | None = None
    step: Callable[[Batch], int] | None = None
    losses: list[Tensor] = field(default_factory=list)
    fill: Callable[[str, Tensor], None] | None = None
    blocks: tuple[nn.Module, ...] = ()
    products: Literal["fp8", "bf16"] | None = None
    by_ranks: Literal["meet", "lead"] | None = None
    readings: Callable[[], Mapping[str, Reading]] | None = None


def supervised(
    *,
    unit: str,
    batches: Callable[[Share], Iterator[Batch]],
    items: Callable[[Batch], int],
    net: nn.Module,
    inputs: Callable[[Batch], tuple[Tensor, ...]],
    loss: Callable[[Any, Batch], Tensor],
    optimiser: Optimiser,
    units: Callable[[], Sequence[nn.Module]] | None = None,
) -> Workload:
    """The common case: one module, called `net`, and one `loss(outputs, batch)`; with `units` also a chain."""

    def whole(nets: Nets, batch: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        return loss(nets["net"](*inputs(batch)), batch), None

    return Workload(
        unit=unit,
        batches=batches,
        items=items,
        modules={"net": net},
        updates=(Update("net", whole, optimiser),),
        chain=Chain(units, inputs, loss) if units else None,
    )


def fusible(default: Any) -> Any:
    """A parameter in which the models of one fused array may differ.

    It affects the first weights and the settings of the optimiser only: the loss of the first model computes for all.
    """
    return field(default=default, metadata={"fusible": True})


def forever(
    make: Callable[[torch.Generator], Batch], share: Share, distinct: int = 4, *, on_device: bool = False
) -> Iterator[Batch]:
    """Generated data: `distinct` batches, made once and then repeated, in pinned memory if a GPU will read them.

    `make` draws a batch from a generator; each rank and each batch has its own. With `on_device` the batches are moved
    to the device once, so that no copy is measured.
    """
    import torch

    if on_device:
        keep = partial(torch.Tensor.to, device=share.device)
    else:
        keep = torch.Tensor.pin_memory if torch.cuda.is_available() else torch.Tensor.cpu
    made = []
    for index in range(share.rank * distinct, (share.rank + 1) * distinct):
        made.append(on_tensors(keep, make(seeded(share.seed, index))))
    while True:
        yield from made


def seeded(seed: int, stream: int = 0) -> torch.Generator:
    """A generator of torch on the CPU. Streams of one seed, and of neighbouring seeds, are independent."""
    import torch

    return torch.Generator().manual_seed((seed * 1_000_003 + stream) % (1 << 63))


def seeded_for(name: str, seed: int, device: torch.device) -> torch.Generator:
    """A generator of torch on `device` for the tensor of this name: `fill` draws its values from it.

    The same generator on a CPU and on a GPU gives different values.
    """
    import torch

    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def zipf(
    shape: tuple[int, ...], count: int, generator: torch.Generator, exponent: float = 1, shift: float = 2.7
) -> Tensor:
    """Numbers below `count`. The probability of k is proportional to (k + 1 + shift) ** -exponent (Zipf-Mandelbrot)."""
    import torch

    weights = (torch.arange(1, count + 1, dtype=torch.float64) + shift) ** -exponent
    edges = weights.cumsum(0)
    return torch.searchsorted(edges, torch.rand(shape, generator=generator, dtype=torch.float64) * edges[-1])


def on_tensors(change: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """The same tuples, lists and dicts with `change` applied to each tensor; other values stay the same."""
    import torch

    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: on_tensors(change, value) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(on_tensors(change, value) for value in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(on_tensors(change, value) for value in tree)
    return tree
