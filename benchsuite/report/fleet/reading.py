"""Reading the nodes of a fleet in parallel processes. A node that cannot be read is a record of its problem."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from benchsuite.errors import BenchError, ResultError, encodable, one_line, reason
from benchsuite.report.fleet.folders import FleetFolders
from benchsuite.report.fleet.node import NodeRecord, Scoring, node_record
from benchsuite.report.fleet.tournament import Tournament, tournaments
from benchsuite.report.read.load import load
from benchsuite.report.stats.summarise import summarise

# A process is worth its start from this number of nodes on.
_NODES_A_PROCESS = 16
_MOST_PROCESSES = 32

# Called with the number of nodes that are read so far.
Progress = Callable[[int], None]


def read_nodes(
    fleet: FleetFolders, scoring: Scoring, progress: Progress = lambda done: None, processes: int | None = None
) -> list[NodeRecord]:
    """The records of all nodes with a folder, in the order of the folders.

    Args:
        processes: that read at the same time; by default one for each usable processor, fewer for few nodes.

    Raises:
        ResultError: a reading process ends without an answer.
    """
    jobs = list(fleet.folders.items())
    wanted = min(usable_processors(), _MOST_PROCESSES, len(jobs) // _NODES_A_PROCESS)
    found = (
        _in_processes(jobs, scoring, processes or wanted)
        if (processes or wanted) > 1
        else (read_node(name, folder, scoring) for name, folder in jobs)
    )
    records: dict[str, NodeRecord] = {}
    for record in found:
        records[record.name] = record
        progress(len(records))
    return [records[name] for name in fleet.folders]


def read_node(name: str, folder: Path, scoring: Scoring) -> NodeRecord:
    """The record of one node; with `problem` set if its folder cannot be read."""
    shown = encodable(str(folder))
    try:
        if not (folder / "run.json").exists() and not any(folder.glob("*.json")):
            return NodeRecord(name, shown, problem="no results in its folder")
        return node_record(name, shown, summarise(load(folder)), scoring)
    except BenchError as error:
        return NodeRecord(name, shown, problem=one_line(str(error)).removeprefix(f"{one_line(shown)}: "))
    except OSError as error:
        return NodeRecord(name, shown, problem=f"its folder cannot be read: {reason(error)}")
    except (ValueError, ArithmeticError, LookupError) as error:
        return NodeRecord(name, shown, problem=f"its results cannot be used: {one_line(str(error))[:200]}")


def read_tournaments(folder: Path) -> tuple[Tournament, ...]:
    """The jobs on pairs of nodes of a run over nodes; empty if there is no run.

    Raises:
        ResultError: the folder cannot be read.
    """
    return tournaments(summarise(load(folder))) if (folder / "run.json").exists() else ()


def usable_processors() -> int:
    """The number of processors on which this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_processes(jobs: list[tuple[str, Path]], scoring: Scoring, processes: int) -> Iterator[NodeRecord]:
    """The records in the order in which they are ready."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_begin) as pool:
        waiting: list[Future[NodeRecord]] = [pool.submit(read_node, name, path, scoring) for name, path in jobs]
        try:
            for done in as_completed(waiting):
                yield done.result()
        except BrokenProcessPool:
            raise ResultError("a process that reads nodes was ended from outside, perhaps for want of memory") from None
        finally:
            pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Prepare a reading process. Its parent answers Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Records have no cycles, and the search for cycles takes a fifth of the time.
    gc.disable()
