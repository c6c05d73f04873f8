"""Loading images: JPEG files are decoded and augmented, without a model.

Application: input for image classification, after the `imagenet` example of PyTorch: decode, random crop to 224, random
flip, normalise, gather into a batch, and copy that to the device; all but the copy is work of the CPU. Paper: none.
Data set: with `data`, a folder of images for each class (`fake_imagenet`); else `images` generated pictures of
`source_size` x `source_size`, as JPEG files of ImageNet's density (0.6 bytes a pixel) held in memory: no storage is
measured. An item is one image, ready and copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import count

import PIL.Image
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import v2

from benchsuite.models import Positive, Share, Workload, fusible, seeded
from benchsuite.models.readers import image_folder, images

NOT_FUSED = "it trains nothing"

READS = ("image_folder",)

SMALL: dict[str, object] = {"batch_size": 4, "workers": 0, "images": 2, "source_size": 64, "image_size": 32}


@dataclass(frozen=True)
class Params:
    """`workers`: processes that make images; with 0 the training process makes them."""

    batch_size: Positive = 256
    workers: int = 4
    images: Positive = 48
    source_size: Positive = 512
    image_size: Positive = 224
    seed: int = fusible(1234)


def jpeg(size: int, generator: torch.Generator) -> bytes:
    """A picture with structure at several scales and some grain, so that it compresses like a photograph."""
    picture = torch.full((1, 3, size, size), 0.5)
    for cells in (4, 16, 64):
        noise = torch.randn(1, 3, cells, cells, generator=generator)
        picture += 0.12 * F.interpolate(noise, size=(size, size), mode="bicubic", align_corners=False)
    picture += 0.08 * torch.randn(1, 3, size, size, generator=generator)
    file = BytesIO()
    v2.functional.to_pil_image(picture[0].clamp(0, 1)).save(file, "JPEG", quality=90)
    return file.getvalue()


class Crops(Dataset):
    """An endless sequence of crops. Image, place and flip of the n-th crop are a function of n and the share."""

    def __init__(self, files: list[bytes], image_size: int, share: Share) -> None:
        self.files = files
        self.share = share
        self.augment = image_folder.augmentation(image_size)

    def __getitem__(self, n: int) -> Tensor:
        """[3, size, size]. The state of torch's own generator, from which the transforms draw, is restored."""
        with images.drawing(self.share.seed, n):
            file = self.files[int(torch.randint(len(self.files), ()))]
            crop: Tensor = self.augment(PIL.Image.open(BytesIO(file)).convert("RGB"))
        return crop


def build(params: Params) -> Workload:
    images.check_workers("loader", params.workers)

    def rows(share: Share) -> Iterator[list[int]]:
        """The crops of each batch; ranks take turns."""
        for batch in count(share.rank, share.ranks):
            yield list(range(batch * params.batch_size, (batch + 1) * params.batch_size))

    def batches(share: Share) -> Iterator[Tensor]:
        """Endless, so that the workers live as long as the run."""
        if share.data:
            augment = image_folder.augmentation(params.image_size)
            return image_folder.pictures(share, augment, batch_size=params.batch_size, workers=params.workers)
        generator = seeded(share.seed)
        crops = Crops([jpeg(params.source_size, generator) for _ in range(params.images)], params.image_size, share)
        return images.load(crops, rows(share), params.workers)

    return Workload(unit="image", batches=batches, items=len)
