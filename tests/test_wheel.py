"""What is shipped is found from an installed wheel as from a checkout."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import keep_results, make_result

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's content, far from the checkout."""
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("not a checkout")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("benchsuite-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def in_wheel(unpacked: Path, *arguments: str) -> str:
    code = f"import sys; sys.path.insert(0, {str(unpacked)!r}); import benchsuite.cli as c; "
    code += f"assert c.__file__.startswith({str(unpacked)!r}), c.__file__; c.main({list(arguments)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=unpacked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_finds_its_profiles(unpacked: Path) -> None:
    listed = in_wheel(unpacked, "list", "profiles")
    assert "standard: 18 jobs" in listed
    assert str(unpacked) in listed
    assert in_wheel(unpacked, "jobs", "profiles/standard.json", "--dry-run").count("# ") >= 5


def test_the_wheel_draws_its_page(unpacked: Path, tmp_path: Path) -> None:
    keep_results(tmp_path / "run", [make_result()])
    in_wheel(unpacked, "report", str(tmp_path / "run"), "--html", str(tmp_path / "page.html"))
    assert "<polyline" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["profiles", "weights", "baselines", "datasets", "cards", "health"])
def test_the_wheel_holds_every_shipped_file(kind: str, unpacked: Path) -> None:
    ours = sorted(p.name for p in (ROOT / kind).iterdir() if p.is_file())
    assert ours
    assert sorted(p.name for p in (unpacked / "benchsuite" / "share" / kind).iterdir()) == ours


def test_the_wheel_holds_nothing_else_at_its_top(unpacked: Path) -> None:
    assert [p.name for p in unpacked.iterdir() if not p.name.endswith(".dist-info")] == ["benchsuite"]


def test_the_wheel_knows_the_commit_of_its_checkout(unpacked: Path) -> None:
    printed = in_wheel(unpacked, "--version")
    in_checkout = (ROOT / ".git").exists()
    assert re.fullmatch(r"benchsuite \S+ \([0-9a-f]{12}(\+dirty)?\)\n" if in_checkout else r"benchsuite \S+\n", printed)
