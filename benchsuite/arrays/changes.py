"""The check that each model of an array has learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from benchsuite.arrays.rows import flat
from benchsuite.errors import ModelError


class LearningOfEach:
    """Remembers the norms of the trained weights of each model, so that `check` can compare them after training.

    Args:
        stacked: a module's name -> its stacked weights, each [B, ...].
        alone: for each model the trained parameters that are not stacked.
    """

    def __init__(self, stacked: Mapping[str, Sequence[Tensor]], alone: Sequence[Sequence[Tensor]] = ()) -> None:
        self._stacked, self._alone = stacked, alone
        self._before = self._norms()

    def _norms(self) -> dict[str, Tensor]:
        """Norms [B, parameters] in fp64, on the host."""
        found = {
            name: torch.stack([flat(param.detach()).double().norm(dim=1) for param in params], dim=1).cpu()
            for name, params in self._stacked.items()
            if params
        }
        if self._alone:
            own = [torch.stack([param.detach().double().norm() for param in params]) for params in self._alone]
            found["units"] = torch.stack(own).cpu()
        return found

    def check(self) -> None:
        """Raises ModelError: of some model, no parameter of a trained module has changed."""
        for name, now in self._norms().items():
            idle = (now == self._before[name]).all(dim=1).nonzero().flatten().tolist()
            if idle:
                raise ModelError(f"no parameter of '{name}' of model {idle[0]} has changed: nothing was learnt")
