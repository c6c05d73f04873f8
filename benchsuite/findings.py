"""Findings of `benchsuite doctor` and `benchsuite verify`: what each check found, with its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from benchsuite.errors import one_line
from benchsuite.schema import Record

State = Literal["ok", "note", "unmet", "bad"]
# The number of details shown of one finding, unless the user asks for all.
NAMED = 5
_COLOURS = {"ok": "green", "note": "yellow", "BAD": "red"}


class Finding(Record, frozen=True, kw_only=True):
    """The outcome of one check.

    "bad": results would be wrong, or the records of a run contradict each other. "unmet": the records are in order, but
    a purchase could require more; BAD under --strict, else a note. `details` lists what the finding is about.
    """

    about: str
    state: State
    text: str
    remedy: str | None = None
    details: tuple[str, ...] = ()

    def is_bad(self, strict: bool = False) -> bool:
        return self.state == "bad" or (strict and self.state == "unmet")


def ok(about: str, text: str, details: Iterable[str] = ()) -> Finding:
    return _finding(about, "ok", text, None, details)


def note(about: str, text: str, remedy: str | None = None, details: Iterable[str] = ()) -> Finding:
    return _finding(about, "note", text, remedy, details)


def unmet(about: str, text: str, remedy: str, details: Iterable[str] = ()) -> Finding:
    return _finding(about, "unmet", text, remedy, details)


def bad(about: str, text: str, remedy: str | None = None, details: Iterable[str] = ()) -> Finding:
    return _finding(about, "bad", text, remedy, details)


def _finding(about: str, state: State, text: str, remedy: str | None, details: Iterable[str]) -> Finding:
    """Names and reasons come from files: control characters are removed."""
    clean = tuple(one_line(detail) for detail in details)
    return Finding(about=about, state=state, text=one_line(text), remedy=remedy, details=clean)


def lines(
    findings: Iterable[Finding], width: int, style: Callable[..., str], strict: bool = False, every: bool = False
) -> Iterator[str]:
    """Each finding as text: its mark, what it is about in `width` columns, its text, details and remedy.

    Args:
        style: `click.style`.
        every: show all details, not only the first few.
    """
    for finding in findings:
        mark = "BAD" if finding.is_bad(strict) else "ok" if finding.state == "ok" else "note"
        yield f"{style(f'{mark:<4}', fg=_COLOURS[mark])}  {finding.about:<{width}}  {finding.text}"
        shown = finding.details if every or len(finding.details) <= NAMED + 1 else finding.details[:NAMED]
        below = [f"   {detail}" for detail in shown]
        if len(shown) < len(finding.details):
            below.append(f"   and {len(finding.details) - len(shown):,} more (--all)")
        if finding.remedy and mark != "ok":
            below.append(f"-> {finding.remedy}")
        yield from (f"{'':{width + 8}}{line}" for line in below)
