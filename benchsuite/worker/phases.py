"""What the time of a worker goes to, phase by phase."""

from __future__ import annotations

import time

from benchsuite.costs import PhaseSpan
from benchsuite.measurement import WarmUp

# A shorter phase is left out: it explains nothing.
LEAST_S = 1e-3


class PhaseClock:
    """Notes the end of each phase. A phase begins where the one before it ended, the first one now."""

    def __init__(self) -> None:
        self._spans: list[PhaseSpan] = []
        self.begin()

    def begin(self) -> None:
        """The next phase begins now; the time before belongs to none."""
        self._began_s = time.monotonic()

    def end(self, name: str) -> None:
        """A phase has ended."""
        now_s = time.monotonic()
        self._add(name, self._began_s, now_s)
        self._began_s = now_s

    def end_warm_up(self, warmed: WarmUp) -> None:
        """The checks of the precision, the first step and the further steps of the warm-up have ended."""
        now_s = time.monotonic()
        began_s = now_s - warmed.elapsed_s  # what follows the last step takes no time worth a phase
        first_s = began_s + (warmed.first_step_s or 0.0)
        self._add("check precision", self._began_s, began_s)
        self._add("first step", began_s, first_s)
        self._add("warm-up", first_s, now_s)
        self._began_s = now_s

    def taken(self) -> tuple[PhaseSpan, ...]:
        """The phases so far, which are then forgotten."""
        spans, self._spans = tuple(self._spans), []
        return spans

    def _add(self, name: str, start_s: float, end_s: float) -> None:
        if end_s - start_s >= LEAST_S:
            self._spans.append(PhaseSpan(name=name, start_s=round(start_s, 6), end_s=round(end_s, 6)))
