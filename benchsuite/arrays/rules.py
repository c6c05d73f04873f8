"""Functions of torch that an array computes in another way, because vmap has no rule for them or an unfit one."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from benchsuite.arrays import layers, recurrent
from benchsuite.errors import ModelError

# Functions that autocast computes in fp32. vmap takes them apart before autocast sees them, so the mode casts their
# arguments. Matrix products and convolutions reach autocast as they are.
FULL_PRECISION = frozenset(
    {
        F.layer_norm,
        torch.layer_norm,
        F.group_norm,
        F.softmax,
        F.log_softmax,
        F.softplus,
        F.cross_entropy,
        F.nll_loss,
        F.binary_cross_entropy_with_logits,
        F.mse_loss,
        F.l1_loss,
        F.smooth_l1_loss,
        F.huber_loss,
        F.kl_div,
        F.cosine_similarity,
        torch.softmax,
        torch.log_softmax,
        Tensor.softmax,
        Tensor.log_softmax,
    }
)
CHANGED = frozenset({*layers.RULES, *recurrent.RULES, *FULL_PRECISION, torch.embedding})
HALF = (torch.float16, torch.bfloat16)


class Rules(TorchFunctionMode):
    """Within this mode, layers compute in a way that suits vmap; see `recurrent` and `folding`.

    Args:
        zero: an integer 0 of each model, int64 of no dimensions within vmap.
        mixed: autocast is on, and `FULL_PRECISION` are computed in fp32.
    """

    def __init__(self, zero: Tensor, mixed: bool) -> None:
        super().__init__()
        self._zero, self._mixed = zero, mixed

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in CHANGED:
            return func(*args, **kwargs)
        rule = layers.RULES.get(func)
        if rule is not None:
            return rule(*args, **kwargs)
        rule = recurrent.RULES.get(func)
        if rule is not None:
            check_recurrent(func, args)
            return rule(*args, **kwargs)
        if self._mixed and func in FULL_PRECISION:
            return func(*tree_map(in_full, args), **tree_map(in_full, kwargs))
        if func is torch.embedding and not kwargs and not any(args[3:]):
            return self._embedding(*args[:3])
        return func(*args, **kwargs)

    def _embedding(self, weight: Tensor, words: Tensor, padding: int = -1) -> Tensor:
        """The rows of the tables of all models.

        vmap's rule for words that are the same for all models copies the tables. That for words of each model looks up
        one table of B x rows. It would treat the padding of the first model only, so it is treated here: the rows of
        padding get no gradient.
        """
        rows = torch.embedding(weight, words + self._zero)
        if padding < 0:
            return rows
        return torch.where((words == padding).unsqueeze(-1), rows.detach(), rows)


def in_full(value: Any) -> Any:
    """A tensor of 16 bits as fp32; other values as they are."""
    return value.float() if isinstance(value, Tensor) and value.dtype in HALF else value


def check_recurrent(func: Any, args: tuple[Any, ...]) -> None:
    """Raises ModelError: a recurrent layer has packed sequences, or an LSTM with projections."""
    if func is torch.lstm_cell or "cell" in func.__name__:
        return
    if isinstance(args[3], (list, tuple)):  # the third argument of a packed sequence is its state
        raise ModelError(f"array: packed sequences of {func.__name__} cannot be fused; pad them")
    if func is torch.lstm and args[1][0].shape[-1] != args[1][1].shape[-1]:
        raise ModelError("array: an LSTM with proj_size cannot be fused")
