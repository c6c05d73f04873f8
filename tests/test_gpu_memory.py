"""The GPU memory that a job needs: known before it starts, and no part of what it trains."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from conftest import Call, keep_run, make_gpu, make_result, make_run, make_task

from benchsuite.describe import profile
from benchsuite.describe.overrides import Overrides
from benchsuite.describe.plan import make_plan
from benchsuite.describe.tasks import Gpu, Job, Task
from benchsuite.measurement import Measurement, PeakMemory
from benchsuite.report.verify.check import check

SUITE = "vae:\n  model: vae\n  gpu_memory_gib: 33\nother:\n  model: vae\n"


def suite(folder: Path, text: str = SUITE) -> str:
    (folder / "suite.yaml").write_text(text, encoding="utf-8")
    return str(folder / "suite.yaml")


def tasks(path: str, gib: float | None, *changes: str) -> list[Task]:
    """The tasks of a profile on one GPU with this memory."""
    gpu: Gpu = msgspec.structs.replace(make_gpu(), memory_bytes=None if gib is None else int(gib * 2**30))
    loaded = profile.load(path, overrides=Overrides.parse(changes))
    return list(make_plan("suite", loaded.jobs, [gpu], environ={}).tasks)


def test_a_task_on_a_gpu_that_is_too_small_is_skipped_with_a_remedy(tmp_path: Path) -> None:
    too_large, other = tasks(suite(tmp_path), 24)
    assert too_large.skip == (
        "the job needs 33 GiB of GPU memory, and GPU 0 has 24.0 GiB: lower its batch size (-- --batch-size N), "
        "or leave the job out (--exclude)"
    )
    assert other.skip is None


@pytest.mark.parametrize("gib", [33, 80, None])
def test_a_task_on_a_gpu_that_is_large_enough_or_of_unknown_size_is_not(gib: float | None, tmp_path: Path) -> None:
    assert [task.skip for task in tasks(suite(tmp_path), gib)] == [None, None]


@pytest.mark.parametrize("change", ["--batch-size=8", "--precision=bf16", "--batch-size=auto"])
def test_a_change_of_what_is_trained_drops_the_need(change: str, tmp_path: Path) -> None:
    assert tasks(suite(tmp_path), 24, change)[0].skip is None


def test_a_change_of_the_time_or_of_the_need_itself_does_not(tmp_path: Path) -> None:
    assert tasks(suite(tmp_path), 24, "--max-time-s=30", "--min-time-s=8")[0].skip
    own = tasks(suite(tmp_path), 24, "--batch-size=8", "--gpu-memory-gib=25")[0].skip
    assert own and own.startswith("the job needs 25 GiB")


def test_the_need_is_no_part_of_the_work(tmp_path: Path) -> None:
    path = suite(tmp_path)
    declared, bare = profile.load(path), profile.load(suite(tmp_path, SUITE.replace("  gpu_memory_gib: 33\n", "")))
    assert declared.jobs != bare.jobs and declared.sha256 == bare.sha256
    text = Path("profiles/5gb.json").read_text(encoding="utf-8")
    assert '"gpu_memory_gib": 4.3' in text
    changed = profile.of_text(text.replace('"gpu_memory_gib": 4.3', '"gpu_memory_gib": 5'), tmp_path / "5gb.json")
    assert changed.official


def test_the_list_and_the_dry_run_show_the_need(call: Call, tmp_path: Path) -> None:
    assert "    translator: translator, fp32, needs 6.4 GiB of GPU memory\n" in call("list", "profiles")[1]
    fake = suite(tmp_path, SUITE.replace("model: vae\n  gpu", "model: vae\n  placement: per_gpu_or_cpu\n  gpu"))
    assert "# needs 33 GiB of GPU memory" in call("jobs", fake, "--name", "vae", "--dry-run")[1]


def test_a_need_that_is_too_low_is_noted_by_verify(tmp_path: Path) -> None:
    job = Job(name="vae", model="vae", gpu_memory_gib=2.0)
    result = make_result(task=make_task(job=job))
    stream = msgspec.structs.replace(
        result.measurement.streams[0], peak_memory=PeakMemory(device_reserved_bytes=3 * 2**30)
    )
    keep_run(
        tmp_path / "run", [msgspec.structs.replace(result, measurement=Measurement(streams=(stream,)))], run=make_run(1)
    )
    found = [finding for of in check(tmp_path / "run").values() for finding in of if finding.about == "GPU memory"]
    assert [finding.text for finding in found] == [
        "the profile's gpu_memory_gib is too low: vae needs 2 GiB and reserved 3.00"
    ]
