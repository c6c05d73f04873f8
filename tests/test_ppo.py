"""Proximal policy optimisation: its arithmetic against naive forms, a bandit, a memory. No environment is needed."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from benchsuite.errors import ModelError
from benchsuite.models.rl import a2c, rollout
from benchsuite.models.rl.ppo import Ppo, Settings, loss_of
from benchsuite.models.rl.rollout import Rollout, advantages_of

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

SETTINGS: dict[str, Any] = {
    "steps": 8,
    "epochs": 4,
    "minibatches": 2,
    "gamma": 0.9,
    "gae_lambda": 0.8,
    "clip": 0.2,
    "entropy_weight": 0.01,
    "lr": 1e-2,
}


def naive_advantages(rewards: Any, values: Any, ended: Any, last: float, gamma: float, decay: float) -> list[float]:
    """Term by term, from the definition: the sum over l of (gamma * decay)^l * delta, up to the end of the episode."""
    following = [*values[1:], last]
    found = []
    for start in range(len(rewards)):
        total, weight = 0.0, 1.0
        for step in range(start, len(rewards)):
            ahead = 0.0 if ended[step] else following[step]
            total += weight * (rewards[step] + gamma * ahead - values[step])
            if ended[step]:
                break
            weight *= gamma * decay
        found.append(total)
    return found


@pytest.mark.parametrize(("gamma", "decay"), [(0.99, 0.95), (0.9, 0.0), (1.0, 1.0)])
def test_advantages_are_those_of_the_definition(gamma: float, decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    rewards, values = (torch.randn(3, 20, generator=generator, dtype=torch.float64) for _ in range(2))
    ended = torch.rand(3, 20, generator=generator) < 0.2
    last = torch.randn(3, generator=generator, dtype=torch.float64)
    found = advantages_of(rewards, values, ended, last, gamma, decay)
    for row in range(3):
        expected = naive_advantages(
            rewards[row].tolist(), values[row].tolist(), ended[row].tolist(), float(last[row]), gamma, decay
        )
        assert found[row].tolist() == pytest.approx(expected, abs=1e-9)


def test_returns_without_values_are_discounted_sums() -> None:
    rewards = torch.tensor([[1.0, 1.0, 1.0]])
    ended = torch.tensor([[False, True, False]])
    found = advantages_of(rewards, torch.zeros(1, 3), ended, torch.tensor([10.0]), 0.5, 1.0)
    assert found.tolist() == [[1.5, 1.0, 6.0]]


class Table(nn.Module):
    """A policy without inputs to speak of: logits and a value of its own."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.logits, self.worth = nn.Parameter(torch.zeros(actions)), nn.Parameter(torch.zeros(()))
        self.shapes: set[tuple[int, ...]] = set()

    def forward(self, seen: Tensor, memory: Tensor, first: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.shapes.add(tuple(first.shape))
        return self.logits.expand(*first.shape, -1), self.worth.expand(first.shape), memory


class Bandit:
    """Arms that pay 0, 1, 0; each pull is an episode."""

    environments = 4

    def reset(self) -> tuple[Tensor, ...]:
        return (torch.zeros(4, 1),)

    def step(self, actions: Tensor) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        return self.reset(), (actions == 1).float(), torch.ones(4, dtype=torch.bool)


def test_a_bandit_is_learned() -> None:
    torch.manual_seed(0)
    table = Table(3)
    ppo = Ppo(table, Bandit(), Settings(**{**SETTINGS, "lr": 5e-2}))
    assert [ppo.round() for _ in range(25)] == [32] * 25
    assert table.logits.softmax(0)[1].item() > 0.9
    assert table.worth.item() == pytest.approx(1.0, abs=0.2)
    assert table.shapes == {(4, 1), (16, 1)}


class Recall:
    """The first step of an episode shows a sign, the second asks for it: only a memory can tell."""

    environments = 8

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(1)
        self.asked = False

    def reset(self) -> tuple[Tensor, ...]:
        self.sign = torch.randint(2, (8,), generator=self.generator)
        self.asked = False
        return (nn.functional.one_hot(self.sign, 2).float(),)

    def step(self, actions: Tensor) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        if not self.asked:
            self.asked = True
            return (torch.zeros(8, 2),), torch.zeros(8), torch.zeros(8, dtype=torch.bool)
        pay = (actions == self.sign).float()
        return self.reset(), pay, torch.ones(8, dtype=torch.bool)


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.policy, self.value = nn.GRUCell(2, 16), nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, signs: Tensor, memory: Tensor, first: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        held = []
        for step in range(signs.shape[1]):
            memory = self.cell(signs[:, step], memory * (1 - first[:, step, None]))
            held.append(memory)
        whole = torch.stack(held, dim=1)
        return self.policy(whole), self.value(whole).squeeze(2), memory


def test_a_memory_is_learned_over_several_steps() -> None:
    torch.manual_seed(0)
    simulation, paid = Recall(), []
    play = simulation.step
    simulation.step = lambda actions: (out := play(actions), paid.append(float(out[1].sum())))[0]  # type: ignore
    settings = Settings(**{**SETTINGS, "steps": 16, "recurrence": 4, "lr": 1e-2})
    ppo = Ppo(Remembering(), simulation, settings, memory_units=16)
    for _ in range(30):
        ppo.round()
    assert sum(paid[:48]) < 0.7 * 24 * 8
    assert sum(paid[-48:]) > 0.95 * 24 * 8


def test_parts_hold_every_step_once_and_in_its_sequence() -> None:
    numbers = torch.arange(2 * 6).view(2, 6)
    memory = numbers[:, :, None].float()
    rollout = Rollout((numbers,), memory, *[numbers] * 6)
    parts = list(rollout.parts(length=3, count=2))
    seen = torch.cat([part.actions for part in parts])
    assert sorted(seen.flatten().tolist()) == list(range(12))
    assert torch.all(seen.diff(dim=1) == 1)
    for part in parts:
        assert part.actions.shape == (2, 3)
        assert torch.equal(part.observation[0], part.actions)
        assert torch.equal(part.memory[:, 0, 0], part.actions[:, 0].float())


def test_the_objective_is_clipped() -> None:
    """By hand: probabilities 0.5 of two actions, old ones such that the ratio is 2, outside of 1 +- 0.2."""
    table = Table(2)
    ones = torch.ones(1, 1)
    actions = torch.zeros(1, 1, dtype=torch.long)

    def loss(advantage: float) -> Tensor:
        old = torch.full((1, 1), 0.25).log()
        part = Rollout((ones,), ones, ones, actions, old, ones * 0, ones * 0.5, ones * advantage)
        return loss_of(table, part, Settings(**{**SETTINGS, "entropy_weight": 0.0}))

    assert loss(1.0).item() == pytest.approx(0.5 * 0.5 * 0.25 - 1.2)
    assert loss(-1.0).item() == pytest.approx(0.5 * 0.5 * 0.25 + 2.0)
    loss(1.0).backward()
    assert table.logits.grad is not None and float(table.logits.grad.abs().sum()) == 0.0
    loss(-1.0).backward()
    assert float(table.logits.grad.abs().sum()) > 0.0


@pytest.mark.parametrize("wrong", [{"recurrence": 3}, {"minibatches": 33}])
def test_a_round_that_cannot_be_cut_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ModelError, match="8 steps of 4 environments cannot be cut into sequences"):
        Ppo(Table(2), Bandit(), Settings(**{**SETTINGS, **wrong}))


# --- a2c --------------------------------------------------------------------------------------------------------------


def test_a2c_learns_a_bandit() -> None:
    torch.manual_seed(0)
    table = Table(3)
    settings = rollout.Settings(steps=8, gamma=0.9, gae_lambda=1.0, entropy_weight=0.0, lr=5e-2)
    learning = a2c.A2c(table, Bandit(), settings)
    assert [learning.round() for _ in range(60)] == [32] * 60
    assert table.logits.softmax(0)[1].item() > 0.9
    assert len(learning.losses) == 1


def test_the_loss_of_a2c_by_hand() -> None:
    """Two actions of probability 0.5 each, a value of 0 and a return of 0.5, an advantage of 2."""
    ones = torch.ones(1, 1)
    part = Rollout((ones,), ones, ones, torch.zeros(1, 1, dtype=torch.long), ones, ones * 0, ones * 0.5, ones * 2)
    settings = rollout.Settings(steps=1, gamma=0.9, gae_lambda=1.0, entropy_weight=0.1, lr=1.0)
    half = torch.tensor(0.5).log().item()
    assert a2c.loss_of(Table(2), part, settings).item() == pytest.approx(0.5 * 0.25 - 2 * half + 0.1 * half)
