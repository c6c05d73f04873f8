"""A run with a budget: is each repeat that it added one of the profile's jobs, and was there time left for it?"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchsuite.describe.budget import BUDGET, budget_s, written
from benchsuite.describe.invocation import chosen
from benchsuite.describe.tasks import Plan, Task
from benchsuite.errors import UsageError
from benchsuite.findings import Finding
from benchsuite.records import Run
from benchsuite.report.format import count
from benchsuite.report.verify import all_or_bad
from benchsuite.rundir import RunDir


def as_chosen(whole: Plan, kept: Sequence[Task]) -> Plan:
    """The first pass of a plan, and those of its other waves that a kept plan has, in the kept order.

    Args:
        whole: with as many passes as the kept plan has rounds.
        kept: the tasks of plan.json.
    """
    first = tuple(wave for wave in whole.waves if wave.tasks[0].repeat == 0)
    waves = {wave.name: wave for wave in whole.waves if wave.tasks[0].repeat > 0}
    added = dict.fromkeys(task.wave for task in kept if task.wave in waves)
    return msgspec.structs.replace(whole, waves=(*first, *(waves[name] for name in added)))


def finding(path: Path, run: Run) -> Finding:
    """The budget of run.json against the command lines, and the times of the waves against the budget."""
    try:
        lines = [run.command, *(shlex.split(line) for _, line in run.resumed)]
    except ValueError as error:
        return all_or_bad("budget", [f"run.json: a command line of `resumed` cannot be read: {error}"], "")
    troubles, limits = [], []
    for word in (word for line in lines if (word := chosen(line).budget) is not None):
        try:
            limits.append(budget_s(word))
        except UsageError as error:
            troubles.append(str(error))
    asked = written(limits[-1]) if limits else "none"
    limit_s = max(limits, default=0)
    if not limits or limits[-1] != run.budget_s:
        troubles.append(f"run.json says {written(run.budget_s or 0)}, the command lines say {asked}")
    spent_s, added = 0.0, 0
    for wave in RunDir(path).plan().waves:
        if wave.tasks[0].repeat > 0:
            added += 1
            if spent_s > limit_s:
                troubles.append(f"{wave.name} was added after {written(spent_s)}")
        spent_s += wave.took_s or 0.0
    fine = f"{BUDGET} {asked}: {written(spent_s)} used; {count(added, 'wave')} added, each while time was left"
    return all_or_bad("budget", troubles, fine)
