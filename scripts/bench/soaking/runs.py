"""A run of `benchsuite jobs` in a soak: its profile, the made-up GPUs, its start, its end, and its continuation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soaking.faults import LATE, QUICK, STEPS, TOKEN
from soaking.watch import Watch, results_in

HERE = Path(__file__).parent
GPUS, COPIES = 8, 4
QUICK_JOBS = 5
# The limit of a task that only the limit ends. It holds even if the machine is too slow to start the task within it.
LATE_LIMIT_S = 6.0
_POWER, _MEMORY, _CLOCK = "nvmlDeviceGetPowerUsage", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetClockInfo"
_ANSWERS = {
    "nvmlDeviceGetUtilizationRates": {"gpu": 97, "memory": 41},
    "nvmlDeviceGetTotalEnergyConsumption": 1_234_567,
    _CLOCK: 1980,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetComputeRunningProcesses": [],
}
# The GPUs that go wrong, and when: the number of samples, one a second, that come before.
LOST, ERRORS, HANGS = 1, 2, 3
_GOOD = 20


@dataclass
class Lane:
    """Runs one after another in one folder, with what all of them share.

    Attributes:
        out: the run folder.
        home: a folder for the profile, the output of the command, and temporary files.
        token: the value of `TOKEN` in all its processes.
        join: the command words that enter the lane's control group; empty if there is none.
        gpus: with made-up GPUs; otherwise tasks are copies on the CPU.
    """

    name: str
    out: Path
    home: Path
    seed: int
    token: str
    join: Sequence[str]
    gpus: bool
    isolation: str = "auto"
    repeats: int = 1
    watches: list[Watch] = field(default_factory=list)
    killed: set[str] = field(default_factory=set)

    @property
    def tmp(self) -> Path:
        return self.home / "tmp"

    def prepare(self, with_memory: bool) -> None:
        """Write the profile. Without a limit on their memory, tasks do not use it up."""
        self.tmp.mkdir(parents=True)
        quick = [name for name in QUICK if with_memory or name != "host memory"]
        place: dict[str, Any] = {"placement": "per_gpu"}
        if not self.gpus:
            place = {"placement": "cpu", "sharing": "concurrent", "copies": COPIES}
        common = {"entry": "soaking.faults:build", **place, "warm_up_s": 0, "min_time_s": 0, "max_time_s": 20}
        jobs: dict[str, Any] = {
            f"quick{number}": {
                "max_steps": STEPS,
                "timeout_s": 120,
                "params": {"seed": self.seed, "faults": quick},
            }
            for number in range(QUICK_JOBS)
        }
        late = {"seed": self.seed, "faults": list(LATE)}
        jobs["late"] = {"max_steps": 10**6, "timeout_s": LATE_LIMIT_S, "params": late}
        self.profile.write_text(json.dumps({"*": common, **jobs}), encoding="utf-8")

    @property
    def profile(self) -> Path:
        return self.home / f"{self.name}.json"

    @property
    def tasks_per_repeat(self) -> int:
        return (QUICK_JOBS + 1) * (GPUS if self.gpus else COPIES)

    def environ(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("BENCHSUITE", "CUDA"))}
        tests = HERE.parents[2] / "tests"
        paths = [HERE / "standins", HERE.parent, tests / "stubs"] if self.gpus else [HERE.parent]
        given = {**kept, "PYTHONPATH": os.pathsep.join(map(str, paths)), TOKEN: self.token, "TMPDIR": str(self.tmp)}
        return {**given, "FAKE_NVML": json.dumps(_scenario())} if self.gpus else {**given, "CUDA_VISIBLE_DEVICES": ""}

    def command(self, *words: str) -> list[str]:
        return [*self.join, sys.executable, "-m", "benchsuite", *words]

    def start(self) -> Watch:
        """Start the run, or continue it if it has a plan."""
        words = ["jobs", "--resume", str(self.out)]
        if not (self.out / "plan.json").exists():
            words = ["jobs", str(self.profile), "-o", str(self.out), "--isolation", self.isolation]
        with (self.home / "jobs.err").open("ab") as err:
            process = subprocess.Popen(
                self.command(*words, "--repeat", str(self.repeats)),
                env=self.environ(),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=err,
                stderr=err,
            )
        watch = Watch(process, self.out)
        self.watches.append(watch)
        return watch

    def once(self, *words: str, limit_s: float = 300) -> subprocess.CompletedProcess[str]:
        """Another command on the run, to its end."""
        return subprocess.run(
            self.command(*words), env=self.environ(), cwd=self.home, capture_output=True, text=True, timeout=limit_s
        )

    def results(self) -> int:
        """The number of results so far, those of interrupted attempts included."""
        return results_in(self.out)

    def said(self) -> str:
        """All that the runs printed."""
        return (self.home / "jobs.err").read_text(encoding="utf-8", errors="replace")


def _scenario() -> dict[str, Any]:
    """Eight cards, of which one is lost in mid-run, one answers with errors for a while, and one hangs for a while."""
    return {"devices": [_card(index) for index in range(GPUS)]}


def _card(index: int) -> dict[str, Any]:
    answers: dict[str, Any] = {**_ANSWERS, _POWER: 350_500, _MEMORY: {"total": 8 << 30, "used": 100 << 20}}
    if index == LOST:
        answers[_POWER] = {"then": [350_500] * _GOOD + [{"error": 15}]}
    if index == ERRORS:
        answers = {name: _with_errors(good, 2 if name == _CLOCK else 1) for name, good in answers.items()}
    if index == HANGS:
        answers[_POWER] = {"then": [350_500] * _GOOD + [{"sleep_s": 15}, 350_500]}
    return {
        "nvmlDeviceGetName": "Card",
        "nvmlDeviceGetUUID": f"GPU-{index}{index}",
        "nvmlDeviceGetPciInfo": {"busId": f"00000000:0{index + 1}:00.0"},
        **answers,
    }


def _with_errors(good: Any, calls_a_sample: int) -> dict[str, Any]:
    """Answers, then errors, then answers for ever."""
    return {"then": [good] * _GOOD * calls_a_sample + [{"error": 999}] * 2 * _GOOD * calls_a_sample + [good]}


def until(condition: Any, limit_s: float, every_s: float = 0.2) -> bool:
    """Wait for a condition; whether it came true within the limit."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(every_s)
    return True
