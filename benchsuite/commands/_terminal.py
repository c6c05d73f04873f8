"""The console on which commands print documents."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from rich.console import Console

# In cells, if the output is not a terminal but a pipe or a log.
PIPE_WIDTH = 120


class _Output(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would exit with 1


def console() -> Console:
    """A console on standard output that interprets no markup. A character that it cannot write becomes "?"."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return _Output(width=width, markup=False, emoji=False, highlight=False)
