"""The table of cards: what each GPU computes at most, by data sheet; shipped in `cards/`, and extended by users.

A file maps the name of a card to its fields. Files of the user take precedence over the shipped ones: those that
BENCHSUITE_CARDS names (a file or a folder), and those of `benchsuite/cards` in the user's folder of configuration.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from benchsuite import files
from benchsuite.errors import ProfileError, nearest
from benchsuite.schema import Record

Format = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
FORMATS: tuple[Format, ...] = get_args(Format)
VARIABLE = "BENCHSUITE_CARDS"
_Positive = Annotated[float, Meta(gt=0)]


class DenseTflops(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Peak TFLOP/s of matrix products without sparsity, by number format; null: not known, or not there.

    A format of 8 or 16 bits accumulates in fp32.
    """

    fp32: _Positive | None = None
    tf32: _Positive | None = None
    fp16: _Positive | None = None
    bf16: _Positive | None = None
    fp8: _Positive | None = None


class Card(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A card, as its data sheet describes it."""

    names: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(min_length=1, description="names by which NVML calls it, with * for any text"),
    ]
    dense_tflops: DenseTflops
    memory_gb_s: Annotated[_Positive | None, Meta(description="bandwidth of its memory, GB/s")] = None
    source: Annotated[str, Meta(min_length=1, description="where the figures come from")]


@dataclass(frozen=True)
class Known:
    """A card of the table.

    Attributes:
        name: its key in the file.
        own: the file is the user's own, not a shipped one.
    """

    name: str
    card: Card
    file: Path
    own: bool

    def peak_tflops(self, format: Format) -> float | None:
        """The dense peak in a number format; None if the table does not give it."""
        peak: float | None = getattr(self.card.dense_tflops, format)
        return peak


def table(environ: Mapping[str, str] = os.environ) -> tuple[Known, ...]:
    """All cards, those of the user first.

    Raises:
        ProfileError: a file is not valid; names the file, the card, the field and the remedy.
    """
    return _read(tuple(_own_files(environ)))


def find(gpu: str, environ: Mapping[str, str] = os.environ) -> Known | None:
    """The card that NVML calls by this name; None if the table lacks it.

    Of several the user's own comes first, then that of the longest pattern. Upper and lower case are alike.

    Raises:
        ProfileError: as `table`.
    """
    matching = (
        (known.own, len(pattern), -place, known)
        for place, known in enumerate(table(environ))
        for pattern in known.card.names
        if fnmatchcase(gpu.lower(), pattern.lower())
    )
    best = max(matching, key=lambda one: one[:3], default=None)
    return best[3] if best else None


def _own_files(environ: Mapping[str, str]) -> Iterator[Path]:
    if named := environ.get(VARIABLE):
        there = files.look(Path(named))
        if there is None:
            raise ProfileError(f"{VARIABLE}: {named} does not exist; name a file or a folder of cards, or unset it")
        yield from files.in_folder(Path(named)) if there == "folder" else [Path(named)]
    home = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME") or "~").expanduser() / ".config")
    yield from files.in_folder(Path(home) / "benchsuite" / "cards")


@lru_cache(maxsize=4)
def _read(own: tuple[Path, ...]) -> tuple[Known, ...]:
    shipped = files.shipped("cards").values()
    return tuple(
        Known(name, card, file, file in own) for file in (*own, *shipped) for name, card in _cards(file).items()
    )


def _cards(file: Path) -> dict[str, Card]:
    found = {}
    for name, fields in files.read_mapping(file).items():
        at = f"{file}: card '{name}'"
        if not isinstance(fields, dict):
            raise ProfileError(f"{at}: expected a mapping of fields, found {fields!r}")
        for field in fields:
            if field not in Card.__struct_fields__:
                raise ProfileError(f"{at}: unknown field '{field}'{nearest(field, Card.__struct_fields__)}")
        try:
            found[name] = msgspec.convert(fields, Card)
        except msgspec.ValidationError as error:
            reason, _, place = str(error).partition(" - at `$.")
            where = f"field '{place.rstrip('`')}': " if place else ""
            hint = f"; the formats are {', '.join(FORMATS)}" if "dense_tflops" in place else ""
            raise ProfileError(f"{at}: {where}{reason.replace('`', '').lower()}{hint}") from None
    return found
