"""Prepares a data set: downloads and unpacks it, or generates it, and moves it to its place when it is complete."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from benchsuite.data import DataError, bpe, manifest, store, supply, synthetic
from benchsuite.data.descriptor import DataSet, Size
from benchsuite.data.fetch import fetch
from benchsuite.data.lock import locked
from benchsuite.data.manifest import Entry
from benchsuite.data.store import Fetched, Marker, Prepared, human
from benchsuite.data.units import Site
from benchsuite.data.unpack import BadArchive, unpack
from benchsuite.errors import reason
from benchsuite.schema import to_json
from benchsuite.writing import replace


class Watcher(Protocol):
    """Receives the progress."""

    def say(self, line: str) -> None:
        """Show one line."""

    def stage(self, what: str, unit: Literal["bytes", "units", "pairs", "files"]) -> Callable[[int, int | None], None]:
        """Begin a new stage. The function returned is called with how much is done and, if known, of how much."""


@dataclass(frozen=True)
class Request:
    """What to prepare. Real data if there are any, unless `synthetic`. `own`: a folder of the user's own files."""

    synthetic: bool
    size: Size
    processes: int
    own: Path | None = None

    def real(self, data: DataSet) -> bool:
        return data.has_real and not self.synthetic


def bring(root: Path, data: DataSet, request: Request, watcher: Watcher) -> Prepared:
    """Prepare a data set. If it is ready, nothing is done.

    Raises:
        DataError: it cannot be prepared, or other data are in its place. What was received stays, so that a later
            call continues.
    """
    ready = _ready(root, data, request)
    if ready:
        return ready
    if request.real(data) and data.about.conversion:
        bpe.check()
    if request.real(data) and not data.about.sources and data.about.supplied and not request.own:
        where = data.about.supplied.where
        raise DataError(
            f"{data.name}: not for download; {where}, and give their folder with --from; or add --synthetic"
        )
    work = store.work(root, data.name)
    try:
        work.mkdir(parents=True, exist_ok=True)
        with locked(work.with_name(f"{data.name}.lock"), watcher.say):
            ready = _ready(root, data, request)
            if ready:
                return ready
            standing = store.look(root, data)
            if standing.state == "damaged":
                watcher.say(f"{standing.reason}: it is made again")
            return _make(root, data, request, watcher)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(f"{root}: the disk is full; make room and go on with the same command") from None
        place = error.filename or root
        raise DataError(f"{place}: {reason(error)}; name another folder with -d") from None


def _ready(root: Path, data: DataSet, request: Request) -> Prepared | None:
    """The data set that is in its place already; None if there is none of the requested kind.

    Raises:
        DataError: something else is there that `prepare` may not replace.
    """
    standing = store.look(root, data)
    if not standing.ours:
        raise DataError(f"{standing.reason}; move it away, or name another folder with -d")
    found = standing.prepared
    if found is None:
        return None
    real = request.real(data)
    if found.real != real or (not real and found.size != request.size):
        asked = "real" if real else f"synthetic, {request.size}"
        held = "real" if found.real else f"synthetic, {found.size}"
        raise DataError(
            f"{found.path} holds other data ({held}) than asked for ({asked}); remove it or name another folder with -d"
        )
    return found


def _make(root: Path, data: DataSet, request: Request, watcher: Watcher) -> Prepared:
    site = Site(store.work(root, data.name))
    real = request.real(data)
    size = None if real else request.size
    site.open_for(f"{data.name} {data.sha256} {size or request.own or 'real'}\n")
    fetched: tuple[Fetched, ...] = ()
    if request.own and data.about.supplied:
        report_own = watcher.stage(f"taking the files of {request.own}", "files")
        entries = supply.supply(request.own, data.about.supplied, site, report_own)
    elif real:
        entries, fetched = _download(data, site, watcher)
    else:
        _room(root, getattr(data.about.expected_bytes, request.size), site)
        report = watcher.stage(f"writing synthetic data, {request.size}", "units")
        settings = data.settings(request.size)
        entries = synthetic.generate(data.about.generator.writer, settings, site, request.processes, report)
    _check(data, site, entries)
    text = manifest.to_text(entries)
    marker = Marker(
        name=data.name,
        version=data.about.version,
        real=real,
        size=size,
        files=len(entries),
        size_bytes=sum(entry.size_bytes for entry in entries),
        manifest_sha256=store.sha256(text),
        descriptor_sha256=data.sha256,
        sources=fetched,
        made_with={} if real else synthetic.made_with(),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    _install(root, data.name, site, text, marker)
    standing = store.look(root, data)
    if standing.prepared is None:
        raise DataError(f"{standing.reason}: it changed as it was finished")
    return standing.prepared


def _download(data: DataSet, site: Site, watcher: Watcher) -> tuple[list[Entry], tuple[Fetched, ...]]:
    entries: list[Entry] = []
    fetched = []
    conversion = data.about.conversion
    converted = site.finished("converted") if conversion else None
    for number, source in enumerate(data.about.sources):
        archive = site.archives / source.file
        known = site.path / "units" / f"{number}.source"
        done = site.finished(str(number))
        if converted is None and (done is None or not known.exists()):
            record = fetch(source, archive, watcher.stage(f"downloading {source.file}", "bytes"))
            report = watcher.stage(f"unpacking {source.file}", "bytes")
            try:
                done = unpack(source, archive, site.tree, lambda count: report(count, None))  # noqa: B023
            except BadArchive:
                site.forget(archive)
                raise
            replace(known, msgspec.json.encode(record))
            site.finish(str(number), done)
            site.forget(archive)
        fetched.append(msgspec.json.decode(known.read_bytes(), type=Fetched))
        entries += done or []
    if conversion:
        entries = converted or bpe.convert(site.tree, conversion, watcher.stage("turning text into units", "pairs"))
        site.finish("converted", entries)
    return entries, tuple(fetched)


def _room(root: Path, expected_bytes: int, site: Site) -> None:
    """Raises DataError: the disk has no room for what is still to be written."""
    there = sum(manifest.present(site.tree).values())
    free = shutil.disk_usage(root).free
    needed = expected_bytes - there
    if needed > free:
        raise DataError(f"{root}: about {human(needed)} are needed and {human(free)} are free; make room")


def _check(data: DataSet, site: Site, entries: list[Entry]) -> None:
    """Raises DataError: a part of the layout is missing, or a file is not as it was written."""
    paths = [entry.path for entry in entries]
    if len(set(paths)) < len(paths):
        raise DataError(f"{data.name}: two sources hold files of the same path")
    for role, place in data.about.layout.items():
        if not any(path == place or path.startswith(f"{place}/") for path in paths):
            raise DataError(f"{data.name}: its {role} is missing: there is no {place} in what its sources hold")
    site.sweep(entries)
    found = manifest.difference(site.tree, entries)
    if found:
        shutil.rmtree(site.path / "units")
        raise DataError(f"{data.name}: {found} after it was written; run the same command again")


def _install(root: Path, name: str, site: Site, text: bytes, marker: Marker) -> None:
    """Write the marker last, flush everything to the disk, then rename once. Replaces a damaged predecessor."""
    (site.tree / store.MANIFEST).write_bytes(text)
    (site.tree / store.MARKER).write_bytes(to_json(marker, indent=2))
    os.sync()
    place, old = store.folder(root, name), site.path / "old"
    if old.exists():
        shutil.rmtree(old)
    if place.exists():
        place.rename(old)
    site.tree.rename(place)
    with suppress(OSError):
        shutil.rmtree(site.path)
