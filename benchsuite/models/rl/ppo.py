"""Proximal policy optimisation (Schulman et al., 2017).

In one round every environment makes some steps, and the net then trains on them in a few passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn, optim
from torch.distributions import Categorical

from benchsuite.errors import ModelError
from benchsuite.models import Positive
from benchsuite.models.rl import rollout
from benchsuite.models.rl.rollout import Play, Rollout, Simulation


@dataclass(frozen=True, kw_only=True)
class Settings(rollout.Settings):
    """Settings of a round."""

    epochs: Positive
    minibatches: Positive
    clip: float


def loss_of(net: nn.Module, part: Rollout, settings: Settings) -> Tensor:
    """The clipped objective, the clipped error of the values and the entropy, each a mean over the steps."""
    logits, values, _ = net(*part.observation, part.memory[:, 0], part.first)
    choice = Categorical(logits=logits, validate_args=False)
    ratio = torch.exp(choice.log_prob(part.actions) - part.log_probabilities)
    near = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    gain = torch.minimum(ratio * part.advantages, near * part.advantages).mean()
    moved = part.values + (values - part.values).clamp(-settings.clip, settings.clip)
    error = torch.maximum((values - part.returns).square(), (moved - part.returns).square()).mean()
    return settings.value_weight * 0.5 * error - gain - settings.entropy_weight * choice.entropy().mean()


class Ppo(Play):
    """A net that learns from its simulation; `round()` is one unit of work. See `Play` for the net."""

    def __init__(self, net: nn.Module, simulation: Simulation, settings: Settings, memory_units: int = 0) -> None:
        sequences = simulation.environments * settings.steps // settings.recurrence
        if settings.steps % settings.recurrence or sequences < settings.minibatches:
            raise ModelError(
                f"{settings.steps} steps of {simulation.environments} environments cannot be cut into sequences of "
                f"{settings.recurrence} for {settings.minibatches} minibatches"
            )
        super().__init__(net, simulation, settings, memory_units)
        self.settings = settings
        self.optimiser = optim.Adam(net.parameters(), lr=settings.lr, eps=1e-5)
        self.losses: list[Tensor] = []

    def round(self) -> int:
        """Let the environments step, then learn; the number of steps of all environments."""
        with torch.no_grad():
            whole = self.collect()
            spread = whole.advantages.std(correction=0) + 1e-5
            whole = replace(whole, advantages=(whole.advantages - whole.advantages.mean()) / spread)
        for _ in range(self.settings.epochs):
            for part in whole.parts(self.settings.recurrence, self.settings.minibatches):
                loss = loss_of(self.net, part, self.settings)
                self.optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), self.settings.clip_norm)
                self.optimiser.step()
        self.losses[:] = [loss.detach()]
        return self.simulation.environments * self.settings.steps
