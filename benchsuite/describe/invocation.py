"""Which jobs and changes a recorded command line of `benchsuite jobs` chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# The options of `benchsuite jobs` that choose jobs.
ONLY, EXCLUDE = "--name", "--exclude"


@dataclass(frozen=True)
class Chosen:
    """What a command line chose.

    Attributes:
        only: the jobs after --name.
        exclude: the jobs after --exclude.
        changes: the words after `--`.
    """

    only: tuple[str, ...]
    exclude: tuple[str, ...]
    changes: tuple[str, ...]


def chosen(command: Sequence[str]) -> Chosen:
    """What a command line chose.

    Args:
        command: its words, as the shell passed them.
    """
    words = list(command)
    end = words.index("--") if "--" in words else len(words)
    found: dict[str, list[str]] = {ONLY: [], EXCLUDE: []}
    rest = iter(words[:end])
    for word in rest:
        option, equals, value = word.partition("=")
        if option in found:
            found[option].append(value if equals else next(rest, ""))
    return Chosen(tuple(found[ONLY]), tuple(found[EXCLUDE]), tuple(words[end + 1 :]))
