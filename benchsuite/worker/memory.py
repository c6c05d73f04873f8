"""Recognise an out-of-memory error of a device, and word it in one line."""

from __future__ import annotations

import re
import sys


def no_device_memory(error: BaseException) -> bool:
    """Does CUDA report that the device's memory does not suffice?"""
    kind = type(error)
    return (kind.__module__ == "torch" and kind.__name__ == "OutOfMemoryError") or (
        isinstance(error, RuntimeError) and ("CUDA out of memory" in str(error) or "CUDA error: out of" in str(error))
    )


def needed(error: BaseException, batch_size: object) -> str:
    """How much memory was needed and how much was free, in one line.

    Args:
        batch_size: the batch size, which the message advises to lower; empty or None for no such advice.
    """
    torch = sys.modules.get("torch")
    asked = re.search(r"Tried to allocate ([0-9.]+ \w+)", str(error))
    more = f"{asked[1]} more were needed" if asked else str(error).strip().splitlines()[0]
    if torch is None or not torch.cuda.is_available():
        return more
    try:
        free, total = torch.cuda.mem_get_info()
        held = torch.cuda.memory_reserved()
    except RuntimeError:  # a device may not answer after an error
        return f"out of memory on the GPU: {more}"
    gib = 2**30
    there = f"{free / gib:.2f} GiB of {total / gib:.2f} GiB were free, and {held / gib:.2f} GiB held by this process"
    remedy = f"; with batch_size {batch_size}: give a smaller one, or --batch-size auto" if batch_size else ""
    return f"out of memory on the GPU: {more}, {there}{remedy}"
