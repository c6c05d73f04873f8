"""The examples in docs/cluster-launchers.md are valid YAML and valid command lines, and each launcher gives a place."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchsuite.cluster.seat import invited
from benchsuite.commands.jobs import command
from benchsuite.describe import profile

DOC = (Path(__file__).parents[1] / "docs" / "cluster-launchers.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOC, re.MULTILINE | re.DOTALL)


def documents() -> dict[str, Any]:
    """The examples for Kubernetes, by their kind."""
    every = (one for block in blocks("yaml") for one in yaml.safe_load_all(block))
    return {one["kind"]: one for one in every if "kind" in one}


def container() -> dict[str, Any]:
    """The container of the JobSet."""
    (job,) = documents()["JobSet"]["spec"]["replicatedJobs"]
    (found,) = job["template"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def command_lines() -> Iterator[list[str]]:
    """The words of each example from `benchsuite` on."""
    lines = [shlex.split(line) for block in blocks("bash") for line in block.splitlines() if "--join" in line]
    lines += [documents()["TrainJob"]["spec"]["trainer"]["command"], container()["command"]]
    for words in lines:
        yield words[words.index("benchsuite") + 1 :]


@pytest.mark.parametrize("words", list(command_lines()), ids=" ".join)
def test_the_command_line_of_an_example_is_one_of_the_command_jobs(words: list[str]) -> None:
    assert words[0] == "jobs"
    given = command.make_context("jobs", words[1:]).params
    assert given["join"]
    assert Path(given["profile"]).name == "profile.yaml"
    assert given["out"].endswith("results/two")


def test_the_profile_of_the_examples_is_valid_and_spans_two_nodes(tmp_path: Path) -> None:
    file = tmp_path / "profile.yaml"
    file.write_text(blocks("yaml")[0], encoding="utf-8")
    (job,) = profile.load(str(file)).jobs
    assert job.placement.spanned == 2


def test_the_examples_for_kubernetes_have_the_api_versions_of_their_operators() -> None:
    assert {kind: one["apiVersion"] for kind, one in documents().items()} == {
        "TrainJob": "trainer.kubeflow.org/v1alpha1",
        "JobSet": "jobset.x-k8s.io/v1alpha2",
    }


def test_each_pod_of_the_jobset_finds_its_place_and_the_first_pod() -> None:
    spec, name = documents()["JobSet"]["spec"], documents()["JobSet"]["metadata"]["name"]
    (job,) = spec["replicatedJobs"]
    environ = {one["name"]: one.get("value", "1") for one in container()["env"]}
    assert environ["MASTER_ADDR"] == f"{name}-{job['name']}-0-0.{name}"
    assert int(environ["WORLD_SIZE"]) == job["template"]["spec"]["completions"]
    place = invited(environ)
    assert (place.rank, place.address) == (1, environ["MASTER_ADDR"])
