"""`batch_size: auto`: the largest that fits, found by tries in processes of their own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support import (
    PROGRAMS,
    benchsuite,
    environ,
    in_process,
    one_line_error,
    read_results,
    side_by_side,
    start,
    wait_for,
    write_profile,
)

from benchsuite.launch.batchsize import MOST, TRIES, SearchError, Tried, search
from benchsuite.records import Failure
from benchsuite.searches import BatchProbe

GROWS = {"entry": "grows:build", "params": {"batch_size": "auto"}, "min_time_s": 0.6}


def bounded(most: int, failure: Failure | None = None) -> Callable[[int], Tried]:
    def attempt(size: int) -> Tried:
        fits = size <= most
        probe = BatchProbe(batch_size=size, fits=fits, device_bytes=None, host_bytes=size, elapsed_s=1.0)
        return Tried(probe) if fits else Tried(probe, "no more memory", failure)

    return attempt


@pytest.mark.parametrize("most", [1, 2, 3, 7, 31, 32, 100, 129, 1000, 1365, 65_537, 700_001])
@pytest.mark.parametrize("start", [1, 32, 128, 3000])
def test_what_is_found_fits_and_a_sixteenth_more_does_not(most: int, start: int) -> None:
    found = search(bounded(most), start)
    assert found.found <= most < found.found + max(2, found.found // 16 + 1)
    assert len(found.probes) <= TRIES
    assert len({probe.batch_size for probe in found.probes}) == len(found.probes), "nothing is tried twice"
    assert [p.fits for p in found.probes] == [p.batch_size <= most for p in found.probes]
    assert found.limit.endswith("no more memory")
    if found.found > 200:
        assert found.found % 8 == 0, "kernels are made for multiples of 8"


@pytest.mark.parametrize(("most", "start"), [(500, 64), (130, 64), (128, 3000)])
def test_no_batch_smaller_than_its_micro_batches_is_tried(most: int, start: int) -> None:
    found = search(bounded(most), start, least=128)
    assert found.found <= most < found.found + found.found // 16 + 2
    assert min(probe.batch_size for probe in found.probes) >= 128


def test_where_the_smallest_batch_does_not_fit_its_size_is_named() -> None:
    with pytest.raises(SearchError, match="not even batch_size 128 fits: no more memory"):
        search(bounded(100), 64, least=128)


def gpu(most: int, bytes_of: Callable[[int], int]) -> Callable[[int], Tried]:
    def attempt(size: int) -> Tried:
        fits = size <= most
        peak = bytes_of(size) if fits else None
        probe = BatchProbe(batch_size=size, fits=fits, device_bytes=peak, host_bytes=size, elapsed_s=1.0)
        return Tried(probe) if fits else Tried(probe, "no more memory")

    return attempt


@pytest.mark.parametrize(
    ("fixed", "each", "start", "tries"), [(0.6, 0.0844, 128, 4), (0.9, 0.0804, 64, 5), (20, 3.7, 8, 7), (60, 9, 1, 6)]
)
@pytest.mark.parametrize("usable", [0.93, 0.96, 0.98, 1.0])
def test_on_a_gpu_few_tries_are_needed_where_memory_grows_with_the_batch(
    fixed: float, each: float, start: int, tries: int, usable: float
) -> None:
    """The first two as ResNet-152 and -50 do (GiB, of an H200's 139.8); then batches of a few large items."""
    room = 139.8
    most = int((usable * room - fixed) / each)
    attempt = gpu(most, lambda size: int((fixed + each * size) * 2**30))
    found = search(attempt, start, int(room * 2**30))
    assert found.found <= most < found.found + max(2, found.found // 16 + 1)
    assert len(found.probes) <= min(tries, len(search(attempt, start).probes))


@pytest.mark.parametrize("most", [1, 3, 31, 129, 1365, 65_537, 5_000_000])
@pytest.mark.parametrize("start", [1, 128, 3000])
@pytest.mark.parametrize("grows", ["not", "square", "less", "late"])
def test_a_wrong_guess_of_memory_costs_tries_and_nothing_else(most: int, start: int, grows: str) -> None:
    ways: dict[str, Callable[[int], int]] = {
        "not": lambda size: 1000,
        "square": lambda size: size * size,
        "less": lambda size: 500 + size // 100,
        "late": lambda size: 1000 + max(0, size - 1000) * 1000,
    }
    found = search(gpu(most, ways[grows]), start, 1_000_000)
    assert len(found.probes) < TRIES
    assert len({probe.batch_size for probe in found.probes}) == len(found.probes), "nothing is tried twice"
    if most > MOST:
        assert found.found == MOST
    else:
        assert found.found <= most < found.found + max(2, found.found // 16 + 1)


def test_the_search_is_bounded() -> None:
    found = search(bounded(10 * MOST), 3)
    assert found.found == MOST
    assert found.limit == f"larger than {MOST:,} is not tried"
    assert search(bounded(10 * MOST), 3 * MOST).found == MOST


def test_not_even_one_fits() -> None:
    with pytest.raises(SearchError, match="not even batch_size 1 fits: no more memory"):
        search(bounded(0), 64)


def test_a_model_that_refuses_a_batch_is_tried_with_smaller_ones_but_a_broken_one_is_not() -> None:
    assert search(bounded(100, Failure(kind="model", message="over the data set")), 4096).found == 100
    with pytest.raises(SearchError, match="it is broken") as raised:
        search(bounded(0, Failure(kind="ValueError", message="it is broken")), 4096)
    assert raised.value.failure.kind == "ValueError"


def test_the_size_is_found_once_used_by_all_repeats_and_recorded(tmp_path: Path) -> None:
    write_profile(tmp_path / "p.json", a={**GROWS, "params": {"batch_size": "auto", "most": 5}})
    done = benchsuite("jobs", "p.json", "-o", "out", "--repeat", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is the largest that fits") == 1
    files = sorted((tmp_path / "out").glob("p.a.*.json"))
    for result in map(json.loads, (file.read_text() for file in files)):
        assert result["task"]["job"]["params"]["batch_size"] == 5
        tries = {probe[0]: probe[1] for probe in result["batch_search"]["probes"]}
        assert tries[5]
        assert not tries[6]
        assert result["batch_search"]["limit"] == "batch_size 6: batch_size 6 is over the 5 items that there are"
        slices = result["measurement"]["streams"][0]["slices"]
        assert all(items == 5 * steps for _, _, steps, items, _ in slices)
    assert len(files) == 2
    report = in_process("report", "--full", "out", cwd=tmp_path).stdout
    assert "a 5 (the largest that fits)" in report
    again = benchsuite("rerun", str(files[0]), "-o", "again.json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "again.json").read_text())["task"]["job"]["params"]["batch_size"] == 5


def test_a_resumed_run_has_the_size_of_its_first_repeat(tmp_path: Path) -> None:
    write_profile(tmp_path / "p.json", a={**GROWS, "params": {"batch_size": "auto", "most": 5}})
    assert benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path).returncode == 0
    done = benchsuite("jobs", "p.json", "-o", "out", "--resume", "--repeat", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "does not fit" not in done.stderr
    sizes = [json.loads(f.read_text())["task"]["job"]["params"]["batch_size"] for f in (tmp_path / "out").glob("p.a.*")]
    assert sizes == [5, 5]


def test_a_search_that_was_killed_is_made_again_by_a_resume(tmp_path: Path) -> None:
    write_profile(tmp_path / "p.json", a={**GROWS, "params": {"batch_size": "auto", "most": 5}})
    running = start("jobs", "p.json", "-o", "out", cwd=tmp_path, env=environ(), stderr=subprocess.PIPE)
    wait_for(lambda: len(list((tmp_path / "out" / "logs").glob("*.batch*.task.json"))) > 1)
    running.kill()
    running.communicate()
    done = benchsuite("jobs", "p.json", "-o", "out", "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_results(tmp_path / "out")["a"].task.job.params["batch_size"] == 5


def test_a_try_that_cannot_be_started_fails_its_job_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(PROGRAMS)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("benchsuite.launch.ledger.Ledger.began", full)
    params = {"batch_size": "auto", "most": 9, "fails": 100, "broken": False}
    found = side_by_side(tmp_path, monkeypatch, a={"entry": "grows:build", "params": params})["a"]
    assert found.status == "failed"
    assert found.error is not None
    assert "batch_size 4 could not be tried: [Errno 28] No space left on device" in found.error.message


def test_host_memory_that_ends_is_a_bound(tmp_path: Path) -> None:
    done = benchsuite(
        "run",
        "grows:build",
        "--",
        "--batch-size",
        "auto",
        "--fails",
        "5",
        "--min-time-s",
        "0.6",
        "--warm-up-s=0",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["batch_search"]["found"] == 5
    assert "MemoryError" in result["batch_search"]["limit"]


def test_on_a_cpu_no_batch_is_tried_that_would_take_the_hosts_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchsuite.launch.batch_tries.Tries._memory_bytes", lambda self: 160 << 20)
    params = {"batch_size": "auto", "most": 1_000_000, "fails": 1_000_000, "broken": False}
    monkeypatch.syspath_prepend(PROGRAMS)
    found = side_by_side(tmp_path, monkeypatch, a={"entry": "grows:build", "params": params, "min_time_s": 0.6})
    search = found["a"].batch_search
    assert search is not None
    assert "of the host's memory, of 0.2 GiB" in search.limit
    fitting = {probe.batch_size: probe.host_bytes for probe in search.probes if probe.fits}
    assert 0 < (fitting[search.found] or 0) < 0.85 * (160 << 20)
    assert len(fitting) > 2, "it went on for as long as there was room"
    assert found["a"].task.job.params["batch_size"] == search.found


def test_a_job_for_which_no_size_is_found_fails_with_the_reason(tmp_path: Path) -> None:
    write_profile(tmp_path / "p.json", a={**GROWS, "params": {"batch_size": "auto", "broken": True}}, b={})
    done = benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path)
    assert done.returncode == 1
    found = read_results(tmp_path / "out")
    assert (found["a"].status, found["b"].status) == ("failed", "ok")
    assert found["a"].error is not None
    assert found["a"].error.message == "broken for another reason"


def test_only_a_batch_size_may_be_auto(tmp_path: Path) -> None:
    write_profile(tmp_path / "p.json", a={"entry": "grows:build", "params": {"most": "auto"}})
    one_line_error(benchsuite("jobs", "p.json", cwd=tmp_path), "parameter 'most'", "expected int")
    write_profile(tmp_path / "p.json", a={"params": {"batch_size": "auto"}})
    one_line_error(benchsuite("jobs", "p.json", cwd=tmp_path), "has no parameter 'batch_size'")
