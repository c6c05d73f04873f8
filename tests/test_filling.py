"""A process that is asked something before a run starts: its answer, its end, and nothing left of it."""

from __future__ import annotations

import os
import sys
import time

import psutil
import pytest

from benchsuite.launch import first_batch


@pytest.mark.parametrize("asked", [True, False])
def test_the_question_whether_a_batch_is_filled_ends_when_it_is_asked_to(
    asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_batch, "LIMIT_S", 600.0 if asked else 1.0)
    code = "import os, sys, time; sys.stdin.read(); os.fork(); time.sleep(300)"
    words, began = [sys.executable, "-c", code], time.monotonic()
    found = first_batch.answer(words, b"told" * 100_000, os.environ, lambda: asked and time.monotonic() > began + 1.0)
    assert found == b""
    assert 1.0 <= time.monotonic() - began < 100.0
    assert [p for p in psutil.process_iter(["cmdline"]) if code in (p.info["cmdline"] or [])] == []


def test_the_answer_is_what_was_printed() -> None:
    words = [sys.executable, "-c", "import sys; print(sys.stdin.read().upper())"]
    assert first_batch.answer(words, b"told", os.environ, lambda: False) == b"TOLD\n"
    assert first_batch.answer([sys.executable, "-c", "print(1); 1 / 0"], b"", os.environ, lambda: False) == b""
