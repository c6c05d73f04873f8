"""Refuse a run whose records would hold a secret, or text that is not UTF-8, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchsuite.describe.secrets import REMEDY, secret_in
from benchsuite.describe.tasks import Plan
from benchsuite.errors import UsageError
from benchsuite.records import Run

_WORDS = {
    "command": "the command line",
    "profile.path": "the profile's path",
    "data_root": "the data folder",
    "out": "the folder of the results",
    "cwd": "the working folder",
    "rerun_of.result": "the result's file name",
}


def check(run: Run, plan: Plan, out: Path) -> None:
    """Refuse secrets, and text with bytes that are not UTF-8, as a path or an environment variable may have.

    Args:
        out: the folder of the run, whose path each worker reads.

    Raises:
        UsageError: there is such a text; the message names it.
    """
    check_command(run.command)
    _refuse_secret("the profile", run.profile.text)
    for name, value in {item for task in plan.tasks for item in task.environ.items()}:
        _refuse_secret(f"the environment variable {name}", value)
    for record in (run, *plan.tasks, {"out": str(out)}):
        for place, text in _texts(msgspec.to_builtins(record), ""):
            if any("\ud800" <= character <= "\udfff" for character in text):
                where = _WORDS.get(place, place)
                if place.startswith("environ."):
                    where = f"the environment variable {place.partition('.')[2]}"
                raise UsageError(f"{where}: {text!a} is not UTF-8, so that no record can hold it; rename it")


def check_command(command: Sequence[str]) -> None:
    """Raises UsageError: a command line, which the records keep, holds what looks like a secret."""
    _refuse_secret("the command line", " ".join(command))


def _refuse_secret(where: str, text: str) -> None:
    if found := secret_in(text):
        raise UsageError(f"{where}: {found} {REMEDY}")


def _texts(content: Any, place: str) -> Iterator[tuple[str, str]]:
    """Each text in a record with the names of the fields around it; a list has no names."""
    if isinstance(content, str):
        yield place, content
    elif isinstance(content, dict):
        for name, value in content.items():
            yield from _texts(value, f"{place}.{name}" if place else name)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from _texts(value, place)
