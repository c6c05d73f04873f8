"""The names in milarun 2020's files, and the items that its own tests count, which these files do not record."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from benchsuite.report.read.summary import Summary

ORIGIN = "milarun 2020"
RULE = (
    "rates by milarun's rule: the mean of up to 18 half seconds, the last two left out; lost tasks are in no figure; "
    "measured by another implementation than benchsuite's"
)
# Beyond any measurement, in items/s: sums of more would overflow.
LARGEST = 1e12
SUITES = frozenset({"standard", "10gb", "5gb", "lite"})
# The unit of each test of these suites, in the suites' order.
UNITS = {
    "toy_reg": "example",
    "toy_lstm": "sequence",
    "vae": "image",
    "loader": "image",
    "reso": "image",
    "translator": "sentence",
    "wlm": "sequence",
    "wlmfp16": "sequence",
    "cart": "environment step",
    "minigrid": "frame",
    "atari": "128 environment steps",
    "ssd": "image",
    "fast_style": "image",
    "dcgan": "image",
    "convnet": "image",
    "convnet_fp16": "image",
    "recom": "interaction",
    "scaling": "image",
}
# Items trained per item counted, at the suites' own parameters.
UNIT_FACTORS = {
    "atari": 128.0,  # 16 processes of 128 steps each were counted as 16
    "reso": 200 / 256,  # four batches of 64 were counted for the data set's 200 images
    "toy_lstm": 97 / 100,  # of 100 sequences 97 were trained on
}
EXCLUDED = {"translator": "milarun left waiting for data out of its time"}


def common_suite(names: Iterable[str]) -> str | None:
    """The part before the first dot, if it is the same in every name; None if a name has no suite.

    `scaling.2` has no suite, since 2 is a number of GPUs, and `module:function` names a run outside any suite.
    """
    suites = {name.partition(".")[0] if re.fullmatch(r"[^.:]+\.(?![0-9]+$)[^:]+", name) else None for name in names}
    return suites.pop() if len(suites) == 1 else None


def bare(name: str, suite: str | None) -> str:
    """A name without its suite, as benchsuite names its jobs."""
    return name.removeprefix(f"{suite}.") if suite else name


def stem_of(job: str) -> str:
    """The test's name: that of a progression's job without its number of GPUs."""
    return re.sub(r"\.[0-9]+$", "", job)


def unit_of(job: str, suite: str | None) -> str | None:
    """The unit of a test's items; None for a test outside milarun's suites."""
    return UNITS.get(stem_of(job)) if suite in SUITES else None


def order(job: str) -> tuple[int, str, int]:
    """A sort key: the suite's own order, tests of other suites after it by name; a progression by number of GPUs."""
    test = stem_of(job)
    known = list(UNITS)
    gpus = job[len(test) + 1 :]
    return known.index(test) if test in UNITS else len(known), test, int(gpus or 0)


def converted(summary: Summary) -> Summary:
    """A summary of milarun's with the factors and exclusions that a comparison with benchsuite needs.

    The figures and scores stay as published. A summary of another program is returned as it is. Two summaries of
    milarun count alike, and need no conversion.
    """
    if summary.origin != ORIGIN:
        return summary
    if summary.profile is None or summary.profile.name not in SUITES:
        return replace(summary, origin=None)
    jobs = [replace(j, unit_factor=UNIT_FACTORS.get(j.name), excluded=EXCLUDED.get(j.name)) for j in summary.jobs]
    return replace(summary, origin=None, jobs=tuple(jobs))
