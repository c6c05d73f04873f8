"""The timed loop under a scripted clock and device: slices are true, none is invented, syncs are few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, cycle, repeat
from typing import Any

import numpy as np
import pytest

from benchsuite.errors import ModelError
from benchsuite.worker.loop import MOST_ITEMS, timed_loop, whole_items
from benchsuite.worker.timing import NO_LIMIT, Stop, StoppedBy, TimedSlice

MS = 1_000_000
S = 1000 * MS


@dataclass
class Machine:
    """A host that takes `host_ns` for a step, and a device that works `device_ns` on it, in order, beside the host.

    A batch is the number of items it holds, so that `step` can be scripted by its batches.
    """

    host_ns: int = 0
    device_ns: int = 0
    close_ns: int = 0
    now: int = 7 * S
    idle_at: int = 0
    steps: int = 0
    syncs: list[int] = field(default_factory=list)
    slices: list[TimedSlice] = field(default_factory=list)
    at_step: Callable[[Machine], None] = lambda machine: None

    def clock(self) -> int:
        return self.now

    def step(self, batch: int) -> int:
        self.at_step(self)
        self.steps += 1
        self.now += self.host_ns
        self.idle_at = max(self.idle_at, self.now) + self.device_ns
        return batch

    def sync(self) -> None:
        self.now = max(self.now, self.idle_at)
        self.syncs.append(self.steps)

    def close(self, closed: TimedSlice) -> None:
        self.slices.append(closed)
        self.now += self.close_ns

    def run(self, batches: Iterable[int], stop: Stop, ended: Callable[[], bool] = lambda: False) -> StoppedBy:
        return timed_loop(self.step, iter(batches), stop, self.close, sync=self.sync, clock=self.clock, ended=ended)

    @property
    def lengths_ms(self) -> list[float]:
        return [(s.end_ns - s.start_ns) / MS for s in self.slices]

    @property
    def items(self) -> list[int]:
        return [s.items for s in self.slices]

    @property
    def last(self) -> list[bool]:
        return [s.last for s in self.slices]


def test_fast_steps_make_full_slices() -> None:
    machine = Machine(host_ns=100 * MS)
    assert machine.run(repeat(3), Stop(min_time_ns=2 * S)) == "min_time"
    assert machine.lengths_ms == [500, 500, 500, 500]
    assert machine.items == [15, 15, 15, 15]
    assert [s.steps for s in machine.slices] == [5, 5, 5, 5]
    assert machine.last == [False, False, False, True]
    assert machine.slices[0].start_ns == 7 * S
    assert all(a.end_ns == b.start_ns for a, b in zip(machine.slices, machine.slices[1:], strict=False))


@pytest.mark.parametrize("on", ["host", "device"])
def test_a_step_longer_than_a_slice_is_one_slice_of_its_true_length(on: str) -> None:
    machine = Machine(host_ns=1300 * MS) if on == "host" else Machine(device_ns=1300 * MS)
    machine.run(repeat(3), Stop(min_time_ns=3 * S))
    assert machine.lengths_ms == [1300, 1300, 1300]
    assert machine.items == [3, 3, 3]
    assert len(machine.syncs) == 1 + 3


# --- a device that lags behind the host -------------------------------------------------------------------------------


def test_throughput_is_that_of_the_device_not_of_its_queue() -> None:
    machine = Machine(device_ns=50 * MS)
    assert machine.run(repeat(8, 40), Stop(min_time_ns=60 * S)) == "data"
    busy_s = sum(machine.lengths_ms) / 1000
    assert sum(machine.items) == 320
    assert sum(machine.items) / busy_s == pytest.approx(160, rel=0.05)
    assert [s.items / (s.end_ns - s.start_ns) * S for s in machine.slices] == pytest.approx([160] * len(machine.slices))
    assert machine.syncs[0] == 0
    ends = [sum(s.steps for s in machine.slices[: i + 1]) for i in range(len(machine.slices))]
    assert ends[-1] == 40
    assert set(ends) <= set(machine.syncs)
    assert all(500 <= ms <= 600 for ms in machine.lengths_ms[:-1])
    assert machine.last == [False] * (len(machine.slices) - 1) + [True]


def test_work_that_was_not_waited_for_is_not_counted_when_a_step_raises() -> None:
    def fail(machine: Machine) -> None:
        if machine.steps == 20:
            raise ArithmeticError("step 21")

    machine = Machine(device_ns=50 * MS, at_step=fail)
    with pytest.raises(ArithmeticError, match="step 21"):
        machine.run(repeat(8, 40), Stop(min_time_ns=60 * S))
    assert 0 < sum(machine.items) < 20 * 8
    assert all(s.items / (s.end_ns - s.start_ns) * S == pytest.approx(160) for s in machine.slices)
    assert machine.slices[-1].end_ns <= machine.now
    assert not any(machine.last)


@pytest.mark.parametrize(("host_us", "device_us"), [(20, 0), (20, 19), (2, 20), (1, 200), (5, 3000)])
def test_slices_of_tiny_steps_last_half_a_second_and_cost_one_sync(host_us: int, device_us: int) -> None:
    machine = Machine(host_ns=host_us * 1000, device_ns=device_us * 1000)
    machine.run(repeat(1), Stop(min_time_ns=3 * S))
    assert all(500 <= ms <= 600 for ms in machine.lengths_ms)
    assert len(machine.slices) in (5, 6)
    assert len(machine.syncs) <= 1 + len(machine.slices) + 3


def test_the_first_slice_finds_its_pace_after_one_step_that_is_much_slower() -> None:
    machine = Machine(device_ns=20_000, at_step=lambda m: setattr(m, "device_ns", 100 * MS if m.steps == 0 else 20_000))
    machine.run(repeat(1), Stop(min_time_ns=1 * S))
    assert all(500 <= ms <= 600 for ms in machine.lengths_ms)
    assert len(machine.syncs) < 20


@pytest.mark.parametrize(("before", "after", "longest_ms"), [(4, 2, 600), (2, 4, 1030)])
def test_the_prediction_follows_a_change_of_pace(before: int, after: int, longest_ms: int) -> None:
    """Twice as slow with all steps queued: one long slice with its true length; twice as fast: one sync more."""

    def change(machine: Machine) -> None:
        machine.device_ns = (before if machine.now < 9 * S else after) * MS

    machine = Machine(host_ns=1000, at_step=change)
    machine.run(repeat(1), Stop(min_time_ns=6 * S))
    assert all(500 <= ms <= longest_ms for ms in machine.lengths_ms)
    assert [ms for ms in machine.lengths_ms if ms > 600] == [] if longest_ms == 600 else [pytest.approx(1020, rel=0.03)]
    assert machine.slices[-1].steps == pytest.approx(510 / after, rel=0.03)
    assert len(machine.syncs) <= 1 + len(machine.slices) + 3
    assert sum(machine.items) == machine.steps


# --- where it stops ---------------------------------------------------------------------------------------------------


def test_a_count_of_items_ends_the_slice_at_once() -> None:
    machine = Machine(host_ns=100 * MS)
    assert machine.run(repeat(3), Stop(max_items=25)) == "count"
    assert machine.items == [15, 12]
    assert machine.lengths_ms == [500, 400]
    assert machine.last == [False, True]


def test_a_count_of_steps_ends_the_slice_at_once() -> None:
    machine = Machine(device_ns=100 * MS)
    assert machine.run(repeat(3), Stop(max_steps=8)) == "count"
    assert sum(s.steps for s in machine.slices) == machine.steps == 8
    assert machine.last == [False, True]


@pytest.mark.parametrize(("items", "steps", "expected"), [(300, 4, 4), (6, 100, 2)])
def test_of_two_counts_the_first_to_be_reached_decides(items: int, steps: int, expected: int) -> None:
    machine = Machine(host_ns=100 * MS)
    assert machine.run(repeat(3), Stop(max_items=items, max_steps=steps)) == "count"
    assert machine.steps == expected


@pytest.mark.parametrize("stop", [Stop(max_items=6, min_time_ns=S), Stop(max_steps=2, min_time_ns=S)])
def test_a_count_waits_for_the_shortest_time(stop: Stop) -> None:
    machine = Machine(host_ns=70 * MS)
    assert machine.run(repeat(3), stop) == "min_time"
    assert machine.lengths_ms == [560, 560]
    assert machine.last == [False, True]


def test_the_shortest_time_waits_for_a_count() -> None:
    machine = Machine(host_ns=100 * MS)
    assert machine.run(repeat(3), Stop(max_items=66, min_time_ns=S)) == "count"
    assert machine.items == [15, 15, 15, 15, 6]


def test_a_count_that_the_device_reaches_after_the_shortest_time_is_exact() -> None:
    machine = Machine(host_ns=1000, device_ns=100 * MS)
    assert machine.run(repeat(1), Stop(max_steps=9, min_time_ns=800 * MS)) == "count"
    assert machine.steps == 9


def test_the_longest_time_cuts_a_slice() -> None:
    machine = Machine(host_ns=100 * MS)
    assert machine.run(repeat(3), Stop(max_items=10**9, max_time_ns=1200 * MS)) == "max_time"
    assert machine.lengths_ms == [500, 500, 200]
    assert machine.last == [False, False, True]


def test_the_longest_time_holds_for_a_device_that_lags() -> None:
    machine = Machine(device_ns=10 * MS)
    assert machine.run(repeat(3), Stop(max_items=10**9, max_time_ns=1200 * MS)) == "max_time"
    assert 1200 <= sum(machine.lengths_ms) <= 1250


def test_data_that_ends_closes_the_slice_it_is_in() -> None:
    machine = Machine(host_ns=100 * MS)
    assert machine.run([3] * 7, Stop(max_items=10**9)) == "data"
    assert machine.lengths_ms == [500, 200]
    assert machine.last == [False, True]
    assert machine.syncs == [0, 1, 5, 7]


def test_data_that_ends_with_a_slice_makes_no_empty_one() -> None:
    machine = Machine(host_ns=100 * MS)
    assert machine.run([3] * 5, Stop(max_items=10**9)) == "data"
    assert machine.items == [15]


def test_no_data_is_no_slice() -> None:
    machine = Machine(host_ns=100 * MS)
    assert machine.run([], Stop(min_time_ns=S)) == "data"
    assert machine.slices == []


def test_ended_is_asked_after_closed_slices_only() -> None:
    machine = Machine(host_ns=100 * MS)
    asked: list[int] = []

    def ended() -> bool:
        asked.append(machine.steps)
        return len(asked) == 3

    assert machine.run(repeat(3), Stop(min_time_ns=NO_LIMIT), ended) == "stop"
    assert asked == [5, 10, 15]
    assert machine.last == [False, False, False]


# --- what is counted --------------------------------------------------------------------------------------------------


def test_a_short_last_batch_counts_what_it_holds() -> None:
    machine = Machine(host_ns=100 * MS)
    machine.run([64, 64, 64, 8], Stop(min_time_ns=S))
    assert machine.items == [200]


def test_items_may_vary_from_step_to_step() -> None:
    machine = Machine(host_ns=100 * MS)
    assert machine.run(cycle([1, 5, 20]), Stop(max_items=60)) == "count"
    assert machine.items == [32, 46]


def test_what_close_costs_belongs_to_no_slice() -> None:
    machine = Machine(host_ns=100 * MS, close_ns=80 * MS)
    machine.run(repeat(3), Stop(min_time_ns=1500 * MS))
    assert machine.lengths_ms == [500, 500, 500]
    gaps = [b.start_ns - a.end_ns for a, b in zip(machine.slices, machine.slices[1:], strict=False)]
    assert gaps == [80 * MS, 80 * MS]


def test_a_second_call_goes_on_with_the_same_batches() -> None:
    seen: list[int] = []
    batches: Iterator[int] = chain(range(1, 40))
    machine = Machine(host_ns=100 * MS)

    def step(batch: int) -> int:
        seen.append(batch)
        return machine.step(batch)

    def again(stop: Stop) -> StoppedBy:
        return timed_loop(step, batches, stop, machine.close, sync=machine.sync, clock=machine.clock)

    assert again(Stop(max_steps=7)) == "count"
    assert again(Stop(max_time_ns=800 * MS, min_time_ns=NO_LIMIT)) == "max_time"
    assert seen == list(range(1, 16))
    assert next(batches) == 16


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (1e300, r"1e\+300"),
        (32.0, "32.0"),
        (-5, "-5"),
        (MOST_ITEMS + 1, "9007199254740993"),
        (10**400, r"2\*\*1328 or more"),
        (-(10**5000), r"-2\*\*16609 or more"),
        (True, "True"),
        (np.True_, "True"),
        (np.float64(3), "3.0"),
        (np.array([3, 4]), r"array\(\[3, 4\]\)"),
        (None, "None"),
        ("x" * 99, r"'x+\.\.\."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_answer_that_is_no_number_of_items_ends_the_loop_and_is_shown(answer: Any, shown: str) -> None:
    machine = Machine(host_ns=10 * MS)
    with pytest.raises(ModelError, match=f"a step returned .*{shown}.* whole number from 0 to"):
        machine.run(chain(repeat(1, 100), [answer], repeat(1)), Stop(min_time_ns=3 * S))
    assert sum(machine.items) <= 100


@pytest.mark.parametrize("answer", [0, 3, MOST_ITEMS, np.int64(3), np.uint8(3), np.array(3)])
def test_any_integer_is_a_number_of_items(answer: Any) -> None:
    machine = Machine(host_ns=10 * MS)
    machine.run(repeat(answer), Stop(max_steps=4))
    assert sum(machine.items) == 4 * int(answer)
    assert type(whole_items(answer)) is int
