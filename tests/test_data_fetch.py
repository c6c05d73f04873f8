"""Downloads from a server that cuts, lies, fails and changes its files: whole and right, or not there."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_server import Files, serving

from benchsuite.data import DataError, fetch
from benchsuite.data.descriptor import Source

CONTENT = random.Random(1).randbytes(1 << 20)
NO_PAUSE = (0.0, 0.0)


@pytest.fixture(name="files")
def files_fixture(monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving() as files:
        files.content["a.bin"] = CONTENT
        yield files


def source(files: Files, **fields: object) -> Source:
    return Source(**{"url": f"{files.url}/a.bin", "unpack": "none", **fields})  # type: ignore[arg-type]


def get(wanted: Source, folder: Path) -> fetch.Fetched:
    return fetch.fetch(wanted, folder / "a.bin", lambda done, total: None, NO_PAUSE)


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_file_comes_whole_and_is_described(files: Files, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    found = fetch.fetch(source(files), tmp_path / "a.bin", lambda done, total: seen.append((done, total)), NO_PAUSE)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert found.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert (found.size_bytes, found.etag) == (len(CONTENT), '"one"')
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert get(source(files), tmp_path) == found
    assert len(files.asked) == 1, "a finished file is not asked for again"


def test_a_cut_connection_is_gone_on_with(files: Files, tmp_path: Path) -> None:
    files.cut_at = [300_000, 300_000]
    get(source(files), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert [r for _, r in files.asked] == [None, "bytes=300000-", "bytes=600000-"]


def test_where_ranges_are_refused_it_begins_anew(files: Files, tmp_path: Path) -> None:
    files.cut_at, files.ranges = [300_000], False
    get(source(files), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_always_cut_at_the_same_place_without_ranges_ends(files: Files, tmp_path: Path) -> None:
    files.cut_at, files.ranges = [300_000] * 20, False
    with pytest.raises(DataError, match=r"300,000 bytes came instead of 1,048,576; given up after 3 tries"):
        get(source(files), tmp_path)
    assert "a.bin" not in left(tmp_path)


@pytest.mark.parametrize("etag", ['"two"', None])
def test_a_file_that_changed_meanwhile_is_not_joined_to_the_old_one(
    etag: str | None, files: Files, tmp_path: Path
) -> None:
    files.cut_at = [300_000, 0, 0, 0]
    with pytest.raises(DataError, match="given up"):
        get(source(files), tmp_path)
    assert left(tmp_path) == {"a.bin.part", "a.bin.part.json"}
    files.content["a.bin"], files.etag, files.cut_at = bytes(reversed(CONTENT)), etag, []
    get(source(files), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == bytes(reversed(CONTENT))


def test_error_pages_are_never_kept(files: Files, tmp_path: Path) -> None:
    files.statuses = [500, 503, 200]
    get(source(files), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    files.statuses = [500] * 3
    with pytest.raises(DataError, match="the server answered 500"):
        fetch.fetch(source(files), tmp_path / "b.bin", lambda done, total: None, NO_PAUSE)
    with pytest.raises(DataError, match="the server answered 404 Not Found"):
        fetch.fetch(source(files, url=f"{files.url}/c.bin"), tmp_path / "c.bin", lambda done, total: None, NO_PAUSE)
    assert left(tmp_path) == {"a.bin", "a.bin.json"}


def test_a_wrong_checksum_leaves_nothing(files: Files, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"checksum sha256:[0-9a-f]{64}, not sha256:0000"):
        get(source(files, checksum="sha256:" + "0" * 64), tmp_path)
    assert left(tmp_path) == set()


def test_a_part_that_went_bad_is_fetched_anew_once(files: Files, tmp_path: Path) -> None:
    files.cut_at = [300_000, 0, 0, 0]
    wanted = source(files, checksum="md5:" + hashlib.md5(CONTENT).hexdigest())
    with pytest.raises(DataError):
        get(wanted, tmp_path)
    part = tmp_path / "a.bin.part"
    part.write_bytes(b"x" + part.read_bytes()[1:])
    get(wanted, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_sizes_that_do_not_agree_are_reported(files: Files, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the server has 1,048,576 bytes, not 7"):
        get(source(files, size_bytes=7), tmp_path)
    files.length = len(CONTENT) + 5
    with pytest.raises(DataError, match=r"given up"):
        get(source(files), tmp_path)
    assert "a.bin" not in left(tmp_path)


def test_without_any_length_a_cut_could_not_be_seen(files: Files, tmp_path: Path) -> None:
    files.lengthless = True
    with pytest.raises(DataError, match="does not say how large"):
        get(source(files), tmp_path)
    get(source(files, size_bytes=len(CONTENT)), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_web_page_is_not_a_data_set(files: Files, tmp_path: Path) -> None:
    files.kind = "text/html; charset=utf-8"
    with pytest.raises(DataError, match="a web page instead of the file"):
        get(source(files), tmp_path)
    assert left(tmp_path) == set()


def test_a_mirror_steps_in(files: Files, tmp_path: Path) -> None:
    found = get(source(files, url=f"{files.url}/gone.bin", mirrors=(f"{files.url}/a.bin",)), tmp_path)
    assert found.url == f"{files.url}/a.bin"


def test_no_server_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no answer: .*refused"):
        get(Source(url="http://127.0.0.1:9/a.bin", unpack="none"), tmp_path)


def test_what_a_person_put_there_counts_by_its_checksum_only(files: Files, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    get(source(files, checksum="sha256:" + hashlib.sha256(CONTENT).hexdigest()), tmp_path)
    assert files.asked == []
    get(source(files), tmp_path)
    assert len(files.asked) == 1


def test_a_kept_file_that_was_cut_is_fetched_again(files: Files, tmp_path: Path) -> None:
    get(source(files), tmp_path)
    os.truncate(tmp_path / "a.bin", 1000)
    get(source(files), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_disk_without_room_is_reported_beforehand(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DataError, match=r"1\.0 MiB are needed and 1,000 bytes are free"):
        get(source(files), tmp_path)
    assert left(tmp_path) == set()
