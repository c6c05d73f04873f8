"""`benchsuite completion`: the script for tab completion, and what Tab completes in arguments and options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from benchsuite.commands._examples import WithExamples

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VARIABLE = "_BENCHSUITE_COMPLETE"


_EXAMPLES = (
    (
        'eval "$(benchsuite completion bash)"',
        "Complete words in this shell. In ~/.bashrc, the line does it in each new one.",
    ),
    ('eval "$(benchsuite completion zsh)"', "The same for zsh and ~/.zshrc."),
    ("benchsuite completion fish > ~/.config/fish/completions/benchsuite.fish", "Complete words in each new fish."),
)


@click.command(cls=WithExamples, examples=_EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that completes words by Tab.

    Tab then completes commands, options, profiles and their jobs, models, data sets, baselines and files.
    """
    from click.shell_completion import get_completion_class

    from benchsuite.cli import benchsuite

    kind = get_completion_class(shell)
    assert kind
    click.echo(kind(benchsuite, {}, "benchsuite", VARIABLE).source())


def profiles(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Shipped profiles, and files."""
    return _shipped("profiles", begun)


def profiles_or_runs(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """As `profiles`; after --resume only files and folders."""
    return _files(begun) if context.params.get("resume") else _shipped("profiles", begun)


def baselines(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Shipped baselines, and files."""
    return _shipped("baselines", begun)


def datasets(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Shipped data sets, and files."""
    return _shipped("datasets", begun)


def models(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Shipped models."""
    from benchsuite.describe import entries

    return [name for name in entries.names() if name.startswith(begun)]


def plots(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Kinds of plots, without an import of matplotlib."""
    from benchsuite.report import plots as of_plots

    return [name for name in of_plots.names() if name.startswith(begun)]


def jobs(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """The jobs of the profile on the command line; those of all shipped profiles if it has none yet."""
    from benchsuite import files
    from benchsuite.errors import BenchError

    found: dict[str, None] = {}
    given = context.params.get("profile")
    for profile in [given] if given else files.shipped("profiles"):
        try:
            found.update(dict.fromkeys(files.read_mapping(files.find("profiles", profile))))
        except BenchError:
            continue  # the command itself names the reason
    return [name for name in found if name.startswith(begun) and name != "*"]


def _shipped(kind: str, begun: str) -> list[CompletionItem]:
    from typing import cast

    from click.shell_completion import CompletionItem

    from benchsuite import files

    names = files.shipped(cast("files.Kind", kind))
    # Bash forgets the names before this word, and completes files if no name comes after it.
    return [*_files(begun), *(CompletionItem(name) for name in names if name.startswith(begun))]


def _files(begun: str) -> list[CompletionItem]:
    """The word that lets the shell complete files and folders."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(begun, type="file")]
