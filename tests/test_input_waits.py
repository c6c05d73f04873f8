"""The time that a process waits for its batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from benchsuite.worker.input_waits import EVERY, Waits


def test_the_wait_for_batches_counts_and_the_work_between_them_does_not() -> None:
    now_ns = 0

    def slow() -> Iterator[int]:
        nonlocal now_ns
        for number in range(5):
            now_ns += 2_000_000_000
            yield number

    waits, seen = Waits(lambda: now_ns), []
    batches = waits.counted(slow())
    for batch in itertools.islice(batches, 3):
        seen.append(batch)
        now_ns += 7_000_000_000
    assert (seen, waits.taken_s(), waits.taken_s()) == ([0, 1, 2], 6.0, 0.0)
    assert [*batches] == [3, 4]
    assert waits.taken_s() == 4.0


def test_of_short_steps_one_in_eleven_is_timed_and_counts_for_all() -> None:
    now_ns, looks = 0, 0

    def clock() -> int:
        nonlocal looks
        looks += 1
        return now_ns

    def quick() -> Iterator[int]:
        nonlocal now_ns
        while True:
            now_ns += 100
            yield 0

    waits = Waits(clock)
    for _ in itertools.islice(waits.counted(quick()), 100 * EVERY):
        now_ns += 900
    assert waits.taken_s() == pytest.approx(100 * EVERY * 100e-9, abs=1e-6)
    assert looks <= 2 * 100 + 5


def test_an_error_of_the_model_passes_through() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    batches = Waits().counted(broken())
    assert next(batches) == 1
    with pytest.raises(ValueError, match="no more"):
        next(batches)
