"""A fingerprint of a tensor's bits, computed where the tensor lies; and the flip of one bit, for tests."""

from __future__ import annotations

import torch
from torch import Tensor

# Elements that are converted to int64 at a time.
_CHUNK = 1 << 24
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits_of(tensor: Tensor) -> Tensor:
    """The same memory as integers, in one dimension. The tensor is contiguous."""
    return tensor.view(_INTEGERS[tensor.element_size()]).view(-1)


def fingerprint(tensor: Tensor) -> Tensor:
    """int64 [2] on the tensor's device: the sum of the elements' bits, and their sum weighted by position from 1.

    Both sums are modulo 2^64, so that they do not depend on the order of additions. Every flip of a single bit changes
    the first one. Two elements that changed places change the second one only.
    """
    bits = bits_of(tensor.detach().contiguous())
    sums = torch.zeros(2, dtype=torch.int64, device=tensor.device)
    for first in range(0, len(bits), _CHUNK):
        part = bits[first : first + _CHUNK].to(torch.int64)
        places = torch.arange(first + 1, first + 1 + len(part), device=tensor.device)
        sums += torch.stack((part.sum(), (part * places).sum()))
    return sums


def hexadecimal(sums: list[int]) -> str:
    """A fingerprint's two sums as 32 digits."""
    return "".join(f"{one % (1 << 64):016x}" for one in sums)


def flip(tensor: Tensor, bit: int) -> None:
    """Flip a bit, counted from the least significant one, of the element in the middle of a contiguous tensor."""
    bits = bits_of(tensor)
    width = 8 * bits.element_size()
    mask = 1 << bit % width
    if bits.dtype.is_signed and mask >> (width - 1):
        mask -= 1 << width
    middle = len(bits) // 2
    bits[middle : middle + 1] ^= mask
