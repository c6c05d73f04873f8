"""Archives from elsewhere: hostile, damaged and too large ones leave nothing outside, and are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchsuite.data import DataError
from benchsuite.data.descriptor import Source
from benchsuite.data.manifest import Entry
from benchsuite.data.unpack import unpack


def make_zip(path: Path, members: dict[str, bytes], change: Callable[[zipfile.ZipInfo], None] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            if change:
                change(info)
            archive.writestr(info, content)
    return path


def make_tar(path: Path, members: dict[str, bytes], kind: bytes = tarfile.REGTYPE, link: str = "") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, link, len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def run(archive: Path, tree: Path, **fields: object) -> list[Entry]:
    kind = {".zip": "zip", ".gz": "gz"}.get(archive.suffix, "tar")
    source = Source(**{"url": f"http://x/{archive.name}", "unpack": kind, **fields})  # type: ignore[arg-type]
    return unpack(source, archive, tree, lambda done: None)


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_wanted_members_are_unpacked_and_described(make: Callable[..., Path], tmp_path: Path) -> None:
    archive = make(
        tmp_path / ("a.zip" if make is make_zip else "a.tgz"),
        {"d/one.txt": b"1" * 9, "d/two.bin": b"2", "d/.x.txt": b""},
    )
    (entry,) = run(archive, tmp_path / "tree", into="sub", keep=("*.txt",))
    assert (entry.path, entry.size_bytes) == ("sub/d/one.txt", 9)
    assert (tmp_path / "tree/sub/d/one.txt").read_bytes() == b"1" * 9
    assert not (tmp_path / "tree/sub/d/two.bin").exists()


def test_gz_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "a.bin.gz").write_bytes(gzip.compress(b"abc"))
    assert [e.path for e in run(tmp_path / "a.bin.gz", tmp_path / "tree")] == ["a.bin"]


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "..\\evil", "C:evil", "a\nb"])
@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_a_path_out_of_the_folder_is_refused(name: str, kind: str, tmp_path: Path) -> None:
    archive = (make_zip if kind == "zip" else make_tar)(tmp_path / f"a.{kind}", {"good": b"x", name: b"evil"})
    with pytest.raises(DataError, match=r"leads out of the folder|no plain name"):
        run(archive, tmp_path / "deep" / "tree")
    assert not [p for p in tmp_path.rglob("*") if "evil" in p.name]
    assert not Path("/evil").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(kind: bytes, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a link or a device"):
        run(make_tar(tmp_path / "a.tgz", {"way": b""}, kind, "/etc"), tmp_path / "tree")
    assert not (tmp_path / "tree" / "way").is_symlink()


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    def link(info: zipfile.ZipInfo) -> None:
        info.external_attr = (stat.S_IFLNK | 0o777) << 16

    with pytest.raises(DataError, match="a link or a device"):
        run(make_zip(tmp_path / "a.zip", {"way": b"/etc"}, link), tmp_path / "tree")


@pytest.mark.parametrize("kind", ["zip", "tgz", "gz"])
def test_a_bomb_is_stopped(kind: str, tmp_path: Path) -> None:
    archive = tmp_path / f"a.{kind}"
    content = bytes(5_000_000)
    if kind == "gz":
        archive.write_bytes(gzip.compress(content))
    else:
        (make_zip if kind == "zip" else make_tar)(archive, {"zeros": content})
    with pytest.raises(DataError, match="unpacks to"):
        run(archive, tmp_path / "tree", unpacked_bytes=2_000_000)
    assert sum(p.stat().st_size for p in (tmp_path / "tree").rglob("*") if p.is_file()) <= 2_000_000


@pytest.mark.parametrize("kind", ["zip", "tgz", "gz"])
def test_a_cut_archive_is_damaged(kind: str, tmp_path: Path) -> None:
    archive = tmp_path / f"a.{kind}"
    content = bytes(range(256)) * 4000
    if kind == "gz":
        archive.write_bytes(gzip.compress(content))
    else:
        (make_zip if kind == "zip" else make_tar)(archive, {"a": content, "b": content})
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(DataError, match="the archive is damaged"):
        run(archive, tmp_path / "tree")


def test_a_flipped_byte_in_a_zip_is_found(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as stored:
        stored.writestr("a", b"x" * 1000)
    whole = bytearray(archive.read_bytes())
    whole[500] ^= 1
    archive.write_bytes(whole)
    with pytest.raises(DataError, match="damaged"):
        run(archive, tmp_path / "tree")


def test_no_archive_at_all_and_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_bytes(b"<html>no</html>")
    with pytest.raises(DataError, match="damaged"):
        run(tmp_path / "a.tgz", tmp_path / "tree")
    with pytest.raises(DataError, match="no file in it"):
        run(make_zip(tmp_path / "b.zip", {"a": b""}), tmp_path / "tree", keep=("nothing",))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_twice_or_as_file_and_folder_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", b"1")
        archive.writestr("a", b"2")
    with pytest.raises(DataError, match="there twice"):
        run(tmp_path / "a.zip", tmp_path / "tree")
    with pytest.raises(DataError, match="a file and a folder"):
        run(make_zip(tmp_path / "b.zip", {"c": b"1", "c/d": b"2"}), tmp_path / "tree")


@pytest.mark.parametrize("kind", ["gz", "xz", "bz2"])
def test_a_flipped_byte_in_a_compressed_tar_is_found(kind: str, tmp_path: Path) -> None:
    """Also where tar itself sees nothing wrong: within a member's content."""
    plain = gzip.decompress(make_tar(tmp_path / "a.tgz", {"a": random.Random(1).randbytes(100_000)}).read_bytes())
    packed = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}[kind](plain)
    whole = tmp_path / f"whole.tar.{kind}"
    whole.write_bytes(packed)
    assert run(whole, tmp_path / "tree", unpack="tar")[0].size_bytes == 100_000
    for place in range(len(packed) // 3, len(packed), max(1, len(packed) // 20)):
        broken = tmp_path / f"{place}.tar.{kind}"
        broken.write_bytes(packed[:place] + bytes([packed[place] ^ 0xFF]) + packed[place + 1 :])
        with pytest.raises(DataError, match="damaged"):
            run(broken, tmp_path / f"tree{place}", unpack="tar")


def test_what_comes_behind_the_last_member_is_no_bomb(tmp_path: Path) -> None:
    plain = gzip.decompress(make_tar(tmp_path / "a.tgz", {"a": b"1"}).read_bytes())
    (tmp_path / "b.tar.gz").write_bytes(gzip.compress(plain + bytes(1 << 22)))
    assert run(tmp_path / "b.tar.gz", tmp_path / "fits", unpack="tar")
    with pytest.raises(DataError, match=r"behind its last member come over 1\.0 MiB"):
        run(tmp_path / "b.tar.gz", tmp_path / "tree", unpack="tar", unpacked_bytes=1 << 20)


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_zip_whose_codec_finds_the_damage_is_damaged(method: int, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a", bytes(range(256)) * 400)
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes(b ^ 0xFF for b in content[middle : middle + 20]) + content[middle + 20 :])
    with pytest.raises(DataError, match="damaged"):
        run(path, tmp_path / "tree")
