"""The shipped suites have the jobs, their order, the parameters and the weights of milarun's, with named exceptions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from milarun2020 import kept

from benchsuite.describe import profile
from benchsuite.files import shipped

# Their options, and what ours are called.
OPTIONS = {
    "batch-size": "batch_size",
    "poly-degree": "poly_degree",
    "samples": "samples",
    "upscale-factor": "upscale_factor",
    "emsize": "emsize",
    "nhid": "nhid",
    "dropout": "dropout",
    "model": "cell",
    "gamma": "gamma",
    "episode-length": "episode_length",
    "env": "level",
    "num-steps": "steps",
    "num-processes": "environments",
    "clip-param": "clip",
    "num-mini-batch": "minibatches",
    "entropy-coef": "entropy_weight",
    "image-size": "image_size",
    "style-size": "style_size",
    "arch": "arch",
    "network": "network",
    "f": "factors",
    "l": "lr",
    "lr": "lr",
}
DATASETS = {"bsds500_reso": "bsds500", "wiki2": "wikitext2"}
# A learning rate changes no speed. With theirs ESPCN under Adam runs away.
OTHERWISE = {("reso", "lr"), ("dcgan", "image_size")}  # the last is 64 by the net's shape
# One of theirs was an update of 16 environments, 128 steps each, of which they counted 16.
ATARI_COUNTS = 128


@pytest.mark.parametrize("name", ["standard", "lite", "10gb", "5gb"])
def test_a_suite_is_milaruns(name: str) -> None:
    theirs = kept("suites")[name]["jobs"]
    ours = {job.name: job for job in profile.load(name).jobs}
    assert list(ours) == list(theirs)
    for job, given in theirs.items():
        count = given["max-count"] * (ATARI_COUNTS if job == "atari" else 1)
        assert ours[job].max_count == count, job
        for option, value in given.items():
            parameter = OPTIONS.get(option)
            if parameter and (job, parameter) not in OTHERWISE:
                assert ours[job].params[parameter] == value, f"{job}: {option}"
        if "layers" in given:
            assert ours[job].params["layers"] == [int(n) for n in given["layers"].split(",")]
        dataset = given.get("dataset")
        assert ours[job].data == DATASETS.get(dataset, dataset), job
        assert ours[job].training.precision == ("amp-fp16" if given.get("half") else "fp32")
        devices: Any = "progression" if given.get("progression") else "none" if "no-cuda" in given else "each"
        assert ours[job].placement.devices == devices


@pytest.mark.parametrize("name", ["standard", "10gb", "5gb"])
def test_the_weights_are_milaruns(name: str) -> None:
    ours = json.loads(shipped("weights")[name].read_text())
    assert {job: about["weight"] for job, about in ours.items()} == kept("suites")[name]["weights"]
