"""A job's data set: found before its tasks start, handed to the worker, recorded in the result, shown in the report."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from support import benchsuite, in_process, one_line_error, read_results, write_profile

from benchsuite.data import cache, store

READS = {"entry": "reads:build", "data": "time_series", "min_time_s": 0.6}


@pytest.fixture(name="root")
def root_fixture(tmp_path: Path) -> Path:
    done = benchsuite("prepare", "time_series", "-d", "data", "--size", "small", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path / "data"


def test_what_was_read_is_in_the_result_and_in_the_report(tmp_path: Path, root: Path) -> None:
    write_profile(tmp_path / "p.json", a=READS, b={})
    done = benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = read_results(tmp_path / "out")
    data = found["a"].data
    expected = store.find(root, "time_series")
    assert data is not None
    assert (data.name, data.real, data.size, data.version) == ("time_series", False, "small", "1")
    assert (data.sha256, data.size_bytes, data.page_cache) == (expected.sha256, expected.size_bytes, "any")
    assert data.file_system == store.file_system(root)
    size = (root / "time_series" / "waves.npy").stat().st_size
    first = found["a"].measurement.streams[0].slices[0]
    assert first.items == first.steps * size, "the worker read the file itself"
    assert found["b"].data is not None
    assert found["b"].data.version is None
    report = in_process("report", "--full", "out", cwd=tmp_path).stdout
    reported = " ".join(report.split())
    assert "time_series 1 (synthetic small, page cache " in reported
    assert "generated in memory" in reported


def test_a_missing_data_set_is_reported_at_once_and_fails_its_job_alone(tmp_path: Path) -> None:
    (tmp_path / "my data").mkdir()
    write_profile(tmp_path / "p.json", a=READS, b={})
    done = benchsuite("jobs", "p.json", "-d", "my data", "-o", "out", cwd=tmp_path)
    assert done.returncode == 1
    bring = f"benchsuite prepare time_series -d '{tmp_path / 'my data'}'"
    # What another test's killed run left may be reported before.
    first = next(line for line in done.stderr.splitlines() if not line.startswith("benchsuite-"))
    assert first.startswith("a will fail: data set 'time_series' is missing: nothing at ")
    assert bring in first
    found = read_results(tmp_path / "out")
    assert (found["a"].status, found["b"].status) == ("failed", "ok")
    assert found["a"].error is not None
    assert found["a"].error.kind == "data"
    assert bring in found["a"].error.message
    assert not list((tmp_path / "out" / "logs").glob("a.*")), "nothing was started"


def test_without_a_data_folder_the_command_is_named(tmp_path: Path) -> None:
    done = benchsuite("run", "reads:build", "-o", "r.json", "--", "--data", "time_series", cwd=tmp_path)
    assert done.returncode == 1
    message = json.loads((tmp_path / "r.json").read_text())["error"]["message"]
    assert "data set 'time_series' is missing: there is no data folder" in message
    assert "benchsuite prepare time_series" in message


@pytest.mark.parametrize("damage", ["cut", "gone", "more"])
def test_damage_fails_the_job_before_it_starts(damage: str, tmp_path: Path, root: Path) -> None:
    file = root / "time_series" / "waves.npy"
    if damage == "cut":
        os.truncate(file, 100)
    elif damage == "gone":
        file.unlink()
    else:
        (file.parent / "more.npy").write_bytes(b"x")
    write_profile(tmp_path / "p.json", a=READS)
    done = benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path)
    assert done.returncode == 1
    result = read_results(tmp_path / "out")["a"]
    assert result.status == "failed"
    assert result.error is not None
    assert "data set 'time_series' is damaged" in result.error.message
    assert {"cut": "instead of", "gone": "missing", "more": "not of the data set"}[damage] in result.error.message


def test_a_prepare_command_may_bring_the_data(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    bring = ["benchsuite", "prepare", "time_series", "--size", "small"]
    write_profile(tmp_path / "p.json", a={**READS, "prepare": [[sys.executable, "-m", *bring]]})
    done = benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("asked", "low", "high"), [("cold", 0.0, 0.05), ("warm", 0.95, 1.0)])
def test_the_page_cache_is_as_asked(asked: str, low: float, high: float, tmp_path: Path, root: Path) -> None:
    """A job before reads the file, so that cold is no accident; the file is made cold before, so that warm is none."""
    file = root / "time_series" / "waves.npy"
    if store.file_system(root) == "tmpfs":
        pytest.skip("a file system in memory")
    cache.drop([file])
    if cache.held([file]) != 0:
        pytest.skip("this file system keeps its pages")
    write_profile(tmp_path / "p.json", a=READS, b={**READS, "page_cache": asked})
    done = benchsuite("jobs", "p.json", "-o", "out", "--name", "b" if asked == "warm" else "a", cwd=tmp_path)
    if asked == "cold":
        assert cache.held([file]) == 1
        done = benchsuite("jobs", "p.json", "-o", "again", "--name", "b", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    data = read_results(tmp_path / ("again" if asked == "cold" else "out"))["b"].data
    assert data is not None
    assert data.page_cache == asked
    assert data.cached is not None
    assert low <= data.cached <= high
    report = in_process("report", "--full", "again" if asked == "cold" else "out", cwd=tmp_path).stdout
    assert f"page cache {asked}" in " ".join(report.split())


def test_what_is_not_yet_on_the_disk_is_let_go_of_too(tmp_path: Path) -> None:
    if store.file_system(tmp_path) == "tmpfs":
        pytest.skip("a file system in memory")
    clean, dirty = tmp_path / "clean", tmp_path / "dirty"
    clean.write_bytes(bytes(1 << 20))
    cache.drop([clean])
    if cache.held([clean]) != 0:
        pytest.skip("this file system keeps its pages")
    clean.read_bytes()
    dirty.write_bytes(bytes(4 << 20))
    assert cache.held([clean, dirty]) == 1
    cache.drop([clean, dirty])
    assert cache.held([clean, dirty]) == 0


def test_how_much_is_cached_is_not_reported_of_others_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would call all of it present."""
    file = tmp_path / "x"
    file.write_bytes(b"x" * 5000)
    assert cache.held([file]) == 1
    monkeypatch.setattr("os.geteuid", lambda: file.stat().st_uid + 1)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert cache.held([file]) is None
    assert cache.held([]) is None


def test_an_empty_file_has_no_pages(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "full").write_bytes(b"x")
    assert cache.held([tmp_path / "empty"]) is None
    assert cache.held([tmp_path / "empty", tmp_path / "full"]) == 1


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"data": "coco"}, ("field 'data'", "'reads:build' cannot read 'coco'", "it reads time_series, wikitext2")),
        ({"data": None, "page_cache": "cold"}, ("field 'page_cache'", "names no data set")),
        ({"page_cache": "cool"}, ("field 'page_cache'", "unknown 'cool'", "cold")),
    ],
)
def test_what_cannot_be_read_is_refused(fields: dict[str, object], parts: tuple[str, ...], tmp_path: Path) -> None:
    write_profile(tmp_path / "p.json", a={**READS, **fields})
    one_line_error(benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path), "p.json", "job 'a'", *parts)
    assert not (tmp_path / "out").exists()


def test_a_model_that_reads_nothing_says_so(tmp_path: Path) -> None:
    write_profile(tmp_path / "p.json", a={"data": "mnist"})
    one_line_error(benchsuite("jobs", "p.json", cwd=tmp_path), "cannot read 'mnist'", "it reads no data set")
