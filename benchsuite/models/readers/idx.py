"""Images in an IDX file, the format of MNIST."""

from __future__ import annotations

from torch import Tensor

from benchsuite.describe.tasks import DataFolder
from benchsuite.models.readers import malformed, place


def images(data: DataFolder, height: int, width: int) -> Tensor:
    """The training images, uint8 [images, height, width].

    Raises:
        ModelError: the file is not of this format, or has images of another size.
    """
    from torchvision.datasets.mnist import read_image_file  # takes a second, which generated images do not need

    path = place(data, "train_images")
    try:
        found = read_image_file(str(path))
    except (AssertionError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise malformed(data, path, f"no IDX file of images: {error}") from None
    if found.shape[1:] != (height, width):
        size = " x ".join(map(str, found.shape[1:]))
        raise malformed(data, path, f"images are {size} pixels, not {height} x {width}")
    return found
