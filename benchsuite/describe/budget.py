"""A budget: the time that a run may take, as a user writes it after `--budget`."""

from __future__ import annotations

import re

from benchsuite.errors import UsageError

BUDGET = "--budget"
_UNITS_S = {"h": 3600, "m": 60, "s": 1}
_LARGEST_S = 30 * 24 * 3600


def budget_s(text: str) -> int:
    """The seconds of a time such as 30m, 2h, 1h30m or 90s.

    Raises:
        UsageError: the text is no such time, or the time is 0 or above 30 days.
    """
    found = re.fullmatch(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?", text.strip(), re.ASCII | re.IGNORECASE)
    seconds = (
        sum(int(number or 0) * unit_s for number, unit_s in zip(found.groups(), _UNITS_S.values(), strict=True))
        if found
        else 0
    )
    if not 0 < seconds <= _LARGEST_S:
        raise UsageError(f"{BUDGET} {text!r}: write a time of at most 30 days, such as 30m, 2h, 1h30m or 90s")
    return seconds


def written(seconds: float) -> str:
    """A time as `budget_s` reads it, to the second: 1h30m, 30m or 90s. Below two minutes it is in seconds."""
    left = round(seconds)
    if left < 120:
        return f"{left}s"
    parts = []
    for unit, unit_s in _UNITS_S.items():
        number, left = divmod(left, unit_s)
        parts += [f"{number}{unit}"] * (number > 0)
    return "".join(parts)
