"""One invocation: its folder with what was asked for and planned, then its tasks, or those that an earlier one left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from benchsuite.errors import UsageError
from benchsuite.files import look
from benchsuite.host import machine as host
from benchsuite.launch.lock import locked
from benchsuite.launch.outcome import Setting
from benchsuite.launch.resume import Resumed, reopen
from benchsuite.launch.waves import Observer, Runner
from benchsuite.records import Machine, ProfileUsed, Run
from benchsuite.rundir import LOCK, RunDir, check_empty, make_folder
from benchsuite.tasks import Plan


class Showing(Observer, AbstractContextManager["Showing"], Protocol):
    """An observer that is entered while a run is on."""


def execute(
    plan: Plan,
    profile: ProfileUsed,
    machine: Machine,
    out: Path,
    observer: Showing,
    *,
    command: Sequence[str],
    environ: Mapping[str, str],
) -> RunDir:
    """Make the run folder and run the plan in it.

    Raises:
        OutputError: the folder is in use, not empty or cannot be written; nothing was started.
        Interrupted: a signal asked for the end.
    """
    setting = _setting(machine)
    run = Run(
        created=datetime.now(timezone.utc).isoformat(),
        command=tuple(command),
        profile=profile,
        repeats=max((t.repeat for t in plan.tasks), default=-1) + 1,
        machine=machine,
        code=setting.code,
    )
    make_folder(out)
    if not (out / LOCK).exists():
        check_empty(out)  # what is no run's folder is left as it is, without even a lock
    with locked(out):
        rundir = RunDir.create(out, run, plan)
        with observer:
            Runner(rundir, setting, environ, observer).run(plan.tasks)
    return rundir


def resume(
    plan: Plan,
    machine: Machine,
    out: Path,
    observer: Callable[[Resumed], Showing],
    *,
    command: Sequence[str],
    environ: Mapping[str, str],
) -> RunDir:
    """Go on with the run in a folder, by the rules of `reopen`; `observer` is made once it is known what is left.

    Raises:
        OutputError: the folder is in use or cannot be written.
        ResultError, ProfileError, UsageError: there is no such run, or it is not the one that is asked for.
        Interrupted: a signal asked for the end.
    """
    setting = _setting(machine)
    if look(out) != "folder":
        raise UsageError(f"{out}: no such folder to go on with; start it without --resume")
    with locked(out):
        rundir = RunDir(out)
        left = reopen(rundir, plan, command, setting)
        with observer(left) as watching:
            Runner(rundir, setting, environ, watching, left.attempts).run(left.tasks)
    return rundir


def _setting(machine: Machine) -> Setting:
    return Setting(machine, host.facts_sha256(machine), host.code(), time.monotonic())


def data_root(given: str | None, environ: Mapping[str, str]) -> str | None:
    """The folder of the data sets: as given, `$BENCHSUITE_DATA`, or `data` where it exists; None where nothing is.

    Raises:
        UsageError: the folder that was asked for does not exist.
    """
    asked, source = (given, "-d") if given is not None else (environ.get("BENCHSUITE_DATA") or None, "BENCHSUITE_DATA")
    if asked is None:
        return str(Path("data").resolve()) if Path("data").is_dir() else None
    if look(Path(asked)) != "folder":
        raise UsageError(f"{source}: no data folder '{asked}'; make it, or name another with -d")
    return str(Path(asked).resolve())
