"""The policies of the learning rate, and an optimiser that follows them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from benchsuite.describe.jobs import resolve
from benchsuite.describe.lr_schedule import LrSchedule
from benchsuite.errors import ProfileError
from benchsuite.worker.lr_schedule import Scheduled


@pytest.mark.parametrize(
    ("fields", "factors"),
    [
        ({"policy": "constant"}, {0: 1.0, 999: 1.0}),
        ({"policy": "step"}, {299: 1.0, 300: 0.1, 600: 0.01}),
        ({"policy": "polynomial", "epochs": 4}, {9: 1.0, 10: 0.5625, 20: 0.25, 39: 0.0625, 400: 0.0625}),
        ({"policy": "exponential_decay", "epochs": 2}, {0: 1.0, 10: 0.97**0.5}),
        ({"policy": "step", "warm_up_epochs": 5}, {0: 1 / 50, 24: 0.5, 49: 1.0, 50: 1.0, 300: 0.1}),
    ],
)
def test_a_policy_gives_the_factor_of_each_step(fields: dict[str, Any], factors: dict[int, float]) -> None:
    schedule = LrSchedule(epoch_steps=10, **fields)
    assert {step: schedule.factor(step) for step in factors} == pytest.approx(factors)


def test_a_policy_of_the_whole_training_needs_its_epochs() -> None:
    fields = {"model": "polynome", "lr_schedule": {"policy": "polynomial", "epoch_steps": 10}}
    with pytest.raises(ProfileError, match="polynomial needs the number of epochs"):
        resolve("job", fields, "p.yaml")


class Optimiser:
    """What a schedule sees of an optimiser of torch."""

    def __init__(self) -> None:
        self.param_groups: list[dict[str, Any]] = [{"lr": 0.5}, {"lr": 2.0}]


def test_each_step_has_its_learning_rate_also_after_a_checkpoint() -> None:
    schedule = LrSchedule(policy="polynomial", epochs=4, epoch_steps=2)
    optimiser = Optimiser()
    advance = Scheduled(optimiser, schedule.factor).advance
    rates = []
    for _ in range(5):
        rates.append(optimiser.param_groups[0]["lr"])
        advance()
    assert rates == pytest.approx([0.5 * f for f in (1, 1, 0.5625, 0.5625, 0.25)])
    resumed = Optimiser()
    go_on = Scheduled(resumed, schedule.factor)
    go_on.set(5)
    go_on.advance()
    advance()
    assert resumed.param_groups == optimiser.param_groups


def test_a_stage_with_fewer_replicas_than_the_first_follows_the_same_epochs() -> None:
    schedule = LrSchedule(policy="polynomial", epochs=4, epoch_steps=2)
    first, last = Optimiser(), Optimiser()  # stages with 3 replicas and with 1
    of_first, of_last = Scheduled(first, schedule.factor), Scheduled(last, schedule.factor, Fraction(1, 3))
    for _ in range(5):
        assert first.param_groups[0]["lr"] == last.param_groups[0]["lr"]
        of_first.advance()
        for _ in range(3):
            of_last.advance()
    assert of_first.steps == of_last.steps == 5
    again = Optimiser()
    Scheduled(again, schedule.factor, Fraction(1, 3)).set(of_last.steps)
    assert again.param_groups == last.param_groups


@pytest.mark.torch
def test_a_learner_follows_the_job_or_else_the_model() -> None:
    torch = pytest.importorskip("torch")
    from benchsuite.describe.training import Training
    from benchsuite.models import Optimiser as Spec
    from benchsuite.worker.learner import learner

    def moved(training: Training) -> list[float]:
        weight = torch.nn.Parameter(torch.zeros(()))
        halved = Spec(torch.optim.SGD, {"lr": 1.0}, schedule=lambda step: 0.5**step)
        learns = learner([weight], halved, training, "cpu", None)
        steps = []
        for _ in range(3):
            before = float(weight.detach())
            learns.clear()
            learns.backward(-weight)
            learns.update()
            steps.append(float(weight.detach()) - before)
        return steps

    assert moved(Training()) == pytest.approx([1.0, 0.5, 0.25])
    own = LrSchedule(policy="polynomial", epochs=2, epoch_steps=1)
    assert moved(Training(lr_schedule=own)) == pytest.approx([1.0, 0.25, 0.25])
