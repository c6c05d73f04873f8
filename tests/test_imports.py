"""pandas stands behind `report --csv` and `--json` alone; all else works without it. Child processes run with pandas
hidden."""

from __future__ import annotations

import json
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


COMMANDS = [
    "report run",
    "report run --compare run",
    "report run --compare-gpus",
    "report run --html page.html --md report.md",
    "summary run -o summary.json",
    "verify run",
    "list models",
    "jobs smoke --dry-run",
]


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory, no_pandas: dict[str, str]) -> dict[str, object]:
    """How each command ends in a process without pandas, which runs all of them: command -> exit status or error."""
    folder = tmp_path_factory.mktemp("no_pandas")
    keep_run(folder / "run", [make_result(gpu=gpu, repeat=repeat) for repeat in range(3) for gpu in range(2)])
    code = (
        "import json, sys\nfrom benchsuite import cli\nends = {}\n"
        f"for command in {COMMANDS!r}:\n"
        "    try:\n        cli.main(command.split())\n"
        "    except SystemExit as end:\n        ends[command] = end.code\n"
        "    except Exception as error:\n        ends[command] = repr(error)\n"
        "print('\\n' + json.dumps(ends))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        env=no_pandas,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_needs_no_pandas(command: str, ends: dict[str, object]) -> None:
    assert ends[command] == 0
