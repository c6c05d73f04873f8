"""The search for the largest batch that fits, for jobs whose `batch_size` is "auto". `batch_tries` tries the sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from benchsuite.describe import entries
from benchsuite.describe.tasks import Task
from benchsuite.launch.context import WaveError
from benchsuite.records import Failure
from benchsuite.searches import BatchProbe, BatchSearch

MOST = 1 << 20
TRIES = 28
# The search ends when the gap between a size that fits and one that does not is at most this part of the former.
WITHIN = 16
# With two known peaks, the next size is the one that would take this share of a GPU's memory, but at most `LEAP` times
# the largest size that fits: small batches predict little about large ones.
GPU_SHARE = 0.97
LEAP = 8


class SearchError(WaveError):
    """No batch size could be found; `failure` is that of the last size that was tried."""


@dataclass(frozen=True)
class Tried:
    """One try.

    Attributes:
        why: what stopped a batch that does not fit.
        failure: an error that has nothing to do with memory.
    """

    probe: BatchProbe
    why: str = ""
    failure: Failure | None = None


def asks(task: Task) -> bool:
    """Must the batch size of the job be found?"""
    return task.job.params.get(entries.BATCH_SIZE) == entries.AUTO


def with_size(task: Task, size: int) -> Task:
    """The task with this batch size."""
    params = {**task.job.params, entries.BATCH_SIZE: size}
    return msgspec.structs.replace(task, job=msgspec.structs.replace(task.job, params=params))


def search(
    attempt: Callable[[int], Tried],
    start: int,
    room_bytes: int | None = None,
    least: int = 1,
    enough: Callable[[], str | None] = lambda: None,
) -> BatchSearch:
    """Find the largest batch that fits, to within a sixteenth.

    Sizes double from `start` until a batch does not fit (or halve until one does), then the gap is halved. If
    `room_bytes` is known, the peaks of the two largest batches that fit predict the next size.

    Args:
        attempt: tries one size.
        room_bytes: the memory of the device.
        least: the smallest size that the job can train with; no smaller one is tried.
        enough: why the search ends now with the largest size that fits; None to go on.

    Raises:
        SearchError: not even the smallest batch fits, or it failed for another reason.
    """
    probes: list[BatchProbe] = []
    low = high = 0
    limit = f"larger than {MOST:,} is not tried"
    size = min(max(start, least), MOST)
    while len(probes) < TRIES:
        tried = attempt(size)
        probes.append(tried.probe)
        failure = tried.failure
        if failure and not low and (failure.kind != "model" or size == least):
            raise SearchError(failure)
        if tried.probe.fits:
            low = size
        else:
            high, limit = size, f"batch_size {size:,}: {tried.why}"
        if not low and high == least:
            raise SearchError(Failure(kind="oom", message=f"not even batch_size {least} fits: {tried.why}"))
        if low >= MOST:
            break
        if low and (why := enough()):
            limit = why
            break
        if low and high and high - low <= max(1, low // WITHIN):
            break
        size = max(least, _next(low, high, _guess(probes, room_bytes)))
    else:
        limit += f"; ended after {TRIES} tries"
    assert low  # `TRIES` halvings of a start that is at most `MOST` end at `least`
    return BatchSearch(found=low, limit=limit, probes=tuple(probes))


def _guess(probes: Sequence[BatchProbe], room_bytes: int | None) -> int:
    """The size that takes `GPU_SHARE` of the memory, on the line through the two largest that fit; 0 if unknown."""
    known = sorted((p.batch_size, p.device_bytes) for p in probes if p.fits and p.device_bytes)[-2:]
    if room_bytes is None or len(known) < 2:
        return 0
    (small, less), (large, more) = known
    if more <= less:
        return 0
    return int(large + (GPU_SHARE * room_bytes - more) * (large - small) / (more - less))


def _next(low: int, high: int, guess: int) -> int:
    """The next size to try.

    Args:
        low: the largest size that fits; 0 if none is known.
        high: the smallest size that does not fit; 0 if none is known.
        guess: the size that memory predicts. It is ignored if it is 0 (no estimate) or more than a sixteenth below
            `low` (it contradicts a size that fits).
    """
    if not low:
        return high // 2
    near = max(1, low // WITHIN)  # the search is over if `low + near` does not fit
    if guess >= low - near:
        size = max(_rounded(guess, low), _rounded(low + near, low))
        if not high:
            return min(size, LEAP * low, MOST)
        if size < high:
            return size
        below = -(-high * WITHIN // (WITHIN + 1) // 8) * 8  # the search is over if this size fits
        if guess - 8 < high and low < below < high:
            return below
    elif not high:
        return min(2 * low, MOST)
    return _rounded((low + high) // 2, low)


def _rounded(size: int, above: int) -> int:
    """Round `size` down to a multiple of 8, which tensor cores need, unless the result would not exceed `above`."""
    return size // 8 * 8 if size // 8 * 8 > above else size
