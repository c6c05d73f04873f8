"""pandas stands behind `report --csv` and `--json` alone; all else works without it. Child processes run with pandas
hidden."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import keep_run, make_result
from support import benchsuite, read_results, without, write_profile


@pytest.fixture(scope="module", name="no_pandas")
def no_pandas_fixture() -> dict[str, str]:
    return without("pandas")


def test_the_environment_of_these_tests_hides_pandas_and_nothing_else(no_pandas: dict[str, str]) -> None:
    code = "import numpy, importlib.util as u; print(u.find_spec('pandas')); import pandas"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=no_pandas)
    assert done.stdout == "None\n"
    assert "ModuleNotFoundError: No module named 'pandas'" in done.stderr


def test_a_run_needs_no_pandas(tmp_path: Path, no_pandas: dict[str, str]) -> None:
    profile = write_profile(tmp_path / "p.json", one={})
    done = benchsuite("jobs", str(profile), "-o", "out", cwd=tmp_path, env=no_pandas)
    assert done.returncode == 0, done.stderr
    assert read_results(tmp_path / "out")["one"].status == "ok"


@pytest.mark.parametrize(
    "command",
    [
        ["report", "run"],
        ["report", "run", "--compare", "run"],
        ["report", "run", "--compare-gpus"],
        ["report", "run", "--html", "page.html", "--md", "report.md"],
        ["summary", "run", "-o", "summary.json"],
        ["verify", "run"],
        ["list", "models"],
        ["jobs", "smoke", "--dry-run"],
    ],
    ids=" ".join,
)
def test_a_command_needs_no_pandas(command: list[str], tmp_path: Path, no_pandas: dict[str, str]) -> None:
    keep_run(tmp_path / "run", [make_result(gpu=gpu, repeat=repeat) for repeat in range(3) for gpu in range(2)])
    done = benchsuite(*command, cwd=tmp_path, env=no_pandas)
    assert done.returncode == 0, done.stderr
