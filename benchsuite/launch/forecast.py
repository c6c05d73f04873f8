"""How long tasks will take: from the profile first, from this run's own waves once it has some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchsuite.describe.plan import waves
from benchsuite.describe.tasks import Task

# Start, model building and warm-up of a task, before any of this run has shown how long they take.
START_GUESS_S = 10.0


@dataclass
class Forecast:
    """`seen_s`: how long a wave of each job took."""

    seen_s: dict[str, float] = field(default_factory=dict)

    def learn(self, job: str, wave_s: float) -> None:
        """A wave of this job took so long."""
        self.seen_s[job] = wave_s

    def bounds_s(self, tasks: Sequence[Task]) -> tuple[float, float]:
        """The least and the most that these tasks take, seconds; a count may end a job anywhere between its limits."""
        least = most = 0.0
        for wave in waves([task for task in tasks if task.skip is None]):
            job = wave[0].job
            known = self.seen_s.get(wave[0].cell)
            counts = job.max_count is not None or job.max_steps is not None
            least += START_GUESS_S + job.min_time_s if known is None else known
            most += START_GUESS_S + (job.max_time_s if counts else job.min_time_s) if known is None else known
        return least, most


def in_words(bounds_s: tuple[float, float]) -> str:
    """ "about 2 min", or "2 to 9 min" where the bounds lie apart."""
    low, high = bounds_s
    if high < 90:
        return f"about {high:.0f} s" if high - low < 10 else f"{low:.0f} to {high:.0f} s"
    low_min, high_min = max(1, round(low / 60)), round(high / 60)
    if high_min >= 180:
        return f"{low / 3600:.1f} to {high / 3600:.1f} h" if low_min < high_min else f"about {high / 3600:.1f} h"
    return f"about {high_min} min" if low_min == high_min else f"{low_min} to {high_min} min"
