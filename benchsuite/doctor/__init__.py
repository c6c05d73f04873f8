"""Checks of this machine: findings, each with its remedy."""

from __future__ import annotations

from typing import Literal

from benchsuite.schema import Record


class Finding(Record, frozen=True, kw_only=True):
    """The outcome of one check. "bad": results would be wrong, incomplete or impossible; "note": worth knowing."""

    about: str
    state: Literal["ok", "note", "bad"]
    text: str
    remedy: str | None = None


def ok(about: str, text: str) -> Finding:
    return Finding(about=about, state="ok", text=text)


def note(about: str, text: str, remedy: str | None = None) -> Finding:
    return Finding(about=about, state="note", text=text, remedy=remedy)


def bad(about: str, text: str, remedy: str) -> Finding:
    return Finding(about=about, state="bad", text=text, remedy=remedy)
