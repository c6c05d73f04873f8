"""The command line of `benchsuite jobs`: what a recorded one chose, and the one that continues a run."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchsuite.describe.budget import BUDGET

# The options of `benchsuite jobs` that choose jobs.
ONLY, EXCLUDE = "--name", "--exclude"
ISOLATION, NO_CGEXEC, REQUIRE_ISOLATION = "--isolation", "--no-cgexec", "--require-isolation"
PRELOAD = "--preload"
# The option by which it takes part in a run over nodes.
JOIN = "--join"


@dataclass(frozen=True)
class Chosen:
    """What a command line chose.

    Attributes:
        only: the jobs after --name.
        exclude: the jobs after --exclude.
        changes: the words after `--`.
        isolation: the word after --isolation; "auto" if the option is not given.
        require_isolation: whether --require-isolation is given.
        budget: the word after --budget; None if the option is not given.
    """

    only: tuple[str, ...]
    exclude: tuple[str, ...]
    changes: tuple[str, ...]
    isolation: str = "auto"
    require_isolation: bool = False
    budget: str | None = None


def chosen(command: Sequence[str]) -> Chosen:
    """What a command line chose.

    Args:
        command: its words, as the shell passed them.
    """
    words = list(command)
    end = words.index("--") if "--" in words else len(words)
    found: dict[str, list[str]] = {ONLY: [], EXCLUDE: [], ISOLATION: [], BUDGET: []}
    flags = set()
    rest = iter(words[:end])
    for word in rest:
        option, equals, value = word.partition("=")
        if option in found:
            found[option].append(value if equals else next(rest, ""))
        flags.add(word)
    isolation = "none" if NO_CGEXEC in flags else found[ISOLATION][-1] if found[ISOLATION] else "auto"
    return Chosen(
        tuple(found[ONLY]),
        tuple(found[EXCLUDE]),
        tuple(words[end + 1 :]),
        isolation,
        REQUIRE_ISOLATION in flags,
        next(reversed(found[BUDGET]), None),
    )


def program() -> str:
    """The word that starts benchsuite in the user's shell: `benchsuite` if the shell finds it, else as it was started.

    In a process that is not the command line, it is `benchsuite`.
    """
    started = Path(sys.argv[0])
    if started.name not in ("benchsuite", "__main__.py") or shutil.which("benchsuite"):
        return "benchsuite"
    return shlex.quote(str(started)) if started.name == "benchsuite" else f"{shlex.quote(sys.executable)} -m benchsuite"


def pasteable(command: Sequence[str]) -> str:
    """A recorded command line as one that a shell of any machine takes: `benchsuite` and its words, quoted.

    Args:
        command: the words of `sys.argv`. The first may be the path of a script, or `__main__.py` after `python -m`.
    """
    words = list(command)
    if words and Path(words[0]).name in ("benchsuite", "__main__.py"):
        del words[0]
    return shlex.join(["benchsuite", *words])


def resume_command(out: Path, *more: str) -> str:
    """The command that continues the run in a folder, quoted for a shell.

    Args:
        more: further words, such as "--repeat", "3".
    """
    folder = f"./{out}" if str(out).startswith("-") else str(out)
    return f"{program()} jobs --resume {shlex.join([folder, *more])}"
