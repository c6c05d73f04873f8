"""Spend the time of a run with a budget: after one pass over the profile, add repeats wave by wave while they fit."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from benchsuite.describe.budget import BUDGET, written
from benchsuite.describe.names import wave_name
from benchsuite.describe.tasks import Plan, Wave
from benchsuite.errors import BenchError, UsageError, reason
from benchsuite.launch.forecast import Forecast, in_words
from benchsuite.launch.rounds import CHOSEN_ROUNDS, Known, jobs_of_round
from benchsuite.rundir import RunDir
from benchsuite.schema import to_json
from benchsuite.writing import replace as write_again


@dataclass(frozen=True)
class Budget:
    """The time that a run may take, and how its jobs are judged.

    Attributes:
        known: reads a run's folder: row -> its weight in the score, and the log of its rate in each repeat. The numbers
            of repeats and their times are filled in from the plan.
    """

    limit_s: float
    known: Callable[[Path], Mapping[str, Known]]


def check_fits(plan: Plan, limit_s: float) -> None:
    """Refuse a budget in which not even one pass over the profile fits.

    Raises:
        UsageError: the first pass takes longer by its forecast.
    """
    bounds_s = Forecast().bounds_s([task for task in plan.tasks if task.repeat == 0])
    if bounds_s[0] > limit_s:
        at_least = written(60 * (bounds_s[0] // 60 + 1))
        raise UsageError(
            f"{BUDGET} {written(limit_s)}: one pass over the profile takes {in_words(bounds_s)}; give {BUDGET} "
            f"{at_least}, or fewer jobs with --name or --exclude"
        )


class Spending:
    """The waves that a run with a budget adds to its plan.

    Each is written to plan.json before it starts, and the time of each when it ends. A run that continues therefore
    knows what is spent.

    Args:
        plan: the waves that are planned already, with the times of those that have run.
        say: shows a line.
        since_s: the time of CLOCK_MONOTONIC from which the first wave counts.
    """

    def __init__(self, budget: Budget, rundir: RunDir, plan: Plan, say: Callable[[str], None], since_s: float) -> None:
        self._budget, self._rundir, self._say = budget, rundir, say
        self._waves = {wave.name: wave for wave in plan.waves}
        self._since_s = since_s
        self._goes_on = True
        self._round = max((wave.tasks[0].repeat for wave in plan.waves), default=0)
        if all(wave_name(row, self._round) in self._waves for row in self._rows()):
            self._round += 1

    @property
    def spent_s(self) -> float:
        """The time that has gone: that of all waves, and since the last one."""
        waves_s = sum(wave.took_s or 0.0 for wave in self._waves.values())
        return waves_s + time.monotonic() - self._since_s

    @property
    def left_words(self) -> str:
        """ "30m, of which 12m30s are left"."""
        left_s = max(0.0, self._budget.limit_s - self.spent_s)
        return f"{written(self._budget.limit_s)}, of which {written(left_s)} are left"

    def ended(self, wave: Wave) -> None:
        """A wave is over: note its time, which begins at the end of the wave before."""
        now_s = time.monotonic()
        took_s = (self._waves[wave.name].took_s or 0.0) + now_s - self._since_s
        self._waves[wave.name] = msgspec.structs.replace(self._waves[wave.name], took_s=round(took_s, 3))
        self._since_s = now_s
        self._write()

    def further(self) -> Iterator[Wave]:
        """The waves that are added, as long as one fits."""
        idle, refused = 0, False
        while idle <= CHOSEN_ROUNDS and self._goes_on:  # where no chosen job fits, another one may
            if self._nothing_fits():
                refused = True
                break
            added = 0
            for row in self._jobs():
                wave = self._next_of(row)
                if wave is None:
                    continue
                if not self._fits(row):
                    refused = True
                    continue
                self._waves[wave.name] = wave
                self._write()
                if not self._goes_on:
                    return
                added += 1
                yield wave
            idle = 0 if added else idle + 1
            self._round += 1
        end = "no further repeat fits" if refused else "no job is repeated further"
        limit = written(self._budget.limit_s)
        self._say(f"{BUDGET} {limit}: {written(self.spent_s)} used, {self._repeats()}; {end}")

    def _jobs(self) -> Sequence[str]:
        """The rows of the present round, by what is known now."""
        rows = self._rows()
        try:
            found = self._budget.known(self._rundir.path)
        except BenchError as error:
            self._say(f"no further repeats: {error}")
            self._goes_on = False
            return ()
        jobs = {
            row: replace(
                found.get(row, Known(0.0, (), 0, 0.0)),
                run=sum(wave.took_s is not None for wave in waves),
                repeat_s=self._expected_s(row),
            )
            for row, waves in rows.items()
        }
        return jobs_of_round(self._round, jobs)

    def _rows(self) -> dict[str, list[Wave]]:
        """The waves of each row that can be repeated. A training to its end, and a row without a task, cannot."""
        rows: dict[str, list[Wave]] = defaultdict(list)
        for wave in self._waves.values():
            first = wave.tasks[0]
            if not first.job.by_epochs and any(task.skip is None for task in wave.tasks):
                rows[first.row].append(wave)
        return rows

    def _expected_s(self, row: str) -> float:
        """The longest repeat so far. The first is left out if there are others, since it also loads the files."""
        times = [wave.took_s for wave in self._rows()[row] if wave.took_s is not None]
        return max(times[1:] or times, default=0.0)

    def _fits(self, row: str) -> bool:
        return self._expected_s(row) <= self._budget.limit_s - self.spent_s

    def _nothing_fits(self) -> bool:
        rows = self._rows()
        return bool(rows) and not any(map(self._fits, rows))

    def _next_of(self, row: str) -> Wave | None:
        """The wave of a row in the present round; None if the plan has it already."""
        name = wave_name(row, self._round)
        return None if name in self._waves else _again(self._rows()[row][0], self._round)

    def _repeats(self) -> str:
        """ "3 to 7 repeats of a job"."""
        counts = sorted({len(waves) for waves in self._rows().values()}) or [0]
        shown = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        return f"{shown} {'repeat' if counts == [1] else 'repeats'} of each job"

    def _write(self) -> None:
        try:
            write_again(self._rundir.path / "plan.json", to_json(Plan(waves=tuple(self._waves.values())), indent=2))
        except OSError as error:
            if self._goes_on:
                self._say(f"plan.json could not be written, so no repeats are added: {reason(error)}")
            self._goes_on = False


def _again(wave: Wave, repeat: int) -> Wave:
    """The same wave in another repeat, with the names that `make_plan` gives it."""
    first = wave.tasks[0]
    name = wave_name(first.row, repeat)
    tasks = tuple(
        msgspec.structs.replace(
            task,
            id=f"{task.cell}.J{repeat}{task.id.removeprefix(f'{task.cell}.J{task.repeat}')}",
            repeat=repeat,
            wave=name,
        )
        for task in wave.tasks
    )
    return Wave(name=name, tasks=tasks)
