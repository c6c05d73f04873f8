"""The folder of a run: the names of its files, how they are written, and how results are found."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
from msgspec import Meta

from benchsuite.describe.invocation import resume_command
from benchsuite.describe.tasks import Plan, Task
from benchsuite.errors import OutputError, ResultError, reason
from benchsuite.files import look
from benchsuite.records import FAILURES, Result, Run
from benchsuite.schema import R, Record, convert, current, decode, from_json, to_json
from benchsuite.writing import open_own, sync, take, write_aside, write_new

# Two slugs, a time and a suffix must fit into a file name of 255 bytes.
_LONGEST = 110
# The folders of a run that hold no results.
_APART = ("logs", "telemetry", "checkpoints", "bleu", "driver")


def slug(name: str) -> str:
    """A name as part of a file name: other characters than letters, digits and `._+=,-` become `_`.

    The first one is neither a dot, which hides a file, nor a dash, which commands take for an option.

    Two names may have the same slug. The name itself is in the record and is never read from a file name.
    """
    return re.sub(r"[^A-Za-z0-9._+=,-]", "_", name).lstrip(".-")[:_LONGEST] or "_"


def distinct_slug(name: str) -> str:
    """A slug that no other name has: if characters had to change, it ends in a hash of the name."""
    clean = slug(name)
    return clean if clean == name else f"{clean}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def write_result(folder: Path, result: Result, when: datetime) -> Path:
    """Write a result as `<profile>.<task id>[.FAIL].<UTC time>.json`. If the name is taken, a later time is used.

    Raises:
        OSError: it cannot be written; nothing is left behind and no other file is touched.
    """
    task = result.task
    fail = ".FAIL" if result.status in FAILURES else ""
    stem = f"{slug(task.profile)}.{slug(task.id)}{fail}"
    when = when.astimezone(timezone.utc)
    aside = write_aside(folder, to_json(result))
    try:
        while True:
            path = folder / f"{stem}.{when:%Y%m%d-%H%M%S-%f}.json"
            try:
                take(aside, path)
            except FileExistsError:
                when += timedelta(microseconds=1)
            else:
                return path
    finally:
        aside.unlink(missing_ok=True)


class Attempt(Record, frozen=True, kw_only=True):
    """A line of `attempts.jsonl`: a task started, its preparation started, or it ended.

    Boot, pid and start time identify a process. The start time is in clock ticks since boot, so that setting the clock
    does not change it.
    """

    event: Annotated[str, Meta(description="start, prepare or end")]
    task: Annotated[str, Meta(description="id of the task")]
    attempt: Annotated[int, Meta(description="number of the attempt, from 1")]
    at: Annotated[str, Meta(description="wall clock, ISO 8601")]
    monotonic_s: Annotated[float | None, Meta(description="the same instant on CLOCK_MONOTONIC")] = None
    boot_id: str | None = None
    pid: Annotated[int | None, Meta(description="the process that started")] = None
    ticks: Annotated[int | None, Meta(description="start of that process, in clock ticks since boot")] = None
    parent_pid: Annotated[int | None, Meta(description="the benchsuite that started it")] = None
    parent_ticks: Annotated[int | None, Meta(description="start of that benchsuite, in clock ticks since boot")] = None
    mark: Annotated[str | None, Meta(description="environment variable that all descendants inherit")] = None
    status: Annotated[str | None, Meta(description="at an end: status of the result")] = None
    result: Annotated[str | None, Meta(description="at an end: file name of the result")] = None


LOCK = ".lock"
_OWN = ("run.json", "plan.json", "searches.json")


def make_folder(path: Path) -> None:
    """Make a folder and those around it, unless they exist. Raises OutputError: it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {reason(error)}; name another folder with -o") from None


def check_empty(path: Path) -> None:
    """Refuse a folder that is not empty. The lock of a run may be in it.

    Raises:
        OutputError: the folder is not empty.
    """
    if any(child.name != LOCK for child in path.iterdir()):
        more = f", or continue its run: {resume_command(path)}" if (path / "run.json").exists() else ""
        raise OutputError(f"{path}: the folder is not empty; name a new folder with -o{more}")


@dataclass(frozen=True)
class RunDir:
    """The folder of one run: `run.json`, `plan.json`, `attempts.jsonl`, results, `logs/`, `telemetry/`."""

    path: Path

    @classmethod
    def create(cls, path: Path, run: Run, plan: Plan) -> RunDir:
        """Write the records of a run and of its plan into a folder that is empty or does not exist.

        Raises:
            OutputError: the folder is not empty, or cannot be written.
        """
        try:
            make_folder(path)
            check_empty(path)
            (path / "logs").mkdir()
            write_new(path / "run.json", to_json(run, indent=2))
            write_new(path / "plan.json", to_json(plan, indent=2))
        except OSError as error:
            raise OutputError(f"{path}: cannot be written: {reason(error)}; name another folder with -o") from None
        return cls(path)

    def log(self, task: Task, attempt: int, what: str) -> Path:
        """A file of a task below `logs/`; `what` is `task.json`, `events.jsonl`, `out`, `err` or `prepare`."""
        return self.path / "logs" / f"{distinct_slug(task.id)}.a{attempt}.{what}"

    def checkpoints(self, task: Task, attempt: int) -> Path:
        """The path of the checkpoints of a task, without `.epochN` and what follows."""
        return self.path / "checkpoints" / f"{distinct_slug(task.id)}.a{attempt}"

    def in_progress(self) -> bool:
        """Does a run hold the lock of the folder now?"""
        try:
            fd = os.open(self.path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(fd)
        return False

    def started(self, task: Task) -> list[int]:
        """The attempts at a task, found by their `task.json`, the first file that an attempt writes."""
        return list(itertools.takewhile(lambda n: self.log(task, n, "task.json").exists(), itertools.count(1)))

    def note_attempt(self, line: Attempt) -> None:
        """Append a line to `attempts.jsonl` and flush it to the disk."""
        fd = open_own(self.path / "attempts.jsonl", os.O_RDWR | os.O_APPEND | os.O_CREAT)
        with os.fdopen(fd, "ab+") as file:
            if _ends_mid_line(file):
                file.write(b"\n")  # a line that a crash cut short ends here, so that it cannot damage the next
            file.write(msgspec.json.encode(line) + b"\n")
            file.flush()
            sync(file.fileno())

    def attempts(self) -> list[Attempt]:
        """The lines of `attempts.jsonl`, without one that a crash cut short."""
        found = []
        file = self.path / "attempts.jsonl"
        for line in file.read_bytes().splitlines() if file.is_file() else ():
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                found.append(msgspec.json.decode(line, type=Attempt))
        return found

    def run(self) -> Run:
        """The run's record. Raises ResultError: `run.json` is missing or damaged."""
        return read_record(self.path / "run.json", Run)

    def plan(self) -> Plan:
        """The run's plan. Raises ResultError: `plan.json` is missing or damaged."""
        return read_record(self.path / "plan.json", Plan)


def _ends_mid_line(file: BinaryIO) -> bool:
    """Is the last byte of a file not a line end?"""
    if not file.seek(0, os.SEEK_END):
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def planned_repeats(folder: Path) -> int:
    """The number of repeats of the run in a folder.

    Raises:
        ResultError: the folder holds no run.
    """
    return max(1, RunDir(folder).plan().repeats)


def read_record(path: Path, kind: type[R]) -> R:
    """Read a record from its file.

    Raises:
        ResultError: the file cannot be read, or does not hold such a record; names the file and the reason.
    """
    try:
        if path.exists() and not path.is_file():
            raise ResultError(f"{path}: cannot be read: not a regular file")
        return from_json(path.read_bytes(), kind)
    except OSError as error:
        raise ResultError(f"{path}: cannot be read: {reason(error)}") from None
    except ValueError as error:
        raise ResultError(f"{path}: {error}") from None


def results(folder: Path) -> Iterator[tuple[Path, Result | str]]:
    """Find the results below a folder: their files, each with the record or the reason why it cannot be read.

    It skips run.json, plan.json, searches.json, summaries, hidden files and the folders of `_APART`. Other JSON files
    are results.

    Raises:
        ResultError: the folder does not exist.
    """
    if look(folder) != "folder":
        raise ResultError(f"{folder}: no such folder; name the folder that 'benchsuite jobs' wrote")
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in _APART and not f.startswith("."))
        for name in sorted(names):
            if not name.endswith(".json") or name.startswith(".") or name in _OWN:
                continue
            path = Path(root, name)
            try:
                if not stat.S_ISREG(path.stat().st_mode):
                    yield path, "not a regular file"
                    continue
                with path.open("rb", buffering=0) as file:  # one read for the whole file: a report has thousands
                    text = file.read()
                if (result := current(text, Result)) is None:
                    content = decode(text)
                    if isinstance(content, dict) and content.get("kind") == "summary":
                        continue
                    result = convert(content, Result)
                yield path, result
            except OSError as error:
                yield path, f"cannot be read: {reason(error)}"
            except ValueError as error:
                yield path, str(error)
