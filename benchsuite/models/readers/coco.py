"""Images and the objects on them, as COCO has them: `train2017/*.jpg`, `annotations/instances_train2017.json`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import PIL.Image
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms import v2

from benchsuite.errors import ModelError, one_line
from benchsuite.models import Positive, Share
from benchsuite.models.readers import images, place


# There are hundreds of thousands of them, without cycles: the garbage collector would take longer than the parser.
class Image(msgspec.Struct, frozen=True, gc=False):
    id: int
    file_name: str
    width: Positive
    height: Positive


class Object(msgspec.Struct, frozen=True, gc=False):
    """`bbox` is left, top, width and height in pixels; `iscrowd`: it encloses many objects."""

    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float]
    iscrowd: int = 0


class Category(msgspec.Struct, frozen=True):
    id: int


class Annotations(msgspec.Struct, frozen=True):
    """The parts of the file that are read."""

    images: list[Image]
    annotations: list[Object]
    categories: list[Category]


Known = TypeVar("Known", bound=Annotations)


@dataclass(frozen=True)
class Objects:
    """The objects of all images in one array each, which passes to workers quickly. `ends[n]` is the end of image n.

    boxes [objects, 4]: centre and size relative to the image; labels [objects] are 1 or more.
    """

    boxes: np.ndarray[Any, Any]
    labels: np.ndarray[Any, Any]
    ends: np.ndarray[Any, Any]

    def __getitem__(self, image: int) -> tuple[Tensor, Tensor]:
        part = slice(self.ends[image - 1] if image else 0, self.ends[image])
        return torch.from_numpy(self.boxes[part]), torch.from_numpy(self.labels[part])


class Detection:
    """A PIL image and its objects -> [3, size, size], mirrored or not, boxes [most, 4] and labels [most].

    Padding is labelled 0; objects over `most` are left out.
    """

    def __init__(self, size: int, most: int) -> None:
        self.most = most
        self.pixels = images.pixels(
            v2.Resize([size, size], antialias=True),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(images.MEAN, images.DEVIATION),
        )

    def __call__(self, image: PIL.Image.Image, objects: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        return self.seen(image, objects, mirrored=bool(torch.rand(()) < 0.5))

    def seen(
        self, image: PIL.Image.Image, objects: tuple[Tensor, Tensor], *, mirrored: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same, mirrored if asked for."""
        pixels: Tensor = self.pixels(image)
        boxes, labels = (known[: self.most] for known in objects)
        if mirrored:
            pixels = v2.functional.horizontal_flip(pixels)
            boxes = torch.cat([1 - boxes[:, :1], boxes[:, 1:]], 1)
        missing = self.most - len(labels)
        return pixels, F.pad(boxes, (0, 0, 0, missing)), F.pad(labels, (0, missing))


def detections(
    share: Share, *, size: int, most: int, classes: int, batch_size: int, workers: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Batches of the training images that have objects: [images, 3, size, size], and their boxes and labels.

    Raises:
        ModelError: the data set cannot be read, or has more than `classes` classes, background included.
    """
    _, files, objects, _ = known_objects(share, classes, Annotations)
    found = images.Images(files, Detection(size, most), share, objects)
    return images.batches(found, batch_size, workers, share)


def known_objects(share: Share, classes: int, kind: type[Known]) -> tuple[Known, list[str], Objects, list[int]]:
    """The annotations, the files of the training images that have objects, and the objects.

    The last part is the place of each object in the annotations.

    Raises:
        ModelError: see `detections`.
    """
    folder = images.split(share, "train")
    assert share.data is not None
    file = place(share.data, "train_annotations")
    known = _annotations(file, share, kind)
    if len(known.categories) >= classes:
        kinds = f"{len(known.categories)} categories, with the background {len(known.categories) + 1} classes"
        raise ModelError(f"{file}: there are {kinds}: raise classes from {classes} to that")
    names, objects, places = _indexed(known, file, share)
    if not names:
        raise ModelError(f"{file}: no image has an object; {images.remedy(share)}")
    return known, [f"{folder}/{name}" for name in names], objects, places  # Path objects are slow to hand to workers


def _annotations(file: Path, share: Share, kind: type[Known]) -> Known:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except OSError as error:
        raise ModelError(f"{file}: {error.strerror}; {images.remedy(share)}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(one_line(f"{file}: not annotations of COCO: {error}; {images.remedy(share)}")) from None


def _indexed(known: Annotations, file: Path, share: Share) -> tuple[list[str], Objects, list[int]]:
    """The file names of the images with objects, the objects, and their places in the annotations.

    Categories become 1, 2 ... in the order of their ids. Boxes are cut at the edges of the image. Boxes without area
    are left out.

    Raises:
        ModelError: an object is of an image or a category that is not listed.
    """
    labels = {id: label for label, id in enumerate(sorted({one.id for one in known.categories}), 1)}
    places = {one.id: at for at, one in enumerate(known.images)}
    rows = [at for at, one in enumerate(known.annotations) if not one.iscrowd]
    objects = [known.annotations[at] for at in rows]
    for one in objects:
        if one.image_id not in places or one.category_id not in labels:
            what = f"an object of category {one.category_id} on image {one.image_id}, which are not both listed"
            raise ModelError(f"{file}: {what}; {images.remedy(share)}")
    owners = np.array([places[one.image_id] for one in objects], np.int64)
    sizes = np.array([(one.width, one.height) for one in known.images], np.float64).reshape(-1, 2)[owners]
    corners = np.array([one.bbox for one in objects], np.float64).reshape(-1, 4)
    first = (corners[:, :2] / sizes).clip(0, 1)
    last = ((corners[:, :2] + corners[:, 2:]) / sizes).clip(0, 1)
    boxes = np.concatenate([(first + last) / 2, last - first], 1).astype(np.float32)
    kept = np.flatnonzero((boxes[:, 2:] > 0).all(1))
    kept = kept[owners[kept].argsort(kind="stable")]  # image by image, in the file's order
    found, counts = np.unique(owners[kept], return_counts=True)
    kinds = np.array([labels[one.category_id] for one in objects], np.int64)
    names = [known.images[at].file_name for at in found]
    return names, Objects(boxes[kept], kinds[kept], counts.cumsum()), [rows[at] for at in kept]
