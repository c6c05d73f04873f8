"""Downloads a file: resumes if possible, checks it, and gives it its name only when it is complete."""

from __future__ import annotations

import errno
import hashlib
import http.client
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from benchsuite import __version__, errors
from benchsuite.data import DataError
from benchsuite.data.descriptor import Source
from benchsuite.data.manifest import chunks
from benchsuite.data.store import Fetched, human
from benchsuite.schema import Record, from_json, to_json
from benchsuite.writing import replace

# Seconds between tries that received nothing new; after the last one the download fails.
PAUSES_S: Sequence[float] = (0.5, 2.0, 5.0, 10.0)
SILENCE_S = 30.0
_READ_BYTES = 1 << 18
Report = Callable[[int, int | None], None]


class Begun(Record, frozen=True, kw_only=True):
    """The whole to which a part file belongs."""

    schema: int = 1
    kind: Literal["begun"] = "begun"
    url: str
    size_bytes: int | None = None
    etag: str | None = None
    modified: str | None = None


class Again(Exception):
    """A failure after which another try may succeed."""


def fetch(source: Source, to: Path, report: Report, pauses_s: Sequence[float] | None = None) -> Fetched:
    """Download a source's file to its path, from its address or a mirror. A complete file that is there is kept.

    Raises:
        DataError: the download failed. What was received stays as a part file, so that a later call continues.
    """
    kept = _kept(source, to)
    if kept:
        return kept
    to.unlink(missing_ok=True)
    problems = []
    for url in (source.url, *source.mirrors):
        try:
            return _from(url, source, to, report, PAUSES_S if pauses_s is None else pauses_s)
        except DataError as error:
            problems.append(str(error))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DataError(f"{to.parent}: the disk is full; make room and go on with the same command") from None
            raise DataError(f"{to}: cannot be written: {errors.reason(error)}") from None
    raise DataError("; ".join(problems))


def _kept(source: Source, to: Path) -> Fetched | None:
    """The file that an earlier call finished, or that a person put there and whose published checksum fits."""
    if not to.exists():
        return None
    try:
        record = Finished.read(to)
    except (OSError, ValueError):
        record = None
    if record and record.fetched.url in (source.url, *source.mirrors):
        return record.fetched if record.fetched.size_bytes == to.stat().st_size else None
    if source.checksum is None:
        return None
    found = _hashed(to, source.url, None)
    return found[0] if source.checksum in found[1] else None


class Finished(Record, frozen=True, kw_only=True):
    """The record beside a finished file: where it came from."""

    schema: int = 1
    kind: Literal["finished"] = "finished"
    fetched: Fetched

    @classmethod
    def read(cls, to: Path) -> Finished:
        """Raises OSError or ValueError: there is no record, or it is damaged."""
        return from_json(to.with_name(f"{to.name}.json").read_bytes(), cls)


def _from(url: str, source: Source, to: Path, report: Report, pauses_s: Sequence[float]) -> Fetched:
    part = to.with_name(f"{to.name}.part")
    most, fruitless, fresh = part.stat().st_size if part.exists() else 0, 0, not part.exists()
    while True:
        try:
            begun = _receive(url, source, part, report)
            found, sums = _hashed(part, url, begun.etag)
            if source.checksum is None or source.checksum in sums:
                break
            _forget(part)
            if fresh:
                raise DataError(f"{url}: checksum {sums[source.checksum.startswith('sha256')]}, not {source.checksum}")
            fresh, reason = True, "the checksum was wrong"
        except Again as error:
            reason = str(error)
        size = part.stat().st_size if part.exists() else 0
        fruitless = 0 if size > most else fruitless + 1
        most = max(most, size)
        if fruitless > len(pauses_s):
            raise DataError(f"{url}: {reason}; given up after {fruitless} tries that brought nothing new")
        time.sleep(pauses_s[fruitless - 1] if fruitless else 0)
    replace(to.with_name(f"{to.name}.json"), to_json(Finished(fetched=found)))
    part.rename(to)
    _record(part).unlink(missing_ok=True)
    return found


def _receive(url: str, source: Source, part: Path, report: Report) -> Begun:
    """Make one request, for the rest of the file or for all of it."""
    begun = _begun(part, url, source)
    have = part.stat().st_size if begun else 0
    if begun and begun.size_bytes == have:
        return begun
    headers = {"User-Agent": f"benchsuite/{__version__}", "Accept-Encoding": "identity"}
    if begun and have:
        headers["Range"] = f"bytes={have}-"
        validator = begun.etag or begun.modified
        if validator:
            headers["If-Range"] = validator
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=SILENCE_S)  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        raise _refused(url, error.code, part) from None
    except (OSError, http.client.HTTPException) as error:
        raise Again(f"no answer: {getattr(error, 'reason', None) or error}") from None
    with answer:
        begun, have = _agreed(url, answer, begun, have, part)
        _check(url, source, begun, answer)
        _fits(part, (begun.size_bytes or source.size_bytes or 0) - have)
        if not have:
            _forget(part)  # before the new record: otherwise a crash in between would join two files
        replace(_record(part), to_json(begun))
        _copy(answer, part, have, begun.size_bytes or source.size_bytes, report)
    return begun


def _refused(url: str, code: int, part: Path) -> Exception:
    """The error for an answer that is not a file; its body is never kept."""
    if code == 416:
        _forget(part)
        return Again("the server has no such range")
    words = f"{code} {http.client.responses.get(code, '')}".strip()
    if code >= 500 or code in (408, 429):
        return Again(f"the server answered {words}")
    return DataError(f"{url}: the server answered {words}")


def _agreed(
    url: str, answer: http.client.HTTPResponse, begun: Begun | None, have: int, part: Path
) -> tuple[Begun, int]:
    """The whole to which this answer belongs, and the byte at which to write it."""
    head = answer.headers
    etag = head.get("ETag")
    now = Begun(url=url, etag=None if etag and etag.startswith("W/") else etag, modified=head.get("Last-Modified"))
    if answer.status == 206:
        spans = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", head.get("Content-Range", ""))
        same = begun is not None and (begun.etag, begun.modified) == (now.etag, now.modified)
        if not spans or int(spans[1]) != have or not same or (begun and begun.size_bytes not in (None, int(spans[3]))):
            _forget(part)
            raise Again("the file changed while it was being downloaded")
        return msgspec.structs.replace(now, size_bytes=int(spans[3])), have
    if answer.status != 200:
        raise DataError(f"{url}: the server answered {answer.status} {answer.reason}")
    length = head.get("Content-Length")
    total = int(length) if length and length.isdigit() else None
    return msgspec.structs.replace(now, size_bytes=total), 0


def _check(url: str, source: Source, begun: Begun, answer: http.client.HTTPResponse) -> None:
    if source.size_bytes and begun.size_bytes and source.size_bytes != begun.size_bytes:
        raise DataError(f"{url}: the server has {begun.size_bytes:,} bytes, not {source.size_bytes:,}")
    chunked = (answer.headers.get("Transfer-Encoding") or "").lower() == "chunked"
    if not (begun.size_bytes or source.size_bytes or source.checksum or chunked):
        raise DataError(f"{url}: the server does not say how large the file is: it could be cut unnoticed")
    if answer.headers.get_content_type() == "text/html" and not source.checksum:
        raise DataError(f"{url}: the server sent a web page instead of the file")


def _copy(answer: http.client.HTTPResponse, part: Path, have: int, total: int | None, report: Report) -> None:
    with part.open("ab", buffering=0) as file:
        file.truncate(have)
        while True:
            report(have, total)
            try:
                chunk = answer.read1(_READ_BYTES)
            except (OSError, http.client.HTTPException) as error:
                raise Again(f"the connection broke after {have:,} bytes ({error})") from None
            if not chunk:
                break
            have += file.write(chunk)
    if total is not None and have != total:
        if have > total:
            _forget(part)
        raise Again(f"{have:,} bytes came instead of {total:,}")


def _record(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _record(part).unlink(missing_ok=True)


def _begun(part: Path, url: str, source: Source) -> Begun | None:
    """The whole to which the part file belongs, if it can be continued: same address, and the whole can be checked."""
    try:
        begun = from_json(_record(part).read_bytes(), Begun)
        size = part.stat().st_size
    except (OSError, ValueError):
        return None
    checkable = begun.etag or begun.modified or source.checksum
    return begun if begun.url == url and checkable and size <= (begun.size_bytes or size) else None


def _fits(part: Path, needed_bytes: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if needed_bytes > free:
        raise DataError(f"{part.parent}: {human(needed_bytes)} are needed and {human(free)} are free; make room")


def _hashed(path: Path, url: str, etag: str | None) -> tuple[Fetched, tuple[str, str]]:
    """A file's record, and its checksums in the form of a descriptor: md5, sha256."""
    md5, sha256, size = hashlib.md5(usedforsecurity=False), hashlib.sha256(), 0
    for chunk in chunks(path):
        md5.update(chunk)
        sha256.update(chunk)
        size += len(chunk)
    fetched = Fetched(url=url, size_bytes=size, sha256=sha256.hexdigest(), etag=etag)
    return fetched, (f"md5:{md5.hexdigest()}", f"sha256:{sha256.hexdigest()}")
