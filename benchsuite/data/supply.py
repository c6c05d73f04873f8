"""Files of the user's own as a data set: a licence forbids to download them, or their format needs another program.

The folder given holds `train/CLASS/*` and, where there is one, `val/CLASS/*`. Its images are linked into the data set,
or written to shards of TFRecord. Shards that exist, such as `train-00000-of-01024`, are linked as they are.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from benchsuite import tfrecord
from benchsuite.data import DataError, manifest
from benchsuite.data.manifest import Entry
from benchsuite.data.units import Site
from benchsuite.data.writers.tfrecord import name as shard_name
from benchsuite.files import look, of_data_set
from benchsuite.schema import Record

# The endings that the reader `image_folder` takes for images.
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_SHARD = re.compile(r"(train|validation)-\d{5}-of-\d{5}")
_SEED = 1234


_Number = Annotated[int, Meta(gt=0, le=99_999)]


class Shards(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers of shards; there are never more than images."""

    train: _Number = 1024
    val: _Number = 128


class Supplied(Record, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"form": "as"}):
    """How the user's files become the data set, and where they come from. `shards`: their number by split."""

    form: Literal["images", "shards"]
    where: Annotated[str, Meta(min_length=1)]
    shards: Shards = Shards()


@dataclass(frozen=True)
class Image:
    """An image of the user's: its path below the folder, and its class, which counts from 1."""

    path: str
    label: int


def supply(folder: Path, how: Supplied, site: Site, report: Callable[[int, int | None], None]) -> list[Entry]:
    """Link or convert the user's files into the tree. `report` is called with the files done, and their number.

    Raises:
        DataError: the folder has no such files.
        OSError: a file cannot be read or written.
    """
    if look(folder) != "folder":
        raise DataError(f"{folder}: is no folder; give one that holds train/CLASS/*.jpg with --from")
    if how.form == "shards":
        found = {path: match[1] for path, _ in of_data_set(folder) if (match := _SHARD.fullmatch(Path(path).name))}
        if found:
            return _linked(folder, {path: f"{split}/{Path(path).name}" for path, split in found.items()}, site, report)
    images = {split: _images(folder, split) for split in ("train", "val")}
    if not images["train"]:
        raise DataError(f"{folder}: there are no images in train/CLASS; see --help for --from")
    if how.form == "images":
        paths = [one.path for many in images.values() for one in many]
        return _linked(folder, dict(zip(paths, paths, strict=True)), site, report)
    return _sharded(folder, images, how, site, report)


def _images(folder: Path, split: str) -> list[Image]:
    """The images of a split in the order of their paths; none if there is no such folder."""
    if look(folder / split) != "folder":
        return []
    paths = sorted(path for path, _ in of_data_set(folder / split) if "/" in path and path.lower().endswith(IMAGES))
    classes = sorted({path.split("/", 1)[0] for path in paths})
    labels = {name: label for label, name in enumerate(classes, 1)}
    return [Image(f"{split}/{path}", labels[path.split("/", 1)[0]]) for path in paths]


def _linked(
    folder: Path, targets: dict[str, str], site: Site, report: Callable[[int, int | None], None]
) -> list[Entry]:
    """Hard links to the files, or copies on another file system, and their hashes."""
    entries = []
    for done, (path, target) in enumerate(sorted(targets.items())):
        report(done, len(targets))
        source, place = (folder / path).resolve(), site.tree / target
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        try:
            os.link(source, place)
        except OSError:
            shutil.copyfile(source, place)
        entries.append(Entry(path=target, size_bytes=place.stat().st_size, sha256=manifest.file_sha256(place)))
    return entries


def _sharded(
    folder: Path, images: dict[str, list[Image]], how: Supplied, site: Site, report: Callable[[int, int | None], None]
) -> list[Entry]:
    """Shards of the images in an order drawn once. A finished shard is not written again."""
    total = sum(map(len, images.values()))
    entries: list[Entry] = []
    done = 0
    for split, many in images.items():
        count = min(how.shards.train if split == "train" else how.shards.val, len(many))
        random.Random(_SEED).shuffle(many)  # noqa: S311  an order, no secret
        for shard in range(count):
            mine = many[shard::count]
            unit = f"{split}-{shard}"
            written = site.finished(unit)
            if written is None:
                path = shard_name("validation" if split == "val" else split, shard, count)
                written = [_written(site.tree, path, _records(folder, mine))]
                site.finish(unit, written)
            entries += written
            done += len(mine)
            report(done, total)
    return entries


def _records(folder: Path, images: list[Image]) -> Iterator[bytes]:
    for image in images:
        yield tfrecord.framed(tfrecord.example((folder / image.path).read_bytes(), image.label))


def _written(tree: Path, path: str, records: Iterator[bytes]) -> Entry:
    place = tree / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)  # an earlier call may have linked it
    with place.open("wb") as file:
        file.writelines(records)
    return Entry(path=path, size_bytes=place.stat().st_size, sha256=manifest.file_sha256(place))
