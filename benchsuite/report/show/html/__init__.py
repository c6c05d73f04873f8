"""A report as one self-contained page: no network, no file beside it; all that it shows is escaped."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import jinja2
from markupsafe import Markup

from benchsuite.records import Machine
from benchsuite.report.read.load import OPEN, Loaded, Row
from benchsuite.report.show.document import Cell, Document, Grid, document
from benchsuite.report.show.format import NONE, count, number, one_line
from benchsuite.report.show.html.charts import Figures, telemetry, timelines
from benchsuite.report.show.html.matrix import matrix
from benchsuite.report.show.render import Report

# Of each failure so many of its last lines are shown, and so many failures that are unlike.
_LAST_LINES = 40
_MOST_FAILURES = 100
_LONGEST_LINE = 500
_MOST_TEXT = 200_000


@dataclass(frozen=True)
class Trouble:
    """Tasks that failed with the same words: the first of them, and its last lines."""

    task: str
    status: str
    message: str
    lines: str
    alike: int


@dataclass(frozen=True)
class Block:
    """The score block: `figures` have a number of their own, `notes` explain them, `facts` stand beside."""

    figures: tuple[tuple[str, Cell], ...]
    notes: tuple[tuple[str, Cell], ...]
    facts: tuple[tuple[str, Cell], ...]


def page(report: Report, loaded: Loaded | None) -> str:
    """The whole page.

    Args:
        loaded: the results folder; None where only a summary is known, and curves and last lines are left out.
    """
    style, script = (Markup(_shipped(name)) for name in ("page.css", "page.js"))  # noqa: S704 - our own files
    rows = loaded.rows if loaded else ()
    shown = document(report)
    troubles = _troubles(rows)
    return _template().render(
        shown=shown,
        score=_block(shown),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        matrix=None if report.gpus else matrix(report.summary),  # --compare-gpus shows more than it
        has_folder=loaded is not None,
        timelines=timelines(rows),
        telemetry=telemetry(loaded.path, rows) if loaded else Figures(()),
        troubles=troubles[:_MOST_FAILURES],
        more_troubles=max(0, len(troubles) - _MOST_FAILURES),
        logs=report.logs,
        facts=_facts(report, loaded),
        machine=report.summary.machine,
        profile_text=_clean(loaded.run.profile.text[:_MOST_TEXT]) if loaded and loaded.run else None,
    )


def _template() -> jinja2.Template:
    loader = jinja2.FunctionLoader(_shipped)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests["grid"] = lambda part: isinstance(part, Grid)
    environment.filters["bytes"] = _bytes
    environment.filters["clean"] = _clean
    return environment.get_template("page.html")


def _shipped(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    """As a Content-Security-Policy names an inline style or script: only what has this hash takes effect."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _block(shown: Document) -> Block:
    rows = [row for part in shown.score.parts if isinstance(part, Grid) for row in part.rows] if shown.score else []
    named = [(row[0].text, row[1]) for row in rows]
    split = next((place for place, (label, _) in enumerate(named) if not label), len(named))
    above, beside = named[:split], [fact for fact in named[split:] if fact[0]]
    figures = [(label, cell) for label, cell in above if cell.runs and cell.runs[0].strong]
    return Block(tuple(figures), tuple(pair for pair in above if pair not in figures), tuple(beside))


def _troubles(rows: Sequence[Row]) -> list[Trouble]:
    alike: dict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        error = row.result.error if row.result else None
        if row.status not in ("ok", *OPEN):
            lines = "\n".join(line[:_LONGEST_LINE] for line in _lines(error.traceback if error else None))
            message = _clean((error.message if error else row.reason) or "no reason is recorded")[:_LONGEST_LINE]
            alike[row.job, row.status, message, lines].append(row)
    return [
        Trouble(f"{same[0].task.id} on {same[0].task.device}", status, message, lines, len(same) - 1)
        for (_, status, message, lines), same in alike.items()
    ]


def _lines(text: str | None) -> list[str]:
    return [_clean(line) for line in (text or "").splitlines()[-_LAST_LINES:]]


def _clean(text: str) -> str:
    """Foreign text without control characters, other than ends of lines and tabs."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _facts(report: Report, loaded: Loaded | None) -> list[tuple[str, str]]:
    """What machine, software and command the figures come from."""
    facts: list[tuple[str, str]] = []
    run = loaded.run if loaded else None
    if run:
        facts.append(("Command", one_line(shlex.join(run.command), 2000)))
        facts += [("Resumed", f"{one_line(at)}: {one_line(command, 2000)}") for at, command in run.resumed]
    if report.summary.created:
        facts.append(("Created", one_line(report.summary.created)))
    if report.summary.machine:
        facts += _machine_facts(report.summary.machine)
    facts += [
        ("Isolation", f"{one_line(kind, 400)} ({count(tasks, 'task')})")
        for kind, tasks in report.summary.isolation.items()
    ]
    return facts


def _machine_facts(machine: Machine) -> list[tuple[str, str]]:
    usable = f"{machine.cpus_usable} of {machine.cpus} usable"
    return [
        ("Host", one_line(machine.host)),
        ("System", one_line(f"{machine.system}, kernel {machine.kernel}")),
        ("CPU", f"{one_line(machine.cpu)}, {usable}"),
        ("Memory", _bytes(machine.memory_bytes)),
        ("Driver", one_line(machine.driver) if machine.driver else NONE),
        ("GPUs", f"{len(machine.gpus)}{f' ({one_line(machine.gpu_note)})' if machine.gpu_note else ''}"),
        ("Python", one_line(machine.python)),
    ]


def _bytes(size: int | None) -> str:
    return NONE if size is None else f"{number(size / 2**30)} GiB"
