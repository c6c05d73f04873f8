"""Use of GPUs, memory and energy by job; what std% is made of; what a unit of score costs."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Call, keep_results, keep_run, make_gpu, make_result, make_run, make_task
from made_telemetry import make_device, make_telemetry, stolen_from
from outputs import line_of, summary_for, text_of, unwrapped

from benchsuite.describe.tasks import Job, Placement
from benchsuite.measurement import Measurement, PeakMemory
from benchsuite.provisions import Pressure, Tenant
from benchsuite.records import Result
from benchsuite.report.read.summary import JobSummary
from benchsuite.report.read.summary_file import read_summary
from benchsuite.report.read.use import StdParts, Use


def used(rate: float = 100.0, gpu: int = 0, *, reserved: int = 2**33, device: Any = None, **fields: Any) -> Result:
    """A result with telemetry and peaks of memory."""
    telemetry = make_telemetry(device or make_device(gpu))
    result = make_result(rates=[rate] * 30, gpu=gpu, **{"telemetry": telemetry, **fields})
    peaks = PeakMemory(device_allocated_bytes=1, device_reserved_bytes=reserved, host_rss_bytes=2**31)
    streams = tuple(msgspec.structs.replace(s, peak_memory=peaks) for s in result.measurement.streams)
    return msgspec.structs.replace(result, measurement=Measurement(streams=streams))


def job_of(folder: Path, *results: Result) -> JobSummary:
    (job,) = summary_for(folder, *results).jobs
    return job


def use_of(folder: Path, *results: Result) -> Use:
    use = job_of(folder, *results).use
    assert use is not None
    return use


def test_figures_of_a_job(tmp_path: Path) -> None:
    busy = make_device(0, {"gpu_percent": 99.0, "sm_percent": None}, {"sw_power_cap": 6.0, "sw_thermal": 1.5})
    use = use_of(tmp_path, used(device=busy), used(300.0, 1, reserved=2**34))
    assert (use.tasks, use.gpu_percent, use.sm_percent, use.tensor_percent) == (2, 98.0, 83.0, 12.0)
    assert (use.device_reserved_bytes, use.host_rss_bytes) == (2**34, 2**31)
    # By the counter, 9750 J in 15 s, and not by the gauge, which says 640 W.
    assert use.power_w == 650.0
    assert use.items_per_joule == pytest.approx(400 / 1300)
    # Of 30 s that were watched on two GPUs.
    assert use.clock_events == pytest.approx({"sw_power_cap": 0.2, "sw_thermal": 0.05})
    assert use.watched_s == 30.0


def test_items_per_joule_are_work_over_energy_and_no_mean_of_ratios(tmp_path: Path) -> None:
    use = use_of(tmp_path, used(100.0), used(300.0, 1, device=make_device(1, energy_j=1500.0)))
    assert use.items_per_joule == pytest.approx(400 / 750)


@pytest.mark.parametrize(
    "counter", [{"energy_j": None}, {"energy_span_s": None}, {"energy_j": 0.0}, {"energy_j": 0.0, "energy_span_s": 0.0}]
)
def test_without_a_counter_there_is_power_but_no_energy(tmp_path: Path, counter: dict[str, float | None]) -> None:
    use = use_of(tmp_path, used(device=make_device(0, **counter)))
    assert (use.power_w, use.items_per_joule) == (640.0, None)


def test_copies_share_the_power_of_their_gpu(tmp_path: Path) -> None:
    job = Job(name="vae", model="vae", sharing="concurrent", copies=2)
    tasks = [msgspec.structs.replace(make_task(), id=f"vae.J0.0.{c}", job=job, copy=c) for c in range(2)]
    summary = summary_for(tmp_path, *(used(100.0, task=task) for task in tasks))
    (kept,) = summary.jobs
    assert [task.use.items_per_joule for task in kept.tasks if task.use] == [None, None]
    assert kept.use is not None
    assert kept.use.items_per_joule == pytest.approx(200 / 650)


def test_a_group_divides_by_the_power_of_all_its_gpus(tmp_path: Path) -> None:
    job = Job(name="vae", model="vae", placement=Placement(devices="progression"))
    task = make_task(job=job, gpus=(make_gpu(0), make_gpu(1)), ranks=2)
    result = used(400.0, task=task, telemetry=make_telemetry(make_device(0), make_device(1)))
    (kept,) = summary_for(tmp_path, result).jobs
    assert kept.perf == 200.0
    assert kept.use is not None
    assert kept.use.items_per_joule == pytest.approx(400 / 1300)


def test_only_ok_tasks_count(tmp_path: Path) -> None:
    broken = make_result(gpu=1, status="oom", rates=(), telemetry=make_telemetry(make_device(1, {"gpu_percent": 1.0})))
    use = use_of(tmp_path, used(), broken)
    assert (use.tasks, use.gpu_percent) == (1, 97.0)


def test_waiting_for_cpus(tmp_path: Path) -> None:
    # The made timeline is from 1 s to 1020 s.
    tenant = Tenant(asked="share", reason="v2", throttled_s=101.9, pressure=Pressure(cpu_some_s=509.5))
    use = use_of(tmp_path, used(tenant=tenant))
    assert (use.cpu_waiting, use.cpu_throttled) == (pytest.approx(0.5), pytest.approx(0.1))


def stolen(share: float | None, gpu: int = 0, **fields: Any) -> Result:
    return used(gpu=gpu, telemetry=make_telemetry(make_device(gpu), tenant=stolen_from(share)), **fields)


def test_what_a_hypervisor_withheld(tmp_path: Path) -> None:
    summary = summary_for(tmp_path / "a", stolen(0.03), stolen(0.09, 1))
    assert summary.jobs[0].use
    assert summary.jobs[0].use.cpu_stolen == pytest.approx(0.06)
    assert "Stolen CPU a hypervisor withheld processor time that jobs wanted: vae 6.0 %" in unwrapped(text_of(summary))
    for number, share in enumerate((0.004, 0.0, None)):
        assert "Stolen CPU" not in text_of(summary_for(tmp_path / f"b{number}", stolen(share)))


def test_stolen_time_is_named_where_a_window_is_not_steady(tmp_path: Path) -> None:
    telemetry = make_telemetry(make_device(), tenant=stolen_from(0.25))
    wild, calm = [50.0] * 19 + [150.0] * 11, [100.0] * 30
    results = [make_result(rates=rates, repeat=n, telemetry=telemetry) for n, rates in enumerate((wild, calm))]
    first, second = job_of(tmp_path, *results).tasks
    assert first.unsteady[-1] == "a hypervisor withheld 25.0 % of its processors' time"
    assert len(first.unsteady) > 1
    assert (second.steady, second.unsteady) == (True, ())


def test_without_telemetry_all_is_null(tmp_path: Path) -> None:
    job = job_of(tmp_path, make_result(gpu=None), make_result(gpu=None, repeat=1))
    assert job.use is None
    assert job.tasks[0].use is None
    assert job.perf_unthrottled is None
    assert "Use of the GPUs" not in text_of(summary_for(tmp_path / "b", make_result(gpu=None)))


def test_memory_alone_is_kept_but_no_table(tmp_path: Path) -> None:
    results = [used(telemetry=None)]
    use = use_of(tmp_path, *results)
    assert (use.host_rss_bytes, use.gpu_percent, use.clock_events) == (2**31, None, None)
    assert "Use of the GPUs" not in text_of(summary_for(tmp_path / "b", *results))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits(tmp_path: Path, width: int) -> None:
    device = make_device(0, events={"sw_thermal": 1.5, "hw_slowdown": 3.0, "sw_power_cap": 6.0})
    results = [
        used(200 + 2 * g + 2 * r, g, repeat=r, device=device if g == 0 else None) for r in range(2) for g in range(2)
    ]
    text = text_of(summary_for(tmp_path, *results), width=width)
    assert all(len(line) <= width for line in text.splitlines())
    section = text[text.index("Use of the GPUs") :]
    assert all(word in section for word in ("hw_slowdown", "10.0 %", "sw_thermal"))
    assert ("Not shown for want of width" in " ".join(section.split())) is (width < 120)
    if width == 120:
        row = line_of(section[: section.index("Slowed by")], "vae ")
        assert row[:8] == ["vae", "97", "83", "12", "8.00", "650", "0.31", "20.0"]
        assert row[-3:] == ["0.5", "0.5", "0.0"]


def test_a_column_that_nothing_tells_is_left_out(tmp_path: Path) -> None:
    older = make_device(0, {"sm_percent": None, "tensor_percent": None}, clock_events_s=None, clock_events_span_s=None)
    text = text_of(summary_for(tmp_path, used(device=older)))
    header = next(line for line in text.splitlines() if "util %" in line)
    assert "SM %" not in header
    assert "repeats" not in header
    assert line_of(text[text.index("util %") :], "vae ")[-1] == "n/a"


def test_no_throttling_is_said(tmp_path: Path) -> None:
    text = text_of(summary_for(tmp_path, used()))
    assert line_of(text[text.index("util %") :], "vae ")[-1] == "none"


# --- what std% is made of


def perfs(folder: Path, table: dict[tuple[int, int], float | None]) -> JobSummary:
    """A job whose tasks (repeat, GPU) have these rates; None is a failure."""
    results = [
        make_result(repeat=r, gpu=g, rates=(), status="oom")
        if x is None
        else make_result(repeat=r, gpu=g, rates=[x] * 30)
        for (r, g), x in table.items()
    ]
    return job_of(folder, *results)


def test_the_parts_add_up(tmp_path: Path) -> None:
    table: dict[tuple[int, int], float | None] = {
        (r, g): 100 + (0, 4, -6, 2)[g] + (0, 6, -2)[r] + 2 * ((r * g) % 3) for r in range(3) for g in range(4)
    }
    job = perfs(tmp_path, table)
    parts = job.std_parts
    assert parts is not None and job.std is not None
    assert None not in (parts.gpus, parts.repeats, parts.rest)
    assert math.hypot(parts.gpus or 0, parts.repeats or 0, parts.rest or 0) == pytest.approx(job.std)
    means = [statistics.fmean(table[r, g] or 0 for r in range(3)) for g in range(4)]
    assert parts.gpus == pytest.approx(statistics.pstdev(means) / statistics.fmean(means))
    assert parts.complete == 3


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        ({(0, 0): 90, (0, 1): 110}, StdParts(gpus=0.1, complete=1)),
        ({(0, 0): 90, (1, 0): 110}, StdParts(repeats=0.1, complete=2)),
        ({(0, 0): 90, (0, 1): 110, (1, 0): 90, (1, 1): 110}, StdParts(gpus=0.1, repeats=0.0, rest=0.0, complete=2)),
        # The repeat with a failure says nothing on which GPU is slow.
        ({(0, 0): 90, (0, 1): 110, (1, 0): 50, (1, 1): None}, StdParts(gpus=0.1, complete=1)),
        # A GPU that never was ok is none of them.
        ({(0, 0): 90, (0, 1): None, (1, 0): 110, (1, 1): None}, StdParts(repeats=0.1, complete=2)),
        ({(0, 0): 90, (0, 1): None, (1, 0): None, (1, 1): 110}, None),
        ({(0, 0): 100}, None),
        ({(0, 0): 0, (0, 1): 0}, None),
    ],
)
def test_parts_that_are_unknown(
    tmp_path: Path, table: dict[tuple[int, int], float | None], parts: StdParts | None
) -> None:
    assert perfs(tmp_path, table).std_parts == parts


# --- price


def test_the_price_of_a_score(call: Call, tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [make_result(rates=[50] * 30, gpu=gpu) for gpu in range(2)])
    code, out, err = call("report", "--full", tmp_path / "run", "--price", "30000")
    assert (code, err) == (0, "")
    assert line_of(out, "Price / machine score")[4:8] == ["300.0", "30,000", "/", "100.0"]
    assert "Price" not in call("report", "--full", tmp_path / "run")[1]


def test_no_score_has_no_price(call: Call, tmp_path: Path) -> None:
    keep_results(tmp_path, [make_result(rates=(), status="oom")])
    out = call("report", "--full", tmp_path, "--price", "1")[1]
    why = "n/a none: no machine score over all jobs"
    assert " ".join(line_of(out, "Price / machine score")[4:]) == why


@pytest.mark.parametrize("price", ["0", "-1", "nan", "inf"])
def test_a_price_that_is_none_is_refused(call: Call, tmp_path: Path, price: str) -> None:
    keep_results(tmp_path, [make_result()])
    code, out, err = call("report", "--full", tmp_path, f"--price={price}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "'--price': must be a number above 0" in err


def test_an_older_summary_is_still_read(call: Call, tmp_path: Path) -> None:
    """The new fields are optional."""
    keep_run(tmp_path / "run", [used()])
    assert call("summary", tmp_path / "run", "-o", tmp_path / "s.json")[0] == 0
    kept = read_summary(tmp_path / "s.json")
    assert kept.jobs[0].use is not None
    content = msgspec.json.decode((tmp_path / "s.json").read_bytes())
    for job in content["jobs"]:
        for name in ("use", "std_parts", "perf_unthrottled"):
            del job[name]
        for task in job["tasks"]:
            for name in (
                "use",
                "gpus",
                "drift",
                "drift_half",
                "settled_s",
                "change",
                "error",
                "unsteady",
                "spread_half",
            ):
                del task[name]
    (tmp_path / "old.json").write_bytes(msgspec.json.encode(content))
    assert "Use of the GPUs" in call("report", "--full", tmp_path / "s.json", "--compare-gpus")[1]
    code, out, _ = call("report", "--full", tmp_path / "old.json", "--compare-gpus")
    assert code == 0
    assert "does not name its tasks' GPUs" in out


def lost(from_s: float, gpu: int = 0, **fields: Any) -> Result:
    """A result of a GPU that was lost at this second of its 15."""
    spans = {"unsampled": ((from_s, 15.0),), "reasons": {"samples": "gpu is lost"}}
    return used(gpu=gpu, device=make_device(gpu, {"gpu_percent": 1.0}, **spans), **fields)


def test_a_gpu_lost_in_mid_run_is_said_in_the_first_lines(tmp_path: Path) -> None:
    text = unwrapped(text_of(summary_for(tmp_path, lost(2.0), used(gpu=1))))
    words = "vae.J0.0, GPU 0: nothing sampled from 2 s on of the 15 s of its window: gpu is lost"
    assert words in text
    assert "GPUs were not sampled throughout in 1 task" in text
    assert text.index(words) < text.index("Profile")
    assert "not sampled" not in text_of(summary_for(tmp_path / "well", used()))


@pytest.mark.parametrize(("from_s", "counts"), [(14.0, True), (8.0, True), (7.0, False), (2.0, False)])
def test_samples_of_less_than_half_a_window_count_in_no_figure(tmp_path: Path, from_s: float, counts: bool) -> None:
    use = use_of(tmp_path, lost(from_s), used(gpu=1))
    assert (use.gpu_percent, use.watched_s) == ((49.0, 30.0) if counts else (97.0, 15.0))
    assert use.items_per_joule == pytest.approx(200 / 1300 if counts else 100 / 650)


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ("CUDA_VISIBLE_DEVICES='0,-1,1' names no GPU of this machine at '-1'", True),
        ("NVML: GPU 3 does not answer and is left out: gpu is lost", True),
        ("NVML: driver not loaded", True),
        ("NVML lists no GPU", False),
        ("NVML: nvml shared library not found", False),
        (None, False),
    ],
)
def test_gpus_that_are_not_used_are_said_in_the_first_lines(tmp_path: Path, note: str | None, said: bool) -> None:
    (machine,) = make_run().machines
    run = make_run(machines=(msgspec.structs.replace(machine, gpu_note=note),))
    text = unwrapped(text_of(summary_for(tmp_path, used(), used(gpu=1), run=run)))
    assert (f"GPUs: {note}." in text) == said
    assert note is None or f"2 used of 2 present; {note}" in text
