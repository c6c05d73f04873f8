"""Names of jobs as milarun writes them, with the name of their suite in front."""

from __future__ import annotations

import re
from collections.abc import Iterable


def common_suite(names: Iterable[str]) -> str | None:
    """The part before the first dot, if it is the same in every name; None if a name has no suite.

    `scaling.2` has no suite, since 2 is a number of GPUs, and `module:function` names a run outside any suite.
    """
    suites = {name.partition(".")[0] if re.fullmatch(r"[^.:]+\.(?![0-9]+$)[^:]+", name) else None for name in names}
    return suites.pop() if len(suites) == 1 else None


def bare(name: str, suite: str | None) -> str:
    """A name without its suite, as benchsuite names its jobs."""
    return name.removeprefix(f"{suite}.") if suite else name
