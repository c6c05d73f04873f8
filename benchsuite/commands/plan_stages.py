"""`benchsuite plan-stages`: the fastest division of a model into the stages of a pipeline."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchsuite.commands import completion
from benchsuite.commands._changes import WithChanges

if TYPE_CHECKING:
    from benchsuite.pipeline.graph import Graph
    from benchsuite.pipeline.stages import Level, Stage, StagePlan

_BANDWIDTH = 1e10
_MOST_PARTS = 256
_ASSUMED = "assumed; set it with --bandwidth"


def _counts(_context: click.Context, _option: click.Parameter, value: str) -> tuple[int, ...]:
    words = value.split(",")
    if any(not word.isascii() or not word.isdigit() or not 0 < int(word) <= _MOST_PARTS for word in words):
        raise click.BadParameter(f"must be numbers of 1 to {_MOST_PARTS}, such as 4 or 4,2; found '{value}'.")
    return tuple(map(int, words))


def _rates(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[float, ...]:
    if value is None:
        return ()
    try:
        rates = tuple(map(float, value.split(",")))
    except ValueError:
        rates = (math.nan,)
    if any(not 0 < rate < math.inf for rate in rates):
        raise click.BadParameter(f"must be numbers above 0, such as 1e10 or 1e10,1.25e9; found '{value}'.")
    return rates


_EPILOG = (
    "After -- come job fields (--precision, --channels-last, ...) and parameters of the model: "
    "'benchsuite plan-stages MODEL -- --help' lists them."
)


_EXAMPLES = (
    ("benchsuite plan-stages gnmt --gpus 4 -- --batch-size 64", "Measure a model, and divide it among 4 GPUs."),
    (
        "benchsuite plan-stages graph.txt --gpus 4,2 --bandwidth 1e10,1e9 -o plan.json",
        "Divide a measured graph among 2 hosts with 4 GPUs each.",
    ),
)


@click.command(cls=WithChanges, epilog=_EPILOG, examples=_EXAMPLES)
@click.argument("source", metavar="MODEL|GRAPH", shell_complete=completion.models)
@click.option(
    "--gpus",
    required=True,
    metavar="N[,HOSTS]",
    callback=_counts,
    help="Number of GPUs; with two numbers the GPUs of each host, and the hosts.",
)
@click.option(
    "--bandwidth",
    metavar="BYTES_PER_S[,...]",
    callback=_rates,
    help="Of a link between two GPUs of a host, and of one between two hosts.  [default for one host: of a MODEL as "
    "measured between the first two GPUs, of a GRAPH 1e10]",
)
@click.option("--straight", is_flag=True, help="Give one GPU to each stage.")
@click.option("--free-transfers", is_flag=True, help="Let transfers between stages take no time.")
@click.option("--graph", "kept", metavar="FILE", help="A new graph.txt for the measured units of a MODEL.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="A new file: .json for the plan and PipeDream's stage configuration, .txt for the graph with the stage of "
    "each unit; - prints the JSON.",
)
@click.argument("changes", nargs=-1, type=click.UNPROCESSED, metavar="[-- CHANGES]")
def command(
    source: str,
    gpus: tuple[int, ...],
    bandwidth: tuple[float, ...],
    straight: bool,
    free_transfers: bool,
    kept: str | None,
    output: str | None,
    changes: tuple[str, ...],
) -> None:
    """Divide a model into the stages of a pipeline.

    MODEL is the name of a model, or module:function of your own. Its units are measured on the first GPU, or on the
    CPU. GRAPH is a graph.txt of PipeDream's profiler: the units of a model with their times and sizes. The plan is the
    one with the shortest predicted time between two minibatches.
    """
    from benchsuite.errors import PipelineError, UsageError, one_line
    from benchsuite.pipeline.partition import plan
    from benchsuite.schema import to_json
    from benchsuite.writing import check_place, write_for_user

    name, target = one_line(source), Path(output) if output and output != "-" else None
    if target:
        if target.suffix not in (".json", ".txt"):
            raise UsageError(f"-o {one_line(str(target))}: name a file that ends in .json or .txt")
        check_place(target, "-o")
    units, levels, source_of_rate = _asked(source, changes, gpus, bandwidth, kept, quiet=output == "-")
    try:
        found = plan(units, levels, straight=straight, transfers=not free_transfers)
    except PipelineError as error:
        raise PipelineError(f"{name}: {error}") from None
    if output == "-":
        click.echo(to_json(found, indent=2).decode(), nl=False)
        return
    for line in _shown(found, units, name, source_of_rate):
        click.echo(line)
    if target:
        content = _with_stages(units, found) if target.suffix == ".txt" else to_json(found, indent=2)
        write_for_user(target, content, "-o")
        click.echo(f"benchsuite: plan written to {one_line(str(target))}", err=True)


def _asked(
    source: str,
    changes: tuple[str, ...],
    gpus: tuple[int, ...],
    bandwidth: tuple[float, ...],
    kept: str | None,
    *,
    quiet: bool,
) -> tuple[Graph, tuple[Level, ...], str]:
    """The graph, read or measured; the machine; and where its bandwidth comes from, empty if it is given."""
    from benchsuite.commands._units import is_model, measured
    from benchsuite.errors import UsageError, one_line
    from benchsuite.pipeline import graph as graphs
    from benchsuite.writing import check_place, write_for_user

    if not is_model(source):
        if kept or changes:
            raise UsageError(
                f"{'--graph' if kept else '--'}: {one_line(source)} is a graph; its units are not measured"
            )
        return graphs.read(Path(source)), _levels(gpus, bandwidth), "" if bandwidth else _ASSUMED
    if kept:
        check_place(Path(kept), "--graph")
    units, link = measured(source, changes, gpus, bandwidth, quiet=quiet)
    if kept:
        write_for_user(Path(kept), graphs.text_of(units).encode(), "--graph")
        click.echo(f"benchsuite: graph written to {one_line(kept)}", err=True)
    return units, _levels(gpus, bandwidth or link), "" if bandwidth else "measured"


def _levels(gpus: tuple[int, ...], bandwidth: tuple[float, ...]) -> tuple[Level, ...]:
    from benchsuite.errors import UsageError
    from benchsuite.pipeline.stages import Level

    if not bandwidth and len(gpus) == 1:
        bandwidth = (_BANDWIDTH,)
    if len(bandwidth) != len(gpus):
        given = f"--gpus has {len(gpus)} numbers and --bandwidth {len(bandwidth)}"
        raise UsageError(f"{given}; give the bandwidth of each kind of link, such as --bandwidth 1e10,1.25e9")
    return tuple(Level(parts=parts, bandwidth=rate) for parts, rate in zip(gpus, bandwidth, strict=True))


def _with_stages(graph: Graph, plan: StagePlan) -> bytes:
    from benchsuite.pipeline.graph import text_of
    from benchsuite.pipeline.stages import with_stages

    return text_of(with_stages(graph, plan)).encode()


def _shown(plan: StagePlan, graph: Graph, name: str, source_of_rate: str) -> Iterator[str]:
    """The prediction, and the table of the stages.

    Args:
        source_of_rate: where the bandwidth comes from, in words; empty if the command line gives it.
    """
    from benchsuite.report.format import count, ratio

    links = " and ".join(f"{level.bandwidth / 1e9:g} GB/s" for level in plan.levels)
    yield (
        f"{name}: {count(len(graph.units), 'unit')} on {count(plan.gpus, 'GPU')}, links of {links}"
        f"{f' ({source_of_rate})' if source_of_rate and plan.gpus > 1 else ''}"
    )
    yield (
        f"Predicted: one minibatch every {plan.seconds:.4g} s, {ratio(plan.one_gpu_s / plan.seconds)}x one GPU "
        f"({plan.one_gpu_s:.4g} s) and {ratio(plan.data_parallel_s / plan.seconds)}x data parallel "
        f"({plan.data_parallel_s:.4g} s)"
    )
    yield f"GPUs of the stages: {plan.replicas}"
    yield ""
    yield from _table(plan, graph)
    yield ""
    yield "compute s: forward and backward pass of one minibatch on one GPU. seconds: predicted time of the stage"
    yield "between two minibatches. share %: of the slowest stage's time. MB: 10^6 bytes of parameters, of the outputs"
    yield "of all units, and of the outputs that later stages read."


_HEAD = (
    "stage",
    "from ... to",
    "units",
    "GPUs",
    "compute s",
    "seconds",
    "share %",
    "params MB",
    "outputs MB",
    "passed MB",
)
_LEFT = ("stage", "from ... to")


def _table(plan: StagePlan, graph: Graph) -> Iterator[str]:
    rows = [
        (
            str(number),
            _span(stage, graph),
            str(len(stage.units)),
            str(len(stage.ranks)),
            f"{stage.compute_s:.4g}",
            f"{stage.seconds:.4g}",
            f"{100 * stage.seconds / plan.seconds:.1f}",
            *(f"{size / 1e6:,.1f}" for size in (stage.parameter_bytes, stage.activation_bytes, stage.passed_bytes)),
        )
        for number, stage in enumerate(plan.stages)
    ]
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    for row in (_HEAD, *rows):
        cells = zip(_HEAD, row, widths, strict=True)
        yield "  ".join(word.ljust(width) if name in _LEFT else word.rjust(width) for name, word, width in cells)


def _span(stage: Stage, graph: Graph) -> str:
    """The first and the last unit of a stage, each with the kind of its module."""
    from benchsuite.errors import one_line

    kinds = {unit.name: unit.description.partition("(")[0].strip() for unit in graph.units}
    ends = dict.fromkeys((stage.units[0], stage.units[-1]))
    return one_line(" ... ".join(f"{name} {kinds[name]}" for name in ends))
