"""`benchsuite report` of many nodes: which folder is a fleet, what stands out in it, and the forms of its report."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import Call, keep_run, make_result, make_run
from outputs import unwrapped

from benchsuite.report.fleet.folders import FleetFolders
from benchsuite.report.fleet.judge import Fleet, judge_fleet
from benchsuite.report.fleet.node import EVENTS, GAUGES, NodeJob, NodeRecord, Scoring
from benchsuite.report.fleet.outliers import FleetOutlier
from benchsuite.report.fleet.reading import read_nodes
from benchsuite.report.fleet.spread import centred, over_jobs, spread_tests, tail_of
from benchsuite.report.stats.gpu_cells import GpuKey
from benchsuite.report.stats.gpus import ALL_JOBS

SCRIPT = Path(__file__).parents[1] / "scripts" / "bench" / "fleet_scale.py"
NODES, JOBS, GPUS, REPEATS = 12, 2, 3, 3


@pytest.fixture(name="scale", scope="module")
def scale_fixture() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fleet_scale", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its records are dataclasses
    spec.loader.exec_module(module)
    return module


@pytest.fixture(name="fleet", scope="module")
def fleet_fixture(scale: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve nodes: one slow, one with a slow GPU, one with a failing job, one with another driver, one missing."""
    out = tmp_path_factory.mktemp("fleet")
    faults = {
        1: scale.Fault(slow=0.8),
        3: scale.Fault(slow_gpu=(2, 0.85)),
        5: scale.Fault(fails=1),
        6: scale.Fault(driver="570.10"),
        8: scale.Fault(missing=True),
    }
    for place in range(NODES):
        folder = out / scale.node_name(place)
        scale.make_node(folder, place, JOBS, GPUS, REPEATS, 20, faults.get(place, scale.HEALTHY), 0)
    (out / "nodes.txt").write_text("# rack 1\n" + "".join(f"{scale.node_name(place)}\n" for place in range(NODES)))
    return out


def test_each_fault_of_a_fleet_is_named_with_its_cause_and_no_other_node(call: Call, fleet: Path) -> None:
    code, out, err = call("report", fleet, "--json", "-")
    assert (code, err) == (0, "")
    found = json.loads(out)
    nodes = {node["node"]: node for node in found["nodes"]}
    words = {name: node["verdict"] for name, node in nodes.items() if node["verdict"] != "PASS"}
    assert words == {
        "node0001": "FAIL",
        "node0003": "FAIL",
        "node0005": "FAIL",
        "node0006": "WARN",
        "node0008": "NOT RUN",
    }
    texts = {name: " ".join(reason["text"] for reason in node["reasons"]) for name, node in nodes.items()}
    assert "% slower over all jobs" in texts["node0001"]
    assert texts["node0003"].startswith("GPU 2 (GPU-00000003-0000-4000-8000-000000000002) is 1")
    assert "likely cause: its SM clock is 1,61" in texts["node0003"]
    assert texts["node0005"] == "job01 fails in 9 of 9 tasks, and succeeds on 10 of 10 other nodes"
    assert texts["node0006"] == "driver 570.10 (most nodes: 580.95.05)"
    assert found["missing"] == ["node0008"]
    assert found["mixed"] == {"driver": {"580.95.05": 10, "570.10": 1}}
    assert nodes["node0000"]["machine_score"] > 0 and nodes["node0000"]["speed_half"] > 0
    assert nodes["node0005"]["rank"] is None and nodes["node0005"]["no_score"]
    ranks = {node["rank"] for node in nodes.values()} - {None}
    assert ranks == set(range(1, 11)) and nodes["node0001"]["rank"] == 10
    assert nodes["node0001"]["jobs"]["job00"]["effect"] == pytest.approx(-0.2, abs=0.03)


def test_a_fleet_on_a_terminal_has_its_verdict_first_and_the_worst_nodes_on_top(call: Call, fleet: Path) -> None:
    code, out, _ = call("report", fleet)
    assert code == 0
    text = unwrapped(out)
    assert text.startswith("12 nodes with 3x Made-up GPU 80GB: 7 PASS, 1 WARN, 1 NOT RUN, 3 FAIL; median machine score")
    assert "the slowest is node0001" in text
    assert f"Missing of the nodes in {fleet}/nodes.txt: node0008." in text.replace("/ ", "/")
    assert "MIXED driver (580.95.05: 10 nodes / 570.10: 1 node)." in text
    table = [line.split()[:2] for line in out.splitlines() if line.startswith("  node0")]
    assert table[0] == ["node0001", "FAIL"] and table[-1][1] == "PASS"
    assert "Jobs over nodes" not in out and "Jobs over nodes" in call("report", fleet, "--full")[1]


def test_drain_prints_a_command_for_each_node_that_fails_and_conditions_name_their_nodes(
    call: Call, fleet: Path
) -> None:
    code, out, err = call("report", fleet, "--drain", "--fail-on", "failures,slower,incomplete,flagged")
    assert (code, err.count("\n")) == (3, 2)
    lines = out.splitlines()
    assert [line.split()[2] for line in lines] == ["nodename=node0001", "nodename=node0003", "nodename=node0005"]
    assert lines[2].endswith(
        "state=drain 'reason=benchsuite report: job01 fails in 9 of 9 tasks, and succeeds on 10 of 10 other nodes'"
    )
    assert err.startswith("benchsuite: 12 nodes")
    assert "failures: node0005 9 of 18 tasks; slower: node0001 -" in err
    assert "node0003 GPU 2 -1" in err and "node0008: no results folder" in err
    assert "flagged:" not in err


def test_a_fleet_has_its_files(call: Call, fleet: Path, tmp_path: Path) -> None:
    names = {kind: tmp_path / f"fleet.{kind}" for kind in ("html", "csv", "md")}
    assert call("report", fleet, *(part for kind, file in names.items() for part in (f"--{kind}", file)))[0] == 0
    rows = list(csv.DictReader(names["csv"].read_text().splitlines()))
    assert len(rows) == NODES and float(rows[0]["rate_job00"]) == pytest.approx(1600, rel=0.05)
    assert rows[0]["reasons"].startswith("FAIL: ")
    page = names["html"].read_text()
    assert page.count('<tr><th scope="row" data-tip=') == NODES - 1, "a row of the heat map for each node with results"
    assert "cold3" in page and "job01 on node0005" in page and 'class="node"' in page
    assert "| node0001 | FAIL |" in names["md"].read_text()
    code, _, err = call("report", write(tmp_path / "kept.json", call("report", fleet, "--json", "-")[1]))
    assert (code, err.count("\n")) == (2, 1), "what --json wrote is no summary"


def write(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def test_folders_that_cannot_be_read_are_named_and_stop_nothing(call: Call, fleet: Path, tmp_path: Path) -> None:
    for place in (0, 2):
        (tmp_path / f"node{place:04d}").symlink_to(fleet / f"node{place:04d}")
    (tmp_path / "empty").mkdir()
    (tmp_path / "logs").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_bytes(b"\xff{")
    (tmp_path / "damaged" / "x.json").write_text("[]")
    code, out, _ = call("report", tmp_path, "--json", "-")
    assert code == 0
    nodes = {node["node"]: node for node in json.loads(out)["nodes"]}
    words = {name: node["verdict"] for name, node in nodes.items()}
    assert words == {"damaged": "NOT RUN", "empty": "NOT RUN", "node0000": "WARN", "node0002": "WARN"}
    assert nodes["damaged"]["reasons"][0]["text"].startswith("no results that can be used: run.json: ")
    assert nodes["empty"]["reasons"][0]["text"] == "no results in its folder"
    assert "its speed is not judged: 2 of its kind, and 3 are needed" in nodes["node0000"]["reasons"][0]["text"]
    code, _, err = call("report", tmp_path, "--fail-on", "slower,incomplete")
    assert code == 3 and "cannot be judged" in err and "empty: no results" in err


def test_reading_in_parallel_gives_the_same_records(fleet: Path) -> None:
    folders = FleetFolders(fleet, {name: fleet / name for name in ("node0000", "node0001")})
    alone, together = (read_nodes(folders, Scoring(), processes=processes) for processes in (1, 2))
    assert [record.name for record in together] == ["node0000", "node0001"]
    for one, other in zip(alone, together, strict=True):
        assert (one.score, one.software, one.gpus) == (other.score, other.software, other.gpus)
        for job in one.jobs:
            np.testing.assert_array_equal(one.jobs[job].logs, other.jobs[job].logs)


# --- which folder is a fleet ------------------------------------------------------------------------------------------


def keep_node(folder: Path, host: str, rate: float = 100.0) -> None:
    machine = msgspec.structs.replace(make_run().machines[0], host=host)
    results = [make_result(host=host, repeat=repeat, rates=[rate] * 30) for repeat in range(3)]
    keep_run(folder, results, run=make_run(machines=(machine,)))


def test_a_folder_with_one_run_is_reported_as_that_run(call: Call, tmp_path: Path) -> None:
    keep_node(tmp_path / "out" / "node1", "node1")
    whole, inner = (unwrapped(call("report", of)[1]) for of in (tmp_path / "out", tmp_path / "out" / "node1"))
    assert whole == inner


def test_runs_of_one_host_are_no_fleet_unless_a_list_of_nodes_says_so(call: Call, tmp_path: Path) -> None:
    for name in ("a", "b"):
        keep_node(tmp_path / name, "hostA")
    code, _, err = call("report", tmp_path)
    assert code == 2 and "holds 2 runs; name one of them" in err
    for name, text in (("nodes.txt", "a\nb\nc\n"), (".cluster/fleet.json", '{"nodes": ["a", {"name": "b"}, "c"]}')):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, text)
        found = json.loads(call("report", tmp_path, "--json", "-")[1])
        assert (found["missing"], found["one_host"]) == (["c"], {"hostA": ["a", "b"]})
        (tmp_path / name).unlink()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "holds no node"),
        ("node[1-4]\n", 'scontrol show hostnames "node[1-4]"'),
        (None, "cannot be read: no such file or directory"),
    ],
)
def test_a_list_of_nodes_that_cannot_be_used_is_one_line(
    call: Call, fleet: Path, tmp_path: Path, text: str | None, part: str
) -> None:
    file = tmp_path / "nodes"
    if text is not None:
        file.write_text(text)
    code, out, err = call("report", fleet, "--nodes", file)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert part in err and str(file) in err


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--compare", "h200"), "--compare: does not go with the report of a fleet"),
        (("--compare-gpus",), "compares the GPUs of every node"),
        (("--price", "3"), "compare prices with --systems"),
        (("--weights", "none.json"), "none.json"),
        (("--systems", "--drain"), "--drain: name one folder"),
    ],
)
def test_options_that_mean_nothing_for_a_fleet_are_one_line(
    call: Call, fleet: Path, options: tuple[str, ...], part: str
) -> None:
    code, out, err = call("report", fleet, *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert part in err


def test_drain_and_nodes_need_a_fleet(call: Call, tmp_path: Path) -> None:
    keep_node(tmp_path / "run", "node1")
    for options in (("--drain",), ("--nodes", write(tmp_path / "n.txt", "run\n"))):
        code, _, err = call("report", tmp_path / "run", *options)
        assert (code, err.count("\n")) == (2, 1)
        assert str(options[0]) in err


# --- the statistics ---------------------------------------------------------------------------------------------------


def made_record(name: str, logs: Any, repeats: int = 3, fail: Any = None, **fields: Any) -> NodeRecord:
    """A node whose jobs run on each GPU at the rates exp(logs), of shape [jobs, GPUs]; `fail` counts failed tasks."""
    logs = np.asarray(logs, dtype=float)
    jobs, gpus = logs.shape
    failed = np.zeros((jobs, gpus), dtype=np.int32) if fail is None else np.asarray(fail, dtype=np.int32)
    made = {}
    for j in range(jobs):
        made[f"job{j}"] = NodeJob(
            name=f"job{j}",
            workload="w",
            unit="image",
            each=True,
            logs=logs[j],
            ok=(repeats - failed[j]).astype(np.int32),
            fail=failed[j],
            ended=np.full(gpus, repeats, dtype=np.int32),
            figures=np.full((gpus, len(GAUGES) + len(EVENTS)), np.nan, dtype=np.float32),
            by_repeat={r: float(np.median(logs[j])) + 0.001 * (r - 1) for r in range(repeats)},
            n=gpus * repeats,
            to_run=0,
            unsteady=0,
        )
    keys = tuple(GpuKey(name, g, f"GPU-{name}-{g}") for g in range(gpus))
    defaults: dict[str, Any] = {"hardware": {"GPU": "A", "processor": "P"}, "gpus": keys, "jobs": made}
    return NodeRecord(name, name, repeats=repeats, **{**defaults, **fields})


def made_fleet(*records: NodeRecord) -> Fleet:
    return judge_fleet(FleetFolders(Path("out"), {}), records, 0.02)


def noise(rng: np.random.Generator, jobs: int = 6, gpus: int = 8) -> Any:
    return 5 + rng.normal(0, 0.004, (jobs, 1)) + rng.normal(0, 0.005, (jobs, gpus))


def named(fleet: Fleet) -> list[tuple[str, int | None, list[str]]]:
    def one(outlier: FleetOutlier) -> tuple[str, int | None, list[str]]:
        return outlier.node, outlier.gpu.index if outlier.gpu else None, [of.job for of in outlier.deviations]

    return [one(outlier) for outlier in fleet.outliers]


def test_healthy_nodes_raise_no_alarm_and_planted_ones_are_named() -> None:
    rng = np.random.default_rng(1)
    logs = [noise(rng) for _ in range(64)]
    healthy = made_fleet(*(made_record(f"n{n}", of) for n, of in enumerate(logs)))
    assert named(healthy) == [] and healthy.counts == {"PASS": 64}
    logs[7] = logs[7] - 0.1
    logs[8][3] -= 0.1
    logs[9][:, 5] -= 0.1
    found = made_fleet(*(made_record(f"n{n}", of) for n, of in enumerate(logs)))
    assert named(found) == [("n7", None, [ALL_JOBS]), ("n8", None, ["job3"]), ("n9", 5, [ALL_JOBS])]
    assert found.counts == {"PASS": 61, "FAIL": 3}


def test_a_small_difference_is_a_warning_and_a_fast_node_is_not_drained() -> None:
    rng = np.random.default_rng(2)
    logs = [noise(rng) for _ in range(32)]
    logs[4] = logs[4] - 0.035
    logs[5] = logs[5] + 0.2
    found = {node.name: node for node in made_fleet(*(made_record(f"n{n}", of) for n, of in enumerate(logs))).nodes}
    assert (found["n4"].word, found["n5"].word) == ("WARN", "WARN")
    assert "faster over all jobs" in found["n5"].words


def test_the_place_of_a_gpu_in_its_node_is_no_fault() -> None:
    """GPU 0 of every node is 8 % slower, such as one that shares its PCIe root with a network card."""
    rng = np.random.default_rng(3)
    logs = [noise(rng) for _ in range(16)]
    for of in logs:
        of[:, 0] -= 0.08
    assert named(made_fleet(*(made_record(f"n{n}", of) for n, of in enumerate(logs)))) == []


def test_few_nodes_are_judged_by_their_repeats_and_fewer_are_not_judged() -> None:
    rng = np.random.default_rng(4)
    logs = [noise(rng, gpus=1) for _ in range(4)]
    logs[2] = logs[2] - 0.3
    assert [one[0] for one in named(made_fleet(*(made_record(f"n{n}", of, 5) for n, of in enumerate(logs))))][:1] == [
        "n2"
    ]
    two = made_fleet(*(made_record(f"n{n}", of) for n, of in enumerate(logs[:2])))
    assert two.counts == {"WARN": 2}
    assert two.nodes[0].words == "its speed is not judged: 2 of its kind, and 3 are needed"


def test_nodes_are_compared_with_their_own_kind_and_a_lost_gpu_is_no_kind() -> None:
    rng = np.random.default_rng(5)
    records = [made_record(f"a{n}", noise(rng)) for n in range(10)]
    records += [made_record(f"b{n}", noise(rng) + 1, hardware={"GPU": "B", "processor": "P"}) for n in range(10)]
    lost = made_record("lost", noise(rng, gpus=7))
    fleet = made_fleet(*records, lost)
    assert [len(grid.nodes) for grid in fleet.grids] == [11, 10]
    assert named(fleet) == []
    assert fleet.counts == {"PASS": 20, "FAIL": 1}
    assert fleet.nodes[0].words == "7 GPUs used, 8 on most nodes"
    assert fleet.mixed["GPU"] == {"A": 11, "B": 10}


def test_a_job_that_fails_everywhere_drains_nobody_and_a_gpu_that_fails_is_named() -> None:
    rng = np.random.default_rng(6)
    everywhere = np.zeros((6, 8))
    everywhere[2] = 3
    logs = [noise(rng) for _ in range(12)]
    for of in logs:
        of[2] = np.nan
    records = [made_record(f"n{n}", of, fail=everywhere) for n, of in enumerate(logs)]
    assert made_fleet(*records).counts == {"WARN": 12}
    broken = np.zeros((6, 8))
    broken[:, 5] = 2
    records = [made_record(f"n{n}", noise(rng), fail=broken if n == 3 else None) for n in range(12)]
    found = made_fleet(*records)
    assert found.counts == {"PASS": 11, "FAIL": 1}
    assert "GPU 5 (GPU-n3-5): 12 of 18 tasks failed (0.00 % on the other GPUs)" in found.nodes[0].words


def test_nodes_without_gpus_are_compared_as_a_whole() -> None:
    rng = np.random.default_rng(9)
    records = []
    for n in range(10):
        made = made_record(f"n{n}", noise(rng, gpus=1) - (0.2 if n == 6 else 0.0), gpus=())
        records.append(replace(made, jobs={name: replace(job, each=False) for name, job in made.jobs.items()}))
    assert named(made_fleet(*records)) == [("n6", None, [ALL_JOBS])]


def test_another_workload_under_the_same_name_is_not_compared() -> None:
    rng = np.random.default_rng(7)
    records = [made_record(f"n{n}", noise(rng)) for n in range(10)]
    jobs = dict(records[4].jobs)
    jobs["job1"] = replace(jobs["job1"], workload="other", logs=jobs["job1"].logs - 2)
    records[4] = replace(records[4], jobs=jobs)
    found = made_fleet(*records)
    assert named(found) == []
    assert found.nodes[0].words == "trains something else than most nodes, so not compared: job1"


def test_the_error_holds_with_heavy_tails_and_equal_rates_are_no_outliers() -> None:
    rng = np.random.default_rng(8)
    normal, heavy = centred(rng.normal(size=(20, 256))), centred(rng.standard_t(3, (20, 256)))
    assert tail_of(normal) < 0.1 < tail_of(heavy)
    alarms = 0
    for _ in range(40):
        logs = centred(0.01 * rng.standard_t(4, (20, 128)))
        alarms += bool(spread_tests(logs, 0.025, 0.02, tail_of(logs)).outliers(0.02).any())
        alarms += bool(spread_tests(over_jobs(logs), 0.025, 0.02).outliers(0.02).any())
    assert alarms <= 4
    equal = np.zeros((3, 10))
    assert not spread_tests(equal, 0.05, 0.02).outliers(0.02).any()
    equal[1, 4] = -0.1
    assert np.argwhere(spread_tests(equal, 0.05, 0.02).outliers(0.02)).tolist() == [[1, 4]]
