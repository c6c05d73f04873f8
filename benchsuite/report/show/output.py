"""Files that a report is written to: a page, rows, Markdown, JSON. New ones only; '-' is standard output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchsuite.errors import OutputError, UsageError, one_line
from benchsuite.files import look
from benchsuite.report.show.report import Report
from benchsuite.writing import write_new

STDOUT = "-"


@dataclass(frozen=True)
class Target:
    """One format with the file it goes to, as it was given."""

    kind: str
    file: str

    @property
    def to_stdout(self) -> bool:
        return self.file == STDOUT


def targets(files: Mapping[str, str | None]) -> list[Target]:
    """Where each format that is asked for goes.

    Args:
        files: format ("html", "csv", "md", "json") to file name.

    Raises:
        UsageError: two formats go to one place, or a page to standard output.
        OutputError: a file exists, or the folder for it does not.
    """
    asked = [Target(kind, file) for kind, file in files.items() if file is not None]
    seen: dict[str, str] = {}
    for target in asked:
        if target.kind == "html" and target.to_stdout:
            raise UsageError("--html -: a page goes to a file; name one")
        place = target.file if target.to_stdout else str(Path(target.file).absolute())
        if place in seen:
            raise UsageError(f"--{target.kind} {one_line(target.file)}: --{seen[place]} goes there already")
        seen[place] = target.kind
        if not target.to_stdout:
            _look_at(target)
    return asked


def written(report: Report, out: Path, asked: list[Target]) -> Iterator[tuple[Target, str]]:
    """Write each file, and yield each target with its text; what goes to standard output is not written here.

    Args:
        out: the results folder, or the summary, that the report is of.

    Raises:
        OutputError: a file exists or cannot be written.
    """
    for target in asked:
        text = _FORMATS[target.kind](report, out)
        if not target.to_stdout:
            _write(target, text)
        yield target, text


def _look_at(target: Target) -> None:
    """What can be known before anything is computed."""
    if look(Path(target.file)):
        raise OutputError(_taken(target))
    if look(Path(target.file).parent) != "folder":
        raise OutputError(_failed(target, "no such folder"))


def _write(target: Target, text: str) -> None:
    try:
        # A folder's name may hold bytes that are no text.
        write_new(Path(target.file), text.encode(errors="replace"))
    except FileExistsError:
        raise OutputError(_taken(target)) from None
    except OSError as error:
        raise OutputError(_failed(target, (error.strerror or str(error)).lower())) from None


def _failed(target: Target, why: str) -> str:
    return f"{one_line(target.file)}: cannot be written: {why}; name another with --{target.kind}"


def _taken(target: Target) -> str:
    return f"{one_line(target.file)}: exists already and is not overwritten; name another with --{target.kind}"


def _html(report: Report, out: Path) -> str:
    from benchsuite.report.read.load import load
    from benchsuite.report.show.html import page

    return page(report, load(out) if out.is_dir() else None)


def _csv(report: Report, out: Path) -> str:
    from benchsuite.report.show.export import to_csv

    return to_csv(report)


def _md(report: Report, out: Path) -> str:
    from benchsuite.report.show.markdown import markdown
    from benchsuite.report.show.report import document

    return markdown(document(report))


def _json(report: Report, out: Path) -> str:
    from benchsuite.report.show.export import to_json

    return to_json(report)


_FORMATS: Mapping[str, Callable[[Report, Path], str]] = {"html": _html, "csv": _csv, "md": _md, "json": _json}
