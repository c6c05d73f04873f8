"""The errors that a user can correct, each with its exit status.

BenchError
├── UsageError     an option or argument
├── ProfileError   a profile, a weights file, or what follows `--`
├── ModelError     a model's file or its parameters
├── PipelineError  a graph of units, a stage configuration or a driver configuration of PipeDream
├── ResultError    a result, summary or run folder that cannot be read
└── OutputError    a place that cannot be written
Interrupted        a signal asked for the end (not a BenchError)
"""

from __future__ import annotations

import signal
from collections.abc import Iterable


class BenchError(Exception):
    """Its message is one line that names the file, the field and the remedy. It is shown without a traceback."""

    exit_code = 2


class UsageError(BenchError):
    """An option or argument is wrong, or cannot be followed on this machine."""


class ProfileError(BenchError):
    """A profile, a weights file, or a change after `--` is wrong."""


class ModelError(BenchError):
    """A model's file or its parameters are wrong."""


class PipelineError(BenchError):
    """A graph of units, a stage configuration or a driver configuration of PipeDream is wrong."""


class ResultError(BenchError):
    """A result, a summary or a run folder cannot be read."""


class OutputError(BenchError):
    """A file or folder cannot be written."""


class Interrupted(Exception):
    """A signal asked for the end. The exit status is 128 + the number of the signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.exit_code = 128 + signum


def reason(error: OSError) -> str:
    """Why an operating system call failed, in lower case."""
    return (error.strerror or str(error)).lower()


def one_line(text: str) -> str:
    """Text on one line, with runs of blanks and of control characters replaced by a single blank."""
    clean = text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
    return " ".join(clean.split())


def encodable(text: str) -> str:
    """Text that UTF-8 can hold. Linux allows other bytes in paths and host names; each becomes "?"."""
    return text.encode(errors="replace").decode()


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: "; did you mean 'x'?", or all known names if no one is similar."""
    import difflib

    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(names)}" if names else ""
