"""What a user can mend, each with the exit status it ends in.

BenchError
├── UsageError     an option or argument
├── ProfileError   a profile, a weights file, or what follows `--`
├── ModelError     a model's file or its parameters
├── ResultError    a result, summary or run folder that cannot be read
└── OutputError    a place that cannot be written
Interrupted        a signal asked for the end
"""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable


class BenchError(Exception):
    """One line that names the file, the key and the remedy; shown without a traceback."""

    exit_code = 2


class UsageError(BenchError):
    """An option or argument that cannot be served."""


class ProfileError(BenchError):
    """A profile, a weights file, or the changes after `--`."""


class ModelError(BenchError):
    """A model's file or its parameters."""


class ResultError(BenchError):
    """A result, a summary or a run folder that cannot be read."""


class OutputError(BenchError):
    """A place that cannot be written."""


class Interrupted(Exception):
    """A signal asked for the end; the exit status is 128 + its number."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.exit_code = 128 + signum


def one_line(text: str) -> str:
    """Text from elsewhere as one line that a terminal shows as it is: no control characters, no runs of blanks."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def reason(error: OSError) -> str:
    """Why the system refused, in lower case, as the end of a message."""
    return (error.strerror or str(error)).lower()


def nearest(word: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?", or the known names where none is near, for the end of a message."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(names)}" if names else ""
