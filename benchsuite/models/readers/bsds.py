"""Photographs in a folder for each split, as the Berkeley Segmentation Data Set has them: `train/100007.jpg`."""

from __future__ import annotations

from collections.abc import Iterator

import PIL.Image
import torch
from torch import Tensor
from torchvision.transforms import v2

from benchsuite.errors import ModelError
from benchsuite.models import Share
from benchsuite.models.readers import images


class Pair:
    """A PIL image -> luma of its centre between 0 and 1, small [1, small, small] and large [1, large, large].

    The small image is the large one, reduced. Raises ModelError if the image is smaller than `large` x `large`.
    """

    def __init__(self, small: int, large: int) -> None:
        self.small = small
        self.large = large

    def __call__(self, image: PIL.Image.Image) -> tuple[Tensor, Tensor]:
        if min(image.size) < self.large:
            size = f"{image.width} x {image.height} pixels"
            raise ModelError(f"{size} are too few for a crop of {self.large}: give a crop of {min(image.size)} at most")
        luma = v2.functional.center_crop(image.convert("YCbCr").getchannel("Y"), [self.large, self.large])
        large = v2.functional.to_dtype(v2.functional.pil_to_tensor(luma), torch.float32, scale=True)
        return v2.functional.resize(large, [self.small, self.small], antialias=True), large


def pairs(share: Share, *, small: int, large: int, batch_size: int, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of the training images, small [images, 1, small, small] and large [images, 1, large, large].

    Raises:
        ModelError: the data set cannot be read; later, with a batch: an image is broken or too small.
    """
    folder = images.split(share, "train")
    files = sorted(f"{folder}/{path}" for path in images.files_of(folder, share, (".jpg", ".jpeg")) if "/" not in path)
    if not files:
        raise ModelError(f"{folder}: there are no JPEG files (*.jpg); {images.remedy(share)}")
    return images.batches(images.Images(files, Pair(small, large), share), batch_size, workers, share)
