"""Predict how long tasks take: from the profile at first, then from the waves of this run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchsuite.describe.plan import plan_of
from benchsuite.describe.tasks import LONGEST_S, Task

# Start, building of the model and first steps of a task, as long as no wave of its job has run.
START_GUESS_S = 10.0


@dataclass
class Forecast:
    """Predicts the time of tasks from the waves that have run.

    Attributes:
        seen_s: cell -> the time of its last wave.
    """

    seen_s: dict[str, float] = field(default_factory=dict)

    def learn(self, job: str, wave_s: float) -> None:
        """Note the time of a wave.

        Args:
            job: the cell of its tasks.
        """
        self.seen_s[job] = wave_s

    def bounds_s(self, tasks: Sequence[Task]) -> tuple[float, float]:
        """The least and the most time that these tasks take. A job with a count may end anywhere between its limits."""
        least = most = 0.0
        for wave in plan_of([task for task in tasks if task.skip is None]).waves:
            job = wave.tasks[0].job
            known = self.seen_s.get(wave.tasks[0].cell)
            counts = job.max_count is not None or job.max_steps is not None or job.by_epochs
            start_s = START_GUESS_S + job.warm_up_s
            least += start_s + job.min_time_s if known is None else known
            most += start_s + (job.max_time_s if counts else job.min_time_s) if known is None else known
        return least, most


def in_words(bounds_s: tuple[float, float]) -> str:
    """ "about 2 min", "2 to 9 min" if the bounds lie apart, or "about 2 min or more" without an upper bound."""
    low, high = bounds_s
    if high >= LONGEST_S:
        return f"{in_words((low, low))} or more"
    if high < 90:
        return f"about {high:.0f} s" if high - low < 10 else f"{low:.0f} to {high:.0f} s"
    low_min, high_min = max(1, round(low / 60)), round(high / 60)
    if high_min >= 180:
        return f"{low / 3600:.1f} to {high / 3600:.1f} h" if low_min < high_min else f"about {high / 3600:.1f} h"
    return f"about {high_min} min" if low_min == high_min else f"{low_min} to {high_min} min"
