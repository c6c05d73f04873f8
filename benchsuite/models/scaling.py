"""Scaling: an image classifier on generated input, on more and more GPUs.

Application: image classification, to see how training scales: each process has a batch of its own, and the gradients
of all are averaged. Paper: by `network`; the default is AlexNet, whose many parameters for little work weigh on the
links between GPUs (Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014). Data set:
generated images of ImageNet's shape and random labels, held on the device; nothing is read or copied. An item is one
image.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from benchsuite.models import Positive, Workload, convnet, forever, fusible

SMALL: dict[str, object] = {"network": "squeezenet1_1", "batch_size": 2, "image_size": 64, "classes": 10}


@dataclass(frozen=True)
class Params:
    """`batch_size`: of each process."""

    network: str = "alexnet"
    batch_size: Positive = 64
    image_size: Positive = 224
    classes: Positive = 1000
    lr: float = fusible(0.01)
    momentum: float = fusible(0.9)
    weight_decay: float = fusible(1e-4)
    seed: int = fusible(1234)


def build(params: Params) -> Workload:
    given = convnet.Params(
        arch=params.network,
        batch_size=params.batch_size,
        image_size=params.image_size,
        classes=params.classes,
        lr=params.lr,
        momentum=params.momentum,
        weight_decay=params.weight_decay,
        seed=params.seed,
    )
    made = partial(convnet.drawn, given)
    return replace(convnet.build(given), batches=lambda share: forever(made, share, on_device=True))
