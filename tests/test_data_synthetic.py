"""Generated data: the same bytes whatever the number of processes, with the statistics of the real ones."""

from __future__ import annotations

import io
import json
import multiprocessing
import struct
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image

from benchsuite import tfrecord
from benchsuite.data import descriptor, manifest, synthetic, writers
from benchsuite.data.synthetic import generate, make
from benchsuite.data.units import Site

# Enough for several units of each, little enough for a test.
FEW: dict[str, dict[str, Any]] = {
    "mnist": {"train": 4100, "test": 200},
    "fake_imagenet": {"train": 50, "val": 5, "test": 5},
    "bsds500": {"train": 30, "val": 5, "test": 5},
    "coco": {"train": 40, "val": 5},
    "wmt16": {"train": 20_500, "val": 500, "test": 20},
    "mapped_pairs": {"train": 40, "val": 5, "test": 5},
    "wikitext2": {"train": 100_000, "valid": 10_000, "test": 10_000},
    "ml20m": {"users": 1500},
    "time_series": {},
    "librispeech": {"train": 41, "val": 2, "test": 2},
    "cifar10": {"batch": 30, "test": 20},
    "shapenet_parts": {"train": 110, "val": 5, "test": 5, "points": 100},
    "imagenet_tfrecord": {"train": 11, "val": 2, "train_shards": 4},
}


def few(name: str) -> tuple[str, Any]:
    data = descriptor.load(name)
    return data.about.generator.writer, msgspec.structs.replace(data.settings("small"), **FEW[name])


def made(name: str, folder: Path, processes: int) -> list[manifest.Entry]:
    site = Site(folder)
    site.open_for(name)
    writer, settings = few(name)
    return generate(writer, settings, site, processes, lambda done, total: None)


@pytest.fixture(scope="module", name="one")
def one_fixture(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each data set, written by one process."""
    found = {}
    for name in FEW:
        found[name] = tmp_path_factory.mktemp(name)
        made(name, found[name], 1)
    return {name: path / "tree" for name, path in found.items()}


@pytest.fixture(scope="module")
def two_processes() -> Iterator[None]:
    """The processes of `generate` stay for the next data set: to start them takes longer than their work."""
    pool = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))
    kept = SimpleNamespace(submit=pool.submit, shutdown=lambda **_: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "ProcessPoolExecutor", lambda processes, *_: {2: kept}[processes])
        yield
    pool.shutdown()


@pytest.mark.usefixtures("two_processes")
@pytest.mark.parametrize("name", FEW)
def test_the_bytes_do_not_depend_on_the_number_of_processes(name: str, one: dict[str, Path], tmp_path: Path) -> None:
    before = manifest.parse((one[name].parent / "units" / "joined").read_bytes())
    after = made(name, tmp_path, 2)
    assert manifest.to_text(after) == manifest.to_text(before)
    assert manifest.difference(tmp_path / "tree", after) is None
    assert manifest.changed(tmp_path / "tree", after, lambda done: None) is None


def test_what_a_killed_call_finished_is_not_made_again(tmp_path: Path, one: dict[str, Path]) -> None:
    site = Site(tmp_path)
    site.open_for("mnist")
    writer, settings = few("mnist")
    make(writer, settings, tmp_path, 1)
    kept = site.tree / "MNIST/raw/train-images-idx3-ubyte.part-00002000"
    before = kept.stat().st_mtime_ns
    reported: list[tuple[int, int]] = []
    (site.tree / "MNIST/raw/train-labels-idx1-ubyte.part-00000000").write_bytes(b"half")
    kept_at: list[int] = []

    def report(done: int, total: int) -> None:
        reported.append((done, total))
        kept_at.append(kept.stat().st_mtime_ns)

    after = generate(writer, settings, site, 1, report)
    assert reported[0] == (1, 4)
    assert set(kept_at) == {before}
    assert manifest.to_text(after) == (one["mnist"].parent / "units" / "joined").read_bytes()


def test_another_request_begins_anew(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.open_for("one")
    make(*few("time_series"), tmp_path, 0)
    site.open_for("one")
    assert site.finished("0")
    site.open_for("two")
    assert site.finished("0") is None
    assert not list(site.tree.iterdir())


def sizes(folder: Path, pattern: str) -> tuple[list[tuple[int, int]], list[int]]:
    """Width and height, and bytes, of each image; each must decode."""
    found, weights = [], []
    for path in sorted(folder.rglob(pattern)):
        content = path.read_bytes()
        with Image.open(io.BytesIO(content)) as image:
            image.load()
            assert (image.format, image.mode) == ("JPEG", "RGB")
            found.append(image.size)
        weights.append(len(content))
    return found, weights


def bytes_a_pixel(found: tuple[list[tuple[int, int]], list[int]]) -> float:
    return sum(found[1]) / sum(w * h for w, h in found[0])


def test_mnist(one: dict[str, Path]) -> None:
    images = (one["mnist"] / "MNIST/raw/train-images-idx3-ubyte").read_bytes()
    assert struct.unpack(">IIII", images[:16]) == (0x803, 4100, 28, 28)
    pixels = np.frombuffer(images[16:], np.uint8).reshape(4100, -1) / 255
    assert pixels.mean() == pytest.approx(0.1307, abs=0.01)
    assert pixels.std() == pytest.approx(0.3081, abs=0.015)
    assert (pixels > 0).mean() == pytest.approx(0.19, abs=0.02)
    assert len({row.tobytes() for row in pixels}) > 4000
    labels = (one["mnist"] / "MNIST/raw/train-labels-idx1-ubyte").read_bytes()
    assert struct.unpack(">II", labels[:8]) == (0x801, 4100)
    assert min(Counter(labels[8:]).values()) > 330


def test_fake_imagenet(one: dict[str, Path]) -> None:
    found = sizes(one["fake_imagenet"], "*.jpeg")
    assert len(found[0]) == len(set(p.read_bytes() for p in one["fake_imagenet"].rglob("*.jpeg"))) == 60
    assert Counter(found[0])[500, 375] / 60 == pytest.approx(0.4, abs=0.13)
    assert 0.4 < bytes_a_pixel(found) < 0.8
    assert len(list((one["fake_imagenet"] / "train").iterdir())) == 10
    assert {len(list(c.iterdir())) for c in (one["fake_imagenet"] / "train").iterdir()} == {5}


def test_cifar10(one: dict[str, Path]) -> None:
    folder = one["cifar10"] / "cifar-10-batches-bin"
    train = np.concatenate([np.fromfile(folder / f"data_batch_{n}.bin", np.uint8) for n in range(1, 6)])
    records = train.reshape(-1, 3073)
    assert len(records) == 150 and (folder / "test_batch.bin").stat().st_size == 20 * 3073
    assert Counter(records[:, 0].tolist()) == dict.fromkeys(range(10), 15)
    assert len({record[1:].tobytes() for record in records}) == 150
    assert records[:, 1:].mean() == pytest.approx(0.47 * 255, rel=0.2)
    assert records[:, 1:].std() == pytest.approx(0.25 * 255, rel=0.3)


def test_shapenet_parts(one: dict[str, Path]) -> None:
    folder = next(one["shapenet_parts"].iterdir())
    assert len((folder / "synsetoffset2category.txt").read_text().splitlines()) == 16
    parts: dict[str, set[int]] = {}
    for split, count in (("train", 110), ("val", 5), ("test", 5)):
        names = json.loads((folder / "train_test_split" / f"shuffled_{split}_file_list.json").read_bytes())
        assert len(names) == count
        for name in names:
            table = np.loadtxt(folder / f"{name.removeprefix('shape_data/')}.txt")
            assert 80 <= len(table) < 120 and table.shape[1] == 7
            assert np.abs(table[:, :3]).max() <= 0.5
            assert np.linalg.norm(table[:, 3:6], axis=1) == pytest.approx(1, abs=1e-3)
            parts.setdefault(name.split("/")[1], set()).update(table[:, 6].astype(int).tolist())
    assert parts["02691156"] == {0, 1, 2, 3} and parts["04379243"] == {47, 48, 49}
    assert sum(map(len, parts.values())) == len(set().union(*parts.values())), "parts are numbered through"


def test_imagenet_tfrecord(one: dict[str, Path]) -> None:
    labels = []
    for number, count in enumerate((3, 3, 3, 2)):
        with (one["imagenet_tfrecord"] / f"train/train-{number:05d}-of-00004").open("rb") as file:
            found = [tfrecord.image_and_label(data) for _, data in tfrecord.records(file)]
        assert len(found) == count and all(image.startswith(b"\xff\xd8") for image, _ in found)
        labels += [label for _, label in found]
    assert labels == [1, 2, 3] * 3 + [1, 2], "labels count from 1"


def test_bsds500(one: dict[str, Path]) -> None:
    found = sizes(one["bsds500"] / "BSR/BSDS500/data/images/train", "*.jpg")
    assert len(found[0]) == 30
    assert set(found[0]) <= {(481, 321), (321, 481)}
    assert 0.2 < bytes_a_pixel(found) < 0.4


def test_coco(one: dict[str, Path]) -> None:
    for split, count in (("train2017", 40), ("val2017", 5)):
        content = json.loads((one["coco"] / f"annotations/instances_{split}.json").read_bytes())
        images = {i["id"]: i for i in content["images"]}
        assert len(images) == count
        assert {p.name for p in (one["coco"] / split).iterdir()} == {i["file_name"] for i in images.values()}
        assert len(content["categories"]) == 80
        for row in content["annotations"]:
            x, y, w, h = row["bbox"]
            image = images[row["image_id"]]
            assert x >= 0 and y >= 0 and w > 0 and h > 0
            assert x + w <= image["width"] + 0.02 and y + h <= image["height"] + 0.02
        assert len({a["id"] for a in content["annotations"]}) == len(content["annotations"])
    content = json.loads((one["coco"] / "annotations/instances_train2017.json").read_bytes())
    objects = content["annotations"]
    assert len(objects) / 40 == pytest.approx(7.3, abs=2.5)
    kinds = Counter(a["category_id"] for a in objects)
    assert 0.2 < kinds[1] / len(objects) < 0.4
    small = sum(a["area"] < 32**2 for a in objects) / len(objects)
    assert 0.3 < small < 0.55
    found = sizes(one["coco"] / "train2017", "*.jpg")
    assert 0.35 < bytes_a_pixel(found) < 0.65


def test_wmt16(one: dict[str, Path]) -> None:
    vocabulary = (one["wmt16"] / "vocab.txt").read_text().splitlines()
    assert len(vocabulary) == len(set(vocabulary)) == 32000
    source, target = (
        [line.split() for line in (one["wmt16"] / f"train.{side}").read_text().splitlines()] for side in ("en", "de")
    )
    assert len(source) == len(target) == 20_500
    lengths = np.array([len(s) for s in source])
    assert lengths.mean() == pytest.approx(29, abs=3)
    assert lengths.min() >= 1 and lengths.max() <= 125
    assert np.corrcoef(lengths, [len(t) for t in target])[0, 1] > 0.8
    counts = Counter(int(word) for sentence in source for word in sentence)
    assert min(counts) >= 4 and max(counts) < 32000
    ordered = [count for _, count in counts.most_common()]
    assert ordered[0] / sum(ordered) == pytest.approx(0.05, abs=0.02)
    assert 1.5 < ordered[9] / ordered[29] < 4


def test_wikitext2(one: dict[str, Path]) -> None:
    lines = (one["wikitext2"] / "wikitext-2/wiki.train.tokens").read_text().split("\n")[:-1]
    words = [word for line in lines for word in [*line.split(), "<eos>"]]
    assert len(words) == pytest.approx(100_000, abs=10)
    counts = Counter(words)
    assert len(counts) == 8000
    assert min(counts.values()) >= 3
    assert counts["<unk>"] / len(words) == pytest.approx(0.026, abs=0.005)
    assert any(line.startswith(" = ") and line.endswith(" = ") for line in lines)


def test_the_full_sizes_are_those_of_the_real_sets() -> None:
    wikitext = descriptor.load("wikitext2").settings("full")
    ((_, content),) = writers.writer("tokens").write(wikitext, 0)
    words = [word for line in content.decode().split("\n")[:-1] for word in [*line.split(), "<eos>"]]
    assert len(words) == pytest.approx(2_088_628, abs=10)
    assert len(set(words)) == 33_278


def test_ml20m(one: dict[str, Path]) -> None:
    text = (one["ml20m"] / "ml-20m/ratings.csv").read_text().splitlines()
    assert text[0] == "userId,movieId,rating,timestamp"
    rows = np.array([line.split(",") for line in text[1:]], float)
    users = np.bincount(rows[:, 0].astype(int))[1:]
    assert len(users) == 1500 and users.min() >= 20
    assert np.median(users) == pytest.approx(68, abs=8)
    assert users.mean() == pytest.approx(144, abs=20)
    assert len({(u, m) for u, m in rows[:, :2].tolist()}) == len(rows), "a user rates a movie once"
    assert rows[:, 2].mean() == pytest.approx(3.53, abs=0.05)
    assert set(rows[:, 2]) == {half / 2 for half in range(1, 11)}
    movies = np.sort(np.bincount(rows[:, 1].astype(int)))[::-1]
    assert movies[:50].sum() / movies.sum() > 0.15


def test_time_series(one: dict[str, Path]) -> None:
    waves = np.load(one["time_series"] / "waves.npy")
    assert (waves.shape, waves.dtype) == ((20, 1000), np.float64)
    assert waves.min() == pytest.approx(-1, abs=0.01) and waves.max() == pytest.approx(1, abs=0.01)
