"""The summary of any paths that a user names: a summary's file, a run folder, or files of milarun 2020."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchsuite import files
from benchsuite.errors import UsageError
from benchsuite.report.milarun import results, summary_files
from benchsuite.report.read.load import load
from benchsuite.report.read.summary import Summary
from benchsuite.report.read.summary_file import read_summary
from benchsuite.report.stats.sessions import together
from benchsuite.report.stats.summarise import summarise


def summary_of(path: Path) -> Summary:
    """The summary in a file, or of a results folder, also of milarun 2020.

    Raises:
        ResultError: neither a summary nor a folder with results.
    """
    if path.is_file():
        return summary_files.read_file(path) or read_summary(path)
    loaded = load(path)
    own = loaded.rows or loaded.reruns or loaded.run or loaded.planned
    return (None if own else results.read_folder(path, loaded.bad_files)) or summarise(loaded)


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
