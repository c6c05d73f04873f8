"""Data sets: what they are, bringing them below the data root, telling whether they are whole. No torch, no pandas."""

from benchsuite.errors import BenchError


class DataError(BenchError):
    """A data set that is not ready, or cannot be brought; the message names it and the remedy."""

    exit_code = 1
