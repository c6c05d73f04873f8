"""`benchsuite health` on this node: repeated quick runs, one accept run, and planted faults. For a node with GPUs.

Prints a line for each run with its word, its seconds and its reason. Then come the figures of the quick runs: their
range, how much they scatter between runs and between GPUs, and the `spread` that the rules declare.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from benchsuite.files import shipped
from benchsuite.health.rules import load

# A process of another user would do the same: products of matrices on the first GPU, until it is ended.
NEIGHBOUR = """
import torch
a = torch.randn(8192, 8192, device="cuda:0", dtype=torch.bfloat16)
print("busy", flush=True)
while True:
    a @ a
"""


def health(*arguments: str) -> dict[str, Any]:
    """Run the command and print one line on it.

    Returns:
        Its JSON, with the seconds that it took.
    """
    began_s = time.monotonic()
    command = [sys.executable, "-m", "benchsuite", "health", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    found["seconds"] = time.monotonic() - began_s
    reason = found["nodes"][0]["reason"].partition("; show:")[0]
    print(f"{found['word']:7}  exit {done.returncode}  {found['seconds']:6.0f} s  {reason}", flush=True)
    return found


@contextlib.contextmanager
def neighbour() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def planted(folder: Path) -> Path:
    """A profile whose vote has one flipped bit, in the fourth step on the first GPU."""
    jobs = yaml.safe_load(shipped("profiles")["probes_quick"].read_text(encoding="utf-8"))
    vote = {**jobs["corruption"], "params": {"plant": [0, 3, 3]}}
    file = folder / "planted.json"
    file.write_text(json.dumps({"*": jobs["*"], "corruption": vote}), encoding="utf-8")
    return file


def table(runs: list[dict[str, Any]]) -> None:
    """The figures of all runs by check."""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    titles = {}
    for run in runs:
        for one in run["nodes"][0]["outcomes"]:
            if isinstance(one["value"], float) and one["value"] > 0:
                values[one["check"]][one["place"]].append(one["value"])
                titles[one["check"]] = f"{one['title']} ({one['unit']})"
    rules = load()
    print(f"\n{'check':42} {'lowest':>10} {'highest':>10}  between runs  between places  declared spread")
    for check, places in values.items():
        every = [value for of in places.values() for value in of]
        runs_std = statistics.fmean(_std(of) for of in places.values())
        places_std = _std([statistics.fmean(of) for of in places.values()])
        known = rules.checks.get(check)
        spread = f"{rules.tolerance(check).spread:.1%}" if known and known.against else ""
        low, high = min(every), max(every)
        print(f"{titles[check]:42} {low:10.4g} {high:10.4g}  {runs_std:12.2%}  {places_std:14.2%}  {spread:>15}")


def _std(values: list[float]) -> float:
    return statistics.stdev(map(math.log, values)) if len(values) > 1 else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="new folder for all results")
    parser.add_argument("--runs", type=int, default=20, help="quick runs of the healthy node")
    parser.add_argument("--without", nargs="*", default=[], choices=["accept", "neighbour", "bit"])
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True)
    runs = [health("--quick", "-o", str(out / f"quick-{number}")) for number in range(options.runs)]
    passed = sum(run["word"] == "PASS" for run in runs)
    print(f"{passed} of {len(runs)} quick runs pass")
    if "neighbour" not in options.without:
        print("with a busy neighbour on GPU 0:")
        with neighbour():
            health("--quick", "-o", str(out / "neighbour"))
    if "bit" not in options.without:
        print("with a flipped bit on GPU 0:")
        health("--profile", str(planted(out)), "-o", str(out / "bit"))
    if "accept" not in options.without:
        print("accept:")
        table([health("--accept", "-o", str(out / "accept"))])
    if runs:
        table(runs)


if __name__ == "__main__":
    main()
