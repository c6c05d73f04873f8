"""One file a format: the file's name is its registration.

A writer makes a data set in units that depend on its settings only, never on the number of processes: unit u's content
comes from random numbers seeded with (seed, u). A path that ends in `.part-ORDER` is a piece of the file before it; the
pieces are joined in the order of their names.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, Protocol, cast

from benchsuite.schema import Record


class Settings(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that every writer has."""

    seed: int = 1234


class Writer(Protocol):
    """The functions of a writer's file."""

    Settings: type[Any]

    def units(self, settings: Any) -> int:
        """The number of units."""

    def write(self, settings: Any, unit: int) -> Iterator[tuple[str, bytes]]:
        """The files of a unit, or pieces of files: path and content."""


def names() -> list[str]:
    """All writers."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def writer(name: str) -> Writer:
    """The writer of a name that `names` has."""
    return cast(Writer, importlib.import_module(f"{__name__}.{name}"))
