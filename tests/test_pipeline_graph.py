"""PipeDream's graph.txt: what is read, what is written, and where a graph can be cut."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from benchsuite.errors import PipelineError
from benchsuite.pipeline import cuts, graph
from benchsuite.pipeline.graph import Graph, Unit

BRANCHING = Path(__file__).parent / "data" / "branching-graph.txt"
UNIT = (
    "{} -- Linear(a, b) -- forward_compute_time={}, backward_compute_time=2.0, activation_size={}, parameter_size=0.0"
)


def unit(name: str, **fields: float) -> Unit:
    costs = {"forward_s": 1.0, "backward_s": 0.0, "activation_bytes": 1.0, "parameter_bytes": 0.0}
    return Unit(name=name, description="Linear", **{**costs, **fields})


def test_times_are_milliseconds_and_the_sizes_of_several_outputs_are_added() -> None:
    found = {of.name: of for of in graph.read(BRANCHING).units}
    assert found["node2"].description == "Conv2d(3, 8)"
    assert found["node2"].forward_s == 0.002
    assert found["node2"].backward_s == 0.004
    assert found["node2"].parameter_bytes == 1000
    assert found["node3"].activation_bytes == 6500


def test_a_graph_that_was_written_is_read_as_the_same_graph() -> None:
    once = graph.read(BRANCHING)
    units = tuple(Unit(**{**{f: getattr(of, f) for f in Unit.__struct_fields__}, "stage": 3}) for of in once.units)
    for kept in (once, Graph(units=units, edges=once.edges)):
        assert graph.parse(graph.text_of(kept), "g.txt") == kept


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        (["node1 - Linear"], ["line 1: not a unit", "NAME -- DESCRIPTION -- forward_compute_time=MS"]),
        ([UNIT.format("a", "fast", "1")], ["line 1: forward_compute_time is 'fast'", "a number of 0 or more"]),
        ([UNIT.format("a", "-1", "1")], ["line 1: forward_compute_time is '-1'"]),
        ([UNIT.format("a", "nan", "1")], ["line 1: forward_compute_time is 'nan'"]),
        ([UNIT.format("a", "1", "[1; x]")], ["line 1: activation_size is 'x'"]),
        ([UNIT.format("a", "1", "1"), UNIT.format("a", "1", "1")], ["line 2: unit 'a' is given twice"]),
        ([UNIT.format("a", "1", "1"), "", "\ta b"], ["line 3: not an edge"]),
        ([UNIT.format("node1", "1", "1"), "\tnode1 -- node2"], ["line 2: no unit 'node2'; did you mean 'node1'?"]),
        (["\ta -- b"], ["no units"]),
        ([UNIT.format("a", "1", "1"), UNIT.format("b", "1", "1"), "\ta -- b", "\tb -- a"], ["the edges make a ring"]),
    ],
)
def test_a_malformed_graph_is_refused_with_its_line(lines: list[str], parts: list[str]) -> None:
    with pytest.raises(PipelineError) as refused:
        graph.parse("\n".join(lines), "g.txt")
    assert str(refused.value).startswith("g.txt: ")
    assert "\n" not in str(refused.value)
    for part in parts:
        assert part in str(refused.value)


def test_inputs_and_outputs_that_nothing_reads_are_not_divided() -> None:
    assert {of.name for of in graph.divided(graph.read(BRANCHING))} == {"node2", "node3", "node4", "node6", "node7"}


def test_two_branches_can_be_cut_at_any_place_of_each() -> None:
    found = cuts.cuts_of(graph.read(BRANCHING))
    named = [{of.name for of in found.between(0, cut)} for cut in range(1, len(found.compute_s))]
    branches = [{"node3"}, {"node6"}, {"node3", "node4"}, {"node3", "node6"}, {"node3", "node4", "node6"}]
    everything = {"node2", "node3", "node4", "node6", "node7"}
    assert sorted(map(sorted, named)) == sorted(
        map(sorted, [{"node2"}, *({"node2", *of} for of in branches), everything])
    )


def test_what_a_cut_passes_on_is_what_is_read_behind_it() -> None:
    found = cuts.cuts_of(graph.read(BRANCHING))
    passed = {
        frozenset(of.name for of in found.between(0, cut)): found.passed_bytes[cut]
        for cut in range(len(found.passed_bytes))
    }
    assert passed[frozenset()] == 0
    assert passed[frozenset({"node2"})] == 8000
    assert passed[frozenset({"node2", "node6"})] == 8000 + 2000  # node3 still reads node2
    assert passed[frozenset({"node2", "node3", "node6"})] == 6500 + 2000
    assert passed[frozenset({"node2", "node3", "node4", "node6", "node7"})] == 0


def test_every_set_that_holds_what_its_units_read_is_a_cut() -> None:
    chance = random.Random(1)
    for _ in range(20):
        names = [f"u{i}" for i in range(7)]
        edges = {(names[chance.randrange(i)], names[i]) for i in range(1, 7)}
        edges |= {(a, b) for a, b in itertools.combinations(names, 2) if chance.random() < 0.15}
        found = cuts.cuts_of(Graph(units=tuple(map(unit, names)), edges=tuple(sorted(edges))))
        ours = {frozenset(of.name for of in found.between(0, cut)) for cut in range(len(found.compute_s))}
        subsets = itertools.chain.from_iterable(itertools.combinations(names, size) for size in range(8))
        closed = {frozenset(of) for of in subsets if all(a in of for a, b in edges if b in of)}
        assert ours == closed
        assert (found.compute_s == [len(found.between(0, cut)) for cut in range(len(ours))]).all()


def test_a_second_input_waits_for_its_reader() -> None:
    """Else a decoder's embedding could lie before any cut of the encoder, and cuts would multiply."""
    edges = (("a", "b"), ("b", "c"), ("second", "c"))
    found = cuts.cuts_of(Graph(units=tuple(map(unit, ("second", "a", "b", "c"))), edges=edges))
    named = [{of.name for of in found.between(0, cut)} for cut in range(1, len(found.compute_s))]
    assert named == [{"a"}, {"a", "b"}, {"a", "b", "c", "second"}]


def test_a_graph_that_has_too_many_cuts_or_two_parts_is_refused() -> None:
    names = [f"u{i}" for i in range(20)]
    fan = Graph(units=tuple(map(unit, names)), edges=tuple(("u0", name) for name in names[1:]))
    with pytest.raises(PipelineError, match="over 2,000 ways"):
        cuts.cuts_of(fan)
    apart = Graph(units=tuple(map(unit, "abcd")), edges=(("a", "b"), ("b", "c")))
    with pytest.raises(PipelineError, match="no edge joins unit 'd'"):
        cuts.cuts_of(apart)
    only_input = Graph(units=(Unit(**{**_fields(unit("a")), "description": "Input0"}),), edges=())
    with pytest.raises(PipelineError, match="no units but inputs"):
        cuts.cuts_of(only_input)


def _fields(of: Unit) -> dict[str, object]:
    return {name: getattr(of, name) for name in Unit.__struct_fields__}
