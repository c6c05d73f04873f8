"""Clouds, CIFAR-10 and the masks of COCO: files made by hand are read as they are, and damaged ones are named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

import PIL.Image
import torch
from support import build, same
from torch import Tensor

from benchsuite.data import descriptor
from benchsuite.describe.tasks import DataFolder
from benchsuite.errors import ModelError
from benchsuite.models import Share, convnet, pointnet, ssd
from benchsuite.models.readers import cifar, coco_masks, shapenet
from benchsuite.worker.ways import make_step

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def folder(name: str, path: Path) -> DataFolder:
    about = descriptor.load(name).about
    return DataFolder(name=name, path=str(path), reader=about.reader, layout=about.layout)


def fails(make: Callable[[], Iterator[Any]], *parts: str) -> None:
    with pytest.raises(ModelError) as caught:
        list(islice(make(), 4))
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value), str(caught.value)


# --- shapenet_parts ---------------------------------------------------------------------------------------------------

LAPTOP, TABLE = "03642806", "04379243"


def clouds(path: Path, shapes: dict[str, str]) -> DataFolder:
    """Shapes by CATEGORY/NAME: their lines."""
    data = folder("shapenet_parts", path)
    for name, lines in shapes.items():
        file = path / data.layout["shapes"] / f"{name}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(lines)
    listed = path / data.layout["train_list"]
    listed.parent.mkdir(parents=True)
    listed.write_text(json.dumps([f"shape_data/{name}" for name in shapes]))
    return data


def lines(part: int, count: int = 3) -> str:
    """Points on a line away from the origin, all of one part."""
    return "".join(f"{5 + n} 2.0 -1.0 0 0 1 {part}.000000\n" for n in range(count))


def of_clouds(data: DataFolder, *, of_points: bool = False) -> Iterator[Any]:
    return shapenet.clouds(Share(data=data), points=16, of_points=of_points, batch_size=2, workers=0)


def test_clouds_are_centred_and_have_their_category_or_their_parts(tmp_path: Path) -> None:
    data = clouds(tmp_path, {f"{LAPTOP}/a": lines(28), f"{TABLE}/b": lines(49)})
    where, labels = next(of_clouds(data))
    assert where.shape == (2, 3, 16) and sorted(labels.tolist()) == [9, 15]
    assert where.mean(2).abs().max() < 1e-6
    assert where.norm(dim=1).amax(1).tolist() == pytest.approx([1, 1])
    where, parts = next(of_clouds(data, of_points=True))
    assert parts.shape == (2, 16) and sorted(parts[:, 0].tolist()) == [28, 49]
    assert (parts == parts[:, :1]).all()
    workload = build(pointnet, task="seg", points=16)
    assert make_step(workload).run((where, parts)) == 2
    assert same(list(islice(of_clouds(data), 3)), list(islice(of_clouds(data), 3)))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("", "0 lines"),
        ("1 2 3\n", "1 lines of 3 numbers; 7 are expected"),
        (lines(1) + "1 2 3 4\n", "no lines of 7 numbers"),
        (lines(1) + "1 2 3 4 5 six 7\n", "no lines of 7 numbers"),
        (lines(50), "a part is none of 0 to 49"),
        ("nan" + lines(1)[1:], "a number is not finite"),
    ],
    ids=range(6),
)
def test_a_damaged_shape_is_named(damage: str, says: str, tmp_path: Path) -> None:
    data = clouds(tmp_path, {f"{LAPTOP}/a": lines(28), f"{LAPTOP}/b": damage})
    fails(lambda: of_clouds(data), f"{LAPTOP}/b.txt", says, "prepare shapenet_parts --verify")


def test_a_list_that_names_no_shape_is_refused(tmp_path: Path) -> None:
    data = clouds(tmp_path, {"00000000/a": lines(1)})
    fails(lambda: of_clouds(data), "shuffled_train_file_list.json", "'shape_data/00000000/a' is no shape")
    (tmp_path / data.layout["train_list"]).write_text("{}")
    fails(lambda: of_clouds(data), "no list of names")


# --- cifar10 ----------------------------------------------------------------------------------------------------------


def cifar_of(path: Path, labels: list[int]) -> DataFolder:
    """Five files of the same images: each is plain, and its shade is ten times its label plus 50."""
    data = folder("cifar10", path)
    place = path / data.layout["train"]
    place.mkdir(parents=True)
    content = b"".join(bytes([label]) + bytes([50 + 10 * label]) * 3072 for label in labels)
    for number in range(1, 6):
        (place / f"data_batch_{number}.bin").write_bytes(content)
    return data


def of_cifar(data: DataFolder, **changed: Any) -> Iterator[Any]:
    return cifar.labelled(Share(data=data), **{"batch_size": 4, "classes": 10, **changed})


def test_images_of_cifar_have_their_labels_and_a_border_at_times(tmp_path: Path) -> None:
    data = cifar_of(tmp_path, [3, 0, 9])
    pixels, labels = next(of_cifar(data, batch_size=15))
    assert pixels.shape == (15, 3, 32, 32) and sorted(labels.tolist()) == [0] * 5 + [3] * 5 + [9] * 5
    middle = (pixels[:, :, 16, 16] * torch.tensor((0.229, 0.224, 0.225)) + torch.tensor((0.485, 0.456, 0.406))) * 255
    assert torch.allclose(middle, (50.0 + 10 * labels)[:, None].expand(-1, 3), atol=0.01)
    assert len({float(image.mean()) for image in pixels}) > 3, "crops differ in their border"


def test_records_of_cifar_that_are_cut_or_have_no_class_are_named(tmp_path: Path) -> None:
    data = cifar_of(tmp_path, [1, 2])
    file = tmp_path / data.layout["train"] / "data_batch_3.bin"
    whole = file.read_bytes()
    workload = build(convnet, arch="squeezenet1_1", classes=10, image_size=64)
    fails(lambda: workload.batches(Share(data=data)), "'cifar10' need an image_size of 32")
    fails(lambda: of_cifar(data, classes=9), "10 classes of images", "give classes of at least 10")
    file.write_bytes(whole[:-1])
    fails(lambda: of_cifar(data), str(file), "6,145 bytes are no whole records of 3,073")
    file.write_bytes(whole[:3073] + b"\x0a" + whole[3074:])
    fails(lambda: of_cifar(data), str(file), "the label at byte 3,073 is 10, over 9")
    file.unlink()
    fails(lambda: of_cifar(data), str(file), "no such file", "prepare cifar10 --verify")


# --- the masks of COCO ------------------------------------------------------------------------------------------------


def coco(path: Path, segmentation: Any) -> DataFolder:
    """One image of 200 x 100: an object on the left half of it, with this outline."""
    data = folder("coco", path)
    known = {
        "images": [{"id": 7, "file_name": "7.jpg", "width": 200, "height": 100}],
        "annotations": [{"image_id": 7, "category_id": 1, "bbox": [20, 20, 60, 60], "segmentation": segmentation}],
        "categories": [{"id": 1}],
    }
    file = path / data.layout["train_annotations"]
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(known))
    picture = PIL.Image.fromarray(np.repeat(np.arange(200, dtype=np.uint8)[None, :, None], 100, 0).repeat(3, 2))
    (path / "train2017").mkdir()
    picture.save(path / "train2017" / "7.jpg", quality=95)
    return data


def masks_of(data: DataFolder) -> Iterator[tuple[Tensor, ...]]:
    share = Share(data=data)
    return coco_masks.instances(share, size=64, most=ssd.MOST_OBJECTS, classes=2, batch_size=1, workers=0)


def test_masks_lie_in_their_boxes_and_are_mirrored_with_them(tmp_path: Path) -> None:
    data = coco(tmp_path, [[20, 20, 80, 20, 80, 50], [20, 60, 80, 60, 80, 80, 20, 80]])
    sides = set()
    for pixels, boxes, labels, masks in islice(masks_of(data), 12):
        assert pixels.shape == (1, 3, 64, 64) and masks.shape == (1, ssd.MOST_OBJECTS, 64, 64)
        assert masks.dtype == torch.uint8 and labels[0, :2].tolist() == [1, 0] and int(masks[0, 1:].sum()) == 0
        rows, columns = masks[0, 0].nonzero().unbind(1)
        x, y, width, height = (boxes[0, 0] * 64).tolist()
        assert (columns + 0.5).float().mean().item() == pytest.approx(x, abs=3)
        assert int(columns.min()) >= x - width / 2 - 1 and int(columns.max()) <= x + width / 2 + 1
        assert int(rows.min()) >= y - height / 2 - 1 and int(rows.max()) <= y + height / 2 + 1
        assert not ((rows > 33) & (rows < 37)).any(), "between both polygons"
        mirrored = bool(pixels[0, 0, :, :8].mean() > pixels[0, 0, :, -8:].mean())
        assert mirrored == (x > 32)
        sides.add(mirrored)
    assert sides == {True, False}


@pytest.mark.parametrize(
    ("segmentation", "says"),
    [
        ({"counts": [1], "size": [1, 1]}, "no polygon: Expected `array`, got `object`"),
        ([[1, 2, 3, 4]], "a polygon of 4 numbers"),
        ([[1, 2, 3, 4, 5, 6, 7]], "a polygon of 7 numbers"),
    ],
    ids=range(3),
)
def test_an_outline_that_is_no_polygon_is_named(segmentation: Any, says: str, tmp_path: Path) -> None:
    data = coco(tmp_path, segmentation)
    fails(lambda: masks_of(data), "instances_train2017.json", "on image 7", says, "prepare coco --verify")
