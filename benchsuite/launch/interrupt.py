"""Turn the signals that ask for the end into a flag, which the run reads to end its trees and keep what is finished."""

from __future__ import annotations

import signal
import time
from types import FrameType, TracebackType

from benchsuite.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A wrapper that passes Ctrl-C on makes two signals of it, one from the terminal and one of its own.
AGAIN_S = 0.5


class Interrupt:
    """While entered, SIGINT, SIGTERM and SIGHUP are noted instead of obeyed; `signum` is the first that came."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self._first_s = 0.0
        self._again = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupt:
        for signum in _SIGNALS:
            # `nohup` and background jobs of a shell ignore a signal on purpose: that stays as it is.
            if signal.getsignal(signum) is not signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is None:
            self.signum, self._first_s = signum, time.monotonic()
        elif time.monotonic() - self._first_s >= AGAIN_S:
            self._again = True

    def hurried(self) -> bool:
        """Has the end been asked for a second time, at least `AGAIN_S` after the first?"""
        return self._again

    def asked(self) -> bool:
        """Has the end been asked for?"""
        return self.signum is not None

    def check(self) -> None:
        """Stop here if the end has been asked for.

        Raises:
            Interrupted: it has.
        """
        if self.signum is not None:
            raise Interrupted(self.signum)
