"""`manifest.sha256`: the SHA-256 of the files of a finished run, in the format of `sha256sum -c`.

It covers run.json, plan.json, attempts.jsonl, each result and the samples below `telemetry/`. It does not cover
`logs/`, since no number depends on them and a user may remove them. It does not cover reruns, summaries and plots,
which are made later.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchsuite.errors import ResultError, reason
from benchsuite.records import Result
from benchsuite.rundir import results
from benchsuite.writing import replace

NAME = "manifest.sha256"
OWN = ("run.json", "plan.json", "attempts.jsonl")
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


@dataclass(frozen=True)
class Seal:
    """A manifest.

    Attributes:
        files: path relative to the run's folder -> SHA-256.
        sha256: the hash of the manifest itself.
        malformed: the number of lines that are not in the format.
    """

    files: dict[str, str]
    sha256: str
    malformed: int = 0


@dataclass(frozen=True)
class Changes:
    """How a folder differs from its manifest.

    Attributes:
        changed: the files with another content.
        missing: the files that do not exist any more.
    """

    changed: tuple[str, ...]
    missing: tuple[str, ...]

    def words(self) -> Iterator[str]:
        """Each change in words."""
        yield from (f"{name} was changed" for name in self.changed)
        yield from (f"{name} is missing" for name in self.missing)


def seal(folder: Path) -> None:
    """Write the manifest of a finished run; it replaces an older one.

    Raises:
        OSError: a file cannot be read, or the manifest cannot be written.
    """
    lines = "".join(f"{sha256(folder / name)}  {name}\n" for name in sorted(_files(folder)))
    replace(folder / NAME, lines.encode(errors="surrogateescape"))  # a name may hold any bytes


def unseal(folder: Path) -> Changes:
    """Remove the manifest of a run that continues.

    Returns:
        The files that changed since the manifest was written.

    Raises:
        OSError: it cannot be removed.
    """
    sealed = read(folder)
    if sealed is None:
        return Changes((), ())
    found = changes(folder, sealed)
    (folder / NAME).unlink()
    return found


def read(folder: Path) -> Seal | None:
    """The manifest of a run folder; None if the run has not finished.

    Raises:
        ResultError: it cannot be read.
    """
    try:
        content = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ResultError(f"{folder / NAME}: cannot be read: {reason(error)}") from None
    lines = content.decode(errors="surrogateescape").removesuffix("\n").split("\n") if content else []
    found = [match for line in lines if (match := _LINE.fullmatch(line)) and _is_inside(match[2])]
    return Seal(
        files={match[2]: match[1] for match in found},
        sha256=hashlib.sha256(content).hexdigest(),
        malformed=len(lines) - len(found),
    )


def _is_inside(name: str) -> bool:
    return not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def changes(folder: Path, sealed: Seal) -> Changes:
    """The files of a manifest that changed or are missing."""
    changed, missing = [], []
    for name, wanted in sorted(sealed.files.items()):
        try:
            same = sha256(folder / name) == wanted
        except (FileNotFoundError, NotADirectoryError):
            missing.append(name)
        except OSError:
            changed.append(name)
        else:
            changed += [] if same else [name]
    return Changes(tuple(changed), tuple(missing))


def sha256(path: Path) -> str:
    """The SHA-256 of a file.

    Raises:
        OSError: it cannot be read, or is not a regular file: reading a pipe could block.
    """
    if not path.is_file():
        raise FileNotFoundError(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _files(folder: Path) -> Iterator[str]:
    yield from (name for name in OWN if (folder / name).exists())
    for path, result in results(folder):
        if path.parent == folder and isinstance(result, Result) and result.task.rerun_of is None:
            yield path.name
    with contextlib.suppress(FileNotFoundError):
        yield from (f"telemetry/{path.name}" for path in (folder / "telemetry").iterdir() if path.suffix == ".jsonl")
