"""False alarms and power of `benchsuite health`: made-up nodes, judged by the real rules for peers.

A node has `--gpus` GPUs and the checks of the shipped rules that compare GPUs. Healthy cards differ by a standard
deviation, of which half the variance is common to all checks of a card. A slow GPU is slower in one check.
"""

from __future__ import annotations

import argparse
import math
import random

from benchsuite.health.deviation import decide, from_peers
from benchsuite.health.rules import Tolerance, load

RUNS = 20


def family(gpus: int, sigmas: float, slow: float, draw: random.Random) -> list[str]:
    """The words of all tests of a node; the first is that of the slow GPU.

    Args:
        sigmas: the standard deviation between healthy cards, in units of the rules' `spread`.
    """
    tests = []
    cards = [draw.gauss(0, 1) for _ in range(gpus)]
    rules = load()
    compared = [name for name, check in rules.checks.items() if "peer" in check.against and check.each != "link"]
    for number, name in enumerate(compared):
        tolerance: Tolerance = rules.tolerance(name)
        sd = sigmas * tolerance.spread
        values = [math.exp(sd * (card + draw.gauss(0, 1)) / math.sqrt(2)) for card in cards]
        if number == 0:
            values[0] *= 1 - slow
        found = from_peers(values, tolerance.spread, "higher")
        tests += [(deviation, tolerance) for deviation in found if deviation]
    return [decided.word for decided in decide(tests)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--gpus", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--slow", type=float, default=0.1, help="how much slower the slow GPU is")
    options = parser.parse_args()
    print(f"{options.nodes} nodes a row; a slow GPU is {options.slow:.0%} slower in matmul fp32")
    print("GPUs  spread of cards  not PASS  FAIL     20 of 20 pass  slow GPU: FAIL  WARN or FAIL")
    for gpus in options.gpus:
        for sigmas in (1 / 3, 2 / 3, 1.0, 1.5):
            draw = random.Random(1)
            healthy = [family(gpus, sigmas, 0.0, draw) for _ in range(options.nodes)]
            alarms = sum(any(word != "PASS" for word in words) for words in healthy) / options.nodes
            fails = sum("FAIL" in words for words in healthy) / options.nodes
            slow = [family(gpus, sigmas, options.slow, draw)[0] for _ in range(options.nodes)]
            found, noted = (
                sum(word in words for word in slow) / options.nodes for words in (("FAIL",), ("FAIL", "WARN"))
            )
            print(
                f"{gpus:4}  {sigmas:5.2f} x declared  {alarms:8.2%}  {fails:6.2%}  {(1 - alarms) ** RUNS:13.1%}  "
                f"{found:14.1%}  {noted:12.1%}"
            )


if __name__ == "__main__":
    main()
