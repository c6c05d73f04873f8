"""The record of a run on many nodes: the folder `.cluster` in its results folder.

Each node of the run has a folder with its own name beside it, which is an ordinary run folder.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from benchsuite.errors import OutputError, ResultError, reason
from benchsuite.rundir import check_empty, make_folder, read_record
from benchsuite.schema import SCHEMA, Record, to_json
from benchsuite.writing import open_own, write_new

FOLDER = ".cluster"
# The folder with the results of jobs over nodes, beside those of the nodes. Slurm's states treat it as one more node.
ACROSS = "across-nodes"


class Fleet(Record, frozen=True, kw_only=True):
    """`fleet.json`: what runs on which nodes, and with which Python."""

    schema: int = SCHEMA
    kind: Literal["fleet"] = "fleet"
    run_id: Annotated[str, Meta(description="part of the name and comment of each Slurm job of the run")]
    created: Annotated[str, Meta(description="wall clock, ISO 8601")]
    command: Annotated[tuple[str, ...], Meta(description="command line, word by word")]
    profile: Annotated[str, Meta(description="name of the profile")]
    nodes: Annotated[tuple[str, ...], Meta(description="all nodes of the run")]
    each: Annotated[bool, Meta(description="each node runs jobs of its own")] = True
    across: Annotated[tuple[str, ...], Meta(description="nodes of the jobs over nodes; empty: no such jobs")] = ()
    spanning: Annotated[tuple[str, ...], Meta(description="names of the jobs over nodes")] = ()
    words: Annotated[tuple[str, ...], Meta(description="arguments of `benchsuite jobs` on each node, without -o")]
    changes: Annotated[tuple[str, ...], Meta(description="words after `--` on each node")] = ()
    repeats: Annotated[int | None, Meta(description="value of --repeat")] = None
    partition: str
    sbatch_args: Annotated[tuple[str, ...], Meta(description="further arguments of sbatch")] = ()
    container: Annotated[str | None, Meta(description="image in which each node runs")] = None
    python: Annotated[str, Meta(description="interpreter that starts benchsuite on a node")]
    cwd: Annotated[str, Meta(description="working folder")]
    environ: Annotated[dict[str, str], Meta(description="environment variables that the script sets")] = {}
    mounts: Annotated[tuple[str, ...], Meta(description="folders that a container needs besides OUT")] = ()

    @property
    def runs(self) -> tuple[str, ...]:
        """The folders of the run: its nodes, and that of the jobs over nodes."""
        return (*(self.nodes if self.each else ()), *((ACROSS,) if self.across else ()))

    @property
    def job_name(self) -> str:
        """The name of all Slurm jobs of the run."""
        return f"benchsuite-{self.run_id}"

    def comment(self, node: str, submission: int) -> str:
        """The comment of a Slurm job of the run."""
        return f"benchsuite {self.run_id} {node} {submission}"

    def from_comment(self, comment: str) -> tuple[str, int] | None:
        """The node and the number of the submission in a job's comment; None if the job is not one of this run."""
        words = comment.split()
        if len(words) != 4 or words[:2] != ["benchsuite", self.run_id] or not words[3].isdigit():
            return None
        return words[2], int(words[3])


class Submitted(Record, frozen=True, kw_only=True):
    """A line of `jobs.jsonl`: a job that Slurm took, or a state in which a job ended."""

    node: str
    submission: int
    job_id: str
    at: Annotated[str, Meta(description="wall clock of the host that submitted, ISO 8601")]
    state: Annotated[str | None, Meta(description="Slurm's state at the end; null at the submission")] = None
    exit_code: Annotated[int | None, Meta(description="exit status of the script, if the job ended with one")] = None
    reason: Annotated[str, Meta(description="Slurm's reason at the end, or why benchsuite cancelled the job")] = ""


@dataclass(frozen=True)
class FleetDir:
    """The results folder of a run on many nodes."""

    path: Path

    @classmethod
    def is_one(cls, path: Path) -> bool:
        """Whether a folder holds a run on many nodes."""
        return (path / FOLDER / "fleet.json").is_file()

    @classmethod
    def create(cls, path: Path, fleet: Fleet) -> FleetDir:
        """Write the record of a run into a folder that is empty or does not exist.

        Raises:
            OutputError: the folder is not empty, or cannot be written.
        """
        make_folder(path)
        check_empty(path)
        try:
            (path / FOLDER).mkdir()
            write_new(path / FOLDER / "fleet.json", to_json(fleet, indent=2))
        except OSError as error:
            raise OutputError(f"{path}: cannot be written: {reason(error)}; name another folder with -o") from None
        return cls(path)

    def remove(self) -> None:
        """Remove the record of a run of which nothing was started, and the folder if it is empty then."""
        with contextlib.suppress(OSError):
            for file in (self.path / FOLDER).iterdir():
                file.unlink()
            (self.path / FOLDER).rmdir()
            self.path.rmdir()

    def fleet(self) -> Fleet:
        """The run's record. Raises ResultError: it is missing or damaged."""
        return read_record(self.path / FOLDER / "fleet.json", Fleet)

    def script(self, submission: int) -> Path:
        return self.path / FOLDER / f"submission-{submission}.sh"

    def log(self, node: str, submission: int) -> Path:
        """What the node printed."""
        return self.path / FOLDER / f"{node}.{submission}.log"

    def end(self, node: str, submission: int) -> Path:
        """Where the script of a node leaves its exit status."""
        return self.path / FOLDER / f"{node}.{submission}.end"

    def node(self, node: str) -> Path:
        """The results of a node."""
        return self.path / node

    def new_submission(self, text: Callable[[int], str]) -> int:
        """Write the batch script of the next submission.

        Args:
            text: the script of the submission with this number.

        Returns:
            Its number, from 1. Two hosts that submit at the same time get different numbers.

        Raises:
            OutputError: the folder cannot be written.
        """
        number = 1
        while True:
            try:
                write_new(self.script(number), text(number).encode())
                return number
            except FileExistsError:
                number += 1
            except OSError as error:
                raise OutputError(f"{self.script(number)}: cannot be written: {reason(error)}") from None

    def note(self, line: Submitted) -> None:
        """Append a line to `jobs.jsonl`.

        Raises:
            OutputError: it cannot be written.
        """
        path = self.path / FOLDER / "jobs.jsonl"
        try:
            with os.fdopen(open_own(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "ab+") as file:
                size = file.seek(0, os.SEEK_END)
                cut_short = size and os.pread(file.fileno(), 1, size - 1) != b"\n"
                file.write(b"\n" * bool(cut_short) + msgspec.json.encode(line) + b"\n")
        except OSError as error:
            raise OutputError(f"{path}: cannot be written: {reason(error)}") from None

    def submitted(self) -> list[Submitted]:
        """The lines of `jobs.jsonl`, without one that a crash cut short; empty before the first submission.

        Raises:
            ResultError: the file cannot be read. To take it for empty would submit jobs twice.
        """
        path, found = self.path / FOLDER / "jobs.jsonl", []
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ResultError(f"{path}: cannot be read: {reason(error)}") from None
        for line in lines:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                found.append(msgspec.json.decode(line, type=Submitted))
        return found
