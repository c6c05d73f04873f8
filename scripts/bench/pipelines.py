#!/usr/bin/env python
"""Train PipeDream's models on GPUs, data parallel and as pipelines, and print speed-ups and bubbles.

It runs the jobs of the profile `pipedream` that need up to `--gpus` GPUs. First it checks the gradients of each
schedule on two GPUs against those of the whole model. It exits with 1 if they differ, or if a job has no number.

Run it on two GPUs that nothing else uses: `python scripts/bench/pipelines.py -o results/pipelines`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchsuite.report.sources import summary_of
from benchsuite.report.stats.pipelines import speed_ups

PROGRAM = Path(__file__).resolve().parents[2] / "tests" / "programs" / "pipelines.py"
SCHEDULES = ("gpipe", "1f1b", "interleaved-1f1b", "zero-bubble")
# Largest relative difference of the change of a weight, in fp32 and, for `pipedream`, in fp64.
LIMITS = {"fp32": 1e-3, "fp64": 1e-8}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True, help="a new results folder")
    parser.add_argument("--gpus", type=int, default=2, choices=(2, 4, 8), help="take the jobs that need up to these")
    parser.add_argument(
        "--models", nargs="+", default=["vgg16", "gnmt_16"], help="names before the underscore of a job"
    )
    given = parser.parse_args()
    wrong = wrong_gradients()
    counts = [count for count in (1, 2, 4, 8) if count <= given.gpus]
    kinds = [f"{way}{count}" for count in counts for way in ("dp", "pp", "pipedream") if count > 1 or way == "dp"]
    names = [word for model in given.models for kind in kinds for word in ("--name", f"{model}_{kind}")]
    command = [sys.executable, "-m", "benchsuite", "jobs", "pipedream", "-o", str(given.output), *names]
    subprocess.run(command, check=False)
    return 1 if printed(given.output, len(names) // 2) or wrong else 0


def wrong_gradients() -> int:
    """Print how far each schedule is from the whole model; the number of those that are too far."""
    parameters = {"batch_size": 4, "dropout": 0.0}
    cases = [
        {
            "name": schedule,
            "model": "gnmt",
            "params": parameters,
            "training": {"parallel": {"pp": 2, "schedule": schedule, "microbatches": 2}},
        }
        for schedule in SCHEDULES
    ]
    stashed = {"parallel": {"pp": 2, "schedule": "pipedream", "stages": [4, 5]}}
    cases.append(
        {"name": "pipedream", "model": "gnmt", "params": parameters, "double": True, "steps": 6, "training": stashed}
    )
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, str(PROGRAM), str(Path(folder) / "pulse"), "cuda", json.dumps({2: cases})]
        done = subprocess.run(words, stdout=subprocess.PIPE, encoding="utf-8", check=True)
    reported = json.loads(done.stdout.splitlines()[-1])
    wrong = 0
    for case in cases:
        found = reported[case["name"]]
        right = found["weights"] <= LIMITS["fp64" if case.get("double") else "fp32"]
        wrong += not right
        print(
            f"{'ok   ' if right else 'WRONG'}  {case['name']}: weights differ by {found['weights']:.1e} of their change"
        )
    return wrong


def printed(folder: Path, expected: int) -> int:
    """Print the table; the number of jobs without a number."""
    jobs = summary_of(folder).jobs
    print(f"\n{'job':22} {'GPUs':>4} {'items/s':>10} {'x DP':>6} {'x one':>6} {'bubble':>7} {'ideal':>6}  units")
    pairs = {one.pipeline.name: one for one in speed_ups(jobs)}
    for job in jobs:
        pair, used = pairs.get(job.name), job.pipeline
        over = [pair.over_data_parallel, pair.over_one] if pair else [None, None]
        shares = [used.bubble, used.ideal_bubble] if used else [None, None]
        words = [f"{value:6.3f}" if value is not None else f"{'':6}" for value in (*over, *shares)]
        rate = f"{job.perf * job.per:10.1f}" if job.perf is not None else f"{'none':>10}"
        units = " ".join(f"{stage.units}(x{len(stage.ranks)})" for stage in used.stages) if used else ""
        print(f"{job.name:22} {job.ranks:4} {rate} {words[0]} {words[1]} {words[2]:>7} {words[3]}  {units}")
    return expected - sum(job.perf is not None for job in jobs)


if __name__ == "__main__":
    sys.exit(main())
