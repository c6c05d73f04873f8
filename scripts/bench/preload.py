#!/usr/bin/env python
"""Show whether a fork from a preloaded process changes a figure, and what it saves.

Each round runs the jobs twice, in turns: with workers that are forked (`--preload`), and with workers that start anew.
Ratios are forked over started anew, geometric means over rounds with 95 % intervals. "per CPU s" is the rate over the
CPUs kept busy, which a busy machine changes less. "equal" compares the last loss of a fixed number of steps, to the
seven digits that are kept; "host GiB" is the difference of the peak of the resident set. The last lines are the wall
time and the share of it that is measured.

On a GPU: `python scripts/bench/preload.py lite --rounds 5`. On a CPU:
`OMP_NUM_THREADS=1 python scripts/bench/preload.py smoke --name vae --name cart --rounds 6`.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scipy.special import stdtrit

from benchsuite.records import Result
from benchsuite.report.read.load import load
from benchsuite.report.read.wall import WallTime
from benchsuite.report.stats.summarise import summarise
from benchsuite.rundir import results

WAYS = {"forked": ("--preload",), "anew": ()}


def run(words: Sequence[str], way: str, folder: Path, changes: Sequence[str]) -> float:
    """Run the jobs; the processor seconds of all processes."""
    before = os.times()
    command = [sys.executable, "-m", "benchsuite", "jobs", *words, *WAYS[way], "-o", str(folder), "--", *changes]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def read(folder: Path) -> tuple[list[Result], dict[str, float], WallTime]:
    """The results, the rate of each task, and the wall time."""
    loaded = load(folder)
    summary = summarise(loaded)
    assert summary.wall
    rates = {task.id: task.perf for job in summary.jobs for task in job.tasks if task.perf}
    return [one for _, one in results(folder) if isinstance(one, Result)], rates, summary.wall


def interval(ratios: Sequence[float]) -> str:
    """The geometric mean of ratios and its 95 % interval."""
    logs = [math.log(one) for one in ratios]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return f"{math.exp(mean):.4f}"
    half = stdtrit(len(logs) - 1, 0.975) * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(mean):.4f} ({math.exp(mean - half):.4f} to {math.exp(mean + half):.4f})"


def losses(words: Sequence[str], steps: int, folder: Path, changes: Sequence[str]) -> dict[str, bool]:
    """Job -> whether the last losses of its tasks are equal to the last bit."""
    found: dict[str, dict[str, tuple[bool | None, float | None]]] = defaultdict(dict)
    for way in WAYS:
        fixed = ("--warm-up-s", "0", "--max-steps", str(steps), "--min-time-s", "0", "--max-time-s", "600")
        run(words, way, folder / f"losses-{way}", (*changes, *fixed))
        for one in read(folder / f"losses-{way}")[0]:
            streams = one.measurement.streams
            found[one.task.id][way] = (one.forked, streams[0].losses[-1] if streams and streams[0].losses else None)
    equal = {}
    for name, by_way in found.items():
        (forked, one), (_, other) = by_way["forked"], by_way["anew"]
        print(f"  {name}: forked {forked}, last loss after {steps} steps: forked {one!r}, anew {other!r}")
        equal[name] = one == other
    return equal


@dataclass
class Seen:
    """What the rounds have shown so far, by task or by way."""

    ratios: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    per_cpu: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    resident: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    walls: dict[str, list[WallTime]] = field(default_factory=lambda: defaultdict(list))
    cpu_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, words: Sequence[str], changes: Sequence[str], folder: Path, order: Sequence[str]) -> None:
        """Run a round."""
        rates: dict[str, dict[str, float]] = {}
        busy: dict[str, dict[str, float]] = defaultdict(dict)
        for way in order:
            out = folder / way
            self.cpu_s[way].append(run(words, way, out, changes))
            found, rates[way], wall = read(out)
            self.walls[way].append(wall)
            for one in found:
                seen = one.telemetry.tenant if one.telemetry else None
                if seen and seen.cpus and one.task.id in rates[way]:
                    busy[way][one.task.id] = rates[way][one.task.id] / seen.cpus
                peaks = [stream.peak_memory for stream in one.measurement.streams if stream.peak_memory]
                self.resident[one.task.id][way] += [
                    peak.host_rss_bytes / 2**30 for peak in peaks if peak.host_rss_bytes
                ]
        for of, into in ((rates, self.ratios), (busy, self.per_cpu)):
            for name in of["forked"].keys() & of["anew"].keys():
                into[name].append(of["forked"][name] / of["anew"][name])

    def show(self, equal: dict[str, bool]) -> None:
        """Print the table."""
        print(f"{'task':<16}{'n':>3}  {'rate':<28}{'rate per CPU s':<28}{'equal':<7}host GiB")
        for name in sorted({*self.ratios, *equal}):
            both = {way: statistics.fmean(values) for way, values in self.resident[name].items() if values}
            shown = [interval(of[name]) if of[name] else "n/a" for of in (self.ratios, self.per_cpu)]
            difference = both.get("forked", math.nan) - both.get("anew", math.nan)
            same = "yes" if equal.get(name) else "NO"
            print(f"{name:<16}{len(self.ratios[name]):>3}  {shown[0]:<28}{shown[1]:<28}{same:<7}{difference:+.3f}")
        for way, of_way in self.walls.items():
            wall_s, share = (statistics.fmean(of) for of in ([w.seconds for w in of_way], [w.measured for w in of_way]))
            cpu_s = statistics.fmean(self.cpu_s[way])
            print(f"{way:<8} wall {wall_s:.1f} s, {100 * share:.1f} % measured, {cpu_s:.1f} CPU s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog="After -- come job fields and parameters, as for 'benchsuite jobs'.",
    )
    parser.add_argument("profile")
    parser.add_argument("--name", action="append", default=[], metavar="JOB")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="steps for the losses (default: %(default)s)")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    chosen, changes = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1 :]
    words = [chosen.profile, *(word for name in chosen.name for word in ("--name", name))]
    seen = Seen()
    with tempfile.TemporaryDirectory(prefix="benchsuite-") as place:
        equal = losses(words, chosen.steps, Path(place), changes)
        for number in range(chosen.rounds):
            order = [*WAYS] if number % 2 else [*reversed(WAYS)]
            seen.add(words, changes, Path(place) / str(number), order)
            seen.show(equal)


if __name__ == "__main__":
    main()
