"""A report as one self-contained page, without network access or other files; all its text is escaped."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from benchsuite.records import Machine
from benchsuite.report.read.load import OPEN, Loaded, Row
from benchsuite.report.show.document import Fact, Sentence, Table, fact
from benchsuite.report.show.format import NONE, count, number, one_line
from benchsuite.report.show.html.charts import Figures, telemetry, timelines
from benchsuite.report.show.html.matrix import level, matrix
from benchsuite.report.show.report import Report, document

# The last lines shown of each failure, and the number of different failures shown.
_LAST_LINES = 40
_MOST_FAILURES = 100
_LONGEST_LINE = 500
_MOST_TEXT = 200_000


@dataclass(frozen=True)
class Trouble:
    """Tasks that failed with the same message: the first one, its last lines, and the number of the others."""

    task: str
    status: str
    message: str
    lines: str
    alike: int


def page(report: Report, loaded: Loaded | None) -> str:
    """The whole page.

    Args:
        loaded: the results folder; None for a summary or for several runs, which have no curves and no last lines.
    """
    style, script = (Markup(_shipped(name)) for name in ("page.css", "page.js"))  # noqa: S704 - our own files
    rows = loaded.rows if loaded else ()
    troubles = _troubles(rows)
    return _template().render(
        document=document(report),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        matrix=None if report.gpus else matrix(report.summary),  # --compare-gpus shows more
        has_folder=loaded is not None,
        several=bool(report.summary.sessions),
        timelines=timelines(rows),
        telemetry=telemetry(loaded.path, rows) if loaded else Figures(()),
        troubles=troubles[:_MOST_FAILURES],
        more_troubles=max(0, len(troubles) - _MOST_FAILURES),
        logs=report.logs,
        environment=tuple(_environment(report, loaded)),
        machines=report.summary.machines,
        profile_text=loaded.run.profile.text[:_MOST_TEXT] if loaded and loaded.run else None,
    )


def _template() -> jinja2.Template:
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
    environment.filters["bytes"] = _bytes
    environment.filters["level"] = level
    return environment.get_template("page.html")


def _shipped(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    """The hash by which a Content-Security-Policy permits an inline style or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _troubles(rows: Sequence[Row]) -> list[Trouble]:
    alike: dict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        error = row.result.error if row.result else None
        if row.status not in ("ok", *OPEN):
            traceback = (error.traceback if error else None) or ""
            lines = "\n".join(line[:_LONGEST_LINE] for line in traceback.splitlines()[-_LAST_LINES:])
            message = ((error.message if error else row.reason) or "no reason is recorded")[:_LONGEST_LINE]
            alike[row.task.row, row.status, message, lines].append(row)
    return [
        Trouble(f"{same[0].task.id} on {same[0].task.device}", status, message, lines, len(same) - 1)
        for (_, status, message, lines), same in alike.items()
    ]


def _clean(value: Any) -> Any:
    """A value for the template; in text (or markup) each control character but line ends and tabs is replaced."""
    if not isinstance(value, str):
        return value
    return type(value)("".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in value))


def _environment(report: Report, loaded: Loaded | None) -> Iterator[Fact]:
    """The command, machines and isolation behind the figures."""
    run, summary = loaded.run if loaded else None, report.summary
    if run:
        yield fact("Command", one_line(shlex.join(run.command), 2000))
        for at, command in run.resumed:
            yield fact("Resumed", f"{one_line(at)}: {one_line(command, 2000)}")
    if summary.created:
        yield fact("Created", one_line(summary.created))
    for machine in summary.machines:
        yield from _machine_facts(machine)
    for kind, tasks in summary.isolation.items():
        yield fact("Isolation", f"{one_line(kind, 400)} ({count(tasks, 'task')})")


def _machine_facts(machine: Machine) -> Iterator[Fact]:
    yield fact("Host", one_line(machine.host))
    yield fact("System", one_line(f"{machine.system}, kernel {machine.kernel}"))
    yield fact("CPU", f"{one_line(machine.cpu)}, {machine.cpus_usable} of {machine.cpus} usable")
    yield fact("Memory", _bytes(machine.memory_bytes))
    yield fact("Driver", one_line(machine.driver) if machine.driver else NONE)
    yield fact("GPUs", f"{len(machine.gpus)}{f' ({one_line(machine.gpu_note)})' if machine.gpu_note else ''}")
    yield fact("Python", one_line(machine.python))


def _bytes(size: int | None) -> str:
    return NONE if size is None else f"{number(size / 2**30)} GiB"
