"""Results of several nodes, each with a clock and GPU numbers of its own. Nothing here needs torch."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import make_gpu, make_result
from made_telemetry import make_device, make_samples, make_telemetry
from msgspec.structs import replace
from test_over_nodes import job

from benchsuite.describe.plan import make_plan
from benchsuite.describe.spanning import Seat
from benchsuite.host.series import write_series
from benchsuite.measurement import Measurement, Stream
from benchsuite.provisions import Tenant
from benchsuite.records import NodePart, Result
from benchsuite.report.measure.window import task_window
from benchsuite.report.read.load import row_of
from benchsuite.report.read.rates import rates_curve
from benchsuite.report.read.samples import samples_of
from benchsuite.report.read.workload import overlap
from benchsuite.report.stats.throttling import unthrottled
from benchsuite.report.stats.use import unsampled
from benchsuite.report.verify.results import _slices

AHEAD_S = 86_400.0  # the second host was booted a day before the first
SLOW = "hw_thermal"


@pytest.fixture
def result(tmp_path: Path) -> Result:
    """Two ranks that begin together; a second GPU that heat slows between 4 s and 7 s of the measurement."""
    gpus = [make_gpu(0), replace(make_gpu(0), uuid="GPU-other")]
    on = [Seat(name=f"n{i}", node=i, host=f"n{i}", gpus=(gpu,)) for i, gpu in enumerate(gpus)]
    (task,) = make_plan("p", [job()], (), environ={}, seats=on).tasks
    one = make_result(task=task, rates=[100.0] * 8 + [50.0] * 6 + [100.0] * 16)
    (stream,) = one.measurement.streams
    other = replace(stream, rank=1, origin_s=stream.origin_s + AHEAD_S)
    (tmp_path / "telemetry").mkdir()
    parts, devices = [], []
    for place, gpu in enumerate(gpus):
        slow = [(SLOW,) if place and 4 <= second < 7 else () for second in range(-1, 17)]
        samples = make_samples(slow, start_s=stream.origin_s - 1 + place * AHEAD_S)
        write_series(tmp_path / "telemetry" / f"{place}.jsonl", [(gpu, samples, {})], [], {})
        devices.append(replace(make_device(events={SLOW: 3.0 * place}, unsampled=((2.0, 4.0),)), uuid=gpu.uuid))
        parts.append(
            NodePart(
                node=f"n{place}",
                host=f"n{place}",
                clock=stream.clock,
                offset_s=place * AHEAD_S,
                facts_sha256="0" * 64,
                tenant=Tenant(asked="share", reason="not fenced"),
                telemetry=make_telemetry(series=f"telemetry/{place}.jsonl"),
            )
        )
    return replace(
        one,
        measurement=Measurement(streams=(stream, other)),
        parts=tuple(parts),
        telemetry=make_telemetry(*devices, series="telemetry/0.jsonl"),
    )


def test_the_window_of_a_task_over_nodes_is_on_one_clock(result: Result) -> None:
    window = task_window(result)
    assert window.perf and 100.0 < window.perf < 200.0
    assert window.start_s and window.end_s and 1000.0 <= window.start_s < window.end_s <= 1015.0
    curve = rates_curve(row_of(None, result))
    assert curve and curve.window and curve.window[1] <= 15.0
    assert overlap([row_of(None, result), row_of(None, result)]) == 1.0
    assert list(_slices(result)) == []


def test_the_clock_of_rank_0_decides_how_long_a_group_measures(result: Result) -> None:
    first, second = result.measurement.streams
    asked = replace(result.task, job=replace(result.task.job, min_time_s=15.0))

    def with_a_late(*streams: Stream) -> list[str]:
        return list(_slices(replace(result, task=asked, measurement=Measurement(streams=streams))))

    def late(stream: Stream) -> Stream:
        return replace(
            stream,
            slices=tuple(
                replace(s, end_s=s.end_s - 0.1, start_s=s.start_s - 0.1 * (s.start_s > 0)) for s in stream.slices
            ),
        )

    assert with_a_late(first, late(second)) == []
    assert [trouble[:7] for trouble in with_a_late(late(first), second)] == ["rank 0,"]


def test_samples_of_several_nodes_are_on_one_clock_and_have_the_names_of_their_nodes(
    result: Result, tmp_path: Path
) -> None:
    found = samples_of(tmp_path, result)
    assert [of.name for of in found] == ["n0 GPU 0", "n1 GPU 0"]
    assert [of.samples[0].monotonic_s for of in found] == [999.0, 999.0]
    words = unsampled(result)
    assert words and words.startswith("n0 GPU 0: ") and "; n1 GPU 0: " in words


def test_a_slow_gpu_of_another_node_is_left_out_of_the_unthrottled_rate_of_all(result: Result, tmp_path: Path) -> None:
    perf, why = unthrottled(row_of(tmp_path / "r.json", result))
    assert (perf, why) == (pytest.approx(200.0), None), "the slices at half the rate are left out"
