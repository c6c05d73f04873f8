"""Figures and foreign text as words: `n/a` for None, thousands separators, one line without control characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from benchsuite import errors

if TYPE_CHECKING:  # light to import: no scipy
    from benchsuite.report.measure.intervals import Interval

NONE = "n/a"
# Up to this half width an interval is about symmetric.
_NARROW = 0.1


def number(value: float | None) -> str:
    """Three or four significant digits: 0.0664, 1.52, 47.87, 483.2, 4,214 and 314,000."""
    if value is None:
        return NONE
    if 0 < abs(value) < 0.1:
        return f"{value:.3g}"
    if abs(value) >= 1e15:
        return f"{value:.4g}"
    # Rounded first: 99.996 has four digits as 100.0.
    rounded = float(f"{value:.4g}")
    decimals = 2 if abs(rounded) < 100 else 1 if abs(rounded) < 1000 else 0
    return f"{rounded:,.{decimals}f}"


def ratio(value: float | None) -> str:
    """Two decimals, three below 0.1."""
    return NONE if value is None else f"{value:.2f}" if value >= 0.1 or value == 0 else f"{value:.3g}"


def bounds(low: float | None, high: float | None) -> str:
    """An interval of a ratio, with one digit more than the ratio."""
    return NONE if low is None or high is None else f"{low:.3f} to {high:.3f}"


def share(value: float | None) -> str:
    """A share as percent, one decimal, without "%", which stands in the column's name."""
    return NONE if value is None else f"{100 * value:.1f}"


def signed(value: float) -> str:
    """A relative difference in percent with its sign: "+0.4", "-3.2"; "0.0" has none."""
    text = f"{100 * value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def whole(value: float | None) -> str:
    """Without decimals."""
    return NONE if value is None else f"{value:,.0f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share as percent."""
    return NONE if value is None else f"{100 * value:.{digits}f} %"


def around(interval: Interval, value: float | None) -> str:
    """The interval relative to its middle: "±1.2 %", or both ends if it is wide, since it is then not symmetric."""
    if interval.half <= _NARROW or not value:
        return f"±{percent(interval.half)}"
    low, high = (end / value - 1 for end in (interval.low, interval.high))
    return f"{100 * high:+,.0f} {100 * low:+.0f} %"


def count(number_of: int, noun: str) -> str:
    """ "1 task", "2 tasks"."""
    return f"{number_of:,} {noun}" if number_of == 1 else f"{number_of:,} {noun}s"


def few(names: Iterable[str], limit: int) -> list[str]:
    """The first `limit` names, then "and 3 more"."""
    found = list(names)
    return [*found[:limit], *([f"and {len(found) - limit:,} more"] if len(found) > limit else [])]


def one_line(text: str | None, limit: int = 160) -> str:
    """The first line of foreign text without control characters, cut at `limit` characters."""
    lines = [line for line in (text or "").splitlines() if line.strip()] or ["no reason is recorded"]
    clean = errors.one_line(lines[0])
    return clean if len(clean) <= limit else f"{clean[: limit - 3]}..."
