"""What is known of milarun 2020's own suites: what their tests count, and where that is not what benchsuite counts.

Its files say none of it, so it is told by the test's name.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from benchsuite.report.read.summary import JobSummary, Summary

ORIGIN = "milarun 2020"
RULE = (
    "rates by milarun's rule: the mean of up to 18 half seconds, the last two left out; lost tasks are in no figure; "
    "measured by another implementation than benchsuite's"
)
# Beyond any measurement, in items/s: sums of more would overflow.
LARGEST = 1e12
SUITES = frozenset({"standard", "10gb", "5gb", "lite"})
# Of all tests of these suites, in their order.
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
# Items that were trained for one that was counted, at the suites' own parameters.
UNIT_FACTORS = {
    "atari": 128.0,  # 16 processes of 128 steps each were counted as 16
    "reso": 200 / 256,  # four batches of 64 were counted for the data set's 200 images
    "toy_lstm": 97 / 100,  # of 100 sequences 97 were trained on
}
EXCLUDED = {"translator": "milarun left waiting for data out of its time"}


def stem_of(job: str) -> str:
    """The test's name: that of a progression's job without its number of GPUs."""
    return re.sub(r"\.[0-9]+$", "", job)


def unit_of(job: str, suite: str | None) -> str | None:
    """What one of its items is; None for a test of no suite of milarun's."""
    return UNITS.get(stem_of(job)) if suite in SUITES else None


def order(job: str) -> tuple[int, str, int]:
    """A sort key: the suite's own order, tests of other suites after it by name; a progression by number of GPUs."""
    test = stem_of(job)
    known = list(UNITS)
    gpus = job[len(test) + 1 :]
    return known.index(test) if test in UNITS else len(known), test, int(gpus or 0)


def converted(summary: Summary) -> Summary:
    """A summary read from milarun's files, made fit to stand beside benchsuite's; any other is returned as it is.

    The figures stay those that were published, and so do scores: factors and exclusions are for comparisons, and only
    for those with something that did not count as milarun did. Two runs of milarun are alike in what they counted.
    """
    if summary.origin != ORIGIN:
        return summary
    known = summary.profile is not None and summary.profile.name in SUITES
    jobs = tuple(_converted(job) for job in summary.jobs) if known else summary.jobs
    return replace(summary, origin=None, jobs=jobs)


def _converted(job: JobSummary) -> JobSummary:
    return replace(job, unit_factor=UNIT_FACTORS.get(job.name), excluded=EXCLUDED.get(job.name))
