"""Figures that milarun 2020 published, and figures of its report on synthetic results, as files of its formats.

`tests/data/milarun2020-*.json` hold the numbers alone, in a form of our own:
`baselines` are twelve published summaries, of each job n, failures and its rates as [n, min, max, mean, std];
`suites` are the options and weights of its profiles;
`results` are 16 runs of a program that sleeps, on two pretended GPUs, and what milarun itself reported of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
# The original files, which are not in the repository.
PUBLISHED = DATA.parents[2] / "shared/data/milarun2020"
Figures = dict[str, Any]


def kept(name: str) -> Figures:
    """The figures of tests/data/milarun2020-NAME.json."""
    found: Figures = json.loads((DATA / f"milarun2020-{name}.json").read_text("utf-8"))
    return found


def summary(suite: str, groups: Figures) -> Figures:
    """The content of a summary file of milarun's: each job's name bears its suite's."""
    return {f"{suite}.{job}": _group(about) for job, about in groups.items()}


def _group(about: Figures) -> Figures:
    gpus = {index: _rates(figures) for index, figures in about.get("gpus", {}).items()}
    group = {"n": about["n"], "failures": about["failures"], "train": _rates(about["train"]), "pergpu": gpus}
    return {**group, "peak_memory": about["peak_mib"]} if about.get("peak_mib") is not None else group


def _rates(figures: list[float]) -> Figures:
    return dict(zip(("n", "min", "max", "mean", "std"), figures, strict=True))


def weights(suite: str, by_job: dict[str, float]) -> Figures:
    """The content of a weights file of milarun's."""
    return {f"{suite}.{job}": {"weight": weight} for job, weight in by_job.items()}


def write_baseline(folder: Path, name: str) -> Path:
    """Write a published baseline, named as "standard/v100"; its path."""
    file = folder / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(summary(file.parent.name, kept("baselines")[name])))
    return file


def write_weights(folder: Path, suite: str) -> Path:
    """Write the published weights of a suite; the file's path."""
    file = folder / f"weights-{suite}.json"
    file.write_text(json.dumps(weights(suite, kept("suites")[suite]["weights"])))
    return file


def write_results(folder: Path) -> None:
    """Write the results of the synthetic runs, the summary of them (as `base.json`, 10 % slower) and their weights."""
    figures = kept("results")
    (folder / "results").mkdir(parents=True)
    for about in figures["results"]:
        (folder / "results" / f"{about['job']}.J{about['id']}.json").write_text(json.dumps(_result(about)))
    groups = summary("fixture", figures["summary"])
    (folder / "summary.json").write_text(json.dumps(groups))
    for group in groups.values():
        group["train"]["mean"] *= figures["base_mean_factor"]
    (folder / "base.json").write_text(json.dumps(groups))
    (folder / "weights.json").write_text(json.dumps(weights("fixture", figures["weights"])))


def _result(about: Figures) -> Figures:
    gpus = list(map(str, about["gpus"]))
    return {
        "name": f"fixture.{about['job']}",
        "job_id": about["id"],
        "job": {"partition_scheme": {"type": "gpu-progression" if about["progression"] else "per-gpu"}},
        "devices": about["gpus"],
        "device_count": len(gpus),
        "success": about["error"] is None,
        "error": about["error"],
        "hostname": "vm",
        "environ": {"CUDA_VISIBLE_DEVICES": ",".join(gpus)},
        "timings": {"train": {"rates": about["rates"], "sample_duration": 0.5}},
        "gpu_monitor": {str(gpu): {"memory": {"max": mib}} for gpu, mib in enumerate(about["peak_mib"])},
    }
