"""The summary of any path that a user names: a summary's file, a run folder, or files of milarun 2020."""

from __future__ import annotations

from pathlib import Path

from benchsuite.report.milarun import results, summary_files
from benchsuite.report.read.load import load
from benchsuite.report.read.summary import Summary
from benchsuite.report.read.summary_file import read_summary
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
