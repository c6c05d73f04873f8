"""Generates data with the formats and statistics of the real ones; the same bytes for any number of processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from pathlib import Path

from benchsuite.data import DataError, manifest, writers
from benchsuite.data.manifest import Entry
from benchsuite.data.units import Site

# Units that each process is given ahead of the finished ones.
_AHEAD = 4


def usable_cpus() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def made_with() -> dict[str, str]:
    """The libraries on whose versions the bytes depend."""
    import numpy
    import PIL

    return {"numpy": numpy.__version__, "pillow": PIL.__version__}


def generate(
    name: str, settings: writers.Settings, site: Site, processes: int, report: Callable[[int, int], None]
) -> list[Entry]:
    """Write all unfinished units, and join their pieces. `report` is called with the units done and the units in all.

    Raises:
        DataError: a process died.
        OSError: a file cannot be written.
    """
    whole = site.joined()
    if whole is not None:
        return whole
    total = writers.writer(name).units(settings)
    found = {unit: entries for unit in range(total) if (entries := site.finished(str(unit))) is not None}
    report(len(found), total)
    missing = [unit for unit in range(total) if unit not in found]
    for unit, entries in _made(name, settings, site, missing, min(processes, len(missing))):
        found[unit] = entries
        report(len(found), total)
    return site.join(entry for entries in found.values() for entry in entries)


def _made(
    name: str, settings: writers.Settings, site: Site, units: list[int], processes: int
) -> Iterator[tuple[int, list[Entry]]]:
    if processes <= 1:
        for unit in units:
            yield unit, make(name, settings, site.path, unit)
        return
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, _begin)
    waiting = iter(units)
    running: dict[Future[list[Entry]], int] = {}
    try:
        while True:
            for unit in waiting:
                running[pool.submit(make, name, settings, site.path, unit)] = unit
                if len(running) >= processes * _AHEAD:
                    break
            if not running:
                return
            done = next(as_completed(running))
            yield running.pop(done), done.result()
    except BrokenProcessPool:
        raise DataError(
            f"{site.path}: a process that wrote data was killed, for want of memory perhaps; give fewer with --workers"
        ) from None
    finally:
        if running:  # unfinished units are not waited for: they will be made again
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
        pool.shutdown(cancel_futures=True)


def make(name: str, settings: writers.Settings, place: Path, unit: int) -> list[Entry]:
    """Write one unit's files, then its list.

    Raises:
        OSError: a file cannot be written.
    """
    site = Site(place)
    entries = [manifest.write(site.tree, path, content) for path, content in writers.writer(name).write(settings, unit)]
    site.finish(str(unit), entries)
    return entries


def _begin() -> None:
    """Set up a process: it ignores Ctrl-C, which the parent handles, and ends with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()


def _follow(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
