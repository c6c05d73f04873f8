"""The help of each command: options with named values, and examples that work as they are printed."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest
from support import in_process

from benchsuite.cli import benchsuite as group
from benchsuite.describe import entries
from benchsuite.describe import profile as profiles
from benchsuite.describe.overrides import Overrides

COMMANDS = {name: group.get_command(None, name) for name in group.list_commands(None)}  # type: ignore[arg-type]
EXAMPLES = [(name, line) for name, command in COMMANDS.items() for line, _ in getattr(command, "examples", ())]


def words_of(line: str) -> list[str]:
    """The words after `benchsuite` that its own parser gets of a line for a shell."""
    inner = line.partition("$(")[2].rpartition(")")[0] or line
    words = shlex.split(inner)
    ends = [words.index(mark) for mark in ("|", ">") if mark in words]
    assert words[0] == "benchsuite"
    return words[1 : min(ends, default=len(words))]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_ends_in_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    before, heading, examples = in_process(name, "--help", cwd=tmp_path).stdout.partition("\nExamples:\n")
    assert before.startswith(f"Usage: benchsuite {name} ")
    assert heading
    lines = examples.splitlines()
    for line, what in COMMANDS[name].examples:  # type: ignore[union-attr]
        place = lines.index(f"  {line}")
        assert lines[place + 1].startswith(f"      {what[:30]}"), "a line of words follows"


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_an_example_is_a_line_that_the_command_takes(name: str, line: str) -> None:
    called, *rest = words_of(line)
    command = COMMANDS[name]
    assert called == name
    assert command
    if rest[-1:] == ["--help"]:
        return
    with command.make_context(name, list(rest), parent=click.Context(group, info_name="benchsuite")) as context:
        changes = context.params.get("changes", ())
        model = context.params.get("entry") or context.params.get("source")
        profile = context.params.get("profile")
    if name == "trace" and profile:
        assert model in [job.name for job in profiles.load(profile).jobs]
    if changes and model:
        Overrides.parse(changes).applied({"model": model}, entries.declared(model, None), name)


@pytest.mark.parametrize("line", [line for name, line in EXAMPLES if name == "jobs" and " standard" in line])
def test_an_example_of_jobs_names_jobs_and_parameters_that_exist(line: str, tmp_path: Path) -> None:
    words = words_of(line)
    if "--slurm" in words or "--resume" in words:
        return
    (tmp_path / "data").mkdir()
    place = words.index("--") if "--" in words else len(words)
    done = in_process(*words[:place], "--dry-run", *words[place:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_value_of_each_option_has_a_name() -> None:
    """click would write TEXT or INTEGER RANGE."""
    unnamed = [
        f"{name} {option.opts[-1]}"
        for name, command in COMMANDS.items()
        for option in (command.params if command else ())
        if isinstance(option, click.Option) and not option.is_flag and not option.metavar
        if not isinstance(option.type, click.Choice)
    ]
    assert unnamed == []
