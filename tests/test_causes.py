"""An error whose cause torch hides below its first line is worded in one line that names the cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchsuite.worker import causes
from benchsuite.worker.causes import with_cause

LOADER = """Caught {kind} in DataLoader worker process 3.
Original Traceback (most recent call last):
  File "worker.py", line 375, in _worker_loop
    data = fetcher.fetch(index)
{last}
"""
COMPILER = """CppCompileError: C++ compile error

Command:
g++ -x c++-header x.h -o x.h.gch

Output:
In file included from x.h:1:
cpp_prefix.h:1508:2: fatal error: error closing /full/cclVhKBn.s: No space left on device
 1508 | };
compilation terminated.
"""


@pytest.fixture(autouse=True)
def known_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "SHARED_MEMORY", str(tmp_path))
    monkeypatch.setattr(causes, "_room", lambda folder: f"{'/dev/shm' if folder == str(tmp_path) else folder} is full")


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (
            LOADER.format(kind="RuntimeError", last="RuntimeError: unable to write: No space left on device (28)"),
            "worker process 3 of the DataLoader: RuntimeError: unable to write: No space left on device (28); "
            "/dev/shm is full",
        ),
        (
            LOADER.format(kind="ModelError", last="benchsuite.errors.ModelError: a.jpg: damaged\ndownload it again"),
            "worker process 3 of the DataLoader: benchsuite.errors.ModelError: a.jpg: damaged",
        ),
        (
            "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are "
            "out of shared memory. Please try to raise your shared memory limit.",
            "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are "
            "out of shared memory. Please try to raise your shared memory limit; /dev/shm is full",
        ),
        (
            COMPILER,
            "CppCompileError: C++ compile error: cpp_prefix.h:1508:2: fatal error: error closing /full/cclVhKBn.s: "
            "No space left on device; /full is full; /cache is full",
        ),
        (
            "backend='inductor' raised:\nOSError: [Errno 28] No space left on device\n\nSet TORCHDYNAMO_VERBOSE=1",
            "backend='inductor' raised: OSError: [Errno 28] No space left on device; /full is full; /cache is full",
        ),
        ("first\nsecond", "first\nsecond"),
        ("", ""),
    ],
)
def test_the_cause_is_in_the_line(message: str, line: str) -> None:
    assert with_cause(message, {"TMPDIR": "/full", "TORCHINDUCTOR_CACHE_DIR": "/cache"}) == line


def test_the_free_space_is_that_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    line = with_cause("[Errno 28] No space left on device: 'x'", {"TMPDIR": str(tmp_path)})
    assert f"; {tmp_path} has " in line and line.endswith(" MiB")
    assert with_cause("No space left on device", {"TMPDIR": "/absent"}) == "No space left on device"
