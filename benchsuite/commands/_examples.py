"""A command whose help ends in examples, and whose files and folders are completed by Tab."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# What a metavar stands for -> what the shell completes.
_PLACES = {"DIR": "dir", "FOLDER": "dir", "FILE": "file", "OUT": "file", "RESULT": "file", "PREFIX": "file"}


class _Place(click.types.StringParamType):
    """The text of a path, which the shell completes."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The word that lets the shell complete files or folders."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type=self.kind)]


class WithExamples(click.Command):
    """Shows examples below its options.

    Args:
        examples: pairs of a line and what it does. A line is never broken, so that it can be copied.
    """

    def __init__(self, *arguments: Any, examples: Sequence[tuple[str, str]] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.examples = tuple(examples)
        for parameter in self.params:
            metavar = parameter.metavar or (parameter.name or "").upper()
            if parameter.type is click.STRING and (kind := _PLACES.get(metavar)):
                parameter.type = _Place(kind)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The epilog, and then the examples."""
        super().format_epilog(ctx, formatter)
        if not self.examples:
            return
        formatter.write_paragraph()
        formatter.write_heading("Examples")
        with formatter.indentation():
            for line, what in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")
                with formatter.indentation(), formatter.indentation():
                    formatter.write_text(what)
