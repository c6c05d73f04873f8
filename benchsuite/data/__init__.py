"""Data sets: descriptors, download, generation, and checks. Imports neither torch nor pandas."""

from benchsuite.errors import BenchError


class DataError(BenchError):
    """A data set is not ready or cannot be prepared; the message names it and the remedy."""

    exit_code = 1
