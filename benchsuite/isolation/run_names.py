"""The names of the control groups of runs, which say whether a run is alive."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from benchsuite.host import kernel_files

# A name without a namespace is that of an earlier version.
_RUN = re.compile(r"benchsuite-(?P<pid>\d+)-(?P<ticks>\d+)(-ns(?P<namespace>\d+))?(-\d+)?")
_runs = itertools.count()


def new() -> str:
    """A new name that holds this process's pid, start time and pid namespace.

    Two containers that share a hierarchy may each have a process of the same pid.
    """
    name, number = f"benchsuite-{os.getpid()}-{kernel_files.started_ticks(os.getpid())}", next(_runs)
    if namespace := kernel_files.pid_namespace():
        name = f"{name}-ns{namespace}"
    return f"{name}-{number}" if number else name


@dataclass(frozen=True)
class RunName:
    """The process after which the group of a run is named.

    Attributes:
        ticks: when it began, see `kernel_files.started_ticks`.
        here: its pid counts in the pid namespace of this process.
    """

    pid: int
    ticks: int
    here: bool

    @classmethod
    def of(cls, folder: Path) -> RunName | None:
        """The process that the name of a folder holds; None if it holds none."""
        match = _RUN.fullmatch(folder.name)
        if match is None:
            return None
        here = match["namespace"] in (None, str(kernel_files.pid_namespace()))
        return cls(int(match["pid"]), int(match["ticks"]), here)

    def alive(self) -> bool:
        """Does the process run? Known only if its pid counts here."""
        return kernel_files.started_ticks(self.pid) == self.ticks
