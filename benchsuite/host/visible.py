"""Which GPUs CUDA_VISIBLE_DEVICES leaves to a run: those that torch would use, or none with the reason."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from benchsuite.describe.tasks import Gpu
from benchsuite.errors import UsageError
from benchsuite.host import cuda_order

VARIABLE = "CUDA_VISIBLE_DEVICES"
# Values by which users and schedulers hide all GPUs, besides an empty one and one that begins with a negative number.
_HIDING = ("nodevfiles", "none")
_UUID = ("GPU-", "MIG-")


class _Refused(UsageError):
    """The value names GPUs, and none that could be used without a guess."""


def visible(present: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[list[Gpu], str | None]:
    """The GPUs that CUDA_VISIBLE_DEVICES names, in its order, numbered from 0; all in PCI order if it is unset.

    As in CUDA, the list ends at the first entry that names no GPU. The second value says so, or says why `chosen`
    refuses the list. Numbers are places in PCI order, which workers use as well. If the user chose CUDA's own order and
    the GPUs differ in model, CUDA itself is asked for its numbers.
    """
    try:
        return _choose(present, environ)
    except _Refused as refused:
        return [], str(refused)


def chosen(present: Sequence[Gpu], environ: Mapping[str, str], note: str | None = None) -> list[Gpu]:
    """As `visible`.

    Args:
        note: why not all GPUs of the machine are in `present`.

    Raises:
        UsageError: the list names a GPU twice, mixes numbers and UUIDs, or names no GPU although the machine has some.
            A run must not go to the CPU for that.
    """
    try:
        return _choose(present, environ)[0]
    except _Refused as refused:
        notes = [note] if note else []
        if str(refused) not in (note or ""):
            notes.append(str(refused))
        raise UsageError("; ".join(notes)) from None


def _choose(present: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[list[Gpu], str | None]:
    wanted = environ.get(VARIABLE)
    if wanted is None:
        return _numbered(present), None
    said = f"{VARIABLE}={wanted!r}"
    if _hides(wanted):
        return [], f"{said} hides all GPUs"
    if not present:
        return [], None
    entries = wanted.split(",")
    _refuse_repeated(entries, said)
    numbers = _numbers(present, environ, entries, said)
    found: list[Gpu] = []
    for place, entry in enumerate(entries):
        named = _named(entry, present, numbers)
        if len(named) > 1:
            several = ", ".join(gpu.uuid for gpu in named)
            raise _Refused(f"{said} is ambiguous at {entry!r}: name one of {several}")
        if not named:
            return _ended(found, entries, place, said)
        if named[0] in found:
            raise _Refused(f"{said} names {named[0].uuid} twice; CUDA then gives no GPU. Name it once")
        if _by_uuid(entry) != _by_uuid(entries[0]):
            raise _Refused(f"{said} mixes numbers and UUIDs; use one of the two for all GPUs")
        if _by_uuid(entry) and entry != entry.strip():
            raise _Refused(f"{said} has a blank beside a UUID, at which CUDA ends the list; remove the blank")
        found.append(named[0])
    return _numbered(found), None


def _hides(wanted: str) -> bool:
    first = wanted.partition(",")[0].strip()
    number = _number(first)
    return not first or first.lower() in _HIDING or (number is not None and number < 0)


def _ended(found: Sequence[Gpu], entries: Sequence[str], place: int, said: str) -> tuple[list[Gpu], str | None]:
    """The list up to an entry that names no GPU; refused if nothing stands before it."""
    entry = entries[place].strip()
    if not found:
        raise _Refused(f"{said} names no GPU of this machine at {entry!r}; 'nvidia-smi -L' lists them")
    if not any(map(str.strip, entries[place:])):
        return _numbered(found), None  # a comma at the end
    after = [other.strip() for other in entries[place + 1 :] if other.strip()]
    unused = f"; not used: {', '.join(after)}" if after else ""
    why = f"{said} names no GPU of this machine at {entry!r}, where the list ends, as in CUDA{unused}"
    return _numbered(found), why


def _refuse_repeated(entries: Sequence[str], said: str) -> None:
    """CUDA gives no GPU if an entry stands twice, also one that names none."""
    seen = list[object]()
    for entry in entries:
        number = _number(entry.strip())
        if not entry.strip() or (number is not None and number < 0):
            return
        key = entry.strip() if number is None else number
        if key in seen:
            raise _Refused(f"{said} names {entry.strip()} twice; CUDA then gives no GPU. Name it once")
        seen.append(key)


def _numbers(
    present: Sequence[Gpu], environ: Mapping[str, str], entries: Sequence[str], said: str
) -> Mapping[int, list[Gpu]]:
    """Number -> GPU, or the instances of a card that MIG divides."""
    if cuda_order.differs(present, environ) and any(_number(entry.strip()) is not None for entry in entries):
        asked = cuda_order.numbered(present, environ)
        if isinstance(asked, str):
            remedy = "name the GPUs by UUID, or unset CUDA_DEVICE_ORDER"
            raise _Refused(f"{said} numbers the GPUs in CUDA's own order, but {asked}; {remedy}")
        return {number: [gpu] for number, gpu in asked.items()}
    numbers: dict[int, list[Gpu]] = {}
    for gpu in present:
        numbers.setdefault(gpu.nvml_index, []).append(gpu)
    return numbers


def _number(entry: str) -> int | None:
    """The number at the head of an entry, which is all that CUDA reads of `1gpu2`; None if it begins with none."""
    head = re.match(r"[+-]?[0-9]{1,9}(?![0-9])", entry)
    return int(head[0]) if head else None


def _by_uuid(entry: str) -> bool:
    return entry.strip().startswith(_UUID)


def _named(entry: str, present: Sequence[Gpu], numbers: Mapping[int, list[Gpu]]) -> list[Gpu]:
    """The GPUs that an entry names: by number, or by the beginning of their UUID or of that of their card."""
    entry = entry.strip()
    if not _by_uuid(entry):
        number = _number(entry)
        return [] if number is None else numbers.get(number, [])
    own = [gpu for gpu in present if gpu.uuid == entry] or [gpu for gpu in present if gpu.uuid.startswith(entry)]
    return own or [gpu for gpu in present if gpu.parent and gpu.parent.startswith(entry)]


def _numbered(gpus: Sequence[Gpu]) -> list[Gpu]:
    return [msgspec.structs.replace(gpu, visible_index=index) for index, gpu in enumerate(gpus)]
