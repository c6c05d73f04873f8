#!/usr/bin/env python
"""Count how often the report judges a window rightly, on simulated runs whose truth is known.

A process is a rate over time: its kind, with sizes drawn by chance. A run of 15 s or 60 s is cut into slices as the
timed loop cuts it. The true error of a process is the error, relative to its long-run rate, within which the windows of
95 % of its runs lie; it is found from many runs. A window is bad if the true error of its process exceeds the margin,
or if the level changes or drifts inside the window. Processes whose true error lies between 0.7 and 1.4 of the margin
are left out: both answers are fair there.

`python scripts/bench/steadiness.py` prints a row for each kind: how many windows are good, how many of these are
flagged (false), how many are bad, how many of these are not flagged (missed), and the share judged rightly.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchsuite.measurement import Slice
from benchsuite.report.measure.steadiness import SMALL_CHANGE, steadiness
from benchsuite.report.measure.window import window_slices

Floats = NDArray[np.float64]
Rng = np.random.Generator

# The rates of a process are constant over a cell. White noise of a slice is the mean of that of its cells.
CELL_S, SLICE_S = 0.05, 0.5
FAIR = (0.7, 1.4)
# Work per second at rate 1, so that whole items say what they should.
ITEMS = 1e6


@dataclass(frozen=True)
class Process:
    """Makes the rates of runs.

    Attributes:
        rates: the rate in each cell of a run of that number of cells; drawn anew at each call.
        step_s: length of a step at rate 1.
        limit: the long-run rate; None: the mean over runs.
        bad: the level changes or drifts inside every window; None: both answers are fair.
    """

    rates: Callable[[Rng, int], Floats]
    step_s: float = 0.02
    limit: float | None = None
    bad: bool | None = False


def log_uniform(rng: Rng, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def white(rng: Rng, cells: int, sd: float) -> Floats:
    """Factors around 1; the rates of slices have the standard deviation `sd`."""
    return np.maximum(1 + sd * math.sqrt(SLICE_S / CELL_S) * rng.normal(size=cells), 0.0)


def toggled(rng: Rng, cells: int, lengths: Callable[[Rng], tuple[float, float]], depth: float) -> Floats:
    """Rate 1 and 1 - `depth` in turns, for the seconds that `lengths` draws for each turn; at a random phase."""
    at = -rng.uniform(20, 40)
    ends = [at]
    while at < cells * CELL_S:
        for length in lengths(rng):
            at += length
            ends.append(at)
    # Work until the end of each cell, exactly, so that short turns count.
    edges, levels = np.array(ends), np.tile([1.0, 1 - depth], len(ends) // 2)
    work = np.concatenate(([0.0], np.cumsum(np.diff(edges) * levels)))
    rates: Floats = np.diff(np.interp(np.arange(cells + 1) * CELL_S, edges, work)) / CELL_S
    return rates


# --- the kinds of processes


def white_noise(rng: Rng) -> Process:
    sd = log_uniform(rng, 0.002, 0.10)
    return Process(lambda r, n: white(r, n, sd))


def wandering(rng: Rng) -> Process:
    """AR(1): a time constant of 0.5 to 5 s."""
    sd, keep = log_uniform(rng, 0.002, 0.10), math.exp(-CELL_S / log_uniform(rng, 0.5, 5.0))

    def rates(r: Rng, cells: int) -> Floats:
        level, draws = r.normal(), r.normal(size=cells) * math.sqrt(1 - keep**2)
        out = np.empty(cells)
        for i, draw in enumerate(draws):
            level = keep * level + draw
            out[i] = level
        return np.maximum(1 + sd * out, 0.0) * white(r, cells, 0.002)

    return Process(rates)


def catching_up(rng: Rng) -> Process:
    """A slice that is late is followed by one that is early: AR(1) with a negative coefficient from slice to slice."""
    sd, keep = log_uniform(rng, 0.01, 0.20), -rng.uniform(0.3, 0.9)

    def rates(r: Rng, cells: int) -> Floats:
        per = round(SLICE_S / CELL_S)
        draws = r.normal(size=cells // per + 2) * math.sqrt(1 - keep**2)
        levels = [r.normal()]
        for draw in draws:
            levels.append(keep * levels[-1] + draw)
        return np.maximum(1 + sd * np.repeat(levels, per)[:cells], 0.05)

    return Process(rates)


def periodic_bursts(rng: Rng) -> Process:
    """A reader that keeps the job waiting for a part of each period of 0.6 to 4 s."""
    period, part, depth = rng.uniform(0.6, 4.0), rng.uniform(0.1, 0.5), rng.uniform(0.1, 0.8)
    sd = log_uniform(rng, 0.002, 0.02)
    lengths = ((1 - part) * period, part * period)
    return Process(lambda r, n: toggled(r, n, lambda _: lengths, depth) * white(r, n, sd))


def random_bursts(rng: Rng) -> Process:
    """A reader that keeps the job waiting at random: gaps of 0.3 to 4 s, for 0.05 to 0.5 s."""
    gap, wait, depth = log_uniform(rng, 0.3, 4.0), log_uniform(rng, 0.05, 0.5), rng.uniform(0.1, 0.9)
    sd = log_uniform(rng, 0.002, 0.02)
    return Process(
        lambda r, n: toggled(r, n, lambda q: (q.exponential(gap), q.exponential(wait)), depth) * white(r, n, sd)
    )


def epochs(rng: Rng) -> Process:
    """A short last batch takes as long as a whole one, at the end of each epoch of 1 to 6 s; then readers start again.

    What a step of 0.01 to 0.3 s lacks, and the start of up to 0.1 s, is time without work.
    """
    epoch, sd = log_uniform(rng, 1.0, 6.0), log_uniform(rng, 0.002, 0.02)
    pause = log_uniform(rng, 0.01, 0.3) * rng.uniform(0.05, 0.95) + rng.uniform(0.0, 0.1)
    return Process(
        lambda r, n: toggled(r, n, lambda q: (epoch * (1 + 0.01 * q.normal()), pause), 1.0) * white(r, n, sd)
    )


def quick_bimodal(rng: Rng) -> Process:
    """Slices of two levels, 5 to 20 % apart, in quick turns."""
    depth, turn, sd = rng.uniform(0.05, 0.20), rng.uniform(0.4, 1.1), log_uniform(rng, 0.002, 0.02)
    return Process(lambda r, n: toggled(r, n, lambda q: (turn, turn), depth) * white(r, n, sd))


def random_bimodal(rng: Rng) -> Process:
    """Slices of two levels, 5 to 20 % apart, by chance."""
    depth, turn, sd = rng.uniform(0.05, 0.20), rng.uniform(0.2, 1.0), log_uniform(rng, 0.002, 0.02)
    return Process(
        lambda r, n: toggled(r, n, lambda q: (q.exponential(turn), q.exponential(turn)), depth) * white(r, n, sd)
    )


def slow_switching(rng: Rng) -> Process:
    """Two levels, 5 to 20 % apart, for 3 to 10 s each; one switch at least is well inside the window."""
    depth, sd = rng.uniform(0.05, 0.20), log_uniform(rng, 0.002, 0.01)
    low, high = sorted(rng.uniform(3.0, 10.0, 2))

    def rates(r: Rng, cells: int) -> Floats:
        while True:
            found = toggled(r, cells, lambda q: (q.uniform(low, high), q.uniform(low, high)), depth)
            inside = found[-round(8.5 / CELL_S) : -round(2.5 / CELL_S)]
            if np.ptp(inside) > depth / 2:
                return found * white(r, cells, sd)

    return Process(rates, bad=True)


def step_change(rng: Rng) -> Process:
    """The level changes by 3 to 50 %, between 15 and 85 % of the window."""
    by = log_uniform(rng, 0.03, 0.50) * rng.choice([-1, 1])
    sd = log_uniform(rng, 0.002, min(0.02, abs(by) / 3))

    def rates(r: Rng, cells: int) -> Floats:
        out = white(r, cells, sd)
        out[cells - round((1 + 9 * r.uniform(0.15, 0.85)) / CELL_S) :] *= 1 + by
        return out

    return Process(rates, bad=True)


def warm_up(rng: Rng) -> Process:
    """The rate starts 10 to 60 % lower and rises with a time constant of 0.3 to 8 s, from 15 s before the end on.

    Bad if the window's mean is off, or if 3 % are left of it 1.5 s into the window: that is a change of level. Both
    answers are fair if the mean is not off, and 0.7 of the margin or more is left of it at the window's begin.
    """
    size, constant_s, sd = rng.uniform(0.1, 0.6), log_uniform(rng, 0.3, 8.0), log_uniform(rng, 0.002, 0.01)

    def rates(r: Rng, cells: int) -> Floats:
        since_s = np.maximum(CELL_S * (np.arange(cells) - cells) + 15, 0.0)
        out: Floats = white(r, cells, sd) * (1 - size * np.exp(-since_s / constant_s))
        return out

    first, later = (size * math.exp(-since_s / constant_s) for since_s in (5.0, 6.5))
    return Process(rates, limit=1.0, bad=later > 0.03 or (None if first > FAIR[0] * SMALL_CHANGE else False))


def drifting(rng: Rng) -> Process:
    """A drift of 3 to 20 % per 10 s, over the last 14 s."""
    per_s = log_uniform(rng, 0.003, 0.020) * rng.choice([-1, 1])
    sd = log_uniform(rng, 0.002, min(0.02, 3 * abs(per_s)))
    return Process(
        lambda r, n: white(r, n, sd) * (1 + per_s * np.maximum(CELL_S * np.arange(n) - (CELL_S * n - 14), 0)), bad=True
    )


def stall(rng: Rng, last_s: float = 1.6) -> Process:
    """No work for 0.5 to 3 s, once: inside the window, or `last_s` before the end of the run or sooner."""
    for_s, sd = rng.uniform(0.5, 3.0), log_uniform(rng, 0.002, 0.02)

    def rates(r: Rng, cells: int) -> Floats:
        out = white(r, cells, sd)
        range_s = 7.5 if last_s < 10 else cells * CELL_S - last_s
        first = cells - round((last_s + for_s + r.uniform(0, range_s - for_s)) / CELL_S)
        out[first : first + round(for_s / CELL_S)] = 0.0
        return out

    return Process(rates, limit=1.0)


def long_slices(rng: Rng) -> Process:
    """White noise of slices that last 0.9 to 3 s: one step each, 3 to 10 in the window."""
    step_s, sd = rng.uniform(0.9, 3.0), log_uniform(rng, 0.002, 0.10)
    return Process(lambda r, n: white(r, n, sd * math.sqrt(step_s / SLICE_S)), step_s)


def long_slices_late(rng: Rng) -> Process:
    """The same, with a step change of 5 to 50 % between 30 and 70 % of the window."""
    step_s, by = rng.uniform(0.9, 2.0), log_uniform(rng, 0.05, 0.50) * rng.choice([-1, 1])
    sd = log_uniform(rng, 0.002, min(0.02, abs(by) / 4))

    def rates(r: Rng, cells: int) -> Floats:
        out = white(r, cells, sd * math.sqrt(step_s / SLICE_S))
        out[cells - round((1 + 9 * r.uniform(0.3, 0.7)) / CELL_S) :] *= 1 + by
        return out

    return Process(rates, step_s, bad=True)


KINDS: dict[str, Callable[[Rng], Process]] = {
    "white noise, 0.2-10 %": white_noise,
    "wandering (AR(1)), 0.2-10 %": wandering,
    "late, then early (negative AR(1))": catching_up,
    "bursts of a reader, periodic": periodic_bursts,
    "bursts of a reader, at random": random_bursts,
    "short last batches of epochs": epochs,
    "two levels 5-20 % apart, in turns": quick_bimodal,
    "two levels 5-20 % apart, by chance": random_bimodal,
    "two levels 5-20 % apart, slow": slow_switching,
    "a step change of 3-50 %": step_change,
    "a warm-up": warm_up,
    "a drift of 3-20 % per 10 s": drifting,
    "a stall of 0.5-3 s": stall,
    "the same before the window": partial(stall, last_s=10.6),
    "long slices, white noise": long_slices,
    "long slices, a step change": long_slices_late,
}


# --- runs, truths, and what is judged


def cut(rates: Floats, step_s: float) -> list[Slice]:
    """The slices of a run: the steps until 0.5 s have passed."""
    work = np.concatenate(([0.0], np.cumsum(rates * CELL_S)))
    ends = np.interp(np.arange(1, int(work[-1] / step_s) + 1) * step_s, work, np.arange(len(work)) * CELL_S)
    found: list[Slice] = []
    start_s, first = 0.0, 0
    while (last := int(np.searchsorted(ends, start_s + SLICE_S))) < len(ends):
        steps = last + 1 - first
        items = round(ITEMS * step_s * steps)
        found.append(Slice(start_s=start_s, end_s=float(ends[last]), steps=steps, items=items))
        start_s, first = float(ends[last]), last + 1
    return found


def window_rate(measured: Sequence[Slice]) -> float:
    inside = window_slices(measured)
    return sum(s.items for s in inside) / ITEMS / math.fsum(s.elapsed_s for s in inside)


def true_error(process: Process, rng: Rng, cells: int, runs: int) -> float:
    """The relative error within which 95 % of the windows lie."""
    means = np.array([window_rate(cut(process.rates(rng, cells), process.step_s)) for _ in range(runs)])
    limit = process.limit or means.mean()
    return float(np.quantile(abs(means / limit - 1), 0.95))


@dataclass(frozen=True)
class Judged:
    bad: bool
    flagged: bool


def judged(kind: Callable[[Rng], Process], rng: Rng, seconds: float, processes: int, runs: int) -> Iterator[Judged]:
    """One window of each process, without those of which both answers are fair."""
    cells = round(seconds / CELL_S)
    for _ in range(processes):
        process = kind(rng)
        error = math.inf if process.bad else true_error(process, rng, cells, runs)
        off = error / SMALL_CHANGE
        if FAIR[0] < off < FAIR[1] or (process.bad is None and off < 1):
            continue
        measured = cut(process.rates(rng, cells), process.step_s)
        found = steadiness(measured, window_slices(measured))
        yield Judged(off > 1, not found.steady)


def row(name: str, seconds: str, found: Sequence[Judged]) -> str:
    good, bad = [j for j in found if not j.bad], [j for j in found if j.bad]
    false, missed = sum(j.flagged for j in good), sum(not j.flagged for j in bad)
    right = 100 * (1 - (false + missed) / len(found)) if found else math.nan
    return f"{name:36} {seconds:>4} {len(good):6,} {false:6,} {len(bad):6,} {missed:7,} {right:7.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=200, help="processes of each kind and length")
    parser.add_argument("--runs", type=int, default=150, help="runs from which the true error of a process is found")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(f"{'kind':36} {'s':>4} {'good':>6} {'false':>6} {'bad':>6} {'missed':>7} {'right':>9}")
    every: list[Judged] = []
    for place, (name, kind) in enumerate(KINDS.items()):
        for seconds in (15.0, 60.0):
            rng = np.random.default_rng([arguments.seed, place, int(seconds)])
            found = list(judged(kind, rng, seconds, arguments.processes, arguments.runs))
            print(row(name, f"{seconds:.0f}", found), flush=True)
            every += found
    print(row("all", "", every))


if __name__ == "__main__":
    main()
