"""Files that begin with a byte order mark, and names that are not UTF-8: Windows makes the ones, Linux the others."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from codecs import BOM_UTF8
from pathlib import Path

import pytest
from conftest import Call, keep_run, make_result
from support import write_profile

from benchsuite import manifest
from benchsuite.data import descriptor
from benchsuite.describe import entries, profile
from benchsuite.errors import ProfileError
from benchsuite.files import read_mapping, read_text
from benchsuite.host import machine
from benchsuite.measurement import read_clock
from benchsuite.report.read.summary_file import read_summary
from benchsuite.report.sources import is_result
from benchsuite.report.stats.weights import read_weights

ROOT = Path(__file__).resolve().parents[1]
ODD = os.fsdecode(b"odd\xff")


def marked(path: Path, source: Path | None = None) -> Path:
    """A copy of a file, or the file itself, that begins with a byte order mark."""
    path.write_bytes(BOM_UTF8 + (source or path).read_bytes())
    return path


# --- byte order marks -------------------------------------------------------------------------------------------------


def test_profile_weights_data_set_and_baseline_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    smoke = ROOT / "profiles/smoke.yaml"
    assert profile.load(str(marked(tmp_path / "smoke.yaml", smoke))).jobs == profile.load("smoke").jobs
    weights = next((ROOT / "weights").glob("*.json"))
    assert read_weights(marked(tmp_path / "weights.json", weights)) == read_weights(weights)
    baseline = ROOT / "baselines/v100.json"
    assert read_summary(marked(tmp_path / "v100.json", baseline)) == read_summary(baseline)
    mnist = ROOT / "datasets/mnist.yaml"
    found = descriptor.load(str(marked(tmp_path / "mnist.yaml", mnist)))
    assert found.sha256 == descriptor.load("mnist").sha256


def test_a_json_profile_and_an_own_model_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "p.json", one={})
    before = read_mapping(path)
    assert read_mapping(marked(path)) == before
    model = marked(tmp_path / "mine.py", ROOT / "benchsuite/models/polynome.py")
    assert entries.read(model, "mine", "build").parameters


def test_a_position_in_a_file_counts_the_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(BOM_UTF8 + b"{\xff}")
    with pytest.raises(ProfileError, match=r"not UTF-8 text \(byte 4\)"):
        read_text(path)
    path.write_bytes(BOM_UTF8)
    with pytest.raises(ProfileError, match="the file is empty"):
        read_text(path)


def test_a_result_and_a_run_that_an_editor_saved_are_read(call: Call, tmp_path: Path) -> None:
    run = tmp_path / "run"
    keep_run(run, [make_result(rates=[50] * 30)])
    before = call("report", run)
    for path in run.glob("*.json"):
        assert is_result(marked(path)) == (path.name not in ("run.json", "plan.json"))
    assert call("report", run) == before


# --- names that are not UTF-8 -----------------------------------------------------------------------------------------


def test_the_bytes_of_a_host_name_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: ODD)
    assert machine.describe({}).sha256
    assert (machine.describe({}).host, read_clock().host) == ("odd?", "odd?")


@pytest.mark.parametrize(
    ("culprit", "words"),
    [
        ("out", "the command line"),
        ("profile", "the command line"),
        ("data", "the data folder"),
        ("BENCHSUITE_OUT", "the folder of the results"),
        ("TORCH_HOME", "the environment variable TORCH_HOME"),
        ("working folder", "the working folder"),
    ],
)
def test_a_text_that_no_record_can_hold_is_named_and_nothing_is_left(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, culprit: str, words: str
) -> None:
    home = tmp_path / ODD if culprit == "working folder" else tmp_path
    home.mkdir(exist_ok=True)
    monkeypatch.chdir(home)
    shutil.copy(ROOT / "tests/programs/faults.py", home)
    path = write_profile(home / (f"{ODD}.json" if culprit == "profile" else "p.json"), one={})
    (home / ODD).mkdir()
    if culprit in ("BENCHSUITE_OUT", "TORCH_HOME"):
        monkeypatch.setenv(culprit, ODD)
    if culprit == "data":
        monkeypatch.setenv("BENCHSUITE_DATA", ODD)
    out = {"BENCHSUITE_OUT": [], "out": ["-o", f"{ODD}2"]}.get(culprit, ["-o", "out"])
    before = sorted(home.rglob("*"))
    monkeypatch.setattr(sys, "argv", ["benchsuite", "jobs", path.name, *out])
    code, printed, err = call("jobs", path.name, *out)
    assert (code, printed, err.count("\n")) == (2, "", 1), err
    assert err.startswith(f"benchsuite: {words}: '")
    assert "\\udcff" in err
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize(
    "words",
    [["report"], ["report", "--json", "-"], ["report", "--csv", "-"], ["summary"], ["verify"], ["verify", "--json"]],
)
def test_a_run_whose_folder_or_files_have_such_names_is_read(call: Call, tmp_path: Path, words: list[str]) -> None:
    run = tmp_path / ODD
    keep_run(run, [make_result(rates=[50] * 30)])
    (run / f"{ODD}.json").write_text("{}")
    (run / "logs").mkdir(exist_ok=True)
    (run / "logs" / ODD).touch()
    code, printed, _ = call(words[0], run, *words[1:])
    assert code == 0
    assert printed


def test_a_manifest_may_name_a_file_of_any_bytes(tmp_path: Path) -> None:
    run = tmp_path
    keep_run(run, [make_result(rates=[50] * 30)])
    result = next(path for path in run.glob("*.json") if is_result(path))
    result.rename(run / f"{ODD}.json")
    manifest.seal(run)
    sealed = manifest.read(run)
    assert sealed
    assert f"{ODD}.json" in sealed.files
    assert manifest.changes(run, sealed) == manifest.Changes((), ())
