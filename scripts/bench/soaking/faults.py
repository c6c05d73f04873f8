"""The model of a soak: a task that naps, and goes wrong at a step and in a way that its own name and a seed decide.

Application: none. An item is a nap.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchsuite.models import Workload

# A task's steps. A fault comes before the last of them, however slow the machine is.
STEPS = 40
NAP_S = 0.01
# Every process that a task leaves behind has this variable, or its value in its command line.
TOKEN = "BENCHSUITE_SOAK"
# benchsuite's own mark of a task's processes: PID.TASK.ATTEMPT.TIME
MARK = "BENCHSUITE_TREE"
_FOREVER_S = 86_400


@dataclass(frozen=True)
class Params:
    seed: int = 1
    faults: tuple[str, ...] = ("none",)


@dataclass(frozen=True)
class Fault:
    """A way to go wrong.

    Attributes:
        act: what the task does at its step; it may return, and then the task goes on.
        status: the status of the result.
        kind: the kind of the error; None for a task that is ok.
        weight: how often it is drawn, relative to the others of its job.
        from_start: it may come during warm-up.
    """

    act: Callable[[], None]
    status: str = "ok"
    kind: str | None = None
    weight: int = 2
    from_start: bool = True


def _raise() -> None:
    raise ValueError("a nap too far")


def _device_memory() -> None:
    raise RuntimeError("CUDA out of memory (not really)")


def _signal_itself(signum: int) -> None:
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


def _eat() -> None:
    hoard = []
    while True:
        hoard.append(bytearray(b"x") * (8 << 20))


def _print_much() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.write(("x" * 99 + "\n") * 2_000)
        stream.flush()


def _print_bytes() -> None:
    for fd in (1, 2):
        os.write(fd, b"start \xff\xfe \xe2\x96\x88 50%\rdone\n")


def _event_files() -> list[Path]:
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [link for link in links if link.readlink().name.endswith(".events.jsonl")]


def _scribble() -> None:
    for link in _event_files():
        os.write(int(link.name), b"\xff\n")


def _half_a_line() -> None:
    for link in _event_files():
        os.write(int(link.name), b'{"event":"slice","n":')
    _signal_itself(signal.SIGTERM)


def _remove_events() -> None:
    for link in _event_files():
        link.readlink().unlink()


def _sleeper(*before: str) -> list[str]:
    return [*before, sys.executable, "-c", f"import time; time.sleep({_FOREVER_S})", os.environ.get(TOKEN, "")]


def _daemon() -> None:
    """A process that leaves session, parent and environment behind."""
    code = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True, env={})"
    subprocess.run([sys.executable, "-c", code, *_sleeper()], check=True)


def _children() -> None:
    for _ in range(10):
        subprocess.Popen(_sleeper())
    _raise()


def _handles() -> None:
    opened = []
    while True:
        opened.append(os.open(os.devnull, os.O_RDONLY))


def _hang() -> None:
    while True:
        time.sleep(60)


def _stubborn() -> None:
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    _hang()


def _grandchild() -> None:
    subprocess.Popen(_sleeper(), start_new_session=True)
    _hang()


# Faults that end a task, or that it survives.
QUICK: dict[str, Fault] = {
    "none": Fault(lambda: None, weight=10),
    "noisy": Fault(_print_much),
    "bytes": Fault(_print_bytes),
    "daemon": Fault(_daemon),
    "raises": Fault(_raise, "failed", "ValueError"),
    "children": Fault(_children, "failed", "ValueError"),
    "device memory": Fault(_device_memory, "oom", "RuntimeError"),
    "host memory": Fault(_eat, "oom", "oom"),
    "file handles": Fault(_handles, "failed", "OSError"),
    "silent": Fault(lambda: os._exit(0), "failed", "silent"),
    "exit 3": Fault(lambda: os._exit(3), "failed", "exit"),
    "exit 137": Fault(lambda: os._exit(137), "killed", "SIGKILL"),
    "sys.exit": Fault(lambda: sys.exit(2), "failed", "SystemExit"),
    "SIGKILL": Fault(lambda: os.kill(os.getpid(), signal.SIGKILL), "killed", "SIGKILL"),
    "SIGSEGV": Fault(lambda: _signal_itself(signal.SIGSEGV), "killed", "SIGSEGV"),
    "SIGABRT": Fault(lambda: _signal_itself(signal.SIGABRT), "killed", "SIGABRT"),
    "SIGTERM": Fault(lambda: _signal_itself(signal.SIGTERM), "killed", "SIGTERM"),
    "bad events": Fault(_scribble, "failed", "events"),
    "half an event": Fault(_half_a_line, "killed", "SIGTERM"),
    "no events": Fault(_remove_events, "failed", "silent", from_start=False),
    "no handles": Fault(lambda: os.closerange(3, 1000), "failed", "exit"),
}
# Faults after which only the time limit ends a task.
LATE: dict[str, Fault] = {
    "hangs": Fault(_hang, "timeout", "timeout"),
    "ignores SIGTERM": Fault(_stubborn, "timeout", "timeout", weight=1),
    "SIGSTOP": Fault(lambda: os.kill(os.getpid(), signal.SIGSTOP), "timeout", "timeout", weight=1),
    "grandchild": Fault(_grandchild, "timeout", "timeout"),
}
FAULTS = {**QUICK, **LATE}


def drawn(task: str, seed: int, faults: Sequence[str]) -> tuple[str, int]:
    """The fault of a task, and the step before which it comes; the same for each attempt."""
    chance = random.Random(f"{seed} {task}")
    (fault,) = chance.choices(faults, weights=[FAULTS[name].weight for name in faults])
    late = chance.randrange(STEPS // 2, STEPS - 5)
    return fault, chance.choice([0, late]) if FAULTS[fault].from_start else late


def task_of(mark: str) -> str:
    """The task in a mark."""
    return mark.partition(".")[2].rsplit(".", 2)[0]


def build(params: Params) -> Workload:
    name, at = drawn(task_of(os.environ[MARK]), params.seed, params.faults)
    steps = itertools.count()

    def step(_: None) -> int:
        if next(steps) == at:
            FAULTS[name].act()
        time.sleep(NAP_S)
        return 1

    return Workload(unit="nap", batches=lambda share: itertools.repeat(None), items=lambda batch: 0, step=step)
