"""What a whole run works with, and what the means of one wave have provided to its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from benchsuite.describe.tasks import DataFolder, Task
from benchsuite.errors import BenchError, UsageError
from benchsuite.host.monitor import Monitor
from benchsuite.isolation.fencing import Fencing
from benchsuite.isolation.tenant import Tenant
from benchsuite.launch import process
from benchsuite.launch.ledger import Ledger
from benchsuite.launch.supervise import never
from benchsuite.provisions import DataUsed, SharingUsed
from benchsuite.records import Failure, Status
from benchsuite.searches import BatchSearch


@dataclass(frozen=True)
class RunContext:
    """What all waves of a run share.

    Attributes:
        environ: the environment that workers and commands inherit.
        say: shows the user a line.
        asked_to_stop: has the user asked for the end of the run?
        hurried: has the user asked for it a second time? What runs is then killed at once.
        searches: the batch size searches of this run so far, by job name.
        allow_mig: may the division of a GPU into MIG instances be changed?
    """

    ledger: Ledger
    environ: Mapping[str, str]
    fencing: Fencing
    monitor: Monitor
    say: Callable[[str], None]
    asked_to_stop: Callable[[], bool]
    hurried: Callable[[], bool] = never
    searches: dict[str, BatchSearch] = field(default_factory=dict)
    allow_mig: bool = False

    @contextmanager
    def fenced(self, tasks: Sequence[Task]) -> Iterator[tuple[Tenant, ...]]:
        """A tenant for each task, in order; at the end they are closed, and what still runs in them is killed.

        Raises:
            WaveError: isolation is required and no longer possible.
        """
        try:
            tenants = self.fencing.fence(tasks)
        except UsageError as error:
            raise WaveError(Failure(kind="isolation", message=str(error))) from None
        try:
            yield tuple(tenants)
        finally:
            for tenant in tenants:
                tenant.close()


@dataclass(frozen=True)
class DataProvided:
    """A data set that was found complete.

    Attributes:
        folder: its record for the worker.
        used: its record for the result.
    """

    folder: DataFolder
    used: DataUsed


class Forker(Protocol):
    """A preloaded process from which workers are forked."""

    def fork(
        self, file: Path, tenant: Tenant, word: str, out: Path, err: Path, control: int | None
    ) -> process.Tree | None:
        """Fork the worker of an assignment; None if the process does not answer, so that the worker must start anew.

        Args:
            tenant: the share that the worker enters.
            word: what its mark shall hold.
            out, err: the files to which its output is appended.
            control: its control pipe, which has the same number there.

        Raises:
            OSError: a file cannot be opened.
        """


class Proof:
    """Finds out whether models share a GPU in the way that was asked for."""

    def look(self, running: Sequence[tuple[Task, int]]) -> None:
        """The tasks that are ready or train now, each with the pid of its worker; called again and again."""

    def used(self, task: Task) -> SharingUsed:
        """What is known of a task at its end."""
        raise NotImplementedError


@dataclass(frozen=True)
class WaveContext:
    """A wave's tasks with what its means have provided so far.

    Attributes:
        tasks: those that are not skipped, with the batch size that was found for them.
        tenants: the share of the machine of each task, in order.
        environ: variables that the workers get on top of their own.
        sharing: shows how the models of the wave share their GPUs; None if a model has its GPU alone.
        forkers: id of a task -> the process from which its worker is forked; the other workers start anew.
        loading_s: when the loading of these processes began, on CLOCK_MONOTONIC; None if they were loaded before.
    """

    tasks: tuple[Task, ...]
    data: DataProvided | None = None
    batch_search: BatchSearch | None = None
    tenants: tuple[Tenant, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    sharing: Proof | None = None
    forkers: Mapping[str, Forker] = field(default_factory=dict)
    loading_s: float | None = None


Mean: TypeAlias = Callable[[RunContext, WaveContext], AbstractContextManager[WaveContext]]


class WaveError(BenchError):
    """A wave cannot start; `failure` is that of each of its tasks."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure

    @property
    def status(self) -> Status:
        """The status of the wave's tasks."""
        return "oom" if self.failure.kind == "oom" else "failed"
