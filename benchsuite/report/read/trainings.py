"""Trainings by epochs: how long they took to their end or target. Their rates enter no score."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from benchsuite.measurement import Epoch
from benchsuite.records import Result
from benchsuite.schema import Record, finite


class Training(Record, frozen=True, kw_only=True):
    """A task that trained by epochs, or was to."""

    task: Annotated[str, Meta(description="id of the task")]
    device: str
    status: Annotated[str, Meta(description="a result's, `not run` or `running`")]
    reason: Annotated[str | None, Meta(description="why the task is not ok")] = None
    target: Annotated[str | None, Meta(description="the target in words; null: the job has none")] = None
    met: Annotated[bool | None, Meta(description="whether the target was met; null: the job has none")] = None
    stopped_by: Annotated[str | None, Meta(description="`epochs`, `target` or `max_time`; null: it did not end")] = None
    epochs: Annotated[tuple[Epoch, ...], Meta(description="of rank 0")] = ()
    trained_s: Annotated[float | None, Meta(description="time of all slices")] = None
    elapsed_s: Annotated[float | None, Meta(description="to the end of the last epoch, with its BLEU")] = None
    rate: Annotated[float | None, Meta(description="items/s of all ranks over all slices; enters no score")] = None
    unit: str | None = None
    notes: tuple[str, ...] = ()


def training(task: str, result: Result) -> Training:
    """The training of a result."""
    streams, job = result.measurement.streams, result.task.job
    first = streams[0] if streams else None
    epochs = first.epochs if first else ()
    stopped_by = first.stopped_by if first else None
    trained_s = math.fsum(one.elapsed_s for one in first.slices) if first else 0.0
    items = sum(one.items for stream in streams for one in stream.slices)
    return Training(
        task=task,
        device=result.task.device,
        status=result.status,
        reason=result.error.words if result.error else None,
        target=job.target.words if job.target else None,
        met=stopped_by == "target" if job.target else None,
        stopped_by=stopped_by,
        epochs=epochs,
        trained_s=trained_s or None,
        elapsed_s=epochs[-1].end_s + epochs[-1].pause_s if epochs else None,
        rate=finite(items / trained_s) if trained_s else None,
        unit=first.unit if first else None,
        notes=tuple(note for note in first.notes if note.startswith("continued from")) if first else (),
    )


def lowest_loss(epochs: Iterable[Epoch]) -> float | None:
    """The lowest mean loss of an epoch."""
    return min((one.loss for one in epochs if one.loss is not None), default=None)


def highest_bleu(epochs: Iterable[Epoch]) -> float | None:
    """The highest BLEU of an epoch."""
    return max((one.bleu for one in epochs if one.bleu is not None), default=None)
