"""Series of numbers in a `.npy` file, one in each row."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from benchsuite.describe.tasks import DataFolder
from benchsuite.errors import ModelError
from benchsuite.models.readers import malformed, place


def waves(data: DataFolder, length: int) -> Tensor:
    """The first `length` points of every series, float32 [series, length].

    Raises:
        ModelError: the file is not of this format, or its series are shorter.
    """
    path = place(data, "waves")
    try:
        found = np.load(path, allow_pickle=False)
    except (EOFError, ValueError) as error:
        raise malformed(data, path, f"no .npy file of numbers: {error}") from None
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype.kind not in "fiu":
        raise malformed(data, path, "not one array of real numbers, a row a series")
    if found.shape[1] < length:
        few = f"series of {found.shape[1]:,} points, under length {length:,}"
        raise ModelError(f"data set '{data.name}' has {few}; give a length of at most {found.shape[1]}")
    return torch.from_numpy(found[:, :length].astype(np.float32))
