"""Training by epochs, to their end or to a target: the fields of a job, and which of them contradict each other.

Such a task measures how long a training takes. Its rate enters no score.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from benchsuite.errors import ProfileError
from benchsuite.schema import Record

if TYPE_CHECKING:
    from benchsuite.describe.tasks import Job

Kept = Literal["all", "last", "none"]
# The models of which `benchsuite bleu` decodes the checkpoints.
TRANSLATORS = ("gnmt", "transformer", "translator")
# The fields of a job that this module checks, with the values of a job that trains no epochs.
DEFAULTS: dict[str, Any] = {
    "max_epochs": None,
    "target": None,
    "epoch_items": None,
    "checkpoints": "all",
    "resume_from": None,
}
# The end of a prefix before the number of an epoch, and the end of a checkpoint's file before the number of its stage.
EPOCH, STAGE = ".epoch", ".stage"


class Target(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A figure at which a training ends. It is compared at the end of each epoch."""

    loss: Annotated[
        float | None, Meta(description="the training ends when the mean training loss of an epoch is at most this")
    ] = None
    bleu: Annotated[
        Annotated[float, Meta(gt=0, le=100)] | None,
        Meta(description="the training ends when the BLEU of the test set is at least this"),
    ] = None

    @property
    def words(self) -> str:
        """The condition, such as "BLEU of at least 21.8"."""
        return f"loss of at most {self.loss:g}" if self.loss is not None else f"BLEU of at least {self.bleu:g}"

    def met(self, loss: float | None, bleu: float | None) -> bool:
        """Whether an epoch with these figures meets the target."""
        if self.loss is not None:
            return loss is not None and loss <= self.loss
        return bleu is not None and self.bleu is not None and bleu >= self.bleu


def expand(fields: dict[str, Any], longest_s: float) -> dict[str, Any]:
    """The fields of a job with the short form of a target, such as `bleu=21.8`, and with the limits of a training.

    A training by epochs has no least time and, unless `max_time_s` or `timeout_s` is given, no largest time.
    """
    target = fields.get("target")
    if isinstance(target, str) and "=" in target:
        name, _, text = target.partition("=")
        try:
            fields["target"] = {name.strip(): float(text)}
        except ValueError:
            return fields  # the type of the field refuses it
    if isinstance(fields.get("resume_from"), str):
        fields["resume_from"] = str(Path(fields["resume_from"]).absolute())
    if "max_epochs" in fields or "target" in fields:
        fields.setdefault("min_time_s", 0.0)
        if "max_epochs" in fields:
            fields.setdefault("max_time_s", fields.get("timeout_s", longest_s))
    return fields


def check(job: Job, at: str, *, limited: bool) -> None:
    """Check the fields of a training by epochs.

    Args:
        limited: the job gives `max_time_s`.

    Raises:
        ProfileError: a field is missing, or two fields contradict each other; names them and the remedy.
    """
    if not job.by_epochs:
        for field in ("epoch_items", "resume_from"):
            if getattr(job, field) is not None:
                raise ProfileError(
                    f"{at}: field '{field}': the job trains no epochs; give 'max_epochs' or 'target' as well"
                )
        return
    stop = "max_epochs" if job.max_epochs is not None else "target"
    if job.epoch_items is None:
        raise ProfileError(f"{at}: field '{stop}': give 'epoch_items' as well, the number of items in an epoch")
    _check_limits(job, stop, at, limited)
    _check_target(job, at)
    if job.resume_from is not None:
        _check_prefix(job.resume_from, at)


def _check_limits(job: Job, stop: str, at: str, limited: bool) -> None:
    for field in ("max_count", "max_steps"):
        if getattr(job, field) is not None:
            raise ProfileError(f"{at}: field '{field}': '{stop}' decides when the training ends; remove one of them")
    if job.min_time_s:
        raise ProfileError(f"{at}: field 'min_time_s': '{stop}' decides when the training ends; set it to 0")
    if job.max_epochs is None and not limited:
        raise ProfileError(f"{at}: field 'target': it may never be met; give 'max_epochs' or 'max_time_s' as a limit")
    if job.max_time_s > job.timeout_s:
        raise ProfileError(f"{at}: max_time_s {job.max_time_s:g} is over timeout_s {job.timeout_s:g}; raise timeout_s")


def _check_target(job: Job, at: str) -> None:
    target = job.target
    if target is None:
        return
    if (target.loss is None) == (target.bleu is None):
        raise ProfileError(f"{at}: field 'target': give either a loss or a BLEU, such as {{loss: 2.0}}")
    if target.bleu is None:
        return
    if job.model not in TRANSLATORS:
        known = ", ".join(TRANSLATORS)
        raise ProfileError(f"{at}: field 'target': BLEU is a figure of translations; give a loss, or train {known}")
    if job.data is None:
        raise ProfileError(f"{at}: field 'target': generated pairs have no test set; give 'data', or a target loss")
    if job.checkpoints == "none":
        raise ProfileError(f"{at}: field 'checkpoints': BLEU is measured on the checkpoint of each epoch; give last")


def _check_prefix(prefix: str, at: str) -> None:
    path = Path(prefix)
    named = re.compile(rf"{re.escape(path.name)}(?:\{EPOCH}(\d+))?\{STAGE}\d+\.pt")
    epochs: dict[int, list[Path]] = {}
    for file in sorted(path.parent.iterdir()) if path.parent.is_dir() else ():
        if match := named.fullmatch(file.name):
            epochs.setdefault(int(match[1] or 0), []).append(file)
    if not epochs:
        raise ProfileError(f"{at}: field 'resume_from': no checkpoint {path}*{STAGE}0.pt; name one up to '{EPOCH}N'")
    for file in epochs[max(epochs)]:
        if not zipfile.is_zipfile(file):
            raise ProfileError(f"{at}: field 'resume_from': {file} is damaged; continue from an earlier epoch")
