"""Policy gradient on CartPole: a small net and its environment alternate.

Application: reinforcement learning, after the `reinforce` example of PyTorch: a 4-128-2 policy, one environment, one
update an episode. Paper: Williams, "Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement
Learning" (1992). Data set: none; gymnasium's CartPole-v1 (extra `rl`). An item is one step of the environment that was
really made: an episode that ends early counts for less.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat

import gymnasium
import torch
from torch import Tensor, nn, optim
from torch.distributions import Categorical

from benchsuite.models import Positive, Workload, fusible

PARALLEL = False
SMALL: dict[str, object] = {"episode_length": 20}


@dataclass(frozen=True)
class Params:
    gamma: float = 0.99
    episode_length: Positive = 500
    lr: float = fusible(1e-2)
    seed: int = fusible(1234)


def returns(rewards: list[float], gamma: float) -> Tensor:
    """[steps]: the discounted sum of the rewards from each step on, standardised over the episode."""
    total = 0.0
    sums = []
    for reward in reversed(rewards):
        total = reward + gamma * total
        sums.append(total)
    gains = torch.tensor(sums[::-1])
    return (gains - gains.mean()) / (gains.std(correction=0) + 1e-6)


def build(params: Params) -> Workload:
    environment = gymnasium.make("CartPole-v1", max_episode_steps=params.episode_length)
    environment.reset(seed=params.seed)
    policy = nn.Sequential(nn.Linear(4, 128), nn.Dropout(0.6), nn.ReLU(), nn.Linear(128, 2))
    optimiser = optim.Adam(policy.parameters(), lr=params.lr)
    losses: list[Tensor] = []

    def episode(_: None) -> int:
        """One episode and one update (REINFORCE: the gradient of the log probability, times the return)."""
        device = next(policy.parameters()).device
        state, _info = environment.reset()
        log_probabilities: list[Tensor] = []
        rewards: list[float] = []
        over = False
        while not over:
            choice = Categorical(logits=policy(torch.as_tensor(state, device=device)))
            action = choice.sample()
            log_probabilities.append(choice.log_prob(action))
            # The environment runs on the CPU, so each step has to wait for its action.
            state, reward, terminated, truncated, _info = environment.step(int(action.item()))
            rewards.append(float(reward))
            over = terminated or truncated
        gains = returns(rewards, params.gamma).to(device)
        loss = (-torch.stack(log_probabilities) * gains).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses[:] = [loss.detach()]
        return len(rewards)

    return Workload(
        unit="environment step",
        batches=lambda share: repeat(None),
        items=lambda batch: 0,
        modules={"policy": policy},
        step=episode,
        losses=losses,
    )
