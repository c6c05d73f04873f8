"""The page of machines side by side: a chart of their ratios to the reference, then the tables of the document."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from benchsuite.report.show.document import Document, Section, Sentence, Table
from benchsuite.report.show.format import NONE, bounds, ratio
from benchsuite.report.show.svg import scale
from benchsuite.report.show.systems import systems_document
from benchsuite.report.show.systems_row import SystemRow, system_rows
from benchsuite.report.stats.systems import BENCHSUITE, Group

# Units of a bar's picture, which the page scales.
_WIDTH = 1000


@dataclass(frozen=True)
class Bar:
    """A ratio as a bar from 0.

    Attributes:
        width, low, high, one: in units of `_WIDTH`; `low` and `high` are None without an interval.
        text: the ratio in words, or why there is none.
    """

    what: str
    width: float | None
    low: float | None
    high: float | None
    one: float
    text: str
    note: str


@dataclass(frozen=True)
class Entry:
    """A system of the chart with its two bars; `other` names the program that measured it, if it is another one."""

    name: str
    machine: str
    other: str
    bars: tuple[Bar, ...]


def systems_page(groups: Sequence[Group]) -> str:
    """The whole page, which needs no network and no other file."""
    rows = system_rows(groups)
    return _page(systems_document(groups, bars=False), tuple(_entries(rows)), rows[0].reference)


def _entries(rows: Sequence[SystemRow]) -> Iterator[Entry]:
    ends = [
        end
        for row in rows
        for end in (row.ratio_machine, row.ratio_machine_high, row.ratio_per_gpu, row.ratio_per_gpu_high)
        if end
    ]
    top = scale(max(ends, default=1.0))[0]
    for row in sorted(rows, key=lambda row: -(row.ratio_machine or row.ratio_per_gpu or 0.0)):
        machine = _bar("machine", row.ratio_machine, row.ratio_machine_low, row.ratio_machine_high, top)
        per_gpu = _bar("per GPU", row.ratio_per_gpu, row.ratio_per_gpu_low, row.ratio_per_gpu_high, top)
        other = "" if row.program == BENCHSUITE else row.program
        shown = (machine, per_gpu) if row.gpus else (machine,)
        yield Entry(row.name, "" if row.machine.startswith(row.name) else row.machine, other, shown)


def _bar(what: str, value: float | None, low: float | None, high: float | None, top: float) -> Bar:
    def place(of: float | None) -> float | None:
        return None if of is None else round(_WIDTH * of / top, 1)

    around = f"95 %: {bounds(low, high)}" if low is not None else "no interval"
    text = f"{ratio(value)}x" if value is not None else NONE
    note = f"{what} {text}, {around}" if value is not None else f"{what}: no ratio, see the remarks"
    return Bar(what, place(value), place(low), place(high), _WIDTH / top, text, note)


def _page(document: Document, entries: Sequence[Entry], reference: str) -> str:
    """Render the template of this page alone, with the style and script of the other pages."""
    style = Markup(_shipped("page.css") + _shipped("systems.css"))  # noqa: S704 - our own files
    script = Markup(_shipped("page.js"))  # noqa: S704 - our own file
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_shipped),
        autoescape=True,
        finalize=_clean,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["table"] = lambda part: isinstance(part, Table)
    environment.tests["sentence"] = lambda part: isinstance(part, Sentence)
    sections: tuple[Section, ...] = document.sections
    return environment.get_template("systems.html").render(
        document=document,
        sections=sections,
        entries=entries,
        reference=reference,
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _shipped(name: str) -> str:
    return resources.files("benchsuite.report.show.html").joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    """The hash by which a Content-Security-Policy permits an inline style or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _clean(value: Any) -> Any:
    """A value for the template, with each control character but line ends and tabs replaced."""
    if not isinstance(value, str):
        return value
    return type(value)("".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in value))
