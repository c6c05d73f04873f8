"""Find the first cause of a group's failure: one rank fails, then the others fail because they lost it."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from benchsuite.events import Exited, Raised
from benchsuite.launch.process import exit_in_words, signal_of

if TYPE_CHECKING:
    from benchsuite.launch.worker_events import ProcessEvents

# The launcher ends the other ranks by the first, and by the second if that is ignored.
_BY_LAUNCHER = (-signal.SIGTERM, -signal.SIGKILL)


def first_cause(ranks: Sequence[ProcessEvents], launcher: ProcessEvents) -> Raised | None:
    """The error of the rank that failed first, which the message names; None if no process has failed.

    A cause is an error of the rank's own, or an end of its process that nobody has asked for, also with exit code 0.
    Neither an error that names a lost peer nor an end by the launcher is a cause as long as there is another.
    """
    exits = {exited.rank: exited for exited in launcher.exits}
    raised = {rank: events.raised for rank, events in enumerate(ranks) if events.raised}
    causes = [_named(rank, len(ranks), error) for rank, error in raised.items() if not error.of_peers]
    for rank, events in enumerate(ranks):
        exited = exits.get(rank)
        if exited and rank not in raised and not (events.end and exited.code == 0) and not _by_launcher(exited, exits):
            causes.append(_silent(exited, len(ranks)))
    if launcher.raised and _names_signal(launcher.raised):  # without a record of the exits, only the launcher knows
        causes += [] if exits else [msgspec.structs.replace(launcher.raised, at_s=0.0)]
    if causes:
        return min(causes, key=lambda cause: cause.at_s)
    peers = sorted(raised.items(), key=lambda one: one[1].at_s)
    if peers and (exits or not launcher.raised):
        return _named(peers[0][0], len(ranks), peers[0][1])
    return launcher.raised


def _by_launcher(exited: Exited, exits: Mapping[int, Exited]) -> bool:
    """Did the launcher end this rank, since another one had failed before?"""
    earlier = any(other.code != 0 and other.at_s < exited.at_s for other in exits.values())
    return exited.code in _BY_LAUNCHER and earlier


def _named(rank: int, ranks: int, error: Raised) -> Raised:
    return msgspec.structs.replace(error, message=f"rank {rank} of {ranks}: {error.message}")


def _silent(exited: Exited, ranks: int) -> Raised:
    """The error of a rank that ended without a report. Its kind is the name of the signal, if a signal ended it."""
    message = f"rank {exited.rank} of {ranks} {exit_in_words(exited.code)}"
    kind = signal_of(exited.code) or ("rank" if exited.code else "silent")
    return Raised(n=0, at_s=exited.at_s, kind=kind, message=message, traceback="")


def _names_signal(raised: Raised) -> bool:
    return raised.kind in signal.Signals.__members__
