#!/usr/bin/env python
"""Run jobs whose bottleneck is planted on a GPU, and compare what the report says limits them.

It exits with 1 if a verdict differs. The jobs are those of tests/programs/planted.yaml, each 10 s. A GPU of the Hopper
generation or newer is needed, since older ones do not count the use of their units.

Run it on a GPU that nothing else uses: `python scripts/bench/bottlenecks.py -o results/planted`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchsuite.report.sources import summary_of
from benchsuite.report.stats.bottlenecks import bottlenecks

PROGRAMS = Path(__file__).resolve().parents[2] / "tests" / "programs"
# Job -> what may limit it. The power limit of a GPU may be reached before its cores are full.
PLANTED = {
    "slow_loader": {"input"},
    "tiny_kernels": {"host"},
    "big_matmul": {"compute", "power"},
    "big_matmul_fp32": {"compute", "power"},
    "streaming": {"memory bandwidth"},
    "copying": {"copies"},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True, help="a new results folder")
    out: Path = parser.parse_args().output
    command = [sys.executable, "-m", "benchsuite", "jobs", str(PROGRAMS / "planted.yaml"), "-o", str(out)]
    paths = os.pathsep.join(filter(None, [str(PROGRAMS), os.environ.get("PYTHONPATH")]))
    subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, check=True)
    found = {one.job: one for one in bottlenecks(summary_of(out))}
    wrong = 0
    for job, expected in PLANTED.items():
        right = job in found and found[job].by in expected
        wrong += not right
        words = found[job].words if job in found else "no number on a GPU"
        print(f"{'ok   ' if right else 'WRONG'}  {job}: planted {' or '.join(sorted(expected))}; found {words}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
