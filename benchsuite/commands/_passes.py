"""Passes of the probes over a node, with the state of its GPUs before and after."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from benchsuite.describe.invocation import program
from benchsuite.errors import BenchError, Interrupted, OutputError, reason

if TYPE_CHECKING:
    from benchsuite.describe.tasks import Gpu, Plan
    from benchsuite.health.state import NodeState, Watched
    from benchsuite.launch.resume import Left


def run(
    profile: str,
    mode: str,
    out: str | None,
    *,
    seconds: float = 0.0,
    expected_gpus: int | None = None,
    judged: Callable[[Path], None] = lambda folder: None,
) -> Path:
    """Run the probes once, and again until `seconds` have passed.

    Args:
        profile: a shipped profile or a file.
        mode: quick, accept or soak.
        out: the run folder; None for a new one below `results`.
        expected_gpus: the number of GPUs that the node is to have.
        judged: called with the folder after each pass but the last.

    Returns:
        The run folder.

    Raises:
        BenchError: the profile, the folder or the machine is wrong; nothing was started.
        Interrupted: a signal asked for the end.
    """
    from benchsuite.describe import profile as profiles
    from benchsuite.describe.plan import make_plan
    from benchsuite.health.state import Watched
    from benchsuite.host import machine as host
    from benchsuite.host.visible import chosen as chosen_gpus
    from benchsuite.launch import session
    from benchsuite.launch.progress import Progress
    from benchsuite.report.show.one_line import figure

    began_s = time.monotonic()
    chosen = profiles.load(profile)
    machine = host.describe(os.environ)
    gpus = chosen_gpus(machine.gpus, os.environ, machine.gpu_note) if machine.visible else ()
    how = session.Invocation(machine, os.environ, sys.argv)

    def plan(passes: int) -> Plan:
        return make_plan(chosen.name, chosen.jobs, gpus, environ=os.environ, repeats=passes)

    def progress_of(left: Left) -> Progress:
        return Progress(figure, settled=left.settled)

    def keep() -> None:
        _keep(folder, Watched(mode=mode, expected_gpus=expected_gpus, before=before, after=state_of(gpus)))

    folder = _folder(out, mode)
    before, passes = state_of(gpus), 1
    try:
        session.execute(plan(passes), chosen.used(), folder, Progress(figure), how)
        while True:
            keep()
            if time.monotonic() - began_s >= seconds:
                return folder
            judged(folder)
            passes += 1
            session.resume(plan(passes), folder, progress_of, how)
    except BenchError:
        if not out:
            with contextlib.suppress(OSError):
                folder.rmdir()  # nothing was started if the folder is empty
        raise
    except Interrupted:
        if (folder / "run.json").exists():
            keep()
        _say_interrupted(folder)
        raise


def _folder(out: str | None, mode: str) -> Path:
    from benchsuite.default_out import new_default_out

    return Path(out) if out else new_default_out(f"health-{mode}", os.environ, datetime.now())


def state_of(gpus: Sequence[Gpu]) -> NodeState:
    """What NVML and the kernel's log say now."""
    from benchsuite.health.state import GpuFacts, NodeState, XidEvent
    from benchsuite.host import fitness

    found = []
    for gpu in gpus:
        state = fitness.gpu_state(gpu)
        same = {name: getattr(state, name) for name in GpuFacts.__struct_fields__ if hasattr(state, name)}
        place = {"uuid": gpu.uuid, "index": gpu.visible_index, "pci": gpu.pci}
        found.append(msgspec.convert({**same, **place}, GpuFacts))
    if not gpus:
        return NodeState(xid_reason="no GPU is used")
    log = fitness.xid_log()
    xids = tuple(XidEvent(pci=xid.pci, code=xid.code, text=xid.text) for xid in log.events) if log.readable else None
    return NodeState(gpus=tuple(found), xids=xids, xid_reason=log.reason)


def _keep(folder: Path, watched: Watched) -> None:
    """Write the states of the GPUs beside the run.

    Raises:
        OutputError: the file cannot be written.
    """
    from benchsuite.health.state import FILE
    from benchsuite.schema import to_json

    aside = folder / f"{FILE}.new"
    try:
        aside.write_bytes(to_json(watched, indent=2))
        aside.replace(folder / FILE)
    except OSError as error:
        raise OutputError(f"{folder / FILE}: cannot be written: {reason(error)}") from None


def _say_interrupted(folder: Path) -> None:
    """Say where the results so far are."""
    if (folder / "run.json").exists():
        with contextlib.suppress(OSError):
            click.echo(f"Judge what there is: {program()} health {shlex.quote(str(folder))}", err=True)
