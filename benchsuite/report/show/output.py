"""The files of a report: HTML, CSV, Markdown and JSON. No file is overwritten; '-' is standard output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchsuite.errors import UsageError, one_line
from benchsuite.report.read.load import Loaded, load, load_file
from benchsuite.report.show.report import Report, document
from benchsuite.report.sources import is_result
from benchsuite.writing import check_place, write_for_user

STDOUT = "-"


@dataclass(frozen=True)
class Target:
    """One format with its file, as the user names it."""

    kind: str
    file: str

    @property
    def to_stdout(self) -> bool:
        return self.file == STDOUT


def targets(files: Mapping[str, str | None]) -> list[Target]:
    """The place of each format that the user asks for.

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
            check_place(Path(target.file), f"--{target.kind}")
    return asked


def written(report: Report, path: Path | None, asked: list[Target]) -> Iterator[tuple[Target, str]]:
    """Write each file, and yield each target with its text, also those for standard output.

    Args:
        path: what the report is of: a results folder, a result, a summary or a baseline's name; None for several runs.

    Raises:
        OutputError: a file exists or cannot be written.
    """
    for target in asked:
        text = _text(target.kind, target.file, report, path)
        if not target.to_stdout:
            # A folder's name may hold bytes that are not text.
            write_for_user(Path(target.file), text.encode(errors="replace"), f"--{target.kind}")
        yield target, text


def _text(kind: str, file: str, report: Report, path: Path | None) -> str:
    """The report in one format, for `file`. Only its modules are imported: pandas and jinja2 are slow to import."""
    if kind == "html":
        from benchsuite.report.show.html import page

        return page(report, _loaded(path) if path else None, Path(file))
    if kind == "md":
        from benchsuite.report.show.markdown import markdown

        return markdown(document(report))
    from benchsuite.report.show import export

    return export.to_csv(report) if kind == "csv" else export.to_json(report)


def _loaded(path: Path) -> Loaded | None:
    """The results of a folder or of one result, with their curves; None for anything else."""
    if path.is_dir():
        return load(path)
    return load_file(path) if path.is_file() and is_result(path) else None
