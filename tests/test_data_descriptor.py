"""Descriptors: the shipped ones are whole, and a bad one is refused with file, field and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from benchsuite.data import descriptor, writers
from benchsuite.errors import ProfileError

NAMES = [
    *("bsds500", "cifar10", "coco", "fake_imagenet", "imagenet", "imagenet_tfrecord"),
    *("librispeech", "lsun_bedroom", "mapped_pairs", "ml20m", "mnist"),
    *("shapenet_parts", "time_series", "wikitext2", "wmt16"),
]
GOOD: dict[str, Any] = {
    "schema": 1,
    "version": "1",
    "title": "waves",
    "item": "sequence",
    "licence": "none",
    "expected_bytes": {"small": 1000, "full": 2000},
    "sources": [{"url": "http://127.0.0.1/a.zip", "unpack": "zip"}],
    "reader": "series",
    "layout": {"waves": "waves.npy"},
    "generator": {
        "writer": "series",
        "common": {"points": 10, "period": 20},
        "small": {"waves": 2},
        "full": {"waves": 4},
    },
}


def test_these_are_shipped() -> None:
    assert descriptor.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_descriptor_is_whole(name: str) -> None:
    data = descriptor.load(name)
    small, full = (writers.writer(data.about.generator.writer).units(data.settings(size)) for size in ("small", "full"))
    assert 1 <= small <= full
    assert data.about.expected_bytes.small < data.about.expected_bytes.full
    assert data.has_real == (data.about.expected_bytes.real is not None)


def test_the_hash_is_of_the_content(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.json"
    one.write_text(yaml.safe_dump(GOOD))
    two.write_bytes(msgspec.json.encode(GOOD))
    assert descriptor.load(str(one)).sha256 == descriptor.load(str(two)).sha256


SOURCE = GOOD["sources"][0]
BAD: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown field": ({"licence_": "x"}, ("unknown field 'licence_'", "did you mean 'licence'?")),
    "unknown field of a source": (
        {"sources": [{**SOURCE, "checksums": "x"}]},
        ("field 'sources[0]'", "unknown field 'checksums'", "did you mean 'checksum'?"),
    ),
    "missing": ({"title": ...}, ("missing required field 'title'",)),
    "newer": ({"schema": 2}, ("field 'schema'",)),
    "checksum": ({"sources": [{**SOURCE, "checksum": "abc"}]}, ("field 'sources[0].checksum'",)),
    "a file url": ({"sources": [{**SOURCE, "url": "file:///etc/passwd"}]}, ("file:///etc/passwd", "http or https")),
    "no file in the url": ({"sources": [{**SOURCE, "url": "http://a.example/"}]}, ("names no file",)),
    "the same file twice": ({"sources": [SOURCE, SOURCE]}, ("same file name",)),
    "out of the folder": ({"sources": [{**SOURCE, "into": "../x"}]}, ("field 'sources'", "'../x'")),
    "layout out of the folder": ({"layout": {"waves": "/etc"}}, ("field 'layout'", "'/etc'")),
    "no layout": ({"layout": {}}, ("field 'layout'",)),
    "unknown reader": ({"reader": "serie"}, ("field 'reader'", "'serie'", "did you mean 'series'?")),
    "unknown writer": (
        {"generator": {**GOOD["generator"], "writer": "serie"}},
        ("field 'generator.writer'", "did you mean 'series'?"),
    ),
    "unknown setting": (
        {"generator": {**GOOD["generator"], "small": {"waves": 2, "wave": 3}}},
        ("field 'generator.small'", "'wave'"),
    ),
    "a setting of the wrong type": (
        {"generator": {**GOOD["generator"], "full": {"waves": "many"}}},
        ("field 'generator.full'", "waves"),
    ),
    "version a number": ({"version": 1}, ("field 'version'",)),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_descriptor_is_refused(case: str, tmp_path: Path) -> None:
    change, parts = BAD[case]
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump({k: v for k, v in {**GOOD, **change}.items() if v is not ...}))
    with pytest.raises(ProfileError) as caught:
        descriptor.load(str(path))
    message = str(caught.value)
    assert "\n" not in message
    for part in (str(path), *parts):
        assert part in message, f"{part!r} not in {message!r}"


def test_an_unknown_name_tells_the_nearest() -> None:
    with pytest.raises(ProfileError, match=r"no data set 'mnits'; did you mean 'mnist'\?"):
        descriptor.load("mnits")


def test_a_name_must_serve_as_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "a b.yaml"
    path.write_text(yaml.safe_dump(GOOD))
    with pytest.raises(ProfileError, match="rename the file"):
        descriptor.load(str(path))
