#!/usr/bin/env python
"""Run a thousand short tasks, of which three in four go wrong, and check that no result is lost and nothing is left.

The runs are real ones of `benchsuite jobs`, of a model without torch, on made-up GPUs and on the CPU. Four lanes:

- gpus: one process lives through most tasks. Workers are killed from outside, and GPUs stop to answer in mid-run.
- stops: the run is ended by SIGINT, SIGTERM or SIGKILL at random moments, and continued.
- disk: the disk of the run's folder is full for a while, again and again.
- bare: `--isolation none`, with a full disk below TMPDIR.

The full disks are small file systems in memory, which need root. Without it the lane `disk` is left out. Tasks that use
up their memory need a control group that this user can make.

    python scripts/bench/soak.py /tmp/soak                          # 1,008 tasks, 31 minutes on two shared processors
    python scripts/bench/soak.py /tmp/soak --tasks 200 --seed 7     # another seed draws other faults, at other moments

It prints the figures, and each problem in a line. The exit status is 1 if there is a problem.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).parent))

from soaking import checks, lanes
from soaking.faults import FAULTS
from soaking.runs import Lane
from soaking.watch import growth

from benchsuite.host.cgroups import Cgroup
from benchsuite.host.own_groups import own
from benchsuite.isolation import enter
from benchsuite.isolation.made_groups import unified_base

# Bounds what a task that eats memory takes from the machine: its lane's tasks get equal parts of it.
LANE_BYTES = 2 << 30
DISK_BYTES = 48 << 20
# Growth of one process over a run. The first results are left out: modules are still loaded with them. Of a task the
# process keeps the pids and a count, which is less than 1 KiB; the rest is for the allocator's holes.
AFTER, SPAN = 50, 48
MOST_HANDLES = 2
MOST_BYTES, MOST_BYTES_A_TASK = 2 << 20, 1 << 10
# Set in a process whose mounts are seen by no other, and end with it.
MOUNTS = "SOAK_MOUNTS"
Disturbs = Callable[[Lane, random.Random], list[str]]


@dataclass(frozen=True)
class Kind:
    """A kind of lane; `share` is its part of the tasks, and `disk` says what has a full disk."""

    name: str
    share: float
    disturb: Disturbs
    gpus: bool = False
    isolation: str = "auto"
    disk: Literal["", "out", "tmp"] = ""


KINDS = (
    Kind("gpus", 0.52, lanes.undisturbed, gpus=True),
    Kind("stops", 0.19, lanes.stopped, gpus=True),
    Kind("disk", 0.12, lanes.full_disk, disk="out"),
    Kind("bare", 0.17, lanes.undisturbed, isolation="none", disk="tmp"),
)


@dataclass
class Done:
    lane: Lane
    problems: list[str]
    seconds: float


def run_lane(kind: Kind, home: Path, tasks: int, seed: int) -> Done:
    """Run a lane to its end and check it."""
    began_s = time.monotonic()
    group = _group(kind.name) if kind.isolation == "auto" else None
    out = home / "disk" / "run" if kind.disk == "out" else home / "run"
    join = enter.prefix(group.joins()) if group else []
    lane = Lane(kind.name, out, home, seed, f"soak-{os.getpid()}-{kind.name}", join, kind.gpus, kind.isolation)
    lane.repeats = max(1, round(tasks * kind.share / lane.tasks_per_repeat))
    lane.prepare(with_memory=group is not None)
    try:
        if kind.disk == "out":
            _mount(home / "disk", DISK_BYTES)
        elif kind.disk == "tmp" and MOUNTS in os.environ:
            _mount(lane.tmp, 4096)
            lanes.fill(lane.tmp / checks.FILLER)
        problems = kind.disturb(lane, random.Random(f"{seed} {kind.name}"))
        if kind.disk == "out":
            lane.out = Path(shutil.move(lane.out, home / "run"))
        return Done(lane, problems, time.monotonic() - began_s)
    finally:
        for process in checks.living(lane.token):
            with contextlib.suppress(OSError):
                os.kill(process.pid, 9)
        if group:
            group.remove()


def _can_mount() -> bool:
    """Can this user have mounts of its own?"""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


def _mount(folder: Path, size_bytes: int) -> None:
    """Mount a file system in memory, which ends with this process."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "soak", str(folder)], check=True)


def _group(name: str) -> Cgroup | None:
    """A control group with limited memory for a lane; None if this user cannot make one."""
    place = own().get("memory")
    if place is None or not place.exact:
        return None
    base = place if place.version == 1 else unified_base(place, ["memory"])[0]
    group = Cgroup({"memory": base.below(f"soak-{os.getpid()}-{name}")})
    try:
        group.create()
        group.set_memory(LANE_BYTES)
    except OSError:
        group.remove()
        return None
    return group


def grown(done: Done) -> list[str]:
    """The growth of the lane's longest process that is over its limit."""
    found = []
    for watch in done.lane.watches:
        tasks = watch.samples[-1].results - watch.samples[0].results if watch.samples else 0
        limits = (
            ("file handles", lambda s: s.handles, MOST_HANDLES),
            ("threads", lambda s: s.threads, MOST_HANDLES),
            ("bytes of memory", lambda s: s.rss_bytes, MOST_BYTES + MOST_BYTES_A_TASK * tasks),
        )
        for what, of, limit in limits:
            if (figure := growth(watch, of, AFTER, SPAN)) and figure.grown > limit:
                found.append(f"{done.lane.name}: {figure.grown:,.0f} more {what} after {tasks} tasks; limit: {limit:,}")
    return found


def show(done: Sequence[Done]) -> None:
    """Print the figures."""
    print(f"{'lane':6} {'tasks':>5} {'runs':>4} {'killed':>6} {'seconds':>7}  RSS, handles and threads of one process")
    for one in done:
        lane = one.lane
        tasks = lane.repeats * lane.tasks_per_repeat
        counts = f"{tasks:5} {len(lane.watches):4} {len(lane.killed):6} {one.seconds:7.0f}"
        print(f"{lane.name:6} {counts}  {_growth_words(one)}")
    drawn: Counter[str] = sum((checks.faults_drawn(one.lane) for one in done), Counter())
    print(f"\n{'fault':16} {'tasks':>5}  expected")
    for name, count in sorted(drawn.items(), key=lambda item: -item[1]):
        print(f"{name:16} {count:5}  {FAULTS[name].status} {FAULTS[name].kind or ''}")


def _growth_words(done: Done) -> str:
    for watch in done.lane.watches:
        rss = growth(watch, lambda s: s.rss_bytes / 2**20, AFTER, SPAN)
        handles = growth(watch, lambda s: s.handles, AFTER, SPAN)
        threads = growth(watch, lambda s: s.threads, AFTER, SPAN)
        if rss and handles and threads:
            return (
                f"{rss.first:.1f} -> {rss.last:.1f} MiB, {handles.first:.0f} -> {handles.last:.0f}, "
                f"{threads.first:.0f} -> {threads.last:.0f}"
            )
    return "too few tasks in one process"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="new folder for the runs")
    parser.add_argument("--tasks", type=int, default=1000, help="about how many tasks [default: 1000]")
    parser.add_argument("--seed", type=int, default=1, help="draws the faults and their moments [default: 1]")
    parser.add_argument(
        "--lane", action="append", choices=[k.name for k in KINDS], help="only this lane; may be repeated"
    )
    arguments = parser.parse_args()
    if MOUNTS not in os.environ and _can_mount():
        os.environ[MOUNTS] = "own"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])
    # A shell lets its background jobs ignore SIGINT, and the runs would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments.out.mkdir(parents=True)
    kinds = [kind for kind in KINDS if not arguments.lane or kind.name in arguments.lane]
    if MOUNTS not in os.environ and any(kind.disk == "out" for kind in kinds):
        print("the lane disk is left out: this user cannot mount a file system")
        kinds = [kind for kind in kinds if kind.disk != "out"]

    def run(some: Sequence[Kind]) -> list[Done]:
        return [run_lane(kind, arguments.out.resolve() / kind.name, arguments.tasks, arguments.seed) for kind in some]

    began_s = time.monotonic()
    with ThreadPoolExecutor() as pool:
        done = [one for part in pool.map(run, [kinds[:1], kinds[1:]]) for one in part]
    show(done)
    problems = [line for one in done for line in [*one.problems, *grown(one)]]
    tasks = sum(one.lane.repeats * one.lane.tasks_per_repeat for one in done)
    print(f"\nseed {arguments.seed}: {tasks} tasks, {time.monotonic() - began_s:.0f} s; {len(problems)} problems")
    for line in problems:
        print(f"PROBLEM  {line}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
