#!/usr/bin/env python
"""Measure the error rates of the report's statistics on simulated suites whose truth is known.

The rates are random numbers. All intervals, verdicts and tests are the report's own functions. The output is the
tables of docs/statistics.md, in Markdown. The exit status is 1 if an error rate or a coverage misses its limits.

    python scripts/bench/statistics.py                  # 400 suites a cell: some minutes on two processors
    python scripts/bench/statistics.py --suites 2000    # the tables of docs/statistics.md
    python scripts/bench/statistics.py --suites 2000 --only 'suite_of_rates: .*3 v 10'
    python scripts/bench/statistics.py --quick          # 50 suites a cell, to see that it works
"""

import sys
from pathlib import Path

# This file has the name of a module of the standard library, and its folder is first on the path of every script here.
# The folder moves to the end, so that `import statistics` means the standard library.
_HERE = Path(__file__).resolve().parent
sys.path.sort(key=lambda entry: Path(entry).resolve() == _HERE)

if __name__ == "statistics":
    # Another script of this folder asks for the module of the standard library, and gets it from sys.modules.
    del sys.modules[__name__]
    import statistics  # noqa: F401
elif __name__ == "__main__":
    from error_rates import main

    sys.exit(main(__doc__))
