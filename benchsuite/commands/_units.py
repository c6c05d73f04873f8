"""The units of a model for `benchsuite plan-stages`: measured here, on the first GPU or on the CPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from benchsuite.describe.tasks import Gpu, Job
    from benchsuite.pipeline.graph import Graph
    from benchsuite.searches import ChainCosts


def is_model(source: str) -> bool:
    """Whether a word names a model. A word that names a file does not.

    Raises:
        UsageError: the word names neither.
    """
    from benchsuite.describe import entries
    from benchsuite.errors import UsageError, nearest, one_line
    from benchsuite.files import look

    if look(Path(source)) == "file":
        return False
    if source in entries.names() or (":" in source and "/" not in source):
        return True
    if "/" in source or "." in source:
        return False  # reading it says what is wrong with the file
    raise UsageError(f"{one_line(source)}: no such file, and no such model{nearest(source, entries.names())}")


def measured(
    source: str, changes: Sequence[str], gpus: Sequence[int], bandwidth: Sequence[float], *, quiet: bool
) -> tuple[Graph, tuple[float, ...]]:
    """Measure the units of a model.

    Args:
        source: the name of a model, or `module:function`.
        changes: the words after `--`.
        gpus: the number of GPUs of the plan, level by level.
        bandwidth: that of the links, if it is given; otherwise the link between the first two GPUs is measured.
        quiet: print nothing.

    Returns:
        The graph, and the measured bandwidth as the only level; no level if it was not measured.

    Raises:
        UsageError: the bandwidth is not given and cannot be measured, or the job cannot run.
        ModelError, ProfileError: the model or a change is wrong, or the model has no units.
    """
    from benchsuite.describe import profile as profiles
    from benchsuite.describe.overrides import Overrides
    from benchsuite.describe.plan import make_plan
    from benchsuite.errors import UsageError
    from benchsuite.host import machine as host
    from benchsuite.host.visible import chosen
    from benchsuite.launch.unit_costs import graph_of, measure

    overrides = Overrides.parse(changes)
    model, entry = (None, source) if ":" in source else (source, None)
    job = profiles.single(model, entry, overrides)
    _check(job, source)
    machine = host.describe(os.environ)
    visible = chosen(machine.gpus, os.environ, machine.gpu_note)
    used = visible[:1] if job.placement.devices != "none" else []
    link = _link(visible if used else [], gpus, bandwidth)
    (task,) = make_plan("plan-stages", [job], used, environ=os.environ).tasks
    if task.skip:
        raise UsageError(f"{source}: {task.skip}")
    costs = measure(task, link, os.environ)
    if not quiet:
        click.echo(_measured_in_words(costs, source, job.training.precision))
    return graph_of(costs), (costs.link_bytes_per_s,) if costs.link_bytes_per_s else ()


def _check(job: Job, source: str) -> None:
    """Raises UsageError: the job asks for what a unit alone cannot be measured with."""
    from benchsuite.errors import UsageError

    if job.training.compile != "none":
        raise UsageError(f"{source}: --compile: units are measured without compilation; leave it out")
    if job.data:
        raise UsageError(f"{source}: --data: units are measured with generated input; leave it out")
    if job.placement.devices in ("all", "progression") or (job.training.parallel.ranks or 1) > 1:
        raise UsageError(f"{source}: units are measured on one device; leave out --placement and --parallel")


def _link(visible: Sequence[Gpu], gpus: Sequence[int], bandwidth: Sequence[float]) -> Sequence[Gpu]:
    """The GPUs whose link is measured; empty if none is to be measured.

    Raises:
        UsageError: the bandwidth is not given and cannot be measured.
    """
    from benchsuite.errors import UsageError

    if bandwidth or tuple(gpus) == (1,):
        return ()
    if len(gpus) > 1:
        raise UsageError("--bandwidth is missing: the link between hosts is not measured; give both, as 1e11,1.25e9")
    pair = [gpu for gpu in visible[:2] if gpu.parent is None]
    if len(pair) < 2:
        have = {0: "no GPU is visible", 1: "one GPU is visible"}[len(pair)] if len(visible) < 2 else "MIG is on"
        raise UsageError(
            f"--bandwidth is missing: {have}, so that no link can be measured; give it in bytes per second"
        )
    return pair


def _measured_in_words(costs: ChainCosts, source: str, precision: str) -> str:
    from benchsuite.report.format import count

    total_s = sum(unit.forward_s + unit.backward_s for unit in costs.units)
    batches = f"{costs.batches} {'batch' if costs.batches == 1 else 'batches'} of {costs.batch}"
    return (
        f"{source}, {precision} on {costs.device}: {count(len(costs.units), 'unit')}, measured "
        f"{count(costs.repeats, 'time')} on each of {batches}: {total_s:.4g} s a batch, of which the optimiser takes "
        f"{costs.update_s:.2g} s"
    )
