"""One invocation: its folder with what was asked for and planned, then its tasks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from benchsuite.errors import UsageError
from benchsuite.host import machine as host
from benchsuite.launch.outcome import Setting
from benchsuite.launch.waves import Observer, Runner
from benchsuite.records import Machine, ProfileUsed, Run
from benchsuite.rundir import RunDir
from benchsuite.tasks import Plan


def execute(
    plan: Plan,
    profile: ProfileUsed,
    machine: Machine,
    out: Path,
    observer: Observer,
    *,
    repeats: int,
    command: Sequence[str],
    environ: Mapping[str, str],
) -> RunDir:
    """Make the run folder and run the plan in it.

    Raises:
        OutputError: the folder is not empty or cannot be written; nothing was started.
        Interrupted: a signal asked for the end.
    """
    code = host.code()
    run = Run(
        created=datetime.now(timezone.utc).isoformat(),
        command=tuple(command),
        profile=profile,
        repeats=repeats,
        machine=machine,
        code=code,
    )
    rundir = RunDir.create(out, run, plan)
    setting = Setting(machine, host.facts_sha256(machine), code, time.monotonic())
    Runner(rundir, setting, environ, observer).run(plan.tasks)
    return rundir


def data_root(given: str | None, environ: Mapping[str, str]) -> str | None:
    """The folder of the data sets: as given, `$BENCHSUITE_DATA`, or `data` where it exists; None where nothing is.

    Raises:
        UsageError: the folder that was asked for does not exist.
    """
    asked, source = (given, "-d") if given is not None else (environ.get("BENCHSUITE_DATA") or None, "BENCHSUITE_DATA")
    if asked is None:
        return str(Path("data").resolve()) if Path("data").is_dir() else None
    if not Path(asked).is_dir():
        raise UsageError(f"{source}: no data folder '{asked}'; make it, or name another with -d")
    return str(Path(asked).resolve())
