"""What a run on many nodes makes of Slurm's words, and the script that it gives to Slurm. No Slurm is needed."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import msgspec
import pytest
from conftest import Call, keep_run, make_result, make_task

from benchsuite.cluster import script, slurm, submit
from benchsuite.cluster.fleet import Fleet, FleetDir, Submitted
from benchsuite.cluster.slurm import Node, SlurmJob
from benchsuite.cluster.states import NodeStatus, node_status
from benchsuite.cluster.tally import Tallies
from benchsuite.cluster.waiting import closing_words, exit_status
from benchsuite.errors import ResultError

FLEET = Fleet(
    run_id="0a1b2c3d",
    created="2026-01-06T16:00:00+00:00",
    command=("benchsuite", "jobs", "p", "--slurm"),
    profile="p",
    nodes=("n1", "n2"),
    words=("p",),
    partition="main",
    python="python",
    cwd="/",
)


def stands(state: str, left_exit: int | None = None, reason: str = "", exit_code: int | None = None) -> NodeStatus:
    job = SlurmJob(id="7", state=state, reason=reason, exit_code=exit_code)
    return node_status("n1", "7", job, left_exit, None)


@pytest.mark.parametrize(
    ("state", "left_exit", "word"),
    [
        ("PENDING", None, "waiting"),
        ("REQUEUE_HOLD", None, "waiting"),
        ("CONFIGURING", None, "starting"),
        ("COMPLETING", 0, "starting"),
        ("COMPLETED", 0, "ok"),
        ("FAILED", 1, "tasks failed"),
        ("FAILED", 2, "refused"),
        ("FAILED", 3, "nothing ran"),
        ("FAILED", 143, "stopped"),
        ("FAILED", script.NO_PYTHON, "refused"),
        ("FAILED", script.TIME_LIMIT, "time limit"),
        ("TIMEOUT", None, "time limit"),
        ("CANCELLED", 143, "cancelled"),
        ("NODE_FAIL", 143, "node failure"),
        ("NODE_FAIL", 0, "ok"),  # the node failed after its run had ended
        ("BOOT_FAIL", None, "node failure"),
        ("OUT_OF_MEMORY", None, "out of memory"),
        ("PREEMPTED", 143, "preempted"),
        ("FAILED", 137, "failed"),
    ],
)
def test_each_end_has_its_word(state: str, left_exit: int | None, word: str) -> None:
    assert stands(state, left_exit).word == word


def test_slurms_exit_status_counts_where_the_script_could_leave_none() -> None:
    status = stands("FAILED", exit_code=script.NO_OUT)
    assert status.word == "refused"
    assert "shared file system" in status.detail


@pytest.mark.parametrize(
    ("reason", "stays"),
    [
        ("Resources", None),
        ("Priority", None),
        ("QOSMaxJobsPerUserLimit", None),
        ("ReqNodeNotAvail, May be reserved for other job", None),
        ("BadConstraints", "never"),
        ("PartitionConfig", "never"),
        ("DependencyNeverSatisfied", "never"),
        ("AssocMaxWallDurationPerJobLimit", "never"),
        ("QOSMaxCpuPerJobLimit", "never"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "down"),
        ("PartitionDown", "down"),
    ],
)
def test_a_reason_to_wait_says_whether_the_wait_ends(reason: str, stays: str | None) -> None:
    assert stands("PENDING", reason=reason).stays == stays


def test_a_job_that_slurm_has_forgotten_is_known_by_what_it_left(tmp_path: Path) -> None:
    assert node_status("n1", "7", None, 0, None).word == "ok"
    assert node_status("n1", "7", None, None, None).word == "lost"
    keep_run(tmp_path / "n1", [make_result(), make_result("gnmt")])
    assert node_status("n1", "7", None, None, Tallies().of(tmp_path / "n1")).word == "ok"


def test_a_tally_counts_the_first_end_of_each_task_that_was_not_interrupted(tmp_path: Path) -> None:
    tasks = [make_task(name) for name in ("vae", "gnmt", "ssd", "wlm")]
    ends = [make_result(task=tasks[0]), make_result(task=tasks[1], status="failed")]
    keep_run(tmp_path / "n1", [*ends, make_result(task=tasks[2], status="interrupted")], tasks)
    tally = Tallies().of(tmp_path / "n1")
    assert tally is not None
    assert (tally.total, tally.ended, dict(tally.statuses)) == (4, 2, {"ok": 1, "failed": 1})
    assert tally.words == "2 of 4 tasks: 1 ok, 1 failed"
    assert Tallies().of(tmp_path / "n2") is None


def test_the_exit_status_of_many_nodes_is_that_of_their_runs() -> None:
    ok, refused = NodeStatus("n1", "ok"), NodeStatus("n2", "refused")
    assert exit_status([ok, ok]) == 0
    assert exit_status([refused, refused]) == 2
    assert exit_status([refused, NodeStatus("n3", "node failure")]) == 3
    assert closing_words([ok, ok, refused]) == "3 nodes: 2 ok, 1 refused"


@pytest.mark.parametrize(
    ("text", "code"), [("0", 0), ("2304", 9), ("9:0", 9), ("0:15", None), ("15", None), ("", None)]
)
def test_exit_codes_are_read_as_squeue_and_as_sacct_print_them(text: str, code: int | None) -> None:
    assert slurm._exit_code(text) == code


@pytest.mark.parametrize(
    ("gres", "count"),
    [("(null)", 0), ("gpu:8", 8), ("gpu:h200:4(S:0-1)", 4), ("gpu:a:2,gpu:b:1,shard:16", 3), ("lustre:1", 0)],
)
def test_the_gpus_of_a_node_are_counted(gres: str, count: int) -> None:
    assert slurm._gpus(gres) == count


@pytest.mark.parametrize(
    ("state", "usable"),
    [("idle", True), ("allocated", True), ("idle~", True), ("idle*", False), ("down*", False), ("drained", False)],
)
def test_a_node_is_usable_unless_an_administrator_must_act(state: str, usable: bool) -> None:
    assert Node("n1", state).usable is usable


def test_each_node_is_asked_for_whole() -> None:
    options = submit.sbatch_options(FLEET, Node("n1", "idle", gpus=8), 2)
    assert {"--nodelist=n1", "--exclusive", "--mem=0", "--gres=gpu:8", "--no-requeue"} <= set(options)
    assert "--comment=benchsuite 0a1b2c3d n1 2" in options
    half = msgspec.structs.replace(FLEET, sbatch_args=("--gpus-per-node=4", "--mem-per-cpu=2G", "--time=60"))
    options = submit.sbatch_options(half, Node("n1", "idle", gpus=8), 1, ["--time=90"])
    assert options[-4:] == ["--gpus-per-node=4", "--mem-per-cpu=2G", "--time=60", "--time=90"]
    assert not {"--mem=0", "--gres=gpu:8"} & set(options)


def test_only_jobs_of_this_run_have_its_comment() -> None:
    assert FLEET.from_comment("benchsuite 0a1b2c3d n1 2") == ("n1", 2)
    for foreign in ("", "benchsuite ffffffff n1 2", "benchsuite 0a1b2c3d n1", "x benchsuite 0a1b2c3d n1"):
        assert FLEET.from_comment(foreign) is None


def made(folder: Path, fleet: Fleet, status: int = 0) -> FleetDir:
    """The folder of a run whose Python is a program that prints its arguments, one a line."""
    stub = folder / "my python"
    stub.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" "V=${{OMP_VALUE-}}"\n[ "$3" = --version ] || exit {status}\n')
    stub.chmod(0o755)
    fleet = msgspec.structs.replace(fleet, python=str(stub), cwd=str(folder))
    made = FleetDir.create(folder / "the 'out' $HOME", fleet)
    made.new_submission(lambda number: script.text(fleet, made.path, number))
    return made


def run_script(folder: FleetDir, node: str) -> int:
    return subprocess.run(["bash", folder.script(1), node], check=False).returncode


def test_words_with_blanks_and_quotes_reach_benchsuite_as_they_are(tmp_path: Path) -> None:
    words = ("my 'profile'.yaml", "--name", 'a "b" $(c) `d`')
    fleet = msgspec.structs.replace(
        FLEET, words=words, changes=("--file", "x y;z"), repeats=3, environ={"OMP_VALUE": "1 '2' $3"}
    )
    folder = made(tmp_path, fleet, status=1)
    assert run_script(folder, "n1") == 1
    printed = folder.log("n1", 1).read_text().splitlines()
    first = ["-m", "benchsuite", "--version", "V=1 '2' $3"]
    assert printed[:4] == first
    out = ["-o", f"{folder.path}/n1"]
    assert printed[4:] == ["-m", "benchsuite", "jobs", *words, "--repeat", "3", *out, "--", *fleet.changes, first[-1]]
    assert folder.end("n1", 1).read_text() == "1\n"
    (folder.path / "n1").mkdir()
    (folder.path / "n1" / "run.json").touch()
    run_script(folder, "n1")
    printed = folder.log("n1", 1).read_text().splitlines()
    assert printed[-5:-1] == ["benchsuite", "jobs", "--resume", f"{folder.path}/n1"]  # it knows its repeats
    assert '--resume "$out/$node" --repeat 5' in script.text(fleet, folder.path, 2, repeats=5)


def test_a_node_on_which_something_is_missing_says_so_by_its_exit_status(tmp_path: Path) -> None:
    folder = made(tmp_path, FLEET)
    assert run_script(folder, "n1") == 0
    (tmp_path / "my python").unlink()
    assert run_script(folder, "n1") == script.NO_PYTHON
    fleet_file = folder.path / ".cluster" / "fleet.json"
    fleet_file.write_text(fleet_file.read_text().replace(FLEET.run_id, "another"))
    assert run_script(folder, "n1") == script.NO_OUT


def test_an_image_runs_by_apptainer_or_by_pyxis(tmp_path: Path) -> None:
    by_file = msgspec.structs.replace(FLEET, container="suite.sif", cwd="/w", mounts=("/data",))
    line = next(line for line in script.text(by_file, Path("/out"), 1).splitlines() if line.startswith("run="))
    words = shlex.split(line.removeprefix("run=(").removesuffix(")"))
    assert words == [
        *("apptainer", "exec", "--nv", "--bind", "/out", "--bind", "/w", "--bind", "/data"),
        *("--pwd", "/w", "suite.sif", "benchsuite"),
    ]
    by_name = msgspec.structs.replace(by_file, container="nvcr.io#suite:1")
    text = script.text(by_name, Path("/out"), 1)
    assert "srun --ntasks=1" in text
    assert "--container-mounts=/out:/out,/w:/w,/data:/data" in text


def test_the_environment_of_a_node_is_chosen_and_no_secret_is_written() -> None:
    environ = {
        "PATH": "/bin",
        "OMP_NUM_THREADS": "2",
        "CUDA_VISIBLE_DEVICES": "0",
        "RANK": "1",
        "BENCHSUITE_DATA": "/data",
        "HF_TOKEN": "x",
        "SBATCH_ACCOUNT": "a",
        "SLURM_JOB_ID": "5",
        "SLURM_CONF": "/c",
    }
    assert script.set_in_script(environ) == {"OMP_NUM_THREADS": "2", "BENCHSUITE_DATA": "/data"}
    assert set(script.handed_on(environ)) == {"PATH", "HF_TOKEN", "SBATCH_ACCOUNT", "SLURM_CONF"}


def test_a_line_that_a_crash_cut_short_costs_no_other(tmp_path: Path) -> None:
    folder = FleetDir.create(tmp_path / "out", FLEET)
    line = Submitted(node="n1", submission=1, job_id="7", at="2026-01-06T16:00:00+00:00")
    with (tmp_path / "out" / ".cluster" / "jobs.jsonl").open("w") as file:
        file.write('{"node": "n')
    folder.note(line)
    folder.note(line)
    assert folder.submitted() == [line, line]


def test_two_hosts_that_submit_at_once_get_different_numbers(tmp_path: Path) -> None:
    folder = FleetDir.create(tmp_path / "out", FLEET)
    assert [FleetDir(folder.path).new_submission(str) for _ in range(3)] == [1, 2, 3]


def test_a_newer_or_damaged_record_is_refused(tmp_path: Path) -> None:
    folder = FleetDir.create(tmp_path / "out", FLEET)
    assert folder.fleet() == FLEET
    for text in ("{", '{"kind": "fleet", "schema": 999}', '{"kind": "run", "schema": 4}'):
        (tmp_path / "out" / ".cluster" / "fleet.json").write_text(text)
        with pytest.raises(ResultError, match=r"fleet\.json"):
            folder.fleet()


def test_status_of_a_run_on_this_machine_is_a_line(tmp_path: Path, call: Call) -> None:
    keep_run(tmp_path / "run", [make_result()], [make_task(), make_task("gnmt")])
    status, out, err = call("status", tmp_path / "run")
    assert (status, "not in progress, 1 of 2 tasks: 1 ok" in out, "jobs --resume" in err) == (0, True, True)
    keep_run(tmp_path / "bad", [make_result(status="failed")])
    status, out, _ = call("status", tmp_path / "bad")
    assert (status, "complete, 1 task: 1 failed" in out) == (1, True)
    for folder in (tmp_path / "none", tmp_path):
        assert call("status", folder)[0] == 2


def test_options_for_slurm_need_slurm(tmp_path: Path, call: Call) -> None:
    for words in (["--nodes", "2"], ["--sbatch-arg=--time=1"], ["--detach"]):
        status, _, err = call("jobs", "smoke", *words)
        assert (status, "needs --slurm" in err) == (2, True)
