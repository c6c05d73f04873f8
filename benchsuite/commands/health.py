"""`benchsuite health`: is this node fit?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchsuite.commands import completion
from benchsuite.commands._examples import WithExamples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchsuite.health.rules import Rules
    from benchsuite.health.verdict import Node, Word

PROFILES = {"quick": "probes_quick", "accept": "probes", "soak": "probes"}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_STATUS: dict[Word, int] = {"PASS": 0, "WARN": 0, "FAIL": 1, "NOT RUN": 2}


def _duration(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", value)
    if not found or not 0 < (seconds := float(found[1]) * _UNITS[found[2]]) <= 30 * 86400:
        raise click.BadParameter(f"expected a time such as 72h, 90m or 3d, at most 30d, found '{value}'.")
    return seconds


_EXAMPLES = (
    ("benchsuite health", "Judge this node in about 3 minutes."),
    ("benchsuite health --accept --gpus 8 -o results/node17", "Accept a new node, which must have 8 GPUs."),
    ("benchsuite health results/node*", "Judge the runs of several nodes again."),
    ("benchsuite health --soak 72h", "Test this node for three days."),
)


@click.command(cls=WithExamples, examples=_EXAMPLES)
@click.argument(
    "outs", metavar="[OUT]...", nargs=-1, type=click.Path(path_type=Path), shell_complete=completion.baselines
)
@click.option("--quick", is_flag=True, help="Six general probes, meant for 3 minutes.  [default]")
@click.option("--accept", is_flag=True, help="All probes, training and the vote, meant for 30 minutes.")
@click.option("--soak", metavar="TIME", callback=_duration, help="As --accept, again and again for 72h, 90m or 3d.")
@click.option(
    "--base", metavar="BASE", shell_complete=completion.baselines, help="Also compare with a run, summary or baseline."
)
@click.option(
    "--rules", "rules_file", metavar="FILE", type=click.Path(path_type=Path), help="Your own checks and floors."
)
@click.option("--profile", metavar="PROFILE", shell_complete=completion.profiles, help="Run other jobs.")
@click.option("--gpus", type=click.IntRange(min=0), metavar="N", help="FAIL with fewer GPUs; 0: the node has none.")
@click.option("--strict", is_flag=True, help="Also exit with 1 on WARN and NOT RUN.")
@click.option("--all", "every", is_flag=True, help="Show the checks that passed, too.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--plain", is_flag=True, help="Print one tab-separated line for each check.")
@click.option("--drain", is_flag=True, help="Print the scontrol commands that drain nodes that fail.")
@click.option("-o", "--out", metavar="OUT", help="New folder for the results.")
def command(
    outs: tuple[Path, ...],
    quick: bool,
    accept: bool,
    soak: float | None,
    base: str | None,
    rules_file: Path | None,
    profile: str | None,
    gpus: int | None,
    strict: bool,
    every: bool,
    as_json: bool,
    plain: bool,
    drain: bool,
    out: str | None,
) -> int:
    """Is this node fit? Run probes, and judge each GPU, each link and the node.

    With OUT, folders of such runs, it runs nothing and judges them; each is a node.

    Exit status: 0 for PASS and WARN, 1 for FAIL, 2 if a node is NOT RUN or for wrong input.
    """
    from benchsuite.errors import UsageError
    from benchsuite.health import rules as of_rules

    modes = [name for name, given in (("quick", quick), ("accept", accept), ("soak", soak)) if given]
    shapes = [name for name, given in (("json", as_json), ("plain", plain), ("drain", drain)) if given]
    for names in (modes, shapes):
        if len(names) > 1:
            raise UsageError(f"--{names[0]}: does not go with --{names[1]}")
    running = [f"--{name}" for name in modes]
    running += [name for name, given in (("--profile", profile), ("--gpus", gpus is not None), ("-o", out)) if given]
    if outs and running:
        raise UsageError(f"{running[0]}: does not go with OUT, whose run is judged as it is")
    rules = of_rules.load(rules_file)
    if base:
        _check_base(base)
    if not outs:
        from benchsuite.commands import _passes

        mode = modes[0] if modes else "quick"

        def judged(folder: Path) -> None:
            for line in _pass_lines(folder, rules_file, base):
                click.echo(line, err=True)

        name = profile or PROFILES[mode]
        ran = _passes.run(name, mode, out, seconds=soak or 0.0, expected_gpus=gpus, judged=judged)
        click.echo(f"Results: {ran}", err=True)
        outs = (ran,)
    return _show(outs, rules, base, strict=strict, every=every, shape=shapes[0] if shapes else "")


def _check_base(base: str) -> None:
    """Read the base before the probes take their time.

    Raises:
        ResultError: it is no run, summary or baseline.
    """
    from benchsuite.report.sources import summary_of

    summary_of(Path(base))


def _pass_lines(folder: Path, rules_file: Path | None, base: str | None) -> list[str]:
    """The node's line after a pass of a soak.

    A process of its own judges: it needs memory for all results so far, and a soak may last for a month.
    """
    import json
    import os
    import subprocess
    import sys

    from benchsuite.errors import one_line
    from benchsuite.launch.child import python

    asked = {"--rules": rules_file, "--base": base}
    given = [word for name, value in asked.items() if value for word in (name, str(value))]
    command = [*python(), "-m", "benchsuite", "health", "--json", *given, "--", str(folder)]
    # It finds this package where this process found it.
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUTF8": "1"}
    try:
        done = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", check=False
        )
        nodes = json.loads(done.stdout)["nodes"]
    except OSError as error:
        return [f"so far: not judged: {error}"]
    except ValueError:
        last = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        return [f"so far: not judged: {one_line(last)}"]
    return [f"so far: {node['host']}  {node['word']}  {one_line(node['reason'])}" for node in nodes]


def _show(outs: Sequence[Path], rules: Rules, base: str | None, *, strict: bool, every: bool, shape: str) -> int:
    """Judge run folders, print the verdicts, and return the exit status."""
    from benchsuite.health import show
    from benchsuite.health.nodes import judge
    from benchsuite.health.verdict import WORDS

    nodes: list[Node] = [node for folder in outs for node in judge(folder, rules, base)]
    worst = next(word for word in WORDS if any(node.word == word for node in nodes))
    if shape == "json":
        click.echo(show.to_json(nodes, worst))
    elif shape == "plain":
        for line in show.plain_lines(nodes):
            click.echo(line)
    else:
        for line in show.node_lines(nodes, click.style, every):
            click.echo(line, err=shape == "drain")
        for line in show.drain_lines(nodes) if shape == "drain" else ():
            click.echo(line)
    if len(nodes) > 1:
        click.echo(show.summary_line(nodes), err=True)
    return 1 if strict and worst != "PASS" else _STATUS[worst]
