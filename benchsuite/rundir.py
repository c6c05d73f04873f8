"""Every file name of a run; writing that neither overwrites nor leaves half a file; walking results."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import BinaryIO

import msgspec

from benchsuite import errors
from benchsuite.describe.tasks import Plan, Task
from benchsuite.errors import OutputError, ResultError
from benchsuite.files import look
from benchsuite.records import FAILURES, Result, Run
from benchsuite.schema import R, Record, convert, current, decode, from_json, to_json
from benchsuite.writing import take, write_aside, write_new

# Of a name of up to 255 bytes: two slugs, a time and a suffix must fit.
_LONGEST = 110


def slug(name: str) -> str:
    """A name as part of a file name: letters, digits and `._+=,-`. Identity is in the record, never parsed from it."""
    return re.sub(r"[^A-Za-z0-9._+=,-]", "_", name).lstrip(".")[:_LONGEST] or "_"


def distinct_slug(name: str) -> str:
    """A slug that no other name has: what it had to change is told by a hash."""
    clean = slug(name)
    return clean if clean == name else f"{clean}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def new_default_out(profile: str, environ: Mapping[str, str], now: datetime) -> Path:
    """Make `results/<profile>-<YYYYMMDD-HHMMSS>`, local time, under the current folder or `$BENCHSUITE_OUT`.

    Two runs of one second get two folders: the second's name ends in `-2`.

    Raises:
        OutputError: it cannot be made.
    """
    parent = Path(environ.get("BENCHSUITE_OUT") or "results")
    name = f"{slug(profile)}-{now:%Y%m%d-%H%M%S}"
    make_folder(parent)
    for number in itertools.count(1):
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise OutputError(f"{path}: cannot be made: {errors.reason(error)}") from None
        return path
    raise AssertionError


def newest_run(environ: Mapping[str, str]) -> Path:
    """The run folder created last below `$BENCHSUITE_OUT` or `results`.

    Raises:
        ResultError: there is none.
    """
    parent = Path(environ.get("BENCHSUITE_OUT") or "results")
    found: list[tuple[str, Path]] = []
    for file in parent.glob("*/run.json"):
        with contextlib.suppress(ResultError):
            found.append((RunDir(file.parent).run().created, file.parent))
    if not found:
        raise ResultError(f"{parent}: no run here yet; name a results folder, or start with 'benchsuite jobs smoke'")
    return max(found)[1]


def write_result(folder: Path, result: Result, when: datetime) -> Path:
    """Write a result under `<profile>.<task id>[.FAIL].<UTC time>.json`; a taken name advances the microseconds.

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
    """A line of `attempts.jsonl`: a start, of a task or of its preparation, or an end with its result's file.

    A start names the process by boot, pid and start in clock ticks since boot, which no clock step changes, the mark
    that its descendants inherit, and in the same way the benchsuite that started it.
    """

    event: str
    task: str
    attempt: int
    at: str
    monotonic_s: float | None = None
    boot_id: str | None = None
    pid: int | None = None
    ticks: int | None = None
    parent_pid: int | None = None
    parent_ticks: int | None = None
    mark: str | None = None
    status: str | None = None
    result: str | None = None


LOCK = ".lock"


def make_folder(path: Path) -> None:
    """Raises OutputError: the folder cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = errors.reason(error)
        raise OutputError(f"{path}: cannot be written: {reason}; name another folder with -o") from None


def check_empty(path: Path) -> None:
    """A folder for a new run holds nothing, but for the lock.

    Raises:
        OutputError: it holds something, or cannot be read.
    """
    if any(child.name != LOCK for child in path.iterdir()):
        raise OutputError(f"{path}: the folder is not empty; name a new folder with -o, or go on with jobs --resume")


@dataclass(frozen=True)
class RunDir:
    """The folder of one run: `run.json`, `plan.json`, `attempts.jsonl`, results, `logs/`, `telemetry/`."""

    path: Path

    @classmethod
    def create(cls, path: Path, run: Run, plan: Plan) -> RunDir:
        """Write a run and its plan into a folder that is empty or not there yet.

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
            raise OutputError(
                f"{path}: cannot be written: {error.strerror or error}; name another folder with -o"
            ) from None
        return cls(path)

    def log(self, task: Task, attempt: int, what: str) -> Path:
        """A task's file below `logs/`: `task.json`, `events.jsonl`, `out`, `err` or `prepare`."""
        return self.path / "logs" / f"{distinct_slug(task.id)}.a{attempt}.{what}"

    def in_progress(self) -> bool:
        """Whether a run holds the folder's lock now."""
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
        """The attempts that a task was started in, told by their task.json: it is written first of all."""
        return list(itertools.takewhile(lambda n: self.log(task, n, "task.json").exists(), itertools.count(1)))

    def note_attempt(self, line: Attempt) -> None:
        """Append one line, flushed to the disk."""
        with (self.path / "attempts.jsonl").open("ab+") as file:
            if _ends_mid_line(file):
                file.write(b"\n")  # a line that a crash cut short must not take this one with it
            file.write(msgspec.json.encode(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def attempts(self) -> list[Attempt]:
        """All whole lines; one cut short by a crash is passed over."""
        found = []
        file = self.path / "attempts.jsonl"
        for line in file.read_bytes().splitlines() if file.is_file() else ():
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                found.append(msgspec.json.decode(line, type=Attempt))
        return found

    def run(self) -> Run:
        """Raises ResultError: `run.json` is missing or damaged."""
        return read_record(self.path / "run.json", Run)

    def plan(self) -> Plan:
        """Raises ResultError: `plan.json` is missing or damaged."""
        return read_record(self.path / "plan.json", Plan)


def _ends_mid_line(file: BinaryIO) -> bool:
    """The file's last byte is no line end."""
    if not file.seek(0, os.SEEK_END):
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def planned_repeats(folder: Path) -> int:
    """How many repeats the run in a folder has.

    Raises:
        ResultError: there is no run.
    """
    return max(1, RunDir(folder).plan().repeats)


def read_record(path: Path, kind: type[R]) -> R:
    """A kept record from its file.

    Raises:
        ResultError: unreadable or not such a record; names the file and the reason.
    """
    try:
        if path.exists() and not path.is_file():
            raise ResultError(f"{path}: cannot be read: no regular file")
        return from_json(path.read_bytes(), kind)
    except OSError as error:
        raise ResultError(f"{path}: cannot be read: {errors.reason(error)}") from None
    except ValueError as error:
        raise ResultError(f"{path}: {error}") from None


def results(folder: Path) -> Iterator[tuple[Path, Result | str]]:
    """Each JSON file below a folder that is or claims to be a result: the record, or the reason why it is none.

    The run's own files, summaries and hidden leftovers are passed over; `logs/` and `telemetry/` are not entered.

    Raises:
        ResultError: there is no such folder.
    """
    if look(folder) != "folder":
        raise ResultError(f"{folder}: no such folder; name the folder that 'benchsuite jobs' wrote")
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in ("logs", "telemetry") and not f.startswith("."))
        for name in sorted(names):
            if not name.endswith(".json") or name.startswith(".") or name in ("run.json", "plan.json"):
                continue
            path = Path(root, name)
            try:
                if not stat.S_ISREG(path.stat().st_mode):
                    yield path, "not a regular file"
                    continue
                text = path.read_bytes()
                if (result := current(text, Result)) is None:
                    content = decode(text)
                    if isinstance(content, dict) and content.get("kind") == "summary":
                        continue
                    result = convert(content, Result)
                yield path, result
            except OSError as error:
                yield path, f"cannot be read: {errors.reason(error)}"
            except ValueError as error:
                yield path, str(error)
