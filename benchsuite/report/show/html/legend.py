"""The looks of the curves of a panel, and the legend that names them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchsuite.report.format import one_line
from benchsuite.report.read.curves import Curve
from benchsuite.report.show.svg import Look

# The classes `c0` to `c7` and `d0` to `d3` of the style sheet.
_COLOURS, _DASHES = 8, 4
_GPU = re.compile(r"GPU (\d+)")


@dataclass(frozen=True)
class Key:
    """An entry of a legend: the classes of its line, and its name."""

    look: str
    name: str


def looks_of(curves: Sequence[Curve]) -> tuple[list[Look], tuple[Key, ...]]:
    """The looks of curves with their legend: a colour for each GPU and a dash for each repeat, or, with a single GPU, a
    colour for each repeat.

    A GPU has the same colour in every panel.
    """
    names = sorted({curve.name for curve in curves}, key=_natural)
    repeats = sorted({curve.row.task.repeat for curve in curves})
    words = [f"repeat {repeat}" for repeat in repeats]
    if len(names) == 1:
        looks = [Look(repeats.index(curve.row.task.repeat) % _COLOURS) for curve in curves]
        named = [f"{names[0]}, {words[0]}", *words[1:]] if words else []
        return looks, _keys((place % _COLOURS, name) for place, name in enumerate(named))
    colours = {name: _colour(name, place) for place, name in enumerate(names)}
    looks = [Look(colours[c.name], repeats.index(c.row.task.repeat) % _DASHES) for c in curves]
    dashes = [Key(f"plain d{place % _DASHES}", name) for place, name in enumerate(words)] if len(words) > 1 else []
    return looks, (*_keys((colours[name], name) for name in names), *dashes)


def _natural(name: str) -> tuple[int, str]:
    """GPUs by their index, then other names."""
    found = _GPU.fullmatch(name)
    return (int(found[1]), "") if found else (-1, name)


def _colour(name: str, place: int) -> int:
    found = _GPU.fullmatch(name)
    return (int(found[1]) if found else place) % _COLOURS


def _keys(named: Iterable[tuple[int, str]]) -> tuple[Key, ...]:
    return tuple(Key(f"c{colour}", one_line(name)) for colour, name in named)
