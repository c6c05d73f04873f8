"""A reader of the output that goes away, as `head` does, ends a command as Unix does, and never ends a run."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest
from rich.console import Console

from benchsuite import cli
from benchsuite.commands import _running
from benchsuite.launch.progress import Progress
from benchsuite.report.show.one_line import figure

BASELINE = Path(__file__).resolve().parents[1] / "baselines" / "h200.json"


@pytest.fixture(name="gone")
def gone_fixture() -> Iterator[TextIO]:
    """A stream whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w", encoding="utf-8")
    yield stream
    with suppress(BrokenPipeError):
        stream.close()


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ["list", "--help"], ["list", "models"], ["report", str(BASELINE)]],
    ids=lambda words: words[0] + words[-1][:7],
)
def test_a_command_whose_reader_is_gone_ends_with_141(
    words: list[str], gone: TextIO, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout", gone)
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 141
    assert capfd.readouterr().err == ""


def test_no_thread_draws_the_display_while_the_run_sleeps() -> None:
    progress, before = Progress(figure, console=Console(file=io.StringIO(), force_terminal=True)), threading.enumerate()
    with progress:
        progress.look([])
        assert threading.enumerate() == before


def test_a_run_goes_on_without_its_display(gone: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress(figure)
    monkeypatch.setattr("sys.stderr", gone)
    with progress:
        for number in range(3):
            progress.say(f"line {number}")
    assert _running._close(progress, 0, Path("out"), traced=False) == 3, "nothing ran"
