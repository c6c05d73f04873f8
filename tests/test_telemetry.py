"""What a window of samples comes to, how series are kept and written, and what a task's processes use."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from conftest import make_gpu, make_slices
from fake_nvml import MIB

from benchsuite.host import steal
from benchsuite.host.device import CLOCK_EVENTS, clock_events
from benchsuite.host.digest import Window, summarise, summarise_tenant
from benchsuite.host.series import Series, write_series
from benchsuite.host.usage import Usage, look
from benchsuite.measurement import Stream, read_clock
from benchsuite.schema import decode
from benchsuite.telemetry import (
    CAPPED,
    GPM_GAUGES,
    SLOWING,
    DeviceSample,
    GpuProcess,
    Spread,
    Telemetry,
    TenantSample,
    held,
    stolen_share,
)

ALWAYS = (0.0, float("inf"))


def series(*given: tuple[float, dict[str, Any]]) -> list[DeviceSample]:
    return [DeviceSample(monotonic_s=at_s, **fields) for at_s, fields in given]


def test_energy_is_the_counters_difference_over_its_own_span() -> None:
    found = summarise(
        make_gpu(),
        series((10.0, {}), (11.0, {"energy_j": 5000.25}), (12.0, {"energy_j": 5300.0}), (13.5, {"energy_j": 5750.75})),
        {},
        (),
    )
    assert (found.energy_j, found.energy_span_s) == (750.5, 2.5)


@pytest.mark.parametrize(
    ("readings", "reason"),
    [([7.0], "one sample"), ([9.0, 9.5, 1.0, 12.0], "was reset"), ([], "no sample"), ([None, None], "not supported")],
)
def test_energy_that_is_unknown_has_its_reason(readings: list[float | None], reason: str) -> None:
    given = series(*((float(at), {"energy_j": joules}) for at, joules in enumerate(readings)))
    found = summarise(make_gpu(), given, {"energy_j": "not supported"}, ())
    assert (found.energy_j, found.energy_span_s) == (None, None)
    assert reason in found.reasons["energy_j"]


def test_time_under_each_clock_event_holds_from_its_sample_to_the_next() -> None:
    cap, both = {"clock_events": ("sw_power_cap",)}, {"clock_events": ("sw_power_cap", "hw_thermal")}
    free: dict[str, Any] = {"clock_events": ()}
    # sw_power_cap from 0 to 2.5, hw_thermal from 1 to 2.5, none from 2.5 to 4; that of 4 did not last
    found = summarise(make_gpu(), series((0.0, cap), (1.0, both), (2.5, free), (4.0, cap)), {}, ())
    assert found.clock_events_s == {"hw_thermal": 1.5, "sw_power_cap": 2.5}
    assert found.clock_events_span_s == 4.0


def test_clock_events_are_not_stretched_over_a_gap_in_which_nobody_looked() -> None:
    cap = {"clock_events": ("sw_power_cap",)}
    found = summarise(make_gpu(), series((0.0, cap), (1.0, cap), (2.0, cap), (62.0, cap), (63.0, cap)), {}, ())
    assert (found.clock_events_s, found.clock_events_span_s) == ({"sw_power_cap": 3.0}, 3.0)


def test_a_sample_holds_until_the_next_but_not_over_a_gap() -> None:
    assert held([(0.0, "a"), (1.0, "b"), (2.0, "c"), (5.0, "d"), (9.0, "e"), (10.0, "f")]) == [
        (0.0, 1.0, "a"), (1.0, 2.0, "b"), (2.0, 5.0, "c"), (9.0, 10.0, "e")
    ]  # fmt: skip
    assert held([(0.0, "a")]) == held([]) == []


def test_the_slow_downs_are_events_that_a_card_can_report() -> None:
    assert {*SLOWING, CAPPED} <= set(CLOCK_EVENTS.values())


def test_no_clock_event_is_not_the_same_as_none_known() -> None:
    free: dict[str, Any] = {"clock_events": ()}
    assert summarise(make_gpu(), series((0.0, free), (1.0, free)), {}, ()).clock_events_s == {}
    unknown = summarise(make_gpu(), series((0.0, {}), (1.0, {})), {"clock_events": "not supported"}, ())
    assert (unknown.clock_events_s, unknown.reasons["clock_events_s"]) == (None, "not supported")


def test_every_clock_event_has_its_name_and_an_unknown_one_its_bit() -> None:
    assert clock_events(0) == ()
    assert clock_events(0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80) == (
        "idle",
        "applications_clocks",
        "sw_power_cap",
        "hw_slowdown",
        "sync_boost",
        "sw_thermal",
        "hw_thermal",
        "hw_power_brake",
    )
    assert clock_events(1 << 40) == ("bit_40",)


def test_spreads_leave_absent_samples_out() -> None:
    found = summarise(
        make_gpu(),
        series((0.0, {"power_w": 100.0}), (1.0, {}), (2.0, {"power_w": 400.0}), (3.0, {"power_w": 250.0})),
        {},
        (),
    )
    assert found.spreads["power_w"] == Spread(min=100.0, mean=250.0, max=400.0, n=3)


def test_ecc_counts_are_those_that_came_within_the_window() -> None:
    counts = [{"ecc_corrected": c, "ecc_uncorrected": u} for c, u in ((100, 3), (104, 3), (109, 3))]
    found = summarise(make_gpu(), series(*((float(i), c) for i, c in enumerate(counts))), {}, ())
    assert (found.ecc_corrected, found.ecc_uncorrected) == (9, 0)


def process(pid: int, mib: int | None = 1, *, here: bool = True) -> GpuProcess:
    return GpuProcess(pid=pid, memory_bytes=None if mib is None else mib * MIB, here=here)


def test_foreign_processes_are_those_that_are_not_ours_with_their_most_memory() -> None:
    seen = [(process(1), process(9, 5)), (process(1), process(9, 7)), (process(1), process(8, None))]
    given = series(*((float(i), {"processes": p}) for i, p in enumerate(seen)))
    found = summarise(make_gpu(), given, {}, {1})
    assert found.foreign == (process(8, None), process(9, 7))
    assert summarise(make_gpu(), given, {}, {1, 8, 9}).foreign == ()


def test_numbers_of_another_container_are_not_called_foreign() -> None:
    found = summarise(make_gpu(), series((0.0, {"processes": (process(70001, here=False),)})), {}, {12})
    assert found.foreign is None
    assert "not of this container" in found.reasons["foreign"]
    ours_too = series((0.0, {"processes": (process(12), process(70001, here=False))}))
    assert [p.pid for p in summarise(make_gpu(), ours_too, {}, {12}).foreign] == [70001]


# --- spans without a sample -------------------------------------------------------------------------------------------


def over(seconds: float, times: list[float], reasons: dict[str, str] | None = None, **fields: Any) -> Any:
    given = series(*((at, fields or {"power_w": 100.0}) for at in times))
    return summarise(make_gpu(), given, reasons or {}, (), Window(0.0, seconds, 1.0))


@pytest.mark.parametrize(
    ("times", "spans", "words"),
    [
        ([float(s) for s in range(16)], (), ""),
        ([0.5, 1.5, 2.5, 5.5, 8.5, 11.5, 14.5], (), ""),
        ([0.0, 1.0, 2.0], ((2.0, 15.0),), "nothing sampled from 2 s on of the 15 s of its window"),
        ([0.0, 1.0, 8.0, *range(9, 15)], ((1.0, 8.0),), "nothing sampled from 1 to 8 s of the 15 s of its window"),
        ([6.0, 7.0], ((0.0, 6.0), (7.0, 15.0)), "nothing sampled from 0 to 6 s, from 7 s on of the 15 s of its window"),
        ([], ((0.0, 15.0),), "nothing sampled in the 15 s of its window"),
    ],
)
def test_spans_without_a_sample_are_recorded(times: list[float], spans: Any, words: str) -> None:
    found = over(15.0, times)
    assert found.unsampled == spans
    assert found.unsampled_words(15.0) == (f"{words}: no sample came in time" if words else "")
    assert found.sampled_share(15.0) == pytest.approx(1 - sum(b - a for a, b in spans) / 15)


def test_the_reason_of_a_loss_is_kept_also_of_a_short_end() -> None:
    found = over(15.0, [float(s) for s in range(14)], {"samples": "gpu is lost"})
    assert (found.unsampled, found.reasons["samples"]) == (((13.0, 15.0),), "gpu is lost")
    assert over(15.0, [float(s) for s in range(15)], {"samples": "gpu is lost"}).unsampled == ()


def test_a_window_shorter_than_the_gaps_that_count_has_none() -> None:
    assert over(0.8, []).unsampled == ()


def test_a_sample_without_any_value_is_no_sample() -> None:
    values = [{"power_w": 100.0}, {"power_w": 300.0}, *([{}] * 13)]
    given = series(*((float(at), fields) for at, fields in enumerate(values)))
    found = summarise(make_gpu(), given, {"samples": "no query has an answer"}, (), Window(0.0, 15.0, 1.0))
    assert (found.samples, found.spreads["power_w"].n, found.unsampled) == (2, 2, ((1.0, 15.0),))


# --- joined to slices, kept within bounds, written out ----------------------------------------------------------------


def test_samples_join_the_slices_of_a_stream_by_the_monotonic_clock() -> None:
    stream = Stream(clock=read_clock(), device="GPU-0", unit="image", origin_s=1000.0, slices=make_slices((1.0,) * 4))
    start_s, end_s = (stream.origin_s + s for s in (stream.slices[1].start_s, stream.slices[3].end_s))
    kept: Series[DeviceSample] = Series()
    for tenth in range(30):
        kept.add(DeviceSample(monotonic_s=1000.0 + tenth / 10, power_w=float(tenth)))
    # the window is 1000.5 to 1002.0: tenths 5 to 20, whose mean is 12.5
    found = summarise(make_gpu(), kept.cut(start_s, end_s), {}, ())
    assert found.spreads["power_w"] == Spread(min=5.0, mean=12.5, max=20.0, n=16)


def test_a_series_is_bounded_and_thins_out_evenly() -> None:
    kept: Series[TenantSample] = Series(limit=100)
    for second in range(86_400):
        kept.add(TenantSample(monotonic_s=float(second), processes=1))
    times = [s.monotonic_s for s in kept.cut(*ALWAYS)]
    assert 50 <= len(times) <= 100
    assert {later - earlier for earlier, later in itertools.pairwise(times)} == {1024.0}
    assert times[0] == 0.0
    kept.trim(80_000.0)
    assert min(s.monotonic_s for s in kept.cut(*ALWAYS)) >= 80_000
    kept.add(TenantSample(monotonic_s=86_400.0, processes=1))
    kept.add(TenantSample(monotonic_s=86_401.0, processes=1))
    assert [s.monotonic_s for s in kept.cut(86_400, 86_401)] == [86_400.0, 86_401.0]


def test_the_file_says_of_each_series_what_it_is_and_why_fields_are_null(tmp_path: Path) -> None:
    path = tmp_path / "telemetry" / "vae.J0.0.a1.jsonl"
    one = series((1.0, {"power_w": 99.5, "clock_events": ("idle",), "processes": (process(7),)}))
    reasons = {"gpu_percent": "not supported", "power_w": "was unknown once, before this window"}
    tenant = [TenantSample(monotonic_s=1.5, processes=2, cpu_s=0.5)]
    write_series(path, [(make_gpu(0), one, reasons), (make_gpu(1), [], {})], tenant, {"rss_bytes": "gone"})
    lines = [decode(line) for line in path.read_bytes().splitlines()]
    assert [(line["kind"], line["of"]) for line in lines[:3]] == [
        ("device", "GPU-0000"),
        ("device", "GPU-0001"),
        ("tenant", "tenant"),
    ]
    assert (lines[0]["pci"], lines[0]["reasons"]) == ("0000:00:00.0", {"gpu_percent": "not supported"})
    assert (lines[3]["of"], lines[3]["power_w"], lines[3]["gpu_percent"]) == ("GPU-0000", 99.5, None)
    assert (lines[3]["clock_events"], lines[3]["processes"]) == (["idle"], [[7, MIB, True]])
    assert (lines[4]["of"], lines[4]["cpu_s"], lines[4]["rss_bytes"]) == ("tenant", 0.5, None)
    assert len(lines) == 5
    with pytest.raises(FileExistsError):
        write_series(path, [])


def test_a_summary_is_small_and_strict_json() -> None:
    fields: dict[str, Any] = {name: 87.654321 for name in GPM_GAUGES}
    device = summarise(make_gpu(), series((0.0, fields), (1.0, fields)), {}, ())
    kept = Telemetry(start_s=0.0, end_s=1.0, every_s=1.0, devices=(device,))
    text = msgspec.json.encode(kept)
    assert msgspec.json.decode(text, type=Telemetry) == kept
    assert len(text) < 2500


# --- tenants ----------------------------------------------------------------------------------------------------------

BURN = """
import os, sys, time
held = b"x" * (64 << 20)
while time.process_time() < 0.5:
    pass
print(time.process_time(), flush=True)
sys.stdin.read()
"""


def burner() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_processor_time_and_memory_of_real_processes_add_up_and_outlive_them() -> None:
    with burner() as one, burner() as two:
        living = [one.pid, two.pid]
        usage = Usage(lambda: living)
        assert one.stdout
        assert two.stdout
        used_s = float(one.stdout.readline()) + float(two.stdout.readline())
        both = usage.sample({})
        assert both.processes == 2
        assert both.cpu_s == pytest.approx(used_s, abs=0.15)
        assert both.rss_bytes is not None
        assert 2 * 64 * MIB < both.rss_bytes < 2 * 128 * MIB
        assert (both.group_memory_bytes, usage.reasons["group_memory_bytes"]) == (
            None,
            "the task has no group of its own",
        )
        one.communicate()
        living.remove(one.pid)
        after = usage.sample({})
        assert (after.processes, usage.seen) == (1, {one.pid, two.pid})
        assert after.cpu_s is not None
        assert after.cpu_s >= both.cpu_s
        assert after.rss_bytes is not None
        assert after.rss_bytes < 128 * MIB
        two.communicate()


def test_a_program_with_brackets_in_its_name_is_read_right(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(program), "30"])
    try:
        while not Path(f"/proc/{child.pid}/comm").read_text().startswith("a)"):
            time.sleep(0.005)
        time.sleep(0.2)  # until it has grown to its size
        found = look(child.pid)
        assert found
        assert found.rss_bytes == pytest.approx(psutil.Process(child.pid).memory_info().rss, rel=0.5)
    finally:
        child.kill()
        child.wait()
    assert look(child.pid) is None


def test_a_group_that_counts_is_believed_and_one_that_fails_is_noted() -> None:
    def gone() -> int:
        raise FileNotFoundError("no such group")

    told_by_group = Usage(lambda: [os.getpid()], lambda: 123, lambda: 4.5).sample({})
    assert (told_by_group.group_memory_bytes, told_by_group.cpu_s) == (123, 4.5)
    usage = Usage(lambda: [os.getpid()], gone, lambda: None)
    assert (usage.sample({}).group_memory_bytes, usage.sample({}).cpu_s) == (None, None)
    assert (usage.reasons["group_memory_bytes"], usage.reasons["cpu_s"]) == (
        "no such group",
        "the group does not report it",
    )


def test_a_tasks_busy_processors_are_its_time_over_the_samples_span() -> None:
    given = [TenantSample(monotonic_s=t, processes=3, cpu_s=c, rss_bytes=r) for t, c, r in ((5, 1.0, 10), (9, 7.0, 30))]
    found = summarise_tenant(given, {"group_memory_bytes": "no group"})
    assert (found.cpu_s, found.cpu_span_s, found.cpus, found.processes_max) == (6.0, 4.0, 1.5, 3)
    assert found.rss_bytes == Spread(min=10, mean=20, max=30, n=2)
    assert found.reasons == {"group_memory_bytes": "no group", "cpus_busy_s": "not read", "cpus_stolen_s": "not read"}
    nothing = summarise_tenant([], {})
    assert (nothing.cpus, nothing.processes_max, nothing.reasons["cpu_s"]) == (None, None, "no sample in the window")


# --- what a hypervisor withheld ---------------------------------------------------------------------------------------

# user nice system idle iowait irq softirq steal guest guest_nice; the time of guests is within user.
STAT = """\
cpu  600 0 0 900 0 0 0 250 0 0
cpu0 100 20 30 500 40 5 6 70 90 0
cpu2 200 0 0 300 0 0 0 180 0 0
intr 12 0 0
ctxt 7
"""


def test_stolen_time_is_read_by_processor(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(STAT)
    times = steal.processor_times(tmp_path)
    assert set(times) == {0, 2}
    assert times[0] == pytest.approx((1.61, 0.7))
    assert steal.together(times, (0, 1, 2)) == pytest.approx((3.61, 2.5))
    assert steal.together(times, (1, 3)) is None
    assert stolen_share(3.61, 2.5) == pytest.approx(2.5 / 6.11)
    assert stolen_share(0.0, 0.0) is None


@pytest.mark.parametrize("text", [None, "", "cpu0\n", "cpu0 1 x 3\n\ncpu 5\ncpux 1 2\n"])
def test_processor_times_that_are_hidden_or_malformed_are_left_out(tmp_path: Path, text: str | None) -> None:
    (tmp_path / "proc").mkdir()
    if text is not None:
        (tmp_path / "proc/stat").write_text(text)
    assert steal.processor_times(tmp_path) == {}


def test_the_kernel_counts_the_time_that_processors_run() -> None:
    cpus = os.sched_getaffinity(0)
    before = steal.together(steal.processor_times(), cpus)
    burnt_s, started_s = 0.5, time.process_time()
    while time.process_time() - started_s < burnt_s:
        pass
    after = steal.together(steal.processor_times(), cpus)
    assert before
    assert after
    assert after.busy_s - before.busy_s > 0.8 * burnt_s
    assert after.stolen_s >= before.stolen_s


def test_a_tasks_stolen_time_is_that_of_its_own_processors() -> None:
    usage = Usage(lambda: [os.getpid()], cpus=(1, 2))
    moments = [{n: steal.ProcessorTime(n + at, n + at / 10) for n in range(4)} for at in (0.0, 10.0)]
    first, last = (msgspec.structs.replace(usage.sample(moment), monotonic_s=0.0) for moment in moments)
    found = summarise_tenant([first, msgspec.structs.replace(last, monotonic_s=10.0)], usage.reasons)
    assert (found.cpus_busy_s, found.cpus_stolen_s) == (20.0, 2.0)
    assert usage.sample({}).cpus_stolen_s is None
    assert usage.reasons["cpus_stolen_s"] == "the kernel does not report CPU times"
