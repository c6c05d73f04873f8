"""Where warm-up ends, drift, the window's error, spread, and perf without the slices that were slowed.

`scripts/bench/steadiness.py` counts right answers on many more kinds of runs.
"""

from __future__ import annotations

import math
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import keep_run, make_gpu, make_result, make_slices, make_task
from made_telemetry import make_device, make_samples, make_telemetry
from outputs import summary_for, text_of

from benchsuite.describe.tasks import Job, Placement
from benchsuite.host.series import write_series
from benchsuite.measurement import Measurement, Slice
from benchsuite.report.measure.steadiness import (
    SMALL_CHANGE,
    UNKNOWN,
    Steadiness,
    drift,
    last_change,
    least_steady,
    spread,
    steadiness,
)
from benchsuite.report.measure.window import window_slices
from benchsuite.report.measure.window_error import Estimate, regular_pauses, student_t
from benchsuite.report.read.load import load
from benchsuite.report.read.samples import read_samples
from benchsuite.report.read.summary import JobSummary, TaskSummary
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.stats.verdict import MARGIN


def noisy(rates: Sequence[float], noise: float = 0.01, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    # A thousand times faster, so that whole items say what they should.
    return [1000 * rate * (1 + draw.gauss(0, noise)) for rate in rates]


def judge(rates: Sequence[float]) -> Steadiness:
    slices = make_slices(rates)
    return steadiness(slices, window_slices(slices))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("rates", "settled_s", "change", "reported"),
    [
        ([100] * 30, 0.0, None, ""),
        ([40] * 4 + [100] * 26, 2.0, 1.5, ""),
        ([60] * 13 + [100] * 17, 6.5, 0.67, "the rate rose by 6"),
        ([100] * 18 + [85] * 12, 9.0, -0.15, "the rate fell by 1"),
        # Boost clocks at first: a fall that is over before the window begins.
        ([110] * 6 + [100] * 24, 3.0, -0.09, ""),
        # A change of level, but of no account.
        ([99] * 15 + [100] * 15, 0.0, None, ""),
        # One odd slice right behind a fall is no level from which a rate could rise.
        ([110] * 23 + [88] + [100] * 6, 11.5, -0.1, "the rate fell by"),
        # A single odd slice is no level.
        ([100] * 15 + [92] + [100] * 14, 0.0, None, ""),
    ],
)
def test_the_last_change_of_level(
    rates: list[float], settled_s: float, change: float | None, reported: str, seed: int
) -> None:
    found = judge(noisy(rates, 0.005, seed))
    assert found.settled_s == settled_s
    assert found.change == (None if change is None else pytest.approx(change, abs=0.02))
    assert found.steady is not bool(reported)
    assert reported in "; ".join(found.why_not)


@pytest.mark.parametrize(("df", "interval", "sure"), [(3, 3.182, 5.841), (4, 2.776, 4.604), (16, 2.120, 2.921)])
def test_intervals_hold_95_percent_and_a_drift_is_held_to_1_percent(df: int, interval: float, sure: float) -> None:
    """The quantiles are from tables of Student's t."""
    assert Estimate(1.0, 1.0, df).half == pytest.approx(interval, abs=0.001)
    assert Estimate(1.001 * sure, 1.0, df).significant
    assert not Estimate(0.999 * sure, 1.0, df).significant


@pytest.mark.parametrize("df", [1, 2, 8, 1000])
def test_an_interval_is_compared_with_the_margin_as_its_half_width_is(df: int) -> None:
    for error in (0.001, 0.0016, 0.005, 0.0098, 0.0101, 0.0103, 0.05):
        assert Estimate(1.0, error, df).is_wider_than(0.02) is (student_t(df, 0.975) * error > 0.02)


def test_a_ramp_is_followed_to_its_end() -> None:
    found = judge(noisy([10, 40, 60, 70, 80, 90] + [100] * 24))
    assert found.settled_s == pytest.approx(2.5, abs=0.5)
    assert found.steady


def test_the_rate_of_an_idle_beginning() -> None:
    found = last_change(make_slices([0.0] * 5 + [100.0] * 25))
    assert found is not None
    assert found.at_s == 2.5


@pytest.mark.parametrize("per_10_s", [-0.08, 0.05])
def test_drift_and_its_interval_hold_the_truth(per_10_s: float) -> None:
    covered = 0
    for seed in range(200):
        rates = noisy([100 * (1 + per_10_s * (0.25 + 0.5 * i - 9) / 10) for i in range(36)], 0.01, seed)
        found = drift(make_slices(rates))
        assert found is not None
        covered += abs(found.value - per_10_s) <= found.half
    # 95 % of 200 within three standard errors.
    assert 180 <= covered <= 199


def test_a_drift_is_reported_with_its_figures() -> None:
    found = judge(noisy([100 - 0.4 * i for i in range(30)], 0.002))
    assert found.drift is not None
    assert found.drift.value == pytest.approx(-0.086, abs=0.004)
    assert any(why.startswith("drifts by -8.") and " ± " in why and "% per 10 s: raise" in why for why in found.why_not)


def test_spread_has_an_interval() -> None:
    covered = 0
    for seed in range(200):
        found = spread(make_slices(noisy([100] * 18, 0.05, seed)))
        assert found is not None
        covered += abs(found.value - 0.05) <= found.half
    # 95 % of 200 within three standard errors.
    assert 180 <= covered <= 199


@pytest.mark.parametrize(("noise", "most"), [(0.005, 0.04), (0.02, 0.04), (0.03, 0.08)])
def test_steady_series_are_seldom_called_unsteady(noise: float, most: float) -> None:
    """The last is near the margin: 3 % of noise is an error of 1.4 % over 18 slices."""
    false = sum(not judge(noisy([100] * 30, noise, seed)).steady for seed in range(400))
    assert false <= most * 400


def test_a_late_warm_up_is_nearly_always_found() -> None:
    found = [judge(noisy([95] * 16 + [100] * 14, 0.01, seed)) for seed in range(100)]
    assert sum(one.inside for one in found) >= 99


@pytest.mark.parametrize("rates", [[], [100.0], [0.0] * 30])
def test_what_is_unknown_is_not_reported(rates: list[float]) -> None:
    found = steadiness(make_slices(rates), make_slices(rates))
    assert (found.drift, found.spread, found.change) == (None, None, None)
    assert not found.steady
    assert found.why_not == ("a single slice, or no items: its error is unknown; raise min_time_s",)
    assert found.settled_s == (0.0 if len(rates) > 4 else None)


@pytest.mark.parametrize("scale_s", [1e-300, 1e300])
def test_numbers_beyond_measurement_stop_nothing(tmp_path: Path, scale_s: float) -> None:
    slices = tuple(Slice(start_s=i * scale_s, end_s=(i + 1) * scale_s, steps=1, items=2**62) for i in range(30))
    result = make_result()
    stream = msgspec.structs.replace(result.measurement.streams[0], slices=slices)
    odd = msgspec.structs.replace(result, measurement=Measurement(streams=(stream,)))
    assert summary_for(tmp_path, odd).jobs[0].n == 1


# --- the window's error


def errors(rates: Callable[[random.Random], list[float]], times: int = 200) -> list[Steadiness]:
    return [judge([1000 * rate for rate in rates(random.Random(seed))]) for seed in range(times)]


def correlated(draw: random.Random, sd: float, keep: float) -> list[float]:
    """AR(1) around 100; `keep` is the correlation of neighbours."""
    level, out = draw.gauss(0, 1), []
    for _ in range(30):
        level = keep * level + math.sqrt(1 - keep**2) * draw.gauss(0, 1)
        out.append(100 * (1 + sd * level))
    return out


@pytest.mark.parametrize(("keep", "least"), [(0.0, 0.92), (0.4, 0.82), (-0.6, 0.92)])
def test_the_error_covers_the_long_run_rate(keep: float, least: float) -> None:
    """95 % for slices without correlation or with a negative one; less for those that wander: few slices hide it."""
    covered = 0
    for seed in range(200):
        slices = make_slices([1000 * rate for rate in correlated(random.Random(seed), 0.03, keep)])
        inside = window_slices(slices)
        error = steadiness(slices, inside).error
        assert error is not None
        covered += abs(sum(s.items for s in inside) / sum(s.elapsed_s for s in inside) / 100_000 - 1) <= error
    assert least <= covered / 200 <= 0.995


def test_the_margin_of_a_comparison_divides_good_from_bad() -> None:
    assert SMALL_CHANGE == MARGIN
    wide = [judge(noisy([100] * 30, 0.08, seed)) for seed in range(100)]
    assert sum(one.steady for one in wide) <= 5
    assert any("its rate is known only to ± 3." in why and "more repeats" in why for one in wide for why in one.why_not)


def test_noise_that_wanders_leaves_more_error_than_noise_that_catches_up() -> None:
    wandering, white, catching_up = (
        statistics.median(one.error or 0.0 for one in errors(partial(correlated, sd=0.03, keep=keep), 50))
        for keep in (0.6, 0.0, -0.6)
    )
    assert wandering > 1.3 * white
    assert white > 1.5 * catching_up


@pytest.mark.parametrize(("each", "least", "most"), [(1, 0.0, 0.02), (2, 0.0, 0.05), (8, 0.98, 1.0)])
def test_two_levels_are_flagged_if_they_change_slowly(each: int, least: float, most: float) -> None:
    def turns(draw: random.Random) -> list[float]:
        first = draw.randrange(2 * each)
        return [(93 if (first + i) // each % 2 else 107) * (1 + draw.gauss(0, 0.01)) for i in range(30)]

    flagged = [not one.steady for one in errors(turns)]
    assert least <= statistics.fmean(flagged) <= most


def test_short_last_batches_of_epochs_are_not_taken_for_random_pauses() -> None:
    def epoch_ends(draw: random.Random) -> list[float]:
        first = draw.randrange(7)
        return [100 * (0.8 if (first + i) % 7 == 0 else 1) * (1 + draw.gauss(0, 0.005)) for i in range(30)]

    def at_random(draw: random.Random) -> list[float]:
        return [100 * (0.8 if draw.random() < 1 / 7 else 1) * (1 + draw.gauss(0, 0.005)) for _ in range(30)]

    assert statistics.fmean(not one.steady for one in errors(epoch_ends)) <= 0.05
    assert statistics.fmean(not one.steady for one in errors(at_random)) >= 0.8


def test_pauses_are_regular_or_not() -> None:
    flat = [0.1, 0.2] * 10
    for places, regular in (((3, 9, 15), True), ((3, 4, 9, 15), True), ((3, 6, 15), False), ((3, 9), False)):
        series = [-2.0 if i in places else one for i, one in enumerate(flat)]
        found = regular_pauses(series, [1.0] * 20)
        assert (found is not None) is regular, places
    assert regular_pauses(flat, [1.0] * 20) is None


@pytest.mark.parametrize("for_s", [0.5, 1.0, 3.0])
def test_a_stall_in_the_window_is_flagged_and_before_it_is_not(for_s: float) -> None:
    def run(stalled: int) -> Steadiness:
        at, slices = 0.0, []
        for i, rate in enumerate(noisy([100] * 60, 0.01)):
            end_s = at + 0.5 + for_s * (i == stalled)
            slices.append(Slice(start_s=at, end_s=end_s, steps=1, items=round(rate / 2)))
            at = end_s
        return steadiness(slices, window_slices(slices))

    (why,) = run(50).why_not
    assert f"{for_s:.1f} s were lost at 25.0 s; repeat on a quiet machine" in why
    assert run(20).steady


@pytest.mark.parametrize("slices", [2, 3, 5])
def test_few_slices_know_little(slices: int) -> None:
    """95 % intervals of so few figures are wide: 12.7 standard errors for two."""
    far = make_slices([100_000, 103_000, 98_000, 101_000, 99_000][:slices])
    near = make_slices([100_000, 100_030, 99_980, 100_010, 99_990][:slices])
    assert not steadiness(far, far).steady or slices == 5
    assert steadiness(near, near).steady


def test_the_least_steady_rank_has_the_largest_error() -> None:
    calm, wild = (judge(noisy([100] * 30, noise)) for noise in (0.001, 0.02))
    assert least_steady([calm, wild]) is wild
    assert least_steady([calm, UNKNOWN, wild]) is UNKNOWN


def test_no_library_is_imported_before_a_window_is_judged() -> None:
    code = "import sys, benchsuite.report.measure.window; print({'numpy', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# --- in the report


def test_the_table_flags_and_explains(tmp_path: Path) -> None:
    late = make_result(rates=noisy([60] * 13 + [100] * 17))
    text = text_of(summary_for(tmp_path, late, make_result(gpu=1, rates=noisy([100] * 30))))
    assert any("1 of 2" in line and line.startswith("vae") for line in text.splitlines()[:14])
    assert " % at 6.5 s" in text
    assert all(len(line) <= 120 for line in text.splitlines())
    assert "unsteady" not in text_of(summary_for(tmp_path / "b", make_result())).lower()


def test_a_summary_keeps_the_figures(tmp_path: Path) -> None:
    (task,) = summary_for(tmp_path, make_result(rates=noisy([60] * 13 + [100] * 17))).jobs[0].tasks
    assert (task.settled_s, task.change) == (6.5, pytest.approx(0.67, abs=0.02))
    assert task.drift is not None and task.drift_half is not None and task.spread_half is not None
    assert "inside the window" in task.unsteady[0]
    assert task.error is not None and 0.1 < task.error < 0.4
    assert "± " in text_of(summary_for(tmp_path / "again", make_result(rates=noisy([60] * 13 + [100] * 17))))


def test_slices_that_spread_and_average_out_are_a_note(tmp_path: Path) -> None:
    summary = summary_for(tmp_path, make_result(rates=noisy([85, 115] * 15)), make_result(gpu=1))
    (job,) = summary.jobs
    assert (job.unsteady, job.tasks[0].steady, job.tasks[0].unsteady) == (0, True, ())
    assert job.tasks[0].spread == pytest.approx(0.15, abs=0.01)
    text = " ".join(text_of(summary).split())
    assert "Slice rates spread by more than 10 %, but average out to 2 % or less, in vae (1 task, up to 15." in text
    assert "nsteady" not in text


# --- without the slices that were slowed

# Rates of 30 slices of 0.5 s from 1000 s on; the window is [1005, 1014]. From 1010 s on the clocks were low.
RATES = [100.0] * 20 + [80.0] * 10
QUIET: list[tuple[str, ...]] = [("sw_power_cap",)] * 11
SLOW: list[tuple[str, ...]] = [("sw_thermal", "sw_power_cap")] * 7


def slowed(
    folder: Path,
    events: Sequence[Sequence[str]] | None,
    *,
    seconds: float = 5.0,
    series: str | None = "telemetry/vae.jsonl",
    **more: Any,
) -> tuple[JobSummary, TaskSummary]:
    """A run with one task of RATES on GPU 0, slowed for so long, and these samples, and a steady one on GPU 1."""
    device = make_device(0, events={"sw_thermal": seconds, "sw_power_cap": 9.0})
    result = make_result(rates=RATES, telemetry=make_telemetry(device, series=series), **more)
    keep_run(folder, [result, make_result(gpu=1)])
    if events is not None:
        write_series(folder / "telemetry" / "vae.jsonl", [(make_gpu(0), make_samples(events), {})])
    (job,) = summarise(load(folder)).jobs
    return job, job.tasks[0]


def test_perf_as_delivered_and_without(tmp_path: Path) -> None:
    job, task = slowed(tmp_path / "run", QUIET + SLOW)
    assert task.perf == pytest.approx((5 * 100 + 4 * 80) / 9)
    # The sample at 1009 s holds until that of 1010 s: ten slices are clean.
    assert task.perf_unthrottled == 100.0
    assert (job.tasks[1].perf_unthrottled, job.tasks[1].unthrottled_reason) == (None, None)
    assert job.perf_unthrottled == 100.0
    text = text_of(summarise(load(tmp_path / "run")))
    (line,) = (line for line in text.splitlines() if "1 of 2" in line and "100.0  image/s" in line)
    assert line.split()[:3] == ["vae", f"{job.perf:.2f}", "100.0"]


def test_a_power_cap_is_normal(tmp_path: Path) -> None:
    # The samples would say otherwise: they are not read.
    job, task = slowed(tmp_path / "run", SLOW * 3, seconds=0.0)
    assert (job.perf_unthrottled, task.perf_unthrottled, task.unthrottled_reason) == (None, None, None)
    assert "Slowed" not in text_of(summarise(load(tmp_path / "run")))


@pytest.mark.parametrize(
    ("events", "series", "why"),
    [
        (None, "telemetry/vae.jsonl", "cannot be read: no such file"),
        (None, None, "were not kept"),
        (QUIET, "../vae.jsonl", "is no file of telemetry/"),
        (QUIET, "telemetry/..", "is no file of telemetry/"),
        (QUIET, "/etc/passwd", "is no file of telemetry/"),
        (SLOW * 3, "telemetry/vae.jsonl", "only 0.0 s of its window are without"),
        ([], "telemetry/vae.jsonl", "none of GPU-0000"),
        # Nobody looked after 1008 s: what is not known to be clean is not clean.
        (QUIET[:10], "telemetry/vae.jsonl", "only 3.0 s of its window are without"),
    ],
)
def test_why_there_is_no_figure_without(
    tmp_path: Path, events: Sequence[Sequence[str]] | None, series: str | None, why: str
) -> None:
    job, task = slowed(tmp_path / "run", events, series=series)
    assert task.perf_unthrottled is None
    assert why in (task.unthrottled_reason or "")
    # A mean over the others alone would be one of other tasks.
    assert job.perf_unthrottled is None
    assert why.split(":")[0] in " ".join(text_of(summarise(load(tmp_path / "run"))).split())


def test_damaged_samples_are_a_reason(tmp_path: Path) -> None:
    _, task = slowed(tmp_path / "run", QUIET + SLOW)
    (tmp_path / "run" / "telemetry" / "vae.jsonl").write_bytes(b'{"of": "GPU-0000"')
    again = summarise(load(tmp_path / "run")).jobs[0].tasks[0]
    assert task.perf_unthrottled == 100.0
    assert again.perf_unthrottled is None
    assert "its samples cannot be read" in (again.unthrottled_reason or "")


def test_a_damaged_line_is_passed_over_in_a_picture_but_not_in_a_figure(tmp_path: Path) -> None:
    file = tmp_path / "telemetry" / "vae.jsonl"
    write_series(file, [(make_gpu(0), make_samples(QUIET), {})])
    file.write_bytes(file.read_bytes() + b'{"of": "GPU-0000", "monot\n{"of": "GPU-0009", "monotonic_s": 1.0}\n')
    (series,) = read_samples(tmp_path, "telemetry/vae.jsonl")
    assert len(series.samples) == len(QUIET)
    with pytest.raises(ValueError, match="a line is damaged"):
        read_samples(tmp_path, "telemetry/vae.jsonl", whole=True)
    assert read_samples(tmp_path, "telemetry/other.jsonl") == read_samples(tmp_path, None) == []


def test_a_group_is_slowed_by_any_of_its_gpus(tmp_path: Path) -> None:
    gpus = (make_gpu(0), make_gpu(1))
    job = Job(name="vae", model="vae", placement=Placement(devices="progression"))
    task = make_task(job=job, gpus=gpus, ranks=2)
    devices = (make_device(0), make_device(1, events={"hw_slowdown": 5.0}))
    one = make_result(rates=RATES, task=task, telemetry=make_telemetry(*devices, series="telemetry/g.jsonl"))
    (stream,) = one.measurement.streams
    both = Measurement(streams=(stream, msgspec.structs.replace(stream, rank=1, device=gpus[1].uuid)))
    keep_run(tmp_path / "run", [msgspec.structs.replace(one, measurement=both)])
    cool, hot = make_samples(QUIET + QUIET), make_samples(QUIET + [("hw_slowdown",)] * 7)
    write_series(tmp_path / "run" / "telemetry" / "g.jsonl", [(gpus[0], cool, {}), (gpus[1], hot, {})])
    (kept,) = summarise(load(tmp_path / "run")).jobs[0].tasks
    # Per GPU of the group, as perf is.
    assert (kept.perf, kept.perf_unthrottled) == (pytest.approx(820 / 9), 100.0)
