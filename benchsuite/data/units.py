"""An unfinished data set: its tree of files, and a record of each finished unit, so that a later call continues."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchsuite.data.manifest import CHUNK_BYTES, Entry, chunks, parse, to_text
from benchsuite.files import of_data_set
from benchsuite.writing import replace

_PART = re.compile(r"^(?P<whole>.+)\.part-(?P<order>[-0-9]+)$")
_JOINED = "joined"


@dataclass(frozen=True)
class Site:
    """The work folder of one data set. `tree/` is moved to its place; `units/` holds a list of files for each unit."""

    path: Path

    @property
    def tree(self) -> Path:
        return self.path / "tree"

    @property
    def archives(self) -> Path:
        return self.path / "archives"

    def open_for(self, request: str) -> None:
        """Begin, or continue if the last call was for the same data. Archives are always kept.

        Raises:
            OSError: it cannot be written.
        """
        self.archives.mkdir(parents=True, exist_ok=True)
        asked = self.path / "request.json"
        if not asked.exists() or asked.read_text(encoding="utf-8") != request:
            asked.unlink(missing_ok=True)
            for old in (self.tree, self.path / "units"):
                if old.exists():
                    shutil.rmtree(old)
        (self.path / "units").mkdir(exist_ok=True)
        self.tree.mkdir(exist_ok=True)
        replace(asked, request.encode())

    def finished(self, unit: str) -> list[Entry] | None:
        """The files of a unit that an earlier call finished; None if one of them is missing."""
        with contextlib.suppress(OSError, ValueError):
            entries = parse((self.path / "units" / unit).read_bytes())
            if all((self.tree / e.path).stat().st_size == e.size_bytes for e in entries):
                return entries
        return None

    def finish(self, unit: str, entries: Iterable[Entry]) -> None:
        """Record a finished unit. Raises OSError: the list cannot be written."""
        replace(self.path / "units" / unit, to_text(entries))

    def forget(self, archive: Path) -> None:
        """Remove a downloaded file that is unpacked or damaged."""
        archive.unlink(missing_ok=True)
        archive.with_name(f"{archive.name}.json").unlink(missing_ok=True)

    def joined(self) -> list[Entry] | None:
        """All files, if an earlier call joined the pieces."""
        return self.finished(_JOINED)

    def join(self, entries: Iterable[Entry]) -> list[Entry]:
        """Join the pieces of files in the order of their names, then remove them.

        Raises:
            OSError: a file cannot be written.
        """
        pieces: dict[str, list[tuple[list[int], Entry]]] = {}
        whole = []
        for entry in entries:
            match = _PART.match(entry.path)
            if match:
                pieces.setdefault(match["whole"], []).append((_order(match["order"]), entry))
            else:
                whole.append(entry)
        for path, rows in pieces.items():
            whole.append(self._joined(path, [entry for _, entry in sorted(rows, key=lambda row: row[0])]))
        self.finish(_JOINED, whole)
        for rows in pieces.values():
            for _, entry in rows:
                (self.tree / entry.path).unlink()
        return whole

    def _joined(self, path: str, parts: list[Entry]) -> Entry:
        digest, size = hashlib.sha256(), 0
        with (self.tree / path).open("wb", buffering=CHUNK_BYTES) as file:
            for part in parts:
                for chunk in chunks(self.tree / part.path):
                    digest.update(chunk)
                    size += file.write(chunk)
        return Entry(path=path, size_bytes=size, sha256=digest.hexdigest())

    def sweep(self, entries: Iterable[Entry]) -> None:
        """Remove files that a killed call left in the tree and that are not of the data set."""
        wanted = {entry.path for entry in entries}
        found = [path for path, _ in of_data_set(self.tree, follow_links=False)]  # what a link leads to is not ours
        for path in found:
            if path not in wanted:
                (self.tree / path).unlink()
        for folder in sorted((p for p in self.tree.rglob("*") if p.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _order(text: str) -> list[int]:
    """ "1-00000025" -> [1, 25]; "-00000001" comes before all."""
    return [-1] if text.startswith("-") else [int(number) for number in text.split("-")]
