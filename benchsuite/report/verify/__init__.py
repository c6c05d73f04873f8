"""Do the files of a run belong together, and is it a run that a tender could demand? Findings, each with its remedy.

`check` puts the findings together: `sealed` (the manifest), `planned` (profile, plan, attempts), `kept` (each result by
itself and beside the others), and `demands`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from benchsuite.report.figures import count, one_line
from benchsuite.schema import Record

NAMED = 5


class Finding(Record, frozen=True, kw_only=True):
    """One thing looked at.

    "bad": the records contradict each other, or are not all there. "unmet": they are in order, but a tender could
    demand more; BAD under --strict, else worth a note. `details`: what it is about, one by one.
    """

    about: str
    state: Literal["ok", "note", "unmet", "bad"]
    text: str
    remedy: str | None = None
    details: tuple[str, ...] = ()

    def is_bad(self, strict: bool) -> bool:
        return self.state == "bad" or (strict and self.state == "unmet")


def ok(about: str, text: str) -> Finding:
    return Finding(about=about, state="ok", text=text)


def note(about: str, text: str, remedy: str | None = None, details: Iterable[str] = ()) -> Finding:
    return Finding(about=about, state="note", text=text, remedy=remedy, details=tuple(details))


def unmet(about: str, text: str, remedy: str, details: Iterable[str] = ()) -> Finding:
    return Finding(about=about, state="unmet", text=text, remedy=remedy, details=tuple(details))


def bad(about: str, text: str, remedy: str | None = None, details: Iterable[str] = ()) -> Finding:
    return Finding(about=about, state="bad", text=text, remedy=remedy, details=tuple(details))


def all_or_bad(about: str, troubles: Iterable[str], fine: str, noun: str, remedy: str | None = None) -> Finding:
    """The text `fine`, or one BAD line that counts the troubles as so many `noun`s and lists them."""
    found = tuple(one_line(trouble, 200) for trouble in troubles)
    return bad(about, count(len(found), noun), remedy, found) if found else ok(about, fine)


def some(names: Iterable[str], limit: int = NAMED) -> str:
    """The first few of many, and how many more there are."""
    found = list(names)
    more = [f"and {len(found) - limit:,} more"] if len(found) > limit else []
    return ", ".join([*found[:limit], *more])
