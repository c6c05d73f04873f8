"""Advantage actor-critic: the form of A3C (Mnih et al., 2016) in which all environments step together.

In one round every environment makes a few steps. The net then takes one step of its optimiser on all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn, optim
from torch.distributions import Categorical

from benchsuite.models.rl.rollout import Play, Rollout, Settings, Simulation


def loss_of(net: nn.Module, whole: Rollout, settings: Settings) -> Tensor:
    """The policy's loss, the squared error of the values and the entropy, each a mean over the steps."""
    logits, values, _ = net(*whole.observation, whole.memory[:, 0], whole.first)
    choice = Categorical(logits=logits, validate_args=False)
    gain = (choice.log_prob(whole.actions) * whole.advantages).mean()
    error = (values - whole.returns).square().mean()
    return settings.value_weight * error - gain - settings.entropy_weight * choice.entropy().mean()


class A2c(Play):
    """A net that learns from its simulation; `round()` is one unit of work. See `Play` for the net.

    The optimiser is the paper's RMSProp, with the settings of OpenAI's baselines.
    """

    def __init__(self, net: nn.Module, simulation: Simulation, settings: Settings) -> None:
        super().__init__(net, simulation, settings)
        self.settings = settings
        self.optimiser = optim.RMSprop(net.parameters(), lr=settings.lr, alpha=0.99, eps=1e-5)
        self.losses: list[Tensor] = []

    def round(self) -> int:
        """Let the environments step, then learn; the number of steps of all environments."""
        with torch.no_grad():
            whole = self.collect()
        loss = loss_of(self.net, whole, self.settings)
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), self.settings.clip_norm)
        self.optimiser.step()
        self.losses[:] = [loss.detach()]
        return self.simulation.environments * self.settings.steps
