"""A folder of images for each class, as ImageNet is laid out: `train/n00007/000123.jpeg`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.datasets.folder import IMG_EXTENSIONS
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
    return images.batches(images.Images(_index(share).files, transform, share), batch_size, workers, share)


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
    return images.batches(images.Images(found.files, transform, share, found.targets), batch_size, workers, share)


@dataclass(frozen=True)
class _Index:
    """The images, by class and name, with the place of each image's class in `classes`."""

    files: list[str]
    targets: list[int]
    classes: list[str]


def _index(share: Share) -> _Index:
    """The images of the training part. Its classes are the folders that hold images.

    Raises:
        ModelError: there are no images.
    """
    folder = images.split(share, "train")
    found = sorted(
        (path.split("/", 1)[0], path.rpartition("/")[0], path)
        for path in images.files_of(folder, share, IMG_EXTENSIONS)
        if "/" in path
    )
    if not found:
        raise ModelError(f"{folder}: there are no images in folders of classes; {images.remedy(share)}")
    classes = sorted({name for name, _, _ in found})
    places = {name: place for place, name in enumerate(classes)}
    return _Index([f"{folder}/{path}" for _, _, path in found], [places[name] for name, _, _ in found], classes)
