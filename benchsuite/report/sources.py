"""The summary of any path that a user names: a file of a summary or a result, a run folder, files of milarun 2020."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from benchsuite import files
from benchsuite.errors import ResultError, UsageError, nearest
from benchsuite.report.milarun import results, summary_files
from benchsuite.report.read.load import load, load_file
from benchsuite.report.read.summary import Summary
from benchsuite.report.read.summary_file import read_summary
from benchsuite.report.stats.sessions import together
from benchsuite.report.stats.summarise import summarise
from benchsuite.schema import kind_of

_REPORT = re.compile(rb'"kind":\s*"(report|systems|fleet)"')
# More than a headline needs.
_HEAD_BYTES = 4096


def summary_of(path: Path) -> Summary:
    """The summary in a file, of the result in a file, or of a results folder, also of milarun 2020.

    Args:
        path: the file or folder, or the name of a shipped baseline.

    Raises:
        ResultError: neither a summary, a result nor a folder with results.
    """
    path = _meant(path)
    if path.is_file():
        if _is_report(path):
            remedy = "name the run itself, or keep its summary with 'benchsuite summary OUT -o FILE'"
            raise ResultError(f"{path}: what 'report --json' wrote, which no command reads; {remedy}")
        if is_result(path):
            return summarise(load_file(path))
        return summary_files.read_file(path) or read_summary(path)
    loaded = load(path)
    own = loaded.rows or loaded.reruns or loaded.run or loaded.planned
    return (None if own else results.read_folder(path, loaded.bad_files)) or summarise(loaded)


def _meant(path: Path) -> Path:
    """The path itself, or the file of the shipped baseline that it names.

    Raises:
        ResultError: there is neither.
    """
    known = files.shipped("baselines")
    if files.look(path):
        return path
    if str(path) not in known:
        remedy = f"name a results folder, a summary, a result or a baseline{nearest(path.stem, known)}"
        raise ResultError(f"{path}: no such folder or file; {remedy}")
    return known[str(path)]


def is_result(path: Path) -> bool:
    """Whether a path is the file of one result."""
    return kind_of(_head(path)) == "result"


def _is_report(path: Path) -> bool:
    """Whether a path is what `report --json` wrote. The kind stands behind the headline there."""
    return bool(_REPORT.search(_head(path)))


def _head(path: Path) -> bytes:
    """The first bytes of a file; empty if it cannot be read, for a reason that `read_summary` names."""
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError:
        return b""


def summary_of_runs(paths: Sequence[Path]) -> Summary:
    """The summary of one path, or of several runs of one machine with each run as a session.

    Raises:
        ResultError: a path is no run, or the runs cannot be sessions of one machine.
    """
    return together([summary_of(path) for path in paths], [str(path) for path in paths])


def run_names(name: str) -> list[str]:
    """The names in `RUN,RUN,RUN`; a file or folder whose name has commas is one name.

    Raises:
        UsageError: a name is empty.
    """
    names = [name] if name and files.look(Path(name)) else name.split(",")
    if not all(part.strip() for part in names):
        raise UsageError(f"'{name}': an empty name of a run; separate several runs by one comma each")
    return names
