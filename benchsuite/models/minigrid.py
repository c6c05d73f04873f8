"""BabyAI: proximal policy optimisation in a grid world with missions in words.

Application: reinforcement learning; what the agent sees is weighed by its mission (FiLM), a memory follows, and it
learns over `recurrence` steps. 64 environments make 40 steps each a round, four passes over them. Paper:
Chevalier-Boisvert et al., "BabyAI: A Platform to Study the Sample Efficiency of Grounded Language Learning" (2019);
here its batch norms are group norms, so that the policy that acts is the one that learns, and its LSTM is a GRU. Data
set: none; a level of the package minigrid (extra `rl`). An item is one frame: a step of one environment that was really
made.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import Any

import gymnasium  # noqa: F401  both are named here so that a job without them is skipped
import minigrid  # noqa: F401
import torch
from torch import Tensor, nn

from benchsuite.models import Positive, Workload, fusible
from benchsuite.models.rl.grids import WORDS, Players
from benchsuite.models.rl.ppo import Ppo, Settings

PARALLEL = False
SMALL: dict[str, object] = {
    "environments": 2,
    "steps": 6,
    "recurrence": 3,
    "epochs": 1,
    "units": 16,
    "workers": 1,
}


@dataclass(frozen=True)
class Params:
    """`words`: the largest number of words of a mission; all missions are padded to it.

    `workers`: processes that run the environments; 0 is about one for each usable CPU.
    """

    level: str = "BabyAI-UnlockPickup-v0"
    environments: Positive = 64
    steps: Positive = 40
    epochs: Positive = 4
    minibatches: Positive = 2
    memory: bool = True
    recurrence: Positive = 20
    units: Positive = 128
    words: Positive = 8
    gamma: float = 0.99
    gae_lambda: float = 0.99
    clip: float = 0.2
    entropy_weight: float = 0.01
    reward_scale: float = 20.0
    workers: int = 0
    lr: float = fusible(1e-4)
    seed: int = fusible(1234)


class Levels:
    """The environments as tensors: images [environments, 7, 7, 3] of numbers and missions [environments, words]."""

    def __init__(self, players: Players, reward_scale: float) -> None:
        self.players, self.reward_scale = players, reward_scale
        self.environments = players.environments

    def reset(self) -> tuple[Tensor, ...]:
        return self._seen(self.players.reset())

    def step(self, actions: Tensor) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        met = self.players.step(actions.numpy())
        rewards = torch.from_numpy(met["reward"]) * self.reward_scale
        return self._seen(met), rewards, torch.from_numpy(met["ended"]).bool()

    def _seen(self, met: dict[str, Any]) -> tuple[Tensor, ...]:
        return torch.from_numpy(met["image"]), torch.from_numpy(met["mission"])


class Modulate(nn.Module):
    """Scales and shifts the channels of features [n, units, h, w] by the encoded mission [n, units]."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.Conv2d(units, units, 3, padding=1), norm(units), nn.ReLU())
        self.conv = nn.Conv2d(units, units, 3, padding=1)
        self.scale, self.shift = nn.Linear(units, units), nn.Linear(units, units)
        self.after = nn.Sequential(norm(units), nn.ReLU())

    def forward(self, features: Tensor, told: Tensor) -> Tensor:
        features = self.conv(self.before(features))
        return self.after(features * self.scale(told)[:, :, None, None] + self.shift(told)[:, :, None, None])


def norm(units: int) -> nn.Module:
    return nn.GroupNorm(8 if units % 8 == 0 else 1, units)


class Agent(nn.Module):
    """Images and missions, each [sequences, steps, ...] -> logits, values and the memory [sequences, units]."""

    def __init__(self, actions: int, units: int, memory: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS) + 2, units, padding_idx=0)
        self.listen = nn.GRU(units, units, batch_first=True)
        self.see = nn.Sequential(
            nn.Conv2d(3, units, 2, padding=1),
            norm(units),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(units, units, 3, padding=1),
            norm(units),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.first, self.second = Modulate(units), Modulate(units)
        self.pool = nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten())
        self.cell = nn.GRUCell(units, units) if memory else None
        self.policy = nn.Sequential(nn.Linear(units, 64), nn.Tanh(), nn.Linear(64, actions))
        self.value = nn.Sequential(nn.Linear(units, 64), nn.Tanh(), nn.Linear(64, 1))

    def hear(self, missions: Tensor) -> Tensor:
        """[n, words] -> the state of the GRU after each mission's last word [n, units]."""
        last = (missions != 0).sum(dim=1).clamp(min=1) - 1
        heard = self.listen(self.words(missions))[0]
        return heard.gather(1, last[:, None, None].expand(-1, 1, heard.shape[2])).squeeze(1)

    def forward(self, images: Tensor, missions: Tensor, memory: Tensor, first: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        told = self.hear(missions.flatten(0, 1))
        features = self.see(images.flatten(0, 1).permute(0, 3, 1, 2).float())
        features = self.pool(self.second(self.first(features, told), told)).unflatten(0, images.shape[:2])
        if self.cell is not None:
            held = []
            for step in range(images.shape[1]):
                memory = self.cell(features[:, step], memory * (1 - first[:, step, None]))
                held.append(memory)
            features = torch.stack(held, dim=1)
        return self.policy(features), self.value(features).squeeze(2), memory


def build(params: Params) -> Workload:
    players = Players(params.level, params.environments, params.words, params.workers, params.seed)
    agent = Agent(players.actions, params.units, params.memory)
    settings = Settings(
        steps=params.steps,
        epochs=params.epochs,
        minibatches=params.minibatches,
        gamma=params.gamma,
        gae_lambda=params.gae_lambda,
        clip=params.clip,
        entropy_weight=params.entropy_weight,
        lr=params.lr,
        recurrence=params.recurrence if params.memory else 1,
    )
    ppo = Ppo(agent, Levels(players, params.reward_scale), settings, params.units if params.memory else 0)
    return Workload(
        unit="frame",
        batches=lambda share: repeat(None),
        items=lambda batch: 0,
        modules={"agent": agent},
        step=lambda batch: ppo.round(),
        losses=ppo.losses,
    )
