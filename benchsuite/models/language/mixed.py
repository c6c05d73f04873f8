"""Mixed precision inside a model."""

from __future__ import annotations

import torch

# FLOPs are counted on this device, which has no autocast.
_COUNTING = "meta"


def autocast_dtype(device: str) -> torch.dtype | None:
    """The dtype of autocast on a kind of device; None where it is off, and on torch's meta device."""
    if device == _COUNTING or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


def computes(device: str) -> bool:
    """Whether values are computed on a kind of device. On torch's meta device there are shapes only."""
    return device != _COUNTING
