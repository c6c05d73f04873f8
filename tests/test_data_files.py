"""Which files belong to a data set: its reader, its list of hashes and `prepare --verify` agree."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchsuite.data import descriptor, manifest, store
from benchsuite.data.store import MANIFEST, MARKER, Marker
from benchsuite.describe.tasks import DataFolder
from benchsuite.errors import ModelError
from benchsuite.files import of_data_set
from benchsuite.schema import to_json

NAME = "fake_imagenet"
PATHS = ("train/n1/a.jpeg", "train/n1/b.JPEG", "train/n2/c.jpg", "train/n2/notes.txt", "val/n1/d.jpeg")


@pytest.fixture(name="place")
def place_fixture(tmp_path: Path) -> Path:
    """A data set that is ready, of files whose content is their name."""
    place = tmp_path / NAME
    entries = [manifest.write(place, path, path.encode()) for path in PATHS]
    text = manifest.to_text(entries)
    (place / MANIFEST).write_bytes(text)
    data = descriptor.load(NAME)
    marker = Marker(
        name=NAME,
        version=data.about.version,
        real=False,
        size="small",
        files=len(entries),
        size_bytes=sum(entry.size_bytes for entry in entries),
        manifest_sha256=store.sha256(text),
        descriptor_sha256=data.sha256,
        created="2020-01-06T16:00:00+00:00",
    )
    (place / MARKER).write_bytes(to_json(marker))
    return place


def looked(place: Path) -> store.Standing:
    return store.look(place.parent, descriptor.load(NAME), every_byte=lambda done: None)


def link_a_class(place: Path) -> None:
    (place / "train/n1").rename(place.parent / "elsewhere")
    (place / "train/n1").symlink_to(place.parent / "elsewhere")


def link_a_part(place: Path) -> None:
    (place / "train").rename(place.parent / "elsewhere")
    (place / "train").symlink_to(place.parent / "elsewhere")


def link_a_file(place: Path) -> None:
    (place / "train/n1/a.jpeg").rename(place.parent / "a")
    (place / "train/n1/a.jpeg").symlink_to(place.parent / "a")


def hide_files(place: Path) -> None:
    (place / "train/n1/.a.jpeg").write_text("hidden")
    (place / "train/.ipynb_checkpoints").mkdir()
    (place / "train/.ipynb_checkpoints/x.jpeg").write_text("hidden")


def add_an_empty_class(place: Path) -> None:
    (place / "train/n0/deeper").mkdir(parents=True)


@pytest.mark.torch
@pytest.mark.parametrize("change", [link_a_class, link_a_part, link_a_file, hide_files, add_an_empty_class])
def test_reader_list_hash_and_verify_agree_on_what_belongs_to_a_set(
    place: Path, change: Callable[[Path], None]
) -> None:
    from benchsuite.models import Share
    from benchsuite.models.readers import image_folder

    before = looked(place).prepared
    change(place)
    after = looked(place)
    assert (after.state, after.prepared) == ("ready", before), after.reason
    assert after.prepared
    assert [path.relative_to(place).as_posix() for path in store.paths(after.prepared)] == sorted(PATHS)
    share = Share(data=DataFolder(name=NAME, path=str(place), reader="image_folder", layout=after.prepared.layout))
    found = image_folder._index(share)
    assert [os.path.relpath(file, place) for file in found.files] == list(PATHS[:3])
    assert (found.classes, found.targets) == (["n1", "n2"], [0, 0, 1])


def rename_in_another_case(place: Path) -> None:
    (place / "train/n1/a.jpeg").rename(place / "train/n1/A.jpeg")


def add_a_class_by_a_link(place: Path) -> None:
    (place.parent / "more").mkdir()
    (place.parent / "more/e.jpeg").write_text("x")
    (place / "train/n3").symlink_to(place.parent / "more")


def lead_nowhere(place: Path) -> None:
    (place / "train/n1/a.jpeg").unlink()
    (place / "train/n1/a.jpeg").symlink_to("gone")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (rename_in_another_case, "train/n1/a.jpeg is missing"),
        (add_a_class_by_a_link, "train/n3/e.jpeg is not of the data set"),
        (lead_nowhere, "train/n1/a.jpeg: no such file or directory"),
    ],
)
def test_a_changed_set_is_damaged(place: Path, change: Callable[[Path], None], said: str) -> None:
    change(place)
    assert looked(place).state == "damaged"
    assert said in looked(place).reason


@pytest.mark.torch
def test_a_link_that_leads_back_ends_nothing_and_is_named(place: Path) -> None:
    from benchsuite.models import Share
    from benchsuite.models.readers import image_folder

    (place / "train/n2/again").symlink_to(place / "train")
    assert looked(place).state == "damaged"
    assert "train/n2/again: the link leads back to a folder around it" in looked(place).reason
    layout = descriptor.load(NAME).about.layout
    with pytest.raises(ModelError, match="train/n2/again: cannot be read: the link leads back"):
        image_folder._index(Share(data=DataFolder(name=NAME, path=str(place), reader="image_folder", layout=layout)))


def test_a_folder_may_be_linked_twice_and_links_are_followed_only_where_asked(tmp_path: Path) -> None:
    (tmp_path / "set/a").mkdir(parents=True)
    (tmp_path / "set/a/x").touch()
    (tmp_path / "set/b").symlink_to("a")
    assert sorted(path for path, _ in of_data_set(tmp_path / "set")) == ["a/x", "b/x"]
    assert [path for path, _ in of_data_set(tmp_path / "set", follow_links=False)] == ["a/x"]
    (tmp_path / "set/a/up").symlink_to("..")
    with pytest.raises(OSError, match="leads back") as caught:
        list(of_data_set(tmp_path / "set"))
    assert caught.value.errno == errno.ELOOP


def test_a_listed_name_may_hold_any_character() -> None:
    entry = manifest.Entry(path="a\u2028b\x0c.jpeg", size_bytes=1, sha256="0" * 64)
    assert manifest.parse(manifest.to_text([entry])) == [entry]
