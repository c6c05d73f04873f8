"""Measure the units of a model in a process of its own, and make a graph of them for the partitioner."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from benchsuite.describe.tasks import Gpu, Task
from benchsuite.errors import ModelError, OutputError, one_line
from benchsuite.events import Assignment
from benchsuite.launch import process
from benchsuite.launch.child import child_environ, python
from benchsuite.launch.supervise import Exit, bounded, never, supervise
from benchsuite.pipeline.graph import Graph, Unit
from benchsuite.schema import to_json
from benchsuite.searches import ChainCosts

LIMIT_S = 600.0


def measure(task: Task, link: Sequence[Gpu], environ: Mapping[str, str]) -> ChainCosts:
    """Measure the units of a task's model on the task's GPU, or on the CPU.

    Args:
        link: two GPUs, the first of which is the task's, whose link is measured as well; empty for no link.
        environ: the environment that the process inherits.

    Raises:
        ModelError: the model has no units, or they could not be measured.
        OutputError: the process cannot be started.
    """
    name = task.job.model or task.job.entry
    env = child_environ(task, environ)
    if link:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in link)
    words = [*python(), "-m", "benchsuite.worker.unit_costs"]
    printed, said, exit = _run(words, to_json(Assignment(task=task, events="")), env)
    if exit.ended == "timed_out":
        raise ModelError(f"{name}: its units were not measured within {LIMIT_S:g} s; give a smaller batch_size")
    if exit.code != 0 or not printed.strip():
        how = process.exit_in_words(exit.code)
        last = one_line(said.rpartition("\n")[2])[:300]
        raise ModelError(f"{name}: its units could not be measured: the process {how}{f'; {last}' if last else ''}")
    found = msgspec.json.decode(printed.splitlines()[-1], type=ChainCosts | str)
    if isinstance(found, str):
        raise ModelError(f"{name}: {found}")
    return found


def _run(words: Sequence[str], given: bytes, environ: Mapping[str, str]) -> tuple[bytes, str, Exit]:
    """Run a command that reads `given`; its standard output, the last lines of its standard error, and its exit."""
    mark = f"{os.getpid()}.units.{time.monotonic_ns()}"
    with tempfile.TemporaryDirectory(prefix="benchsuite-") as folder:
        read, out, err = Path(folder, "in"), Path(folder, "out"), Path(folder, "err")
        read.write_bytes(given)
        try:
            tree = process.start(words, environ=environ, mark=mark, out=out, err=err, given=read)
        except (OSError, ValueError) as error:
            raise OutputError(f"cannot start the process that measures units: {error}") from None
        exit = supervise(tree, bounded(time.monotonic() + LIMIT_S, never))
        return out.read_bytes(), process.last_lines(err), exit


def graph_of(costs: ChainCosts) -> Graph:
    """The chain as a graph. `node0` is the input, and `node1` the first unit."""
    units = tuple(_units(costs))
    names = [unit.name for unit in units]
    return Graph(units=units, edges=tuple(pairwise(names)))


def _units(costs: ChainCosts) -> Iterator[Unit]:
    yield Unit(
        name="node0",
        description="Input",
        forward_s=0.0,
        backward_s=0.0,
        activation_bytes=costs.input_bytes,
        parameter_bytes=0.0,
    )
    for number, unit in enumerate(costs.units, 1):
        yield Unit(
            name=f"node{number}",
            description=unit.description,
            forward_s=unit.forward_s,
            backward_s=unit.backward_s,
            activation_bytes=unit.activation_bytes,
            parameter_bytes=unit.parameter_bytes,
        )
