"""A folder of images for each class, as ImageNet is laid out: `train/n00007/000123.jpeg`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from benchsuite.errors import ModelError
from benchsuite.models import Share
from benchsuite.models.readers import images


def augmentation(size: int) -> v2.Compose:
    """A PIL image -> [3, size, size]: a random crop, randomly flipped, of mean 0 and deviation 1."""
    return images.pixels(
        v2.RandomResizedCrop(size, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(images.MEAN, images.DEVIATION),
    )


def pictures(share: Share, transform: Callable[..., Tensor], *, batch_size: int, workers: int) -> Iterator[Tensor]:
    """Batches of the training images, without their classes.

    Raises:
        ModelError: the data set does not serve.
    """
    files = [file for file, _ in _index(share).samples]
    return images.batches(images.Images(files, transform, share), batch_size, workers, share)


def labelled(
    share: Share, transform: Callable[..., tuple[Tensor, int]], *, batch_size: int, workers: int, classes: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of the training images and their labels: the place of the class in the order of names.

    Raises:
        ModelError: the data set cannot be read, or has more classes than `classes`.
    """
    found = _index(share)
    assert share.data is not None
    if len(found.classes) > classes:
        kinds = f"{len(found.classes):,} classes of images"
        raise ModelError(f"data set '{share.data.name}' has {kinds}: raise classes from {classes:,} to that")
    files = [file for file, _ in found.samples]
    return images.batches(images.Images(files, transform, share, found.targets), batch_size, workers, share)


def _index(share: Share) -> ImageFolder:
    """Raises ModelError: there are no images."""
    folder = images.split(share, "train")
    try:
        found = ImageFolder(str(folder), allow_empty=True)
    except OSError:  # FileNotFoundError where there is no class
        found = None
    if not found or not found.samples:
        raise ModelError(f"{folder}: there are no images in folders of classes; {images.remedy(share)}")
    return found
