"""Do the files of a run belong together, and is it a run that a tender could demand? Findings, each with its remedy.

`check` puts the findings together: `manifest`, `plan` (profile, plan, attempts), `results` (each by itself and beside
the others), `events`, and `demands`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from benchsuite.errors import one_line
from benchsuite.report.show.format import count
from benchsuite.schema import Record

State = Literal["ok", "note", "unmet", "bad"]
# So many details are shown of one finding, unless all are asked for.
NAMED = 5


class Finding(Record, frozen=True, kw_only=True):
    """One thing looked at.

    "bad": the records contradict each other, or are not all there. "unmet": they are in order, but a tender could
    demand more; BAD under --strict, else worth a note. `details`: what it is about, one by one.
    """

    about: str
    state: State
    text: str
    remedy: str | None = None
    details: tuple[str, ...] = ()

    def is_bad(self, strict: bool) -> bool:
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
    """Names and reasons come from the files: nothing but printable text gets through."""
    clean = tuple(one_line(detail) for detail in details)
    return Finding(about=about, state=state, text=one_line(text), remedy=remedy, details=clean)


def all_or_bad(about: str, troubles: Iterable[str], fine: str, noun: str, remedy: str | None = None) -> Finding:
    """The text `fine`, or one BAD line that counts the troubles as so many `noun`s and lists them."""
    found = tuple(troubles)
    return bad(about, count(len(found), noun), remedy, found) if found else ok(about, fine)


def some(names: Iterable[str], limit: int = NAMED) -> str:
    """The first few of many, and how many more there are."""
    found = list(names)
    more = [f"and {len(found) - limit:,} more"] if len(found) > limit else []
    return ", ".join([*found[:limit], *more])
