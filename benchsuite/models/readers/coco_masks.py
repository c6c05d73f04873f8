"""The objects of COCO with their outlines, as masks."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import PIL.Image
import PIL.ImageDraw
import torch
from torch import Tensor

from benchsuite.errors import ModelError, one_line
from benchsuite.models import Share
from benchsuite.models.readers import coco, images, place

Polygon = list[float]


class Outlined(coco.Object, frozen=True, gc=False):
    """`segmentation`: polygons, each a list x, y, x, y ... in pixels. It is decoded later, one object at a time."""

    segmentation: msgspec.Raw = msgspec.Raw(b"[]")


class OutlinedAnnotations(coco.Annotations, frozen=True):
    annotations: list[Outlined]  # type: ignore[assignment]


@dataclass(frozen=True)
class Outlines:
    """The objects of all images and their polygons in one array each, which passes to workers quickly.

    points [numbers]: x, y, x, y ... as parts of the image. `ends[n]` is the end of polygon n in it, and `last[k]` the
    end of object k in `ends`.
    """

    objects: coco.Objects
    points: np.ndarray[Any, Any]
    ends: np.ndarray[Any, Any]
    last: np.ndarray[Any, Any]

    def __getitem__(self, image: int) -> tuple[Tensor, Tensor, list[list[np.ndarray[Any, Any]]]]:
        """Boxes and labels, and the polygons [corners, 2] of each object."""
        first = int(self.objects.ends[image - 1]) if image else 0
        polygons = [self._polygons(one) for one in range(first, int(self.objects.ends[image]))]
        return (*self.objects[image], polygons)

    def _polygons(self, one: int) -> list[np.ndarray[Any, Any]]:
        first = int(self.last[one - 1]) if one else 0
        found = []
        for polygon in range(first, int(self.last[one])):
            begin = int(self.ends[polygon - 1]) if polygon else 0
            found.append(self.points[begin : int(self.ends[polygon])].reshape(-1, 2))
        return found


class Segmentation:
    """As `coco.Detection`, with masks of bytes 0 and 1 [most, size, size]; those of padding are 0."""

    def __init__(self, size: int, most: int) -> None:
        self.size = size
        self.most = most
        self.detection = coco.Detection(size, most)

    def __call__(
        self, image: PIL.Image.Image, known: tuple[Tensor, Tensor, list[list[np.ndarray[Any, Any]]]]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        boxes, labels, outlines = known
        mirrored = bool(torch.rand(()) < 0.5)
        masks = np.zeros((self.most, self.size, self.size), np.uint8)
        for mask, polygons in zip(masks, outlines, strict=False):
            mask[:] = drawn(polygons, self.size)
        found = torch.from_numpy(masks)
        seen = self.detection.seen(image, (boxes, labels), mirrored=mirrored)
        return (*seen, found.flip(2) if mirrored else found)


def drawn(polygons: list[np.ndarray[Any, Any]], size: int) -> np.ndarray[Any, Any]:
    """The mask [size, size] of 0 and 1 that polygons of relative corners fill."""
    canvas = PIL.Image.new("L", (size, size))
    draw = PIL.ImageDraw.Draw(canvas)
    for corners in polygons:
        draw.polygon([(x, y) for x, y in (corners * size).tolist()], fill=1)
    return np.asarray(canvas)


def instances(
    share: Share, *, size: int, most: int, classes: int, batch_size: int, workers: int
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Batches as those of `coco.detections`, with the masks [images, most, size, size].

    Raises:
        ModelError: the data set cannot be read, or has more than `classes` classes, background included.
    """
    known, files, objects, places = coco.known_objects(share, classes, OutlinedAnnotations)
    outlines = _outlines(known, objects, places, share)
    return images.batches(images.Images(files, Segmentation(size, most), share, outlines), batch_size, workers, share)


def _outlines(known: OutlinedAnnotations, objects: coco.Objects, places: list[int], share: Share) -> Outlines:
    sizes = {one.id: (one.width, one.height) for one in known.images}
    decoder = msgspec.json.Decoder(list[Polygon])
    points, ends, last = array("f"), array("q"), array("q")
    for at in places:
        one = known.annotations[at]
        try:
            polygons = decoder.decode(one.segmentation)
        except msgspec.MsgspecError as error:
            raise _unusable(share, f"the outline of an object on image {one.image_id} is no polygon: {error}") from None
        width, height = sizes[one.image_id]
        for polygon in polygons:
            if len(polygon) < 6 or len(polygon) % 2:
                raise _unusable(share, f"an object on image {one.image_id} has a polygon of {len(polygon)} numbers")
            points.extend(polygon[n] / (height if n % 2 else width) for n in range(len(polygon)))
            ends.append(len(points))
        last.append(len(ends))
    return Outlines(objects, np.array(points, np.float32), np.array(ends, np.int64), np.array(last, np.int64))


def _unusable(share: Share, what: str) -> ModelError:
    assert share.data is not None
    return ModelError(one_line(f"{place(share.data, 'train_annotations')}: {what}; {images.remedy(share)}"))
