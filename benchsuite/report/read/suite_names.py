"""Names of jobs that milarun prefixed with the name of their suite."""

from __future__ import annotations

import re
from collections.abc import Iterable


def common_suite(names: Iterable[str]) -> str | None:
    """What stands before the first dot of every name; None where they differ, or one names no suite.

    `scaling.2` without a suite is a number of GPUs, and `module:function` the name of a run outside any suite.
    """
    suites = {name.partition(".")[0] if re.fullmatch(r"[^.:]+\.(?![0-9]+$)[^:]+", name) else None for name in names}
    return suites.pop() if len(suites) == 1 else None


def bare(name: str, suite: str | None) -> str:
    """A name without its suite, as benchsuite names its jobs."""
    return name.removeprefix(f"{suite}.") if suite else name
