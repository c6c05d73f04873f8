"""What a command line of `benchsuite jobs` asks for. A resume takes what is not given from the record of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchsuite.describe import profile as profiles
from benchsuite.describe.budget import BUDGET
from benchsuite.describe.invocation import ISOLATION, Chosen, chosen
from benchsuite.describe.overrides import AS_THEN, Overrides
from benchsuite.describe.profile import Profile
from benchsuite.describe.tasks import Plan
from benchsuite.errors import UsageError
from benchsuite.files import look
from benchsuite.launch.session import data_root
from benchsuite.records import Run
from benchsuite.rundir import RunDir


@dataclass(frozen=True)
class Asked:
    """The words of a command line. What is not given is None, empty or false."""

    profile: str | None = None
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    data: str | None = None
    repeat: int | None = None
    isolation: str | None = None
    require_isolation: bool = False
    budget_s: float | None = None


@dataclass(frozen=True)
class Settled:
    """What an invocation runs.

    Attributes:
        data_root: the folder of the data sets.
        environ: the environment that says which GPUs are visible.
        budget_s: the time that the run may take; None without a budget.
    """

    profile: Profile
    data_root: str | None
    repeats: int
    isolation: str
    require_isolation: bool
    environ: Mapping[str, str]
    budget_s: float | None = None


def fresh(asked: Asked, environ: Mapping[str, str]) -> Settled:
    """What a new run is asked for.

    Raises:
        ProfileError: the profile, a name or a change is wrong.
        UsageError: the data folder does not exist.
    """
    assert asked.profile is not None
    profile = _loaded(asked.profile, asked)
    root = data_root(asked.data, environ)
    isolation = asked.isolation or "auto"
    return Settled(profile, root, asked.repeat or 1, isolation, asked.require_isolation, environ, asked.budget_s)


def resumed(out: Path, asked: Asked, environ: Mapping[str, str]) -> Settled:
    """What a resume is asked for: the record of the run gives the profile and every option that is not given again.

    The GPUs are those of the record, unless CUDA_VISIBLE_DEVICES is set now.

    Args:
        out: the folder of the run.

    Raises:
        ResultError: run.json or plan.json is missing or damaged.
        ProfileError: the profile, a name or a change is wrong.
        UsageError: there is no such run, or an option differs from the record.
    """
    if look(out) != "folder":
        raise UsageError(f"{out}: no such folder; --resume needs the folder of a run: benchsuite jobs --resume OUT")
    run, plan = RunDir(out).run(), RunDir(out).plan()
    if not run.profile.text:
        raise UsageError(f"{out}: a single task of 'benchsuite run', which --resume cannot continue; run it again")
    before = chosen(run.command)
    if asked.isolation not in (None, before.isolation):
        then = f"the run was started with {ISOLATION} {before.isolation}"
        raise UsageError(f"{ISOLATION} {asked.isolation}: {then}; leave out {ISOLATION}, or start a new run")
    if asked.budget_s is not None and run.budget_s is None:
        raise UsageError(f"{BUDGET}: the run was started without a budget; --repeat adds repeats, or start a new run")
    if asked.repeat is not None and run.budget_s is not None:
        raise UsageError(f"--repeat {asked.repeat}: the run was started with {BUDGET}; a higher {BUDGET} adds repeats")
    if "CUDA_VISIBLE_DEVICES" not in environ:
        environ = {**environ, "CUDA_VISIBLE_DEVICES": ",".join(run.machine.visible)}
    return Settled(
        _profile(run, before, asked),
        _data_root(plan, asked, environ),
        asked.repeat or max(1, plan.repeats),
        before.isolation,
        asked.require_isolation or before.require_isolation,
        environ,
        asked.budget_s if asked.budget_s is not None else run.budget_s,
    )


def folder_of(out: Path) -> Path | None:
    """The folder from which a run was started, if it has a model of the user's own and the folder exists.

    Raises:
        ResultError: plan.json is missing or damaged.
    """
    if look(out) != "folder":
        return None
    started = next((task.cwd for task in RunDir(out).plan().tasks if task.cwd), None)
    return Path(started) if started and look(Path(started)) == "folder" else None


def _loaded(spec: str, asked: Asked) -> Profile:
    overrides = Overrides.parse(asked.changes)
    return profiles.load(spec, only=asked.only, exclude=asked.exclude, overrides=overrides)


def _profile(run: Run, before: Chosen, asked: Asked) -> Profile:
    """The profile with the names and changes of the record, where they are not given again."""
    only, exclude = asked.only, asked.exclude
    if not only and not exclude:
        only, exclude = before.only, before.exclude
    overrides = Overrides.parse(asked.changes or before.changes)
    if asked.profile is not None:
        return profiles.load(asked.profile, only=only, exclude=exclude, overrides=overrides)
    overrides = Overrides((*AS_THEN.get(run.begun_schema, ()), *overrides.pairs))
    path = Path(run.profile.path)
    return profiles.of_text(run.profile.text, path, only=only, exclude=exclude, overrides=overrides)


def _data_root(plan: Plan, asked: Asked, environ: Mapping[str, str]) -> str | None:
    root = next((task.data_root for task in plan.tasks), None)
    if asked.data is not None and data_root(asked.data, environ) != root:
        there = f"reads its data from {root}" if root else "has no data folder"
        raise UsageError(f"-d {asked.data}: the run {there}; leave out -d, or start a new run")
    return root
