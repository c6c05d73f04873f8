"""Groups of ranks for real, over gloo on the CPU: what they learn, and when they stop."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from preloaded import Forked
from support import PROGRAMS, environ

pytest.importorskip("torch")

import torch

from benchsuite.describe import entries
from benchsuite.events import PULSE_BYTES
from benchsuite.models import Share, polynome, recommendation, subpixel
from benchsuite.worker.device import Cpu
from benchsuite.worker.rank_slices import AgreedRule
from benchsuite.worker.step import Step
from benchsuite.worker.timing import Stop
from benchsuite.worker.warmup import warm_up
from benchsuite.worker.ways import make_step

pytestmark = pytest.mark.torch

SUPERVISED = [
    name
    for name in entries.names()
    if entries.declared(name, None).parallel and name != "loader" and not name.startswith("probe_")
]


def ranks_of(program: str, count: int, *arguments: str) -> str:
    """Run a program as `count` ranks; the output of rank 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = environ(WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [
        Forked(arguments, program=PROGRAMS / program, cwd=PROGRAMS, env={**env, "RANK": str(rank)}, **streams)
        for rank in range(count)
    ]
    reported = [process.communicate(timeout=240) for process in running]
    assert [process.returncode for process in running] == [0] * count, "\n".join(err for _, err in reported)
    return reported[0][0]


def with_pulse(tmp_path: Path, count: int) -> str:
    pulse = tmp_path / "pulse"
    pulse.write_bytes(bytes(count * PULSE_BYTES))
    return str(pulse)


def test_every_supervised_model_learns_from_the_mean_of_two_ranks_gradients(tmp_path: Path) -> None:
    """Batch norm, dropout and noise are each rank's own, and played as such."""
    reported = json.loads(ranks_of("averaging.py", 2, with_pulse(tmp_path, 2), *SUPERVISED))
    assert set(reported["apart"]) == set(SUPERVISED)
    assert {name: far for name, far in reported["apart"].items() if far > 2e-5} == {}
    assert reported["beats"][0] == reported["beats"][1] > 2 * len(SUPERVISED)


def test_four_ranks_learn_alike(tmp_path: Path) -> None:
    names = ["polynome", "vae", "dcgan", "wlm"]
    reported = json.loads(ranks_of("averaging.py", 4, with_pulse(tmp_path, 4), *names))
    assert {name: far for name, far in reported["apart"].items() if far > 2e-5} == {}


def test_accumulated_and_compiled_gradients_are_averaged_alike(tmp_path: Path) -> None:
    """Models without noise of their own; the loss is compiled whole, inside the wrapper that averages."""
    words = ["polynome", "subpixel", "recommendation", '{"accumulate": 2, "compile": "aot_eager"}']
    reported = json.loads(ranks_of("averaging.py", 2, with_pulse(tmp_path, 2), *words))
    assert {name: far for name, far in reported["apart"].items() if far > 2e-5} == {}
    assert reported["breaks"] == 0


@pytest.mark.parametrize("model", [polynome, subpixel, recommendation])
def test_the_mean_of_the_ranks_gradients_is_that_of_their_joined_batch(model: Any) -> None:
    """Where a batch has no statistics of its own: what two ranks learn is what one learns from both their batches."""
    params = model.Params(**model.SMALL)

    def gradients(pick: Any) -> list[torch.Tensor]:
        torch.manual_seed(7)
        workload = model.build(params)
        both = [next(iter(workload.batches(Share(rank=rank, ranks=2)))) for rank in range(2)]
        make_step(workload).run(pick(both))
        return [p.grad.clone() for p in workload.modules["net"].parameters()]

    one, other = gradients(lambda both: both[0]), gradients(lambda both: both[1])
    joined = gradients(lambda both: tuple(torch.cat(parts) for parts in zip(*both, strict=True)))
    for a, b, whole in zip(one, other, joined, strict=True):
        assert torch.allclose((a + b) / 2, whole, atol=1e-6)


# --- the agreement on slices ------------------------------------------------------------------------------------------


class Played:
    """A group's rank whose agreement is a list: rank 0 appends, the other reads."""

    def __init__(self, rank: int, said: list[list[int]]) -> None:
        self.rank, self.counting, self.said, self.said_stop = rank, 2, said, False

    def agree(self, said: list[int]) -> list[int]:
        if self.rank == 0:
            self.said.append(list(said))
            return said
        return self.said.pop(0)


def test_ranks_close_and_stop_at_the_same_steps_by_the_clock_of_the_first() -> None:
    said: list[list[int]] = []
    stop = Stop(min_time_ns=2_000_000_000)
    first = AgreedRule(Played(0, said), lambda: False, stop, 0)  # type: ignore[arg-type]
    other = AgreedRule(Played(1, said), lambda: False, stop, 0)  # type: ignore[arg-type]
    closed: list[tuple[int, bool]] = []
    now = steps = 0
    while first.met is None:
        take = first.due_steps - steps
        assert other.due_steps == first.due_steps, "both look after the same number of steps"
        now, steps = now + take * 10_000_000, first.due_steps
        own = first.closes(now, steps, 3 * steps)
        assert other.closes(now * 7 % 5, steps, 3 * steps) == own, "whatever its own clock says"
        closed.append((steps, own))
        if own:
            first.open(now)
            other.open(now)
            steps = 0
    assert first.met == other.met == "min_time"
    assert sum(own for _, own in closed) == 4
    assert all(50 <= count <= 52 for count, own in closed if own)


def test_a_count_is_that_of_all_ranks_together() -> None:
    said: list[list[int]] = []
    rule = AgreedRule(Played(0, said), lambda: False, Stop(max_items=40), 0)  # type: ignore[arg-type]
    assert not rule.closes(1_000_000, 1, 10)
    assert rule.closes(2_000_000, 2, 20)
    assert rule.met == "count"


def test_stop_is_heard_by_all() -> None:
    said: list[list[int]] = []
    ranks = Played(0, said), Played(1, said)
    rules = [AgreedRule(r, lambda: True, Stop(min_time_ns=1 << 50), 0) for r in ranks]  # type: ignore[arg-type]
    for rule in rules:
        rule.closes(600_000_000, 1, 1)
    assert [r.said_stop for r in ranks] == [True, True]


def test_ranks_take_the_same_steps_of_warm_up_by_the_clock_of_the_first() -> None:
    def warmed(rank: int, nap_s: float) -> int:
        step = Step(lambda _: (time.sleep(nap_s), 1)[1])
        return warm_up(step, itertools.repeat(None), Cpu(), 0.3, Played(rank, said)).steps  # type: ignore[arg-type]

    said: list[list[int]] = []
    taken = warmed(0, nap_s=0.01)
    assert 20 < taken <= 31
    assert warmed(1, nap_s=0.0) == taken, "whatever its own clock says"
    assert said == []
