"""A job on pairs of nodes on a real Slurm: a virtual cluster of four nodes on this machine, of which one is slow."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import benchsuite, environ, in_process, statuses
from test_group_runs import write
from test_slurm import SBIN, virtual_cluster

from benchsuite.cluster.fleet import ACROSS
from benchsuite.rundir import RunDir

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.slurm,
    pytest.mark.timeout(900),  # twelve ranks with torch, beside other tests
    pytest.mark.skipif(shutil.which("slurmctld", path=SBIN) is None, reason="Slurm is not installed"),
]


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with virtual_cluster(tmp_path_factory.mktemp("cluster"), nodes=4):
        yield


def test_a_slow_node_is_named_after_three_rounds_of_two_pairs(tmp_path: Path) -> None:
    slow = {"entry": "exchange:build", "params": {"slow": "m3"}, "warm_up_s": 0.0, "min_time_s": 6.0}
    write(tmp_path / "p.json", links={**slow, "placement": {"devices": "none", "nodes": "pairs"}, "timeout_s": 250.0})
    done = benchsuite("jobs", "p.json", "--slurm", "-o", "out", cwd=tmp_path, env=environ(), timeout=800)
    assert done.returncode == 0, done.stderr
    waves = RunDir(tmp_path / "out" / ACROSS).plan().waves
    assert [[task.device for task in wave.tasks] for wave in waves] == [
        ["m1 - m4", "m2 - m3"],
        ["m1 - m3", "m2 - m4"],
        ["m1 - m2", "m3 - m4"],
    ]
    assert set(map(tuple, statuses(tmp_path / "out" / ACROSS).values())) == {("ok",)}

    shown = in_process("report", "out", "--json", "out.json", cwd=tmp_path)
    assert "node m3 is " in shown.stdout
    (pairs,) = json.loads((tmp_path / "out.json").read_text())["pairs"]
    assert [one["nodes"] for one in pairs["slow"]] == [["m3"]]
    assert -0.6 < pairs["slow"][0]["effect"] < -0.4
