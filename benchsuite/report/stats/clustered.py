"""Degrees of freedom of a variance that is clustered by repeat, where jobs have unequal numbers of repeats."""

from __future__ import annotations

from collections.abc import Sequence, Set


def degrees_of_freedom(jobs: Sequence[tuple[float, Set[tuple[int, int]]]], keys: Sequence[tuple[int, int]]) -> float:
    """The fewer of Satterthwaite's degrees of freedom under two models: jobs are independent, and jobs vary as one.

    The variance is a sum of squares of u_k = sum_j a_j * e_jk over the residuals e_jk of jobs in repeat k. With the
    covariance matrix B of u under a model, it has trace(B)**2 / sum(B**2) degrees of freedom (Bell and McCaffrey 2002,
    Survey Methodology 28). If no job lacks a repeat, both models give the number of repeats - 1.

    Args:
        jobs: of each, a_j times the standard deviation of its repeats, and the keys of its repeats.
        keys: all repeats.
    """
    import numpy as np  # a run ends sooner without

    has = np.array([[key in own for key in keys] for _, own in jobs], dtype=np.float64)
    scale = np.array([scale for scale, _ in jobs])
    count = has.sum(axis=1)
    independent = np.diag(scale**2 @ has) - (has.T * (scale**2 / count)) @ has
    moves = np.diag(scale @ has) - (has.T * (scale / count)) @ has
    found = [
        float(np.trace(matrix) ** 2 / (matrix**2).sum())
        for matrix in (independent, moves @ moves.T)
        if (matrix**2).sum() > 0
    ]
    return min(found, default=len(keys) - 1.0)
