"""The only door to pynvml: opened at the first call; a value that is not supported is None and never a number.

Whatever NVML answers, no function here raises, `read` apart. A call that may hang is made by way of `within`.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

import pynvml

T = TypeVar("T")
# The time after which a call counts as hanging. Without persistence mode, the driver starts each GPU anew (seconds).
LIMIT_S = 30.0
# The time after which the terminal shows what is waited for (seconds).
SAY_S = 4.0
# What an answer of another form than expected raises where it is used.
UNUSABLE = (ValueError, TypeError, AttributeError, ArithmeticError, LookupError)
UNREADABLE = "NVML's answer cannot be read"


class GpuLost(Exception):
    """The device is gone; the message is NVML's."""


@cache
def start() -> str | None:
    """Open NVML once; why that failed, in words, else None."""
    opened = within(LIMIT_S, _answer, "nvmlInit")
    return f"NVML: {opened.reason}" if isinstance(opened, Absent) else None


def within(limit_s: float, call: Callable[..., T], *arguments: Any) -> T | Absent:
    """What `call` returns, or `Absent` if it takes longer than `limit_s`."""
    about = next((word for word in arguments if isinstance(word, str)), call.__name__)
    return together(limit_s, {about: partial(call, *arguments)})[0]


def together(limit_s: float, calls: Mapping[str, Callable[[], T]]) -> list[T | Absent]:
    """What each call returns, in their order; `Absent` for those that take longer than `limit_s`.

    The limit holds for all calls as one, so that several cards that hang cost the time of one. Each call runs in a
    thread that ends with the process: a call into NVML cannot be interrupted. A line on stderr names the calls that
    take longer than `SAY_S`.

    Args:
        calls: what a call asks about -> the call.
    """
    found: dict[str, T] = {}

    def keep(about: str, call: Callable[[], T]) -> None:
        found[about] = call()

    threads = [threading.Thread(target=keep, args=one, name="nvml", daemon=True) for one in calls.items()]
    began_s = time.monotonic()
    for thread in threads:
        thread.start()
    for until_s in (min(SAY_S, limit_s), limit_s):
        for thread in threads:
            thread.join(max(0.0, began_s + until_s - time.monotonic()))
        if until_s < limit_s and (silent := [about for about in calls if about not in found]):
            with suppress(OSError):
                text = f"no answer to {', '.join(silent)} after {until_s:g} s; the limit is {limit_s:g} s"
                print(f"benchsuite: waiting for NVML: {text}", file=sys.stderr, flush=True)
    answers = dict(found)  # a thread may still add to `found`
    return [answers.get(about, Absent(f"no answer within {limit_s:g} s")) for about in calls]


class Turns:
    """Lets one call at a time into NVML, unless a call does not return.

    Each GPU has a thread of its own, but NVML has been seen to crash the process if two call it at once. A call that
    takes longer than `limit_s` no longer blocks the others.
    """

    def __init__(self, limit_s: float = 2.0) -> None:
        self._limit_s = limit_s
        self._lock, self._replacing = threading.Lock(), threading.Lock()
        self._taken_s = math.inf  # when the call under way began, on CLOCK_MONOTONIC

    @contextmanager
    def taken(self) -> Iterator[None]:
        """While entered, no other call runs, except those that have not returned for `limit_s`."""
        lock = self._lock
        while not lock.acquire(timeout=self._limit_s / 4):
            with self._replacing:
                if lock is self._lock and time.monotonic() - self._taken_s > self._limit_s:
                    self._lock, self._taken_s = threading.Lock(), math.inf
                lock = self._lock
        self._taken_s = time.monotonic()
        try:
            yield
        finally:
            if lock is self._lock:
                self._taken_s = math.inf
            lock.release()


_turns = Turns()


@dataclass(frozen=True)
class Absent:
    """The reason why NVML gave no answer.

    Attributes:
        lost: the device is gone.
    """

    reason: str
    lost: bool = False


def ask(function: str, *arguments: Any) -> Any:
    """NVML's answer as text, number or structure, or `Absent`. It takes as long as NVML does."""
    if reason := start():
        return Absent(reason)
    return _answer(function, *arguments)


def _answer(function: str, *arguments: Any) -> Any:
    call: Callable[..., Any] | None = getattr(pynvml, function, None)
    if call is None:
        return Absent(f"this nvidia-ml-py has no {function}")
    try:
        with _turns.taken():
            answer = call(*arguments)
    except pynvml.NVMLError as error:
        gone = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_GPU_NOT_FOUND, pynvml.NVML_ERROR_RESET_REQUIRED)
        return Absent(str(error).strip().lower() or type(error).__name__, lost=error.value in gone)
    except pynvml.NVMLLibraryMismatchError:
        return Absent("the driver is older than nvidia-ml-py needs for this")
    except UnicodeDecodeError as error:
        answer = error.object
    except (*UNUSABLE, OSError) as error:
        return Absent(f"nvidia-ml-py failed: {type(error).__name__}: {error}")
    return _text(answer) if isinstance(answer, bytes) else answer


def _text(found: bytes) -> str:
    """Text up to its first NUL; bytes that are no UTF-8 are replaced."""
    return found.partition(b"\0")[0].decode(errors="replace").strip()


def read(convert: Callable[[Any], T], function: str, *arguments: Any) -> T | None:
    """NVML's answer, converted; None if there is none, or `convert` cannot use it.

    Raises:
        GpuLost: the device is gone.
    """
    answer = ask(function, *arguments)
    if isinstance(answer, Absent):
        if answer.lost:
            raise GpuLost(answer.reason)
        return None
    try:
        return convert(answer)
    except UNUSABLE:
        return None


def constant(name: str) -> int:
    """One of NVML's numbers by its name in `nvml.h`."""
    return int(getattr(pynvml, name))


def gpm_metrics(before: Any, after: Any, metrics: Sequence[int]) -> list[float] | Absent:
    """GPM's metrics between two samples, in the order of `metrics`; NaN for one that the device does not give.

    Source: `nvmlGpmMetricsGet` in nvml.h; each metric has a return code of its own.
    """
    wanted = pynvml.c_nvmlGpmMetricsGet_t()
    wanted.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    wanted.numMetrics = len(metrics)
    for place, metric in enumerate(metrics):
        wanted.metrics[place].metricId = metric
    try:
        wanted.sample1, wanted.sample2 = before, after
        answer = ask("nvmlGpmMetricsGet", wanted)
        if isinstance(answer, Absent):
            return answer
        found = [answer.metrics[place] for place in range(len(metrics))]
        return [float(m.value) if m.nvmlReturn == pynvml.NVML_SUCCESS else math.nan for m in found]
    except UNUSABLE:
        return Absent(UNREADABLE)
