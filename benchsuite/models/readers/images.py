"""Decoding and transforming of image files, in worker processes; the result does not depend on the process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, Any, Protocol

import PIL.Image
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate
from torchvision.transforms import v2

from benchsuite.errors import ModelError, one_line, reason
from benchsuite.files import of_data_set
from benchsuite.models import Batch, Share, seeded
from benchsuite.models.readers import place, rows

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pixels, between 0 and 1


class Targets(Protocol):
    """The targets of each image, such as its label."""

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True)
class Broken:
    """An error as a value. Raised in a worker, it would reach the user as a long traceback."""

    message: str


class Images(Dataset):
    """Images of files: `transform(image)`, or `transform(image, targets[index])` if there are targets.

    A key is (place, index): the place of the item in the order, which determines its random numbers, and the index of
    the image. An image that is damaged, or for which `transform` raises a ModelError, becomes a Broken.
    """

    def __init__(
        self,
        files: Sequence[str | Path],
        transform: Callable[..., Any],
        share: Share,
        targets: Targets | None = None,
    ) -> None:
        self.files = files
        self.transform = transform
        self.targets = targets
        self.seed = share.seed
        self.remedy = remedy(share)

    def __getitem__(self, key: tuple[int, int]) -> Any:
        at, index = key
        file = self.files[index]
        known = () if self.targets is None else (self.targets[index],)
        try:
            image = decoded(file)
        except ModelError as error:
            return Broken(one_line(f"{file}: {error}; {self.remedy}"))
        try:
            with drawing(self.seed, at):
                return self.transform(image, *known)
        except ModelError as error:
            return Broken(one_line(f"{file}: {error}"))


def decoded(file: str | Path | IO[bytes]) -> PIL.Image.Image:
    """The image in RGB.

    Raises:
        ModelError: there is no such file, or it is damaged; the file is not named.
    """
    try:
        with PIL.Image.open(file) as image:
            return image.convert("RGB")
    except PIL.UnidentifiedImageError:  # whose message is the file's name again
        raise ModelError("is not an image that can be read") from None
    except (OSError, SyntaxError, ValueError, PIL.Image.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"cannot be read as an image: {reason}") from None


@contextmanager
def drawing(seed: int, at: int) -> Iterator[None]:
    """Seed torch's own generator, from which random transforms draw, for one place in the order.

    Its state is restored at the end. Generators of GPUs are not touched.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seeded(seed, 1 + at).initial_seed())
        yield


def split(share: Share, role: str) -> Path:
    """The folder of a part of the data set, such as `train`.

    Raises:
        ModelError: it is not there.
    """
    assert share.data is not None
    folder = place(share.data, role)
    if not folder.is_dir():
        raise ModelError(f"data set '{share.data.name}': there is no folder {folder}; {remedy(share)}")
    return folder


def files_of(folder: Path, share: Share, endings: Sequence[str]) -> list[str]:
    """The paths of the images below a folder that belong to the data set, see `files.of_data_set`; in no order.

    Args:
        endings: the endings of images, in lower case; the case of a file's ending does not matter.

    Raises:
        ModelError: the folder cannot be read.
    """
    try:
        return [path for path, _ in of_data_set(folder) if path.lower().endswith(tuple(endings))]
    except OSError as error:
        raise ModelError(f"{error.filename or folder}: cannot be read: {reason(error)}; {remedy(share)}") from None


def remedy(share: Share) -> str:
    """The end of a message about damaged files: how to repair them."""
    return f"check the data set with 'benchsuite prepare {share.data.name} --verify'" if share.data else ""


def check_workers(model: str, workers: int) -> None:
    """Raises ModelError: this number of workers is impossible."""
    if workers < 0:
        raise ModelError(f"{model}: workers is {workers}; it must be 0 or more")


def pixels(*transforms: Callable[..., Any]) -> v2.Compose:
    """A PIL image -> bytes [3, height, width], transformed."""
    return v2.Compose([v2.PILToTensor(), *transforms])


def batches(images: Images, batch_size: int, workers: int, share: Share) -> Iterator[Batch]:
    """Endless passes over a rank's share of the images, each in a new order.

    Raises:
        ModelError: at the call: there are too few images for one batch; later: an image is broken.
    """
    order = rows(len(images.files), batch_size, share, "image")
    places = count(share.rank, share.ranks)  # no two ranks have one in common
    return load(images, ([(next(places), index) for index in row] for row in order), workers)


def load(items: Dataset, order: Iterable[Sequence[Any]], workers: int) -> Iterator[Batch]:
    """The items of each row of keys as a batch, in pinned memory if a GPU will read it. 0 workers: in this process.

    Workers start at the call and live until `order` ends.

    Raises:
        ModelError: with a batch: one of its items is Broken.
    """
    return _loaded(items, workers, batch_sampler=order, collate_fn=gathered)


def stream(batches: IterableDataset, workers: int) -> Iterator[Batch]:
    """As `load`, for items that make whole batches, see `gathered`. Workers take turns."""
    return _loaded(batches, workers, batch_size=None)


def _loaded(items: Dataset, workers: int, **how: Any) -> Iterator[Batch]:
    if workers:
        # Forking a process whose threads hold locks can hang. This server forks instead; it has all imports.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([type(items).__module__])
        how["multiprocessing_context"] = context
    loader = DataLoader(
        items,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),  # otherwise a seed for workers, which use none, would be drawn from torch's own
        **how,
    )
    return _sound(iter(loader))


def gathered(items: list[Any]) -> Any:
    """The items as one batch; if some are Broken, the first of these."""
    return next((item for item in items if isinstance(item, Broken)), None) or default_collate(items)


def _sound(loaded: Iterator[Any]) -> Iterator[Batch]:
    broken = None
    for batch in loaded:
        if isinstance(batch, Broken):
            broken = batch
            break
        yield tuple(batch) if isinstance(batch, list) else batch  # which the loader makes of tuples
    del loaded  # ends the workers: a traceback would keep them until late, and then they take seconds to end
    if broken:
        raise ModelError(broken.message)
