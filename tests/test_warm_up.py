"""Warm-up: the first steps, then more until its time has passed."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import pytest
from support import benchsuite

from benchsuite.errors import ModelError
from benchsuite.worker.device import Cpu
from benchsuite.worker.step import Step
from benchsuite.worker.warmup import WARM_UP_STEPS, warm_up


class Counting(Cpu):
    """A device that counts how often it is waited for."""

    syncs = 0

    def sync(self) -> None:
        self.syncs += 1


def napping(nap_s: float) -> Step:
    """A step of one item that takes this time."""

    def step(_: None) -> int:
        time.sleep(nap_s)
        return 1

    return Step(step)


ENDLESS = itertools.repeat(None)


def test_without_a_time_it_is_the_first_steps() -> None:
    device = Counting()
    assert warm_up(napping(0.0), ENDLESS, device).steps == WARM_UP_STEPS
    assert device.syncs == 2, "after the first step, whose time is recorded, and after the last"


def test_steps_go_on_until_the_time_has_passed() -> None:
    device = Counting()
    warmed = warm_up(napping(0.001), ENDLESS, device, warm_up_s=0.7)
    assert 0.7 <= warmed.elapsed_s < 1.0
    assert warmed.steps > 100
    assert device.syncs < 10, "steps are queued: the device is not waited for at each of them"


def test_the_time_counts_from_the_first_step() -> None:
    assert warm_up(napping(0.05), ENDLESS, Cpu(), warm_up_s=5 * 0.05).steps == WARM_UP_STEPS


@pytest.mark.parametrize(
    ("batches", "message"),
    [(3, "the data ended within the 5 steps of warm-up"), (20, "within the warm-up; lower warm_up_s")],
)
def test_data_that_ends_within_it_is_an_error(batches: int, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        warm_up(napping(0.001), itertools.repeat(None, batches), Cpu(), warm_up_s=5.0)


def test_a_task_warms_up_for_two_seconds_and_its_result_records_it(tmp_path: Path) -> None:
    done = benchsuite("run", "faults:build", "--", "--min-time-s", "0.6", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    (stream,) = result["measurement"]["streams"]
    assert result["task"]["job"]["warm_up_s"] == 2.0
    assert 2.0 <= stream["warm_up"]["elapsed_s"] < 3.0
    assert stream["warm_up"]["steps"] > 100
    assert stream["slices"][0][0] < 0.1, "the measurement begins after it"
