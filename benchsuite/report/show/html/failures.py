"""The failed tasks with type, message, last lines, and a link to the log beside the page."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from benchsuite.describe.tasks import lacks_gpus
from benchsuite.report.read.load import OPEN, Loaded, Row
from benchsuite.rundir import RunDir

# The last lines shown of each failure, and the number of different failures shown.
_LAST_LINES = 40
MOST_FAILURES = 100
_LONGEST_LINE = 500


@dataclass(frozen=True)
class Log:
    """The file of a task's standard error; `href` is relative to the page, None if the page has no place."""

    path: str
    href: str | None


@dataclass(frozen=True)
class Trouble:
    """Tasks of a job that failed alike: the first one with its last lines, and the number of the others."""

    task: str
    status: str
    kind: str
    message: str
    lines: str
    alike: int
    log: Log | None


def troubles(loaded: Loaded, page: Path | None) -> list[Trouble]:
    """The failures of a results folder, those of the most tasks first.

    Args:
        page: the file of the page, from which links lead to the logs.
    """
    alike: dict[tuple[str, str, str, str, str], list[Row]] = defaultdict(list)
    for row in loaded.rows:
        if row.status not in ("ok", *OPEN) and not lacks_gpus(row.task):
            alike[(row.task.row, row.status, *_words(row))].append(row)
    return [
        Trouble(
            task=f"{same[0].task.id} on {same[0].task.device}",
            status=status,
            kind=kind if kind != status else "",
            message=message,
            lines=lines,
            alike=len(same) - 1,
            log=_log(loaded, same[0], page),
        )
        for (_, status, kind, message, lines), same in sorted(alike.items(), key=lambda entry: -len(entry[1]))
    ]


def _words(row: Row) -> tuple[str, str, str]:
    """Type, message and last lines of a failure."""
    error = row.result.error if row.result else None
    if error is None:
        return "", (row.reason or "no reason is recorded")[:_LONGEST_LINE], ""
    lines = (error.traceback or "").splitlines()[-_LAST_LINES:]
    return error.kind, error.message[:_LONGEST_LINE], "\n".join(line[:_LONGEST_LINE] for line in lines)


def _log(loaded: Loaded, row: Row, page: Path | None) -> Log | None:
    """The log of a row's task; None if the folder no longer has it."""
    if row.result is None:
        return None
    file = RunDir(loaded.path).log(row.task, row.result.identity.attempt, "err")
    if not file.is_file():
        return None
    if page is None:
        return Log(str(file), None)
    # "./" keeps a name with a colon from being read as the scheme of an address.
    relative = os.path.relpath(file.absolute(), page.absolute().parent)
    return Log(str(file), f"./{quote(relative)}")
