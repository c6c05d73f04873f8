"""Steps of several environments, gathered by a net that plays, with generalised advantages (Schulman et al., 2015).

The net is called with tensors of [sequences, steps, ...], so that all steps of a sequence are computed together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from benchsuite.models import Positive


class Simulation(Protocol):
    """Several environments on the host that step together. After an episode the next begins within the same step."""

    environments: int

    def reset(self) -> tuple[Tensor, ...]:
        """Begin all anew: the observation, each part [environments, ...]."""

    def step(self, actions: Tensor) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        """Actions [environments] -> the next observation, rewards, and whether an episode ended with this step."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a round. `recurrence`: steps over which a memory learns; 1 without a memory."""

    steps: Positive
    gamma: float
    gae_lambda: float
    entropy_weight: float
    lr: float
    value_weight: float = 0.5
    clip_norm: float = 0.5
    recurrence: Positive = 1


@dataclass(frozen=True)
class Rollout:
    """The steps of one round, each part [environments, steps, ...].

    `first` marks the steps that began an episode; `memory` is the net's memory before a step. `values` are the net's
    estimates, `returns` their targets.
    """

    observation: tuple[Tensor, ...]
    memory: Tensor
    first: Tensor
    actions: Tensor
    log_probabilities: Tensor
    values: Tensor
    returns: Tensor
    advantages: Tensor

    def parts(self, length: int, count: int) -> Iterator[Rollout]:
        """The same in random order, cut to sequences of `length` steps and then into `count` parts."""

        def cut(tensor: Tensor) -> Tensor:
            return tensor.unflatten(1, (-1, length)).flatten(0, 1)

        others = [self.memory, self.first, self.actions, self.log_probabilities, self.values]
        whole = [cut(tensor) for tensor in (*self.observation, *others, self.returns, self.advantages)]
        seen = len(self.observation)
        for rows in torch.randperm(len(whole[0]), device=whole[0].device).tensor_split(count):
            taken = [tensor[rows] for tensor in whole]
            yield Rollout(tuple(taken[:seen]), *taken[seen:])


def advantages_of(rewards: Tensor, values: Tensor, ended: Tensor, last: Tensor, gamma: float, decay: float) -> Tensor:
    """[environments, steps]: generalised advantages; `last` [environments] values what comes after the last step.

    After the end of an episode the value is 0, also if the episode ran out of time.
    """
    following = torch.cat((values[:, 1:], last[:, None]), dim=1)
    alive = 1 - ended.to(values.dtype)
    surprise = rewards + gamma * following * alive - values
    fading = gamma * decay * alive
    advantage = torch.zeros_like(last)
    found = []
    for step in reversed(range(rewards.shape[1])):
        advantage = surprise[:, step] + fading[:, step] * advantage
        found.append(advantage)
    return torch.stack(found[::-1], dim=1)


class Play:
    """A net that plays in its simulation, on the net's device.

    The net is called with an observation's parts, each [sequences, steps, ...], a memory [sequences, units] from before
    the first of the steps, and which steps begin an episode [sequences, steps]; it gives logits [sequences, steps,
    actions], values [sequences, steps] and the memory after the last step.
    """

    def __init__(self, net: nn.Module, simulation: Simulation, settings: Settings, memory_units: int = 0) -> None:
        self.net, self.simulation = net, simulation
        self.steps, self.gamma, self.gae_lambda = settings.steps, settings.gamma, settings.gae_lambda
        self.observation = simulation.reset()
        self.memory = torch.zeros(simulation.environments, memory_units)
        self.first = torch.ones(simulation.environments)

    def collect(self) -> Rollout:
        """Each environment makes `steps` steps; each step waits for the net's actions and then for the environments."""
        device = next(self.net.parameters()).device
        self.memory, self.first = self.memory.to(device), self.first.to(device)
        met: list[tuple[Tensor, ...]] = []
        outcomes: list[tuple[Tensor, Tensor]] = []
        for _ in range(self.steps):
            observation = tuple(part.to(device) for part in self.observation)
            logits, value, memory = self.look(observation)
            choice = Categorical(logits=logits, validate_args=False)
            action = choice.sample()
            met.append((*observation, self.memory, self.first, action, choice.log_prob(action), value))
            self.observation, rewards, ended = self.simulation.step(action.cpu())
            outcomes.append((rewards, ended))
            self.memory, self.first = memory, ended.to(device, torch.float32)
        observation = tuple(part.to(device) for part in self.observation)
        last = self.look(observation)[1]
        rewards, ended = (torch.stack(side, dim=1).to(device) for side in zip(*outcomes, strict=True))
        whole = [torch.stack(side, dim=1) for side in zip(*met, strict=True)]
        seen = len(observation)
        held, first, actions, log_probabilities, values = whole[seen:]
        advantages = advantages_of(rewards, values, ended, last, self.gamma, self.gae_lambda)
        returns = values + advantages
        return Rollout(tuple(whole[:seen]), held, first, actions, log_probabilities, values, returns, advantages)

    def look(self, observation: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Logits [environments, actions], values [environments] and the next memory, one step on."""
        logits, values, memory = self.net(*(part[:, None] for part in observation), self.memory, self.first[:, None])
        return logits[:, 0], values[:, 0], memory
