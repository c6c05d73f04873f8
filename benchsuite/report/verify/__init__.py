"""Do the files of a run belong together, and does it meet what a purchase requires? Findings, each with its remedy.

`check` puts the findings together: `manifest`, `plan` (profile, plan, attempts), `results` (each by itself and beside
the others), `events`, `demands` and `measured`.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchsuite.findings import NAMED, Finding, bad, ok
from benchsuite.report.format import count, few


def all_or_bad(
    about: str, troubles: Iterable[str], fine: str, noun: str = "contradiction", remedy: str | None = None
) -> Finding:
    """An ok finding with the text `fine`; with troubles a BAD one, which counts them by `noun` and lists them."""
    found = tuple(troubles)
    return bad(about, count(len(found), noun), remedy, found) if found else ok(about, fine)


def some(names: Iterable[str], limit: int = NAMED) -> str:
    """The first `limit` names, and how many more there are."""
    return ", ".join(few(names, limit))
