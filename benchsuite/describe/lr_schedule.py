"""How the learning rate changes in a training: the policies of PipeDream's programs."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from benchsuite.schema import Record

Policy = Literal["constant", "step", "polynomial", "exponential_decay"]
_Count = Annotated[int, Meta(gt=0)]
# Epochs after which `step` divides the rate by 10, the power of `polynomial`, and the base of `exponential_decay`.
STEP_EPOCHS, POWER, BASE = 30, 2, 0.97


class LrSchedule(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The factor of the learning rate at each of the optimiser's steps.

    Source: `adjust_learning_rate` of PipeDream's runtime (Narayanan et al., SOSP 2019). It computes the factor from the
    number of the epoch, so that the rate is constant within an epoch, except in the warm-up.
    """

    policy: Annotated[
        Policy,
        Meta(
            description="`step`: a tenth every 30 epochs; `polynomial`: (1 - epoch/epochs)^2; `exponential_decay`: "
            "0.97^(epoch/epochs)"
        ),
    ] = "constant"
    epoch_steps: Annotated[_Count, Meta(description="steps of the optimiser in an epoch")]
    epochs: Annotated[_Count | None, Meta(description="epochs of the whole training")] = None
    warm_up_epochs: Annotated[
        int, Meta(ge=0, description="epochs in which the learning rate rises linearly; the policy holds after them")
    ] = 0

    def __post_init__(self) -> None:
        if self.epochs is None and self.policy in ("polynomial", "exponential_decay"):
            raise ValueError(f"{self.policy} needs the number of epochs")

    def factor(self, step: int) -> float:
        """The factor of the learning rate at a step. Steps count from 0.

        After the last epoch it stays that of the last epoch.
        """
        epoch = step // self.epoch_steps
        if epoch < self.warm_up_epochs:
            return (step + 1) / (self.warm_up_epochs * self.epoch_steps)
        if self.epochs is not None:
            epoch = min(epoch, self.epochs - 1)
        if self.policy == "step":
            return float(0.1 ** (epoch // STEP_EPOCHS))
        part = epoch / self.epochs if self.epochs else 0.0
        if self.policy == "polynomial":
            return float((1 - part) ** POWER)
        return float(BASE**part) if self.policy == "exponential_decay" else 1.0
