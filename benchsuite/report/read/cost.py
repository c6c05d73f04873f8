"""Figures of a kept summary on the cost of measuring."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from benchsuite.schema import Record

# The cost of measuring that this program allows itself.
MOST = 0.005


class JobCost(Record, frozen=True, kw_only=True):
    """What measuring costs a job: the time of measured steps over that of bare ones, minus 1."""

    name: Annotated[str, Meta(description="the name under which rates pool")]
    rounds: Annotated[int, Meta(description="pairs of a bare and a measured block")]
    steps: Annotated[int, Meta(description="of a block, the least of all tasks")]
    block_s: Annotated[float, Meta(description="mean time of a bare block")]
    cost: Annotated[float, Meta(description="geometric mean over rounds; 0.001 is 0.1 %")]
    low: Annotated[float | None, Meta(description="lower end of its 95 % interval; null: under three rounds")] = None
    high: Annotated[float | None, Meta(description="upper end")] = None
    cpu: Annotated[
        float | None,
        Meta(description="the same of the worker's processor time, in which telemetry, another process, is not"),
    ] = None
    cpu_low: Annotated[float | None, Meta(description="lower end of its 95 % interval")] = None
    cpu_high: Annotated[float | None, Meta(description="upper end")] = None

    @property
    def verdict(self) -> str:
        """PASS if the whole interval is at most `MOST`, FAIL if all of it is above, else OPEN."""
        if self.low is None or self.high is None:
            return "OPEN"
        return "PASS" if self.high <= MOST else "FAIL" if self.low > MOST else "OPEN"
