"""Of a group that fails, the first cause is named, in whatever order and way the ranks end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchsuite.events import PULSE_BYTES, End, EventWriter, Exited, Raised
from benchsuite.launch.outcome import classify
from benchsuite.launch.process import exit_in_words, signal_of
from benchsuite.launch.supervise import Exit
from benchsuite.launch.worker_events import ProcessEvents, TaskEvents
from benchsuite.measurement import PeakMemory
from benchsuite.worker import exits, group


def raised(at_s: float, message: str = "no more naps", *, of_peers: bool = False) -> Raised:
    return Raised(n=0, at_s=at_s, kind="ValueError", message=message, traceback="", of_peers=of_peers)


def lost(at_s: float) -> Raised:
    return raised(at_s, "gloo/transport: connection closed by peer", of_peers=True)


END = End(n=0, at_s=1.0, stopped_by="count", peak_memory=PeakMemory())
OF_LAUNCHER = Raised(n=9, at_s=99.0, kind="rank", message="rank 0 of 3 exited with status 1", traceback="")


def seen(reported: tuple[Raised | End | None, ...], exits: tuple[tuple[int, float, int], ...]) -> TaskEvents:
    """A group whose ranks have reported this, and ended in this order: rank, time, exit code."""
    events = [Exited(n=n, at_s=at_s, rank=rank, code=code) for n, (rank, at_s, code) in enumerate(exits)]
    launcher = ProcessEvents(raised=OF_LAUNCHER, exits=events)
    ranks = [
        ProcessEvents(end=one) if isinstance(one, End) else ProcessEvents(raised=one if one else None)
        for one in reported
    ]
    return TaskEvents(ranks, launcher)


@pytest.mark.parametrize(
    ("reported", "exits", "status", "message"),
    [
        # One rank ends silently, the others lose it or are ended by the launcher.
        ((lost(5.01), None, None), ((1, 5.0, 0), (0, 5.1, 1), (2, 5.2, -15)), "failed", "1 of 3 exited with 0 before"),
        ((lost(5.01), None, None), ((1, 5.0, 3), (0, 5.1, 1), (2, 5.2, -15)), "failed", "1 of 3 exited with status 3"),
        ((lost(5.01), None, lost(5.02)), ((1, 5.0, 1), (0, 5.1, 1)), "failed", "1 of 3 exited with status 1"),
        (
            (lost(5.01), None, None),
            ((1, 5.0, -9), (0, 5.1, 1), (2, 5.2, -15)),
            "killed",
            "1 of 3 was killed by SIGKILL",
        ),
        ((None, None, None), ((1, 5.0, -15), (0, 5.1, -15), (2, 5.2, -9)), "killed", "1 of 3 was killed by SIGTERM"),
        (
            (lost(5.01), None, None),
            ((1, 5.0, 137), (0, 5.1, 1)),
            "killed",
            "1 of 3 exited with status 137, probably signal 9 (killed)",
        ),
        # One raises. Another one ignores SIGTERM, so that the launcher kills it.
        ((None, raised(5.0), lost(5.01)), ((1, 5.3, 1), (2, 5.4, 1), (0, 35.4, -9)), "failed", "1 of 3: no more naps"),
        # Two go wrong: the earlier one is named, by whichever way each ends.
        ((raised(5.2), None, None), ((1, 5.0, 0), (0, 5.3, 1)), "failed", "1 of 3 exited with 0 before"),
        ((raised(5.0), None, None), ((1, 5.2, 0), (0, 5.3, 1)), "failed", "0 of 3: no more naps"),
        ((raised(5.0), None, None), ((1, 5.2, -11), (0, 5.3, 1)), "failed", "0 of 3: no more naps"),
        ((raised(5.2), None, raised(5.1, "first")), ((0, 5.3, 1), (2, 5.4, 1)), "failed", "2 of 3: first"),
        # A rank that has done its work may exit.
        ((END, raised(5.0), END), ((0, 4.9, 0), (2, 4.9, 0), (1, 5.1, 1)), "failed", "1 of 3: no more naps"),
        # No rank has failed: the network has.
        ((lost(5.1), lost(5.0), None), ((0, 5.2, 1), (1, 5.2, 1), (2, 5.3, -15)), "failed", "1 of 3: gloo/transport"),
        # The exits are not known: the launcher's word counts where a rank only lost another.
        ((lost(5.0), None, None), (), "failed", "0 of 3 exited with status 1"),
        ((lost(5.0), raised(5.1), None), (), "failed", "1 of 3: no more naps"),
    ],
)
def test_the_first_cause_is_named(reported: Any, exits: Any, status: str, message: str) -> None:
    found, error = classify(seen(reported, exits), Exit(1), 60.0, "last words")
    assert error
    assert (found, error.message[: len(message) + 5]) == (status, f"rank {message}")


def test_a_launcher_that_knows_no_exits_names_a_rank_that_was_killed() -> None:
    killed = Raised(n=0, at_s=9.0, kind="SIGKILL", message="rank 1 of 2 was killed by SIGKILL", traceback="")
    group = TaskEvents([ProcessEvents(raised=lost(5.0)), ProcessEvents()], ProcessEvents(raised=killed))
    assert classify(group, Exit(1), 60.0, "")[0] == "killed"


def test_a_group_that_hangs_since_a_rank_left_names_it() -> None:
    group = TaskEvents([ProcessEvents(), ProcessEvents()], ProcessEvents(exits=[Exited(n=0, at_s=5.0, rank=1, code=0)]))
    status, error = classify(group, Exit(-15, "timed_out", 60.0, behind="rank 1 of 2 is behind the others"), 60.0, "")
    assert error
    assert (status, error.message) == (
        "timeout",
        "not ended within 60 s; rank 1 of 2 exited with 0 before its end; 0 slices were finished",
    )


def test_a_group_whose_ranks_all_exit_with_0_names_the_one_that_has_not_ended() -> None:
    group = TaskEvents([ProcessEvents(end=END), ProcessEvents()], ProcessEvents())
    status, error = classify(group, Exit(0), 60.0, "")
    assert error
    assert (status, error.kind) == ("failed", "silent")
    assert error.message.startswith("rank 1 of 2 exited with 0 before its end")


@pytest.mark.parametrize(
    ("code", "signal", "words"),
    [
        (0, None, "exited with 0 before its end"),
        (3, None, "exited with status 3"),
        (128, None, "exited with status 128"),
        (255, None, "exited with status 255"),
        (-9, "SIGKILL", "was killed by SIGKILL"),
        (-99, "signal 99", "was killed by signal 99"),
        (137, "SIGKILL", "exited with status 137, probably signal 9 (killed)"),
        (139, "SIGSEGV", "exited with status 139, probably signal 11 (segmentation fault)"),
    ],
)
def test_an_exit_code_is_said_in_words(code: int, signal: str | None, words: str) -> None:
    assert (signal_of(code), exit_in_words(code)) == (signal, words)
    status, error = classify(TaskEvents(), Exit(code), 60.0, "first\nlast words")
    assert error
    assert status == ("killed" if signal else "failed")
    assert error.message.startswith(f"the process {words}; 0 slices were finished")
    assert error.message.endswith("last line on stderr: last words") == (code >= 0)


def test_a_rank_that_leaves_early_ends_the_others_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the others wait for it in a collective of NCCL, which never returns."""
    monkeypatch.setattr(exits, "TOGETHER_S", 0.1)
    pulse, events = tmp_path / "pulse", tmp_path / "events"
    pulse.write_bytes(bytes(2 * 3 * PULSE_BYTES))
    programs = [subprocess.Popen(words) for words in (["sleep", "100"], ["true"], ["sleep", "100"])]
    pids = (program.pid.to_bytes(PULSE_BYTES, sys.byteorder) for program in programs)
    pulse.write_bytes(bytes(3 * PULSE_BYTES) + b"".join(pids))
    with exits.Exits(pulse, 3, EventWriter(str(events))) as watch:
        codes = [program.wait(timeout=120) for program in programs]
    assert codes == [-9, 0, -9]
    told = [msgspec.json.decode(line, type=Exited) for line in events.read_bytes().splitlines()]
    assert [(one.rank, one.code) for one in told] == [(1, 0)]
    kind, message = group._stuck(watch, 3) or ("", "")
    assert message == "rank 1 of 3 exited; 15 s later these had not, and were killed: 0, 2"
    launcher = ProcessEvents(raised=Raised(n=1, at_s=9.0, kind=kind, message=message, traceback=""), exits=told)
    for end, named in ((None, "rank 1 of 3 exited with 0 before its end"), (END, message)):
        _, error = classify(
            TaskEvents([ProcessEvents(), ProcessEvents(end=end), ProcessEvents()], launcher), Exit(1), 60.0, ""
        )
        assert error is not None
        assert error.message == named
