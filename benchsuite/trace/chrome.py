"""Read the events of a Chrome trace (torch.profiler, Kineto) one by one, so that a large file needs little memory."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from benchsuite.errors import ResultError, one_line, reason

CHUNK_CHARACTERS = 1 << 20
# One event is a few hundred characters. A file with a longer value is no trace.
LONGEST_VALUE = 32 << 20
_SPACE = " \t\r\n"
_DECODER = json.JSONDecoder()


def events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a trace: a JSON object with `traceEvents`, or a bare array; `.gz` is unpacked.

    Raises:
        ResultError: the file cannot be read, is no trace, or is cut off.
    """
    try:
        with opened(path) as file:
            yield from _Reader(file, path).events()
    except (OSError, EOFError, zlib.error) as error:
        why = reason(error) if isinstance(error, OSError) else "the compressed data is cut off or damaged"
        raise ResultError(f"{one_line(str(path))}: cannot be read: {why}") from None


def opened(path: Path) -> IO[str]:
    """The file as text, unpacked if its first bytes are those of gzip. Bytes that are not UTF-8 are replaced."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace")
    return path.open(encoding="utf-8-sig", errors="replace")


class _Reader:
    """A buffer over the file, from which one JSON value at a time is decoded."""

    def __init__(self, file: IO[str], path: Path) -> None:
        self._file, self._path = file, path
        self._text, self._at, self._ended = "", 0, False

    def events(self) -> Iterator[dict[str, Any]]:
        first = self._next()
        if first == "[":
            yield from self._array()
            return
        if first != "{":
            raise self._no_trace()
        while True:
            mark = self._next()
            if mark == "}":
                raise ResultError(f"{one_line(str(self._path))}: no trace: it has no 'traceEvents'")
            if mark == ",":
                continue
            self._at -= 1
            key = self._value()
            if not isinstance(key, str) or self._next() != ":":
                raise self._no_trace()
            if key == "traceEvents":
                if self._next() != "[":
                    raise ResultError(f"{one_line(str(self._path))}: no trace: 'traceEvents' is not an array")
                yield from self._array()
                return
            self._value()

    def _array(self) -> Iterator[dict[str, Any]]:
        while (mark := self._next()) != "]":
            if mark == ",":
                continue
            self._at -= 1
            value = self._value()
            if isinstance(value, dict):
                yield value

    def _next(self) -> str:
        """The next character that is not a space. The reader moves past it."""
        while True:
            while self._at < len(self._text):
                character = self._text[self._at]
                self._at += 1
                if character not in _SPACE:
                    return character
            if not self._more():
                raise self._cut_off()

    def _value(self) -> Any:
        """Decode the value at this place. The reader moves past it."""
        while self._at < len(self._text) or self._more():
            if self._text[self._at] in _SPACE:
                self._at += 1
                continue
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                end = len(self._text)
            except RecursionError:
                raise self._no_trace() from None
            if end < len(self._text):  # a number at the end of the buffer may continue behind it
                self._at = end
                return value
            if len(self._text) - self._at > LONGEST_VALUE:
                raise self._no_trace()
            if not self._more():
                raise self._cut_off()
        raise self._cut_off()

    def _more(self) -> bool:
        """Read another chunk. False at the end of the file."""
        chunk = self._file.read(CHUNK_CHARACTERS)
        self._text, self._at = self._text[self._at :] + chunk, 0
        return bool(chunk)

    def _cut_off(self) -> ResultError:
        return ResultError(f"{one_line(str(self._path))}: the JSON is cut off or damaged; record the trace again")

    def _no_trace(self) -> ResultError:
        return ResultError(f"{one_line(str(self._path))}: no trace: expected JSON with 'traceEvents'")
