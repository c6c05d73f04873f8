"""`manifest.sha256`: the SHA-256 of every file that a run left, as `sha256sum -c` reads it too.

It covers run.json, plan.json, attempts.jsonl, each result and the samples below `telemetry/`. Not `logs/`: no figure
rests on it, and its owner may remove what tasks printed. Not reruns, summaries and plots: they come later.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchsuite import errors
from benchsuite.errors import ResultError
from benchsuite.records import Result
from benchsuite.rundir import results
from benchsuite.writing import replace

NAME = "manifest.sha256"
OWN = ("run.json", "plan.json", "attempts.jsonl")
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


@dataclass(frozen=True)
class Seal:
    """A manifest that was read: path relative to the run's folder -> SHA-256, its own hash, lines that are none."""

    files: dict[str, str]
    sha256: str
    malformed: int = 0


@dataclass(frozen=True)
class Changes:
    """What is not as the manifest says."""

    changed: tuple[str, ...]
    missing: tuple[str, ...]

    def words(self) -> Iterator[str]:
        yield from (f"{name} was changed" for name in self.changed)
        yield from (f"{name} is missing" for name in self.missing)


def seal(folder: Path) -> None:
    """Write the manifest of a run that has come to its end, in place of an older one.

    Raises:
        OSError: a file cannot be read, or the manifest cannot be written.
    """
    lines = "".join(f"{sha256(folder / name)}  {name}\n" for name in sorted(_files(folder)))
    replace(folder / NAME, lines.encode())


def unseal(folder: Path) -> Changes:
    """Take the manifest away, since the run goes on; what is not as it says.

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
    """A folder's manifest; None where there is none.

    Raises:
        ResultError: it cannot be read.
    """
    try:
        content = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ResultError(f"{folder / NAME}: cannot be read: {errors.reason(error)}") from None
    lines = content.decode(errors="replace").splitlines()
    found = [match for line in lines if (match := _LINE.fullmatch(line)) and _is_inside(match[2])]
    return Seal(
        files={match[2]: match[1] for match in found},
        sha256=hashlib.sha256(content).hexdigest(),
        malformed=len(lines) - len(found),
    )


def _is_inside(name: str) -> bool:
    return not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def changes(folder: Path, sealed: Seal) -> Changes:
    """Which files of a manifest are not there any more, or are others."""
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
    """Raises OSError: it cannot be read, or is no regular file (a pipe would keep us waiting)."""
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
