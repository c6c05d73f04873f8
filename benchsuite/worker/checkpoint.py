"""Activation checkpointing: a block keeps its inputs only, and the backward pass computes its activations again."""

from __future__ import annotations

from functools import partial

from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Workload


def checkpoint_blocks(workload: Workload, training: Training) -> None:
    """Checkpoint the activations of each block, in place, if the training asks for it.

    Only the forward method of a block changes. Hooks, compilation and shards go around it.

    Raises:
        ModelError: the model names no blocks.
    """
    if not training.checkpoint:
        return
    if not workload.blocks:
        raise ModelError("checkpoint: the model names no blocks whose activations can be computed again; leave it out")
    from torch.utils.checkpoint import checkpoint

    for block in workload.blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
