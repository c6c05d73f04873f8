"""Pong: proximal policy optimisation, or advantage actor-critic, from the screen.

Application: reinforcement learning; a net of three convolutions, 16 games in threads of the host, 128 steps each a
round, four passes over them. With `algo: a2c` the net takes one step on all of a round's steps, of which 5 are usual.
Paper: Schulman et al., "Proximal Policy Optimization Algorithms" (2017), or Mnih et al., "Asynchronous Methods for Deep
Reinforcement Learning" (2016), whose A3C is here A2C: games step together and not one by one, and the net is that of
Mnih et al. (2015). Data set: none; the Arcade Learning Environment's Pong (extra `rl`), with what OpenAI's baselines
do to PongNoFrameskip-v4: no sticky actions, each action held for 4 frames, the last two merged, 84 x 84 grey, 4 in a
row, up to 30 idle frames at the start. An item is one step of one game that was really made: 4 frames of the emulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal

import ale_py
import gymnasium
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor, nn

from benchsuite.models import Positive, Workload, fusible
from benchsuite.models.rl import ppo, rollout
from benchsuite.models.rl.a2c import A2c
from benchsuite.models.rl.cpus import usable_cpus

PARALLEL = False
SMALL: dict[str, object] = {"environments": 2, "steps": 8, "minibatches": 2, "epochs": 1, "workers": 1}

IN_A_ROW = 4


@dataclass(frozen=True)
class Params:
    """`epochs`, `minibatches` and `clip` are of PPO alone. A2C's usual settings are 5 steps, lr 7e-4 and gae_lambda 1.

    `workers`: threads that run the games; 0 is one for each usable CPU.
    """

    algo: Literal["ppo", "a2c"] = "ppo"
    environments: Positive = 16
    steps: Positive = 128
    epochs: Positive = 4
    minibatches: Positive = 4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.1
    entropy_weight: float = 0.01
    workers: int = 0
    lr: float = fusible(2.5e-4)
    seed: int = fusible(1234)


class Games:
    """Several games of Pong that step together; each has a seed of its own."""

    def __init__(self, environments: int, workers: int, seed: int) -> None:
        self.environments, self.seed = environments, seed
        gymnasium.register_envs(ale_py)
        self.games = gymnasium.make_vec(
            "ALE/Pong-v5",
            num_envs=environments,
            vectorization_mode="vector_entry_point",
            num_threads=workers or min(environments, usable_cpus()),
            autoreset_mode=AutoresetMode.SAME_STEP,
            frameskip=4,
            maxpool=True,
            repeat_action_probability=0.0,
            noop_max=30,
            use_fire_reset=False,
            stack_num=IN_A_ROW,
        )
        self.actions = int(self.games.single_action_space.n)

    def reset(self) -> tuple[Tensor, ...]:
        screens, _ = self.games.reset(seed=self.seed)
        return (torch.tensor(screens),)

    def step(self, actions: Tensor) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        screens, rewards, over, cut, _ = self.games.step(actions.numpy())
        return (torch.tensor(screens),), torch.tensor(rewards, dtype=torch.float32), torch.tensor(over | cut)


class Player(nn.Module):
    """Screens [sequences, steps, 4, 84, 84] of bytes -> logits, values and the memory, which stays unused."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.see = nn.Sequential(
            nn.Conv2d(IN_A_ROW, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 7 * 7, 512),
            nn.ReLU(),
        )
        self.policy = nn.Linear(512, actions)
        self.value = nn.Linear(512, 1)
        for layer in self.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.orthogonal_(
                    layer.weight, 0.01 if layer is self.policy else 1.0 if layer is self.value else 2**0.5
                )
                nn.init.zeros_(layer.bias)

    def forward(self, screens: Tensor, memory: Tensor, first: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        seen = self.see(screens.flatten(0, 1) / 255).unflatten(0, screens.shape[:2])
        return self.policy(seen), self.value(seen).squeeze(2), memory


def build(params: Params) -> Workload:
    games = Games(params.environments, params.workers, params.seed)
    player = Player(games.actions)
    shared: dict[str, Any] = {
        "steps": params.steps,
        "gamma": params.gamma,
        "gae_lambda": params.gae_lambda,
        "entropy_weight": params.entropy_weight,
        "lr": params.lr,
    }
    learning: A2c | ppo.Ppo
    if params.algo == "a2c":
        learning = A2c(player, games, rollout.Settings(**shared))
    else:
        of_ppo: dict[str, Any] = {"epochs": params.epochs, "minibatches": params.minibatches, "clip": params.clip}
        learning = ppo.Ppo(player, games, ppo.Settings(**shared, **of_ppo))
    return Workload(
        unit="environment step",
        batches=lambda share: repeat(None),
        items=lambda batch: 0,
        modules={"player": player},
        step=lambda batch: learning.round(),
        losses=learning.losses,
    )
