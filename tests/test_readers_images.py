"""Image models on prepared data sets: tiny ones from the project's own writers, and files made by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

import PIL.Image
import torch
from support import build, same, tensors
from torch import Tensor

from benchsuite.data import descriptor
from benchsuite.data.synthetic import generate
from benchsuite.data.units import Site
from benchsuite.describe.tasks import DataFolder
from benchsuite.errors import ModelError
from benchsuite.models import Share, Workload, convnet, dcgan, loader, neural_style, ssd, subpixel
from benchsuite.models.readers import images, rows
from benchsuite.worker.ways import make_step

pytestmark = pytest.mark.torch

COUNT = 10  # training images of each data set
SIZES = ((60, 48, 2), (48, 60, 1))
FEW: dict[str, dict[str, Any]] = {
    "fake_imagenet": {"train": COUNT, "val": 1, "test": 1, "classes": 3, "sizes": SIZES},
    "bsds500": {"train": COUNT, "val": 1, "test": 1, "sizes": SIZES},
    "coco": {"train": COUNT, "val": 1, "sizes": SIZES, "objects": 3.0},
}


@dataclass(frozen=True)
class Case:
    """A model, the data set that it reads, and parameters beside its SMALL ones."""

    model: ModuleType
    data: str
    changed: dict[str, Any]

    def workload(self, **changed: Any) -> Workload:
        return build(self.model, **{"batch_size": 4, "workers": 0, **self.changed, **changed})


LOADER = Case(loader, "fake_imagenet", {})
CONVNET = Case(convnet, "fake_imagenet", {})
DCGAN = Case(dcgan, "fake_imagenet", {})
STYLE = Case(neural_style, "fake_imagenet", {})
SUBPIXEL = Case(subpixel, "bsds500", {})
SSD = Case(ssd, "coco", {"classes": 81})
CASES = [LOADER, CONVNET, DCGAN, STYLE, SUBPIXEL, SSD]
every_model = pytest.mark.parametrize("case", CASES, ids=lambda case: case.model.__name__.rpartition(".")[2])


def folder(name: str, path: Path) -> DataFolder:
    about = descriptor.load(name).about
    return DataFolder(name=name, path=str(path), reader=about.reader, layout=about.layout)


def written(name: str, path: Path) -> DataFolder:
    data = descriptor.load(name)
    site = Site(path)
    site.open_for(name)
    settings = msgspec.structs.replace(data.settings("small"), **FEW[name])
    generate(data.about.generator.writer, settings, site, 1, lambda done, total: None)
    return folder(name, site.tree)


@pytest.fixture(scope="module", name="prepared")
def prepared_fixture(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFolder]:
    return {name: written(name, tmp_path_factory.mktemp(name)) for name in FEW}


def picture(path: Path, left: tuple[int, int, int], right: tuple[int, int, int], size: tuple[int, int]) -> None:
    """A JPEG file of two plain halves."""
    image = PIL.Image.new("RGB", size, left)
    image.paste(right, (size[0] // 2, 0, *size))
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, "JPEG", quality=95, subsampling=0)


def fails(batches: Callable[[], Iterator[Any]], *parts: str) -> str:
    """Making batches, or taking a few, raises one line that holds all parts."""
    with pytest.raises(ModelError) as caught:
        for _ in islice(batches(), 6):
            pass
    text = str(caught.value)
    assert "\n" not in text and "Traceback" not in text
    for part in parts:
        assert part in text, text
    return text


# --- all models -------------------------------------------------------------------------------------------------------


@every_model
def test_a_batch_is_like_a_generated_one_and_trains(case: Case, prepared: dict[str, DataFolder]) -> None:
    data = prepared[case.data]
    assert data.reader in case.model.READS
    workload = case.workload()
    made = next(iter(workload.batches(Share())))
    read = list(islice(workload.batches(Share(data=data)), 3))
    assert [workload.items(batch) for batch in read] == [4, 4, 2], "the last of a pass is short"
    assert type(read[0]) is type(made)
    for one, other in zip(tensors(read[0]), tensors(made), strict=True):
        assert type(one) is Tensor
        assert (one.shape, one.dtype, one.stride(), one.device) == (
            other.shape,
            other.dtype,
            other.stride(),
            other.device,
        )
    step = make_step(workload, device=("cpu" if workload.modules else "meta"))
    assert step.run(read[2]) == 2
    assert all(torch.isfinite(loss) for loss in step.losses)


@every_model
def test_batches_are_the_same_whoever_makes_them(case: Case, prepared: dict[str, DataFolder]) -> None:
    share = Share(seed=5, data=prepared[case.data])
    workload = case.workload()
    before = torch.get_rng_state()
    here = list(islice(workload.batches(share), 4))
    assert torch.equal(before, torch.get_rng_state()), "torch's own generator is left as it was"
    again = list(islice(workload.batches(share), 4))
    there = list(islice(case.workload(workers=2).batches(share), 4))
    other = list(islice(workload.batches(Share(seed=6, data=share.data)), 4))
    assert same(here, again) and same(here, there) and not same(here, other)


@every_model
def test_workers_are_counted(case: Case) -> None:
    name = case.model.__name__.rpartition(".")[2]
    with pytest.raises(ModelError, match=f"{name}: workers is -1; it must be 0 or more"):
        case.workload(workers=-1)


@every_model
def test_a_batch_over_the_set_is_refused_at_once(case: Case, prepared: dict[str, DataFolder]) -> None:
    share = Share(data=prepared[case.data])
    workload = case.workload(batch_size=11)
    fails(lambda: workload.batches(share), f"'{case.data}'", "batch_size 11", "lower batch_size to 10 or less")


@every_model
def test_a_missing_folder_is_named(case: Case, tmp_path: Path) -> None:
    share = Share(data=folder(case.data, tmp_path))
    fails(lambda: case.workload().batches(share), f"'{case.data}'", str(tmp_path), f"prepare {case.data} --verify")


@every_model
def test_a_folder_without_images_is_named(case: Case, tmp_path: Path) -> None:
    data = folder(case.data, tmp_path)
    train = tmp_path / data.layout["train"]
    train.mkdir(parents=True)
    if case is SSD:
        known: dict[str, Any] = {"images": [], "annotations": [], "categories": [{"id": 1}]}
        annotate(tmp_path, known)
    share = Share(data=data)
    fails(lambda: case.workload().batches(share), str(tmp_path), f"prepare {case.data} --verify")
    (train / "some").mkdir()
    (train / "some" / "note.txt").write_text("no image")
    fails(lambda: case.workload().batches(share), str(tmp_path), f"prepare {case.data} --verify")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("damage", "says"),
    [(slice(-300), "cannot be read as an image: "), (slice(2, None), "is not an image")],
    ids=range(2),
)
@pytest.mark.parametrize("case", [LOADER, SUBPIXEL, SSD], ids=["loader", "subpixel", "ssd"])
def test_a_damaged_image_ends_the_run_in_one_line(
    case: Case, damage: slice, says: str, workers: int, tmp_path: Path
) -> None:
    data = written(case.data, tmp_path)
    file = sorted(Path(data.path, data.layout["train"]).rglob("*.jp*g"))[2]
    file.write_bytes(file.read_bytes()[damage])
    workload = case.workload(workers=workers, batch_size=2)
    fails(lambda: workload.batches(Share(data=data)), str(file), says, f"prepare {case.data} --verify")


def test_where_every_image_is_damaged_there_is_an_end(tmp_path: Path) -> None:
    data = written("fake_imagenet", tmp_path)
    for file in Path(data.path, "train").rglob("*.jpeg"):
        file.write_bytes(b"")
    fails(lambda: CONVNET.workload().batches(Share(data=data)), ".jpeg: is not an image")


# --- the order of images ----------------------------------------------------------------------------------------------


def numbers(share: Share, count: int) -> Iterator[list[int]]:
    """Which images come, of a data set of nothing but their numbers and random ones."""

    class Plain(images.Images):
        def __getitem__(self, key: tuple[int, int]) -> Any:
            with images.drawing(self.seed, key[0]):
                return torch.tensor([float(key[1]), float(torch.rand(()))])

    yield from images.batches(Plain([""] * count, list, share), 2, 0, share)


def test_ranks_have_nothing_in_common_and_together_everything() -> None:
    each = [torch.cat(list(islice(numbers(Share(rank, 3), 12), 4))) for rank in range(3)]
    passes = [[one[at : at + 4] for one in each] for at in (0, 4)]
    for ranks in passes:
        assert sorted(int(n) for rank in ranks for n in rank[:, 0]) == list(range(12))
    assert not torch.equal(torch.cat(passes[0])[:, 0], torch.cat(passes[1])[:, 0]), "each pass is a new order"
    drawn = torch.cat(each)[:, 1]
    assert len(set(drawn.tolist())) == len(drawn), "each place has random numbers of its own"


@pytest.mark.parametrize(
    ("count", "batch_size", "ranks", "sizes"),
    [
        (400, 19, 1, [19] * 21),
        (401, 19, 1, [19] * 21 + [2]),
        (41, 10, 2, [10, 10]),
        (42, 10, 2, [10, 10]),
        (3, 1, 1, [1, 1, 1]),
    ],
)
def test_no_pass_ends_in_a_batch_of_one(count: int, batch_size: int, ranks: int, sizes: list[int]) -> None:
    order = rows(count, batch_size, Share(0, ranks), "image")
    passes = [list(islice(order, len(sizes))) for _ in range(2)]
    for one in passes:
        assert [len(row) for row in one] == sizes
        flat = [item for row in one for item in row]
        assert len(set(flat)) == len(flat)
    assert passes[0] != passes[1]


# --- fake_imagenet ----------------------------------------------------------------------------------------------------


def test_classes_are_numbered_by_name(tmp_path: Path) -> None:
    reds = {"n20": 250, "n03": 0, "n100": 120}
    for name, red in reds.items():
        for number in range(2):
            picture(tmp_path / "train" / name / f"{number}.jpeg", (red, 0, 0), (red, 0, 0), (40, 40))
    share = Share(data=folder("fake_imagenet", tmp_path))
    pixels, labels = next(CONVNET.workload(batch_size=6, classes=3).batches(share))
    red = (pixels[:, 0].mean((1, 2)) * 0.229 + 0.485) * 255
    expected = torch.tensor([float(reds[name]) for name in sorted(reds)])
    assert sorted(reds) == ["n03", "n100", "n20"] and sorted(labels.tolist()) == [0, 0, 1, 1, 2, 2]
    assert torch.allclose(red, expected[labels], atol=3)
    fails(lambda: CONVNET.workload(classes=2).batches(share), "'fake_imagenet' has 3 classes", "raise classes from 2")


def test_images_are_cut_at_the_centre(tmp_path: Path) -> None:
    for number in range(4):
        picture(tmp_path / "train" / "a" / f"{number}.jpeg", (255, 255, 255), (0, 0, 0), (300, 100))
    share = Share(data=folder("fake_imagenet", tmp_path))
    pixels = next(DCGAN.workload().batches(share))
    assert pixels.shape == (4, 3, 64, 64)
    assert pixels[..., :28].min() > 0.9 and pixels[..., 36:].max() < -0.9 and pixels.abs().max() <= 1
    pixels = next(STYLE.workload(image_size=32).batches(share))
    assert pixels.shape == (4, 3, 32, 32)
    assert pixels[..., :12].min() > 245 and pixels[..., 20:].max() < 10 and pixels.max() > 250


def test_crops_are_random_and_flipped(tmp_path: Path) -> None:
    picture(tmp_path / "train" / "a" / "0.jpeg", (255, 0, 0), (0, 0, 255), (200, 100))
    share = Share(data=folder("fake_imagenet", tmp_path))
    crops = torch.cat(list(islice(LOADER.workload(batch_size=1).batches(share), 40)))
    left, right = crops[:, 0, :, 0].mean(1), crops[:, 0, :, -1].mean(1)
    assert (left > right + 1).any() and (right > left + 1).any(), "one image, seen both ways"
    assert len({round(float(crop.mean()), 4) for crop in crops}) > 10


# --- bsds500 ----------------------------------------------------------------------------------------------------------


def test_pairs_are_the_luma_of_the_centre(tmp_path: Path) -> None:
    data = folder("bsds500", tmp_path)
    train = tmp_path / data.layout["train"]
    for number, size in enumerate([(90, 64), (64, 90)]):
        picture(train / f"{number}.jpg", (200, 40, 90), (200, 40, 90), size)
    small, large = next(SUBPIXEL.workload(batch_size=2, crop=63, upscale_factor=3).batches(Share(data=data)))
    assert small.shape == (2, 1, 21, 21) and large.shape == (2, 1, 63, 63)
    luma = (0.299 * 200 + 0.587 * 40 + 0.114 * 90) / 255
    for one in (small, large):
        assert torch.allclose(one, torch.tensor(luma), atol=0.01)


def test_an_image_smaller_than_the_crop_is_named(tmp_path: Path) -> None:
    data = folder("bsds500", tmp_path)
    for name, size in (("1.jpg", (90, 64)), ("2.jpg", (90, 60))):
        picture(tmp_path / data.layout["train"] / name, (9, 9, 9), (9, 9, 9), size)
    batches = SUBPIXEL.workload(batch_size=2, crop=64).batches(Share(data=data))
    text = fails(lambda: batches, "2.jpg: 90 x 60 pixels", "crop of 64", "give a crop of 60 at most")
    assert "verify" not in text


# --- coco -------------------------------------------------------------------------------------------------------------


def annotate(path: Path, known: Any) -> Path:
    file = path / folder("coco", path).layout["train_annotations"]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(known if isinstance(known, bytes) else json.dumps(known).encode())
    return file


def known_objects() -> dict[str, Any]:
    """Two images of 200 x 100: one has a box on the left, one beyond the edge, and what is left out; one has none."""
    listed = [{"id": number, "file_name": f"{number}.jpg", "width": 200, "height": 100} for number in (7, 5)]
    objects = [
        {"id": 1, "image_id": 7, "category_id": 90, "iscrowd": 0, "bbox": [10, 20, 40, 60], "area": 1.5},
        {"id": 2, "image_id": 7, "category_id": 3, "iscrowd": 1, "bbox": [0, 0, 200, 100]},
        {"id": 3, "image_id": 7, "category_id": 3, "bbox": [150.0, 50.0, 100.0, 25.0]},
        {"id": 4, "image_id": 7, "category_id": 3, "iscrowd": 0, "bbox": [30, 30, 0, 10]},
        {"id": 5, "image_id": 5, "category_id": 3, "iscrowd": 0, "bbox": [30, 30, 10, -2]},
    ]
    return {"info": {}, "images": listed, "annotations": objects, "categories": [{"id": n} for n in (90, 3, 18)]}


def test_boxes_follow_their_image(tmp_path: Path) -> None:
    """Left is red: where the image was mirrored, it is on the right, and so is the box."""
    annotate(tmp_path, known_objects())
    picture(tmp_path / "train2017" / "7.jpg", (255, 0, 0), (0, 0, 255), (200, 100))
    batches = SSD.workload(batch_size=1, classes=4).batches(Share(data=folder("coco", tmp_path)))
    seen = set()
    for pixels, boxes, labels in islice(batches, 12):
        mirrored = bool(pixels[0, 0, :, :100].mean() < pixels[0, 0, :, 200:].mean())
        seen.add(mirrored)
        first, second = (0.85, 0.125) if mirrored else (0.15, 0.875)
        expected = torch.tensor([[first, 0.5, 0.2, 0.6], [second, 0.625, 0.25, 0.25]])
        assert torch.allclose(boxes[0, :2], expected, atol=1e-6)
        assert labels[0, :2].tolist() == [3, 1], "of the categories 3, 18 and 90"
        assert boxes[0, 2:].abs().max() == 0 and labels[0, 2:].max() == 0
    assert seen == {True, False}


def test_objects_over_the_most_are_left_out(tmp_path: Path) -> None:
    known = known_objects()
    known["annotations"] = [
        {"image_id": 5, "category_id": 3, "bbox": [number, 10, 20, 20]} for number in range(ssd.MOST_OBJECTS + 9)
    ]
    annotate(tmp_path, known)
    picture(tmp_path / "train2017" / "5.jpg", (255, 0, 0), (0, 0, 255), (200, 100))
    _, boxes, labels = next(SSD.workload(batch_size=1).batches(Share(data=folder("coco", tmp_path))))
    assert boxes.shape == (1, 50, 4) and labels.tolist() == [[1] * 50]


def test_labels_are_contiguous_and_boxes_inside(prepared: dict[str, DataFolder]) -> None:
    data = prepared["coco"]
    known = json.loads(Path(data.path, data.layout["train_annotations"]).read_bytes())
    ids = sorted(one["id"] for one in known["categories"])
    assert len(ids) == 80 and ids[-1] == 90
    counted = [one for one in known["annotations"] if not one["iscrowd"]]
    batches = list(islice(SSD.workload().batches(Share(data=data)), 3))
    labels, boxes = (torch.cat([batch[part] for batch in batches]) for part in (2, 1))
    real = labels > 0
    assert sorted(labels[real].tolist()) == sorted(1 + ids.index(one["category_id"]) for one in counted)
    inside = boxes[real]
    assert (inside[:, :2] - inside[:, 2:] / 2).min() > -1e-6 and (inside[:, :2] + inside[:, 2:] / 2).max() < 1 + 1e-6


def test_more_categories_than_classes_are_refused(prepared: dict[str, DataFolder]) -> None:
    share = Share(data=prepared["coco"])
    workload = SSD.workload(classes=80)
    fails(lambda: workload.batches(share), "instances_train2017.json", "81 classes: raise classes from 80")


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in known_objects().items() if name != key}


def changed(key: str, **fields: Any) -> dict[str, Any]:
    known = known_objects()
    known[key][0].update(fields)
    return known


@pytest.mark.parametrize(
    ("known", "says"),
    [
        (b"", "Input data was truncated"),
        (b'{"images": [', "Input data was truncated"),
        (b'{"images":' + b"[" * 100_000, "instances_train2017.json"),
        (b'\xff{"images": []}', "malformed"),
        ([], "Expected `object`, got `array`"),
        (without("images"), "missing required field `images`"),
        (without("categories"), "missing required field `categories`"),
        (changed("images", width=0), "$.images[0].width"),
        (changed("images", file_name=3), "$.images[0].file_name"),
        (changed("annotations", bbox=[1, 2, 3]), "$.annotations[0].bbox"),
        (changed("annotations", bbox=[1, 2, 3, "4"]), "$.annotations[0].bbox"),
        (changed("annotations", image_id=8), "image 8, which are not both listed"),
        (changed("annotations", category_id=4), "category 4 on image 7, which are not both listed"),
    ],
    ids=range(13),
)
def test_malformed_annotations_are_named(known: Any, says: str, tmp_path: Path) -> None:
    file = annotate(tmp_path, known)
    picture(tmp_path / "train2017" / "7.jpg", (255, 0, 0), (0, 0, 255), (200, 100))
    share = Share(data=folder("coco", tmp_path))
    text = fails(lambda: SSD.workload(batch_size=1).batches(share), str(file), says, "prepare coco --verify")
    assert not re.search(r"[\x00-\x1f]", text)


def test_a_listed_image_that_is_not_there_is_named(tmp_path: Path) -> None:
    annotate(tmp_path, known_objects())
    (tmp_path / "train2017").mkdir()
    share = Share(data=folder("coco", tmp_path))
    workload = SSD.workload(batch_size=1)
    fails(lambda: workload.batches(share), "7.jpg: cannot be read as an image: No such file", "prepare coco --verify")


def test_missing_annotations_are_named(tmp_path: Path) -> None:
    (tmp_path / "train2017").mkdir()
    share = Share(data=folder("coco", tmp_path))
    fails(lambda: SSD.workload().batches(share), "instances_train2017.json: No such file", "prepare coco --verify")
