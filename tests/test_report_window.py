"""The window's rule, slice by slice."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from conftest import make_result, make_slices

from benchsuite.measurement import Measurement, Slice, Stream, read_clock
from benchsuite.report.measure.window import Window, stream_window, task_window, window_slices

# Warm-up stretched to 12 s: the first two seconds, then four times 2.5 s.
WARM_UP = [2.0] * 2 + [40.0] * 2 + [100.0] * 5 + [101.0] * 5 + [99.0] * 5 + [100.0] * 5


def window_of(slices: tuple[Slice, ...]) -> Window:
    return stream_window(Stream(clock=read_clock(), device="cpu", unit="image", origin_s=1000.0, slices=slices))


def spans(*bounds: float, items: int = 100) -> tuple[Slice, ...]:
    """Back-to-back slices between the given bounds."""
    return tuple(Slice(start_s=a, end_s=b, steps=1, items=items) for a, b in itertools.pairwise(bounds))


def test_warm_up_and_the_last_second_are_left_out() -> None:
    window = window_of(make_slices(WARM_UP))
    assert window.perf == pytest.approx(100, abs=1)
    assert (window.slices, window.dropped, window.seconds) == (18, 6, 9.0)
    assert (window.start_s, window.end_s) == (1002.0, 1011.0)
    assert window.steady


def test_work_over_time_at_full_resolution() -> None:
    # (5 * 50,000 + 5 * 50,500 + 5 * 49,500 + 3 * 50,000) items / 9 s
    window = window_of(make_slices([rate * 1000 for rate in WARM_UP]))
    assert (window.items, window.perf) == (900_000, 100_000.0)


def test_perf_is_no_mean_of_rates() -> None:
    # Within [2, 11]: five slices of 1 s with 100 items, six of 0.5 s with 20: 620 / 8; the mean of rates is 67.3.
    slices = [s for k in range(8) for s in spans(1.5 * k, 1.5 * k + 1) + spans(1.5 * k + 1, 1.5 * k + 1.5, items=20)]
    assert window_of(tuple(slices)).perf == pytest.approx(620 / 8)


@pytest.mark.parametrize(
    ("rates", "state", "reported"),
    [([5, 50], "insufficient", "2 slices, 1.0 s"), ([50], "insufficient", "1 slice, 0.5 s"), ([], "empty", "no slice")],
)
def test_too_few_slices_are_a_state_with_a_reason(rates: list[float], state: str, reported: str) -> None:
    window = window_of(make_slices(rates))
    assert (window.state, window.perf, window.steady) == (state, None, False)
    assert reported in (window.reason or "")
    assert window.dropped == len(rates)


def test_a_short_window_grows_backwards_by_whole_slices() -> None:
    # E = 14: only [7, 10.5] lies in [4, 13], 3.5 s; one more slice makes it 7 s.
    assert window_slices(spans(0, 3.5, 7, 10.5, 14)) == list(spans(3.5, 7, 10.5))


def test_it_does_not_grow_into_the_first_two_seconds() -> None:
    # E = 11.7: [3.9, 7.8] is 0.1 s short, and the slice before it starts at 0.
    window = window_of(spans(0, 3.9, 7.8, 11.7))
    assert window.state == "insufficient"
    assert "3 slices, 11.7 s in all, leave 3.9 s" in (window.reason or "")


# Half-second slices: a slow start of 2 s, then 100 items/s.
SLOW_START = [10.0] * 4 + [100.0] * 30


@pytest.mark.parametrize(
    ("length_s", "start_s", "end_s"),
    [(12, 2, 11), (10, 2, 9), (7.5, 2, 6.5), (7, 2, 6), (6.5, 1.5, 5.5), (6, 1, 5), (5.5, 0.5, 4.5), (5, 0, 4)],
)
def test_the_first_two_seconds_count_only_where_4_s_do_not_remain(
    length_s: float, start_s: float, end_s: float
) -> None:
    window = window_of(make_slices(SLOW_START[: round(2 * length_s)]))
    assert (window.start_s, window.end_s) == (1000 + start_s, 1000 + end_s)
    assert (window.perf == 100) is (start_s >= 2)


def test_below_5_s_no_slice_is_left_for_a_window() -> None:
    assert window_of(make_slices(SLOW_START[:9])).state == "insufficient"


def test_whole_slices_of_the_first_two_seconds_are_added_latest_first() -> None:
    # E = 7.6: from 2 s on, [2.8, 6.2] lasts 3.4 s; [1.4, 2.8] makes it 4.8 s, and [0, 1.4] stays out.
    bounds = (0, 1.4, 2.8, 4.5, 6.2, 7.6)
    assert window_slices(spans(*bounds)) == list(spans(*bounds[1:5]))


def test_it_grows_where_nothing_lies_inside() -> None:
    # E = 36: no slice of 12 s fits [26, 35].
    assert window_slices(spans(0, 12, 24, 36)) == list(spans(12, 24))


@pytest.mark.parametrize(("late_s", "slices"), [(0.0005, 17), (0.002, 16)])
def test_the_end_has_a_tolerance_of_a_millisecond(late_s: float, slices: int) -> None:
    # The slice that should end at 11 = E - 1 ends a little later.
    bounds = [i * 0.5 + late_s for i in range(23)]
    window = window_of(spans(2.5 + late_s, *(b for b in bounds if b > 2.6), 12.0))
    assert window.slices == slices


def test_hold_slices_neither_count_nor_move_the_end() -> None:
    measured = make_slices(WARM_UP)
    held = tuple(Slice(start_s=12 + i * 0.5, end_s=12.5 + i * 0.5, steps=1, items=500, phase="hold") for i in range(20))
    assert window_of(measured + held) == window_of(measured)
    # They may as well be one, of any length, also if it began while the last slice was being closed.
    for start_s, end_s in ((12, 300), (12, 12.01), (11.9, 13)):
        one = Slice(start_s=start_s, end_s=end_s, steps=20, items=10_000, phase="hold")
        assert window_of((*measured, one)) == window_of(measured)


def test_no_items_is_a_perf_of_zero() -> None:
    window = window_of(make_slices([0.0] * 30))
    assert (window.state, window.perf, window.steadiness.spread) == ("ok", 0.0, None)


@pytest.mark.parametrize(("low", "high", "spread", "steady"), [(95, 105, 0.05, True), (85, 115, 0.15, False)])
def test_an_odd_number_of_slices_in_turns_has_one_more_of_one_kind(
    low: int, high: int, spread: float, steady: bool
) -> None:
    slices = spans(*range(21))
    swing = tuple(
        Slice(start_s=s.start_s, end_s=s.end_s, steps=1, items=(low, high)[i % 2]) for i, s in enumerate(slices)
    )
    window = window_of(swing)
    # Nine slices of 1 s, five of them of one kind: the exact figure is a little below the half-swing.
    found = window.steadiness.spread
    assert found is not None
    assert found.value == pytest.approx(spread, rel=0.03)
    assert window.steady is steady


def test_rates_of_ranks_add_up() -> None:
    def stream(rank: int, rate: float, seconds: int = 15, *, counts_items: bool = True) -> Stream:
        slices = make_slices([rate] * (2 * seconds))
        return Stream(
            clock=read_clock(),
            device=str(rank),
            rank=rank,
            unit="image",
            origin_s=0,
            slices=slices,
            counts_items=counts_items,
        )

    def of(*streams: Stream) -> Window:
        return task_window(make_result(measurement=Measurement(streams=streams)))

    both = of(stream(0, 100), stream(1, 50), stream(2, 7, counts_items=False))
    assert (both.perf, both.items, both.slices, both.seconds) == (150.0, 1350, 18, 9.0)
    short = of(stream(0, 100), stream(1, 50, seconds=3))
    assert (short.state, short.perf) == ("insufficient", None)
    assert "rank 1 of 2" in (short.reason or "")
    assert of(stream(0, 1, counts_items=False)).state == "empty"


def test_it_is_light_to_import() -> None:
    heavy = {"pandas", "scipy", "torch", "rich"}
    code = f"import sys, benchsuite.report.measure.window; print({heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
