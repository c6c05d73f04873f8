"""`bleu/scores.json` of a run folder: the BLEU of a translator's checkpoints, epoch by epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from benchsuite.schema import SCHEMA, Record

NAME = "scores.json"


class BleuEpoch(Record, frozen=True, kw_only=True):
    """The BLEU after one epoch."""

    epoch: Annotated[int, Meta(description="number of the epoch, from 1")]
    bleu: float
    elapsed_s: Annotated[float, Meta(description="seconds for translating and scoring")]
    translations: Annotated[str, Meta(description="file of the translations in the run folder, one a line")]


class TaskBleu(Record, frozen=True, kw_only=True):
    """The epochs of one task."""

    task: Annotated[str, Meta(description="id of the task")]
    attempt: int
    model: str
    test_set: Annotated[str, Meta(description="data set and split")]
    sentences: int
    epochs: tuple[BleuEpoch, ...]


class Bleu(Record, frozen=True, kw_only=True):
    """The file."""

    schema: int = SCHEMA
    kind: Literal["bleu"] = "bleu"
    signature: Annotated[str, Meta(description="that of sacrebleu; scores with different ones are not comparable")]
    beam: int
    max_length: Annotated[int, Meta(description="units of a translation at most")]
    alpha: Annotated[float, Meta(description="exponent of the length penalty")]
    beta: Annotated[float, Meta(description="weight of the coverage penalty, for models with one attention")]
    device: str
    tasks: tuple[TaskBleu, ...]


def path_in(folder: Path) -> Path:
    """The file of a run folder."""
    return folder / "bleu" / NAME
