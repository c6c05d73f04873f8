"""Fully sharded data parallel training (FSDP2): each rank keeps a part of every weight, gradient and optimiser state.

A block's weights are gathered before its forward and backward pass, and freed afterwards. The ranks form a mesh of
replicas x shards: weights are split within a replica, and gradients are averaged over all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import distribute_tensor

from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Update, Workload
from benchsuite.worker.checkpoint import checkpoint_blocks
from benchsuite.worker.checks import Learning
from benchsuite.worker.compiling import compile_forwards
from benchsuite.worker.learner import changes_after, learner
from benchsuite.worker.precision import device_type
from benchsuite.worker.ranks import Ranks
from benchsuite.worker.step import Part, Step, place_module, step_of, trainable
from benchsuite.worker.ways.ddp import apart, heard


def make(workload: Workload, training: Training, device: str, ranks: Ranks) -> Step:
    """The step of a workload that trains one module, which is sharded. Each rank holds the other modules whole.

    Its check: the weights have changed, shards make up whole weights, and replicas have the same.

    Raises:
        ModelError: the model cannot be sharded.
    """
    update = only_update(workload)
    net = workload.modules[update.trains]
    shards = training.parallel.shards(ranks.ranks)
    mesh = mesh_of(device, ranks.ranks // shards, shards)
    checkpoint_blocks(workload, training)
    for name in workload.modules:
        if name != update.trains:
            place_module(name, workload, training, device)
    inside = set(net.modules())
    blocks = [block for block in workload.blocks if block in inside]
    compile_forwards(blocks or [net], training)
    sharded(net, blocks, mesh, training)
    if workload.fill:
        materialise(update.trains, net, workload.fill, device)
    learning = Learning(workload, partial(whole_norms, replicas=ranks.ranks // shards))

    def check() -> None:
        learning.check()
        check_shards(update.trains, net, ranks.ranks, shards)

    learns = learner(trainable(net), update.optimiser, training, device, None, changes_after(update, net))
    if training.compile != "none":
        note = f"fsdp: compile covers {'each block' if blocks else 'the module'}, and not the loss"
        learns = replace(learns, notes=(*learns.notes, note))
    learns = replace(learns, update=heard(learns.update, ranks.beat))
    loss = heard(partial(update.loss, workload.modules), ranks.beat)
    part = Part(loss, learns, partial(without_sync, net), update.times)
    return step_of([part], workload, training, device, check)


def only_update(workload: Workload) -> Update:
    """The update of a workload.

    Raises:
        ModelError: the model steps by itself, or has no update or several ones.
    """
    if workload.step:
        raise ModelError("the model steps by itself and cannot be trained by several ranks; give placement per_gpu")
    if len(workload.updates) != 1:
        # A backward pass cannot leave out the gathered weights of a module that another update trains.
        count = f"{len(workload.updates)} updates" if workload.updates else "nothing to train"
        raise ModelError(f"fsdp shards models with one update, and this one has {count}; give parallel.dp alone")
    return workload.updates[0]


def mesh_of(device: str, replicas: int, shards: int) -> DeviceMesh:
    """The ranks as a mesh. Neighbouring ranks form a replica; all ranks together are one if `replicas` is 1."""
    if replicas == 1:
        return init_device_mesh(device_type(device), (shards,), mesh_dim_names=("shard",))
    return init_device_mesh(device_type(device), (replicas, shards), mesh_dim_names=("replica", "shard"))


def sharded(net: nn.Module, blocks: Sequence[nn.Module], mesh: DeviceMesh, training: Training) -> None:
    """Split the parameters of a module over a mesh, in place: each block is a group of its own, the rest is another.

    A module on the CPU is moved to the mesh's device, one group after the other. One on the meta device stays there.

    In bf16, weights are gathered and gradients computed in bf16; weights are kept, and gradients averaged, in fp32.
    Inputs are not cast: autocast decides in which format each operation computes, as in the other ways of training.

    Raises:
        ModelError: torch cannot shard the module.
    """
    policy = MixedPrecisionPolicy()
    if training.precision == "bf16":
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    try:
        for module in (*blocks, net):
            fully_shard(module, mesh=mesh, mp_policy=policy)
    except (RuntimeError, ValueError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"'{type(net).__name__}' cannot be sharded: {reason}") from None


def materialise(name: str, net: nn.Module, fill: Callable[[str, Tensor], None], device: str) -> None:
    """Give a sharded module of the meta device its values.

    Each rank draws every tensor whole, one at a time, and keeps its part. No rank ever holds the whole model.
    """
    net.to_empty(device=device)
    with torch.no_grad():
        for path, param in net.named_parameters():
            whole = torch.empty(param.shape, dtype=param.dtype, device=device)
            fill(f"{name}.{path}", whole)
            own = distribute_tensor(whole, param.device_mesh, param.placements, src_data_rank=None)
            param.to_local().copy_(own.to_local())
        for path, buffer in net.named_buffers():
            fill(f"{name}.{path}", buffer)


@contextmanager
def without_sync(net: FSDPModule) -> Iterator[None]:
    """Gradients stay on their rank, unsharded, until a later backward pass averages them."""
    net.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        net.set_requires_gradient_sync(True)


def shard_norms(net: nn.Module) -> list[float]:
    """The norm of this rank's part of each trainable parameter, in fp64."""
    return [float(param.to_local().detach().double().norm()) for param in trainable(net)]


def whole_norms(net: nn.Module, replicas: int) -> list[float]:
    """The norm of each trainable parameter, on every rank, from the norms of the parts. All ranks wait for it."""
    squares = torch.tensor(shard_norms(net), dtype=torch.float64).square()
    dist.all_reduce(squares)
    norms: list[float] = squares.div(replicas).sqrt().tolist()
    return norms


def check_shards(name: str, net: nn.Module, ranks: int, shards: int) -> None:
    """Check the parts of all ranks: rank `r` has part `r % shards`.

    Raises:
        ModelError: the parts do not make up the parameters, or differ between replicas.
    """
    params = list(net.parameters())
    mine = [tuple(param.to_local().shape) for param in params], shard_norms(net)
    all_of = [mine] * ranks
    dist.all_gather_object(all_of, mine)
    for rank, (shapes, norms) in enumerate(all_of):
        first = all_of[rank % shards]
        if shapes != first[0] or apart(first[1], norms):
            raise ModelError(f"the replicas' weights of '{name}' have drifted apart: not all gradients were averaged")
    for param, shapes in zip(params, zip(*(shapes for shapes, _ in all_of[:shards]), strict=True), strict=True):
        rows = sum(shape[0] for shape in shapes)
        if (rows, {shape[1:] for shape in shapes}) != (param.shape[0], {tuple(param.shape[1:])}):
            raise ModelError(f"the parts of a weight of '{name}' do not make up its {tuple(param.shape)}: {shapes}")
