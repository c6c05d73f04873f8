"""What a run has found of the jobs whose `copies` is `fit`."""

from __future__ import annotations

from collections.abc import Mapping

from benchsuite.rundir import RunDir, read_record
from benchsuite.searches import CopiesSearch, Searches

NAME = "searches.json"


def searches(rundir: RunDir) -> Mapping[str, CopiesSearch]:
    """The search of each cell. Raises ResultError: the file is damaged."""
    file = rundir.path / NAME
    return read_record(file, Searches).cells if file.exists() else {}
