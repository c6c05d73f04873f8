"""A model as a graph of units, in the text format of PipeDream's profiler (graph.txt)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from benchsuite.errors import PipelineError, nearest, one_line
from benchsuite.files import read_text
from benchsuite.schema import Record

_FORM = (
    "NAME -- DESCRIPTION -- forward_compute_time=MS, backward_compute_time=MS, activation_size=BYTES, "
    "parameter_size=BYTES"
)
_UNIT = re.compile(
    r"(?P<name>\S+) -- (?P<description>.*) -- "
    r"forward_compute_time=(?P<forward>[^,]+), backward_compute_time=(?P<backward>[^,]+), "
    r"activation_size=(?P<activation>[^,]+), parameter_size=(?P<parameter>[^,]+?)"
    r"(?: -- stage_id=(?P<stage>\d+))?"
)
_EDGE = re.compile(r"(\S+) -- (\S+)")
# How the profiler describes an input of the model, and a part of an output that is a tuple.
_INPUT, _PART = "Input", "__getitem__"


class Unit(Record, frozen=True, kw_only=True):
    """A part of a model that no stage divides, with its cost for one minibatch on one GPU.

    Attributes:
        forward_s: seconds of the forward pass.
        backward_s: seconds of the backward pass.
        activation_bytes: size of the output; of several outputs their sum.
        parameter_bytes: size of the parameters.
        stage: the stage in which a plan puts the unit; None before that.
    """

    name: str
    description: str
    forward_s: float
    backward_s: float
    activation_bytes: float
    parameter_bytes: float
    stage: int | None = None


class Graph(Record, frozen=True, kw_only=True):
    """The units of a model, in the order of their file. An edge leads from a unit to one that reads its output."""

    units: tuple[Unit, ...]
    edges: tuple[tuple[str, str], ...]


def read(path: Path) -> Graph:
    """Read a graph.txt.

    Raises:
        ProfileError: the file is missing, unreadable, empty or not UTF-8.
        PipelineError: a line is malformed, or the lines make no graph; names the file and, of a line, its number.
    """
    return parse(read_text(path), one_line(str(path)))


def parse(text: str, where: str) -> Graph:
    """As `read`, for a text.

    Args:
        where: the source of the text, for messages.
    """
    units: dict[str, Unit] = {}
    edges: dict[tuple[str, str], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        at = f"{where}: line {number}"
        if line.startswith("\t"):
            edges.setdefault(_edge(line, at), number)
        elif line.strip():
            unit = _unit(line, at)
            if unit.name in units:
                raise PipelineError(f"{at}: unit '{unit.name}' is given twice; keep one")
            units[unit.name] = unit
    if not units:
        raise PipelineError(f"{where}: no units; write each as {_FORM}")
    for edge, number in edges.items():
        for name in edge:
            if name not in units:
                raise PipelineError(f"{where}: line {number}: no unit '{one_line(name)}'{nearest(name, units)}")
    graph = Graph(units=tuple(units.values()), edges=tuple(edges))
    try:
        sorted_units(graph)
    except CycleError as error:
        ring = " -> ".join(error.args[1][:8])
        raise PipelineError(f"{where}: the edges make a ring ({ring}); a model's units have an order") from None
    return graph


def _unit(line: str, at: str) -> Unit:
    found = _UNIT.fullmatch(line.rstrip())
    if found is None:
        raise PipelineError(f"{at}: not a unit; write {_FORM}, or begin the line of an edge with a tab")
    sizes = found["activation"].removeprefix("[").removesuffix("]").split(";")
    return Unit(
        name=found["name"],
        description=found["description"],
        forward_s=_number(found["forward"], "forward_compute_time", at) / 1e3,
        backward_s=_number(found["backward"], "backward_compute_time", at) / 1e3,
        activation_bytes=math.fsum(_number(size, "activation_size", at) for size in sizes),
        parameter_bytes=_number(found["parameter"], "parameter_size", at),
        stage=int(found["stage"]) if found["stage"] else None,
    )


def _number(text: str, field: str, at: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise PipelineError(f"{at}: {field} is '{one_line(text)}'; give a number of 0 or more")
    return value


def _edge(line: str, at: str) -> tuple[str, str]:
    found = _EDGE.fullmatch(line.strip())
    if found is None:
        raise PipelineError(f"{at}: not an edge; write a tab and NAME -- NAME")
    return found[1], found[2]


def sorted_units(graph: Graph) -> tuple[Unit, ...]:
    """The units in an order in which each comes after those whose outputs it reads.

    Raises:
        CycleError: the edges make a ring; `parse` refuses such a graph.
    """
    named = {unit.name: unit for unit in graph.units}
    sorter: TopologicalSorter[str] = TopologicalSorter({name: () for name in named})
    for source, target in graph.edges:
        sorter.add(target, source)
    return tuple(named[name] for name in sorter.static_order())


def divided(graph: Graph) -> tuple[Unit, ...]:
    """The units that a partition divides, in order.

    Left out are inputs, which come with the first stage, and parts of an output that nothing reads.
    """
    read = {b for _, b in graph.edges}
    kept = [u for u in sorted_units(graph) if u.name in read or not u.description.startswith(_INPUT)]
    inputs = {u.name for u in graph.units} - {u.name for u in kept}
    sources = {a for a, _ in graph.edges if a not in inputs}
    return tuple(u for u in kept if u.name in sources or not u.description.startswith(_PART))


def text_of(graph: Graph) -> str:
    """The graph as the text of a graph.txt; `parse` reads it back. Times are rounded to microseconds."""
    return "".join(f"{line}\n" for line in (*_unit_lines(graph.units), *(f"\t{a} -- {b}" for a, b in graph.edges)))


def _unit_lines(units: Iterable[Unit]) -> Iterator[str]:
    for unit in units:
        stage = "" if unit.stage is None else f" -- stage_id={unit.stage}"
        yield (
            f"{unit.name} -- {unit.description} -- forward_compute_time={unit.forward_s * 1e3:.3f}, "
            f"backward_compute_time={unit.backward_s * 1e3:.3f}, activation_size={unit.activation_bytes:.3f}, "
            f"parameter_size={unit.parameter_bytes:.3f}{stage}"
        )
