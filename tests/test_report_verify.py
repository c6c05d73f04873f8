"""`benchsuite verify`: an untouched run is clean, each kind of tampering and each unmet demand is named."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import keep_run, make_gpu, make_result, make_run, make_task
from made_telemetry import stolen_from
from support import benchsuite, environ, in_process, one_line_error, start, wait_for, write_profile

from benchsuite import __version__, manifest
from benchsuite.describe.profile import load
from benchsuite.describe.tasks import Job, Placement, ProfileUsed
from benchsuite.describe.training import Training
from benchsuite.findings import Finding
from benchsuite.measurement import PrecisionCheck, Stream
from benchsuite.provisions import DataUsed, Tenant
from benchsuite.records import Code, Result
from benchsuite.report.verify import plan
from benchsuite.report.verify.check import DEMANDS, RECORDS, check
from benchsuite.rundir import LOCK
from benchsuite.telemetry import DeviceTelemetry, GpuProcess, Telemetry

Json = dict[str, Any]
FENCED = Tenant(asked="share", cpu="cpuset-v2", memory="v2", reason="groups were made on the fly")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two jobs, one of which fails, in two repeats."""
    folder = tmp_path_factory.mktemp("finished")
    profile = write_profile(folder / "p.json", one={}, two={"params": {"kind": "raise", "after_s": 0.6}})
    done = benchsuite("jobs", str(profile), "-o", "out", "--repeat", "2", cwd=folder)
    assert done.returncode == 1, done.stderr
    return folder


@pytest.fixture(name="run")
def run_fixture(finished: Path, tmp_path: Path) -> Path:
    """A copy of that run, to be tampered with."""
    return Path(shutil.copytree(finished / "out", tmp_path / "out"))


def records(folder: Path) -> dict[str, Finding]:
    return {finding.about: finding for finding in check(folder)[RECORDS]}


def bad(folder: Path) -> dict[str, str]:
    """What is BAD, each with all its words."""
    return {about: " ".join([f.text, *f.details]) for about, f in records(folder).items() if f.state == "bad"}


def test_an_untouched_run_is_clean(finished: Path) -> None:
    found = records(finished / "out")
    assert {finding.state for finding in found.values()} == {"ok"}, found
    assert "4 results" in found["files"].text
    assert "11 files" in found["manifest"].text  # of the run, of 4 results, and of their 4 series
    assert "2 failed, 2 ok" in found["tasks"].text
    assert "4 streams" in found["events"].text


def test_the_manifest_is_what_sha256sum_reads(finished: Path) -> None:
    done = subprocess.run(["sha256sum", "-c", manifest.NAME], cwd=finished / "out", capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    listed = {line.split("  ", 1)[1] for line in (finished / "out" / manifest.NAME).read_text().splitlines()}
    there = {path.relative_to(finished / "out").as_posix() for path in (finished / "out").rglob("*") if path.is_file()}
    assert listed == {name for name in there if not name.startswith(("logs/", LOCK, manifest.NAME))}


# --- tampering --------------------------------------------------------------------------------------------------------


def edit(file: Path, change: Callable[[Json], object]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def result_of(run: Path, start: str) -> Path:
    return sorted(run.glob(f"p.{start}.*.json"))[0]


def in_result(change: Callable[[Json], object], start: str = "one.J1") -> Callable[[Path], None]:
    return lambda run: edit(result_of(run, start), change)


def in_file(name: str, change: Callable[[Json], object]) -> Callable[[Path], None]:
    return lambda run: edit(run / name, change)


def slices(result: Json) -> list[list[Any]]:
    found: list[list[Any]] = result["measurement"]["streams"][0]["slices"]
    return found


def faster(result: Json) -> None:
    slices(result)[0][3] *= 2


def without_a_slice(result: Json) -> None:
    del slices(result)[0], result["measurement"]["streams"][0]["losses"][0]


def turned_ok(result: Json) -> None:
    result.update(status="ok", error=None, exit_code=0)


def add_a_copy(run: Path) -> None:
    first = result_of(run, "one.J0")
    edit(Path(shutil.copy(first, run / "p.one.J0.20990101-000000-000000.json")), lambda r: None)


def copied_over(run: Path) -> None:
    """The slices of one repeat given to the other, its own clock kept."""
    good = slices(json.loads(result_of(run, "one.J0").read_text()))
    edit(
        result_of(run, "one.J1"),
        lambda r: r["measurement"]["streams"][0].update(slices=good, losses=[None] * len(good)),
    )


def unplan(job: str, *repeats: int) -> Callable[[Json], None]:
    def change(plan: Json) -> None:
        for wave in plan["waves"]:
            wave["tasks"] = [t for t in wave["tasks"] if t["job"]["name"] != job or t["repeat"] not in repeats]

    return change


def easier(run: Path) -> None:
    """A lighter job, in the plan and in the results alike."""
    edit(
        run / "plan.json", lambda plan: [t["job"]["params"].update(items=9) for w in plan["waves"] for t in w["tasks"]]
    )
    for file in run.glob("p.*.json"):
        edit(file, lambda r: r["task"]["job"]["params"].update(items=9))


def other_attempts(old: str, new: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        file = run / "attempts.jsonl"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    return change


def forget_the_last_end(run: Path) -> None:
    lines = (run / "attempts.jsonl").read_text().splitlines(keepends=True)
    (run / "attempts.jsonl").write_text("".join(lines[:-1]))


def backwards(result: Json) -> None:
    times = result["timeline"]
    times["started_s"], times["ready_s"] = times["ready_s"], times["started_s"]


def text_edited(run: Json) -> None:
    run["profile"]["text"] = run["profile"]["text"].replace('"min_time_s": 0.7', '"min_time_s": 0.9')


def text_made_impossible(run: Json) -> None:
    run["profile"]["text"] = run["profile"]["text"].replace('"min_time_s": 0.7', '"min_time_s": 70')


TAMPERINGS: dict[str, tuple[Callable[[Path], object], dict[str, str]]] = {
    "a changed figure": (in_result(faster), {"events": "p.one.J1"}),
    "a slice taken out": (in_result(without_a_slice), {"slices": "are missing before slice 1", "events": "p.one.J1"}),
    "slices of another": (copied_over, {"slices": "the same slices as p.one.J0", "events": "p.one.J1"}),
    "a removed result": (
        lambda run: result_of(run, "one.J1").unlink(),
        {"attempts": "one.J1: its result p.one.J1"},
    ),
    "an added result": (add_a_copy, {"files": "a second result of 'one.J0'", "attempts": "p.one.J0.20990101"}),
    "a result cut short": (
        lambda run: result_of(run, "one.J1").write_text('{"schema": 1,'),
        {"files": "p.one.J1", "attempts": "one.J1: its result"},
    ),
    "a failure turned ok": (in_result(turned_ok, "two.J0"), {"attempts": "attempt 1, failed"}),
    "a task less": (in_file("plan.json", unplan("two", 1)), {"plan": "two.J1 is not in plan.json"}),
    "a job less": (
        in_file("plan.json", unplan("two", 0, 1)),
        {"plan": "two.J0 is not in plan.json", "results": "two.J0"},
    ),
    "a lighter job": (easier, {"plan": "one.J0: params.items 1 -> 9 in plan.json"}),
    "another task": (
        in_result(lambda r: r["task"]["job"].update(max_count=7)),
        {"results": "differs from the planned one in job.max_count"},
    ),
    "another identity": (in_result(lambda r: r["identity"].update(repeat=0)), {"results": "its identity"}),
    "an edited profile": (in_file("run.json", text_edited), {"plan": "min_time_s 0.9 -> 0.7 in plan.json"}),
    "an impossible profile": (
        in_file("run.json", text_made_impossible),
        {"plan": "min_time_s 70 is over max_time_s 30"},
    ),
    "another command": (
        in_file("run.json", lambda r: r["command"].extend(["--", "--items", "9"])),
        {"plan": "one.J0: params.items 9 -> 1 in plan.json"},
    ),
    "another hash": (
        in_file("run.json", lambda r: r["profile"].update(sha256="0" * 64)),
        {"profile hash": "000000000000"},
    ),
    "fewer repeats": (
        in_file("run.json", lambda r: r.update(repeats=1)),
        {"plan is whole": "says 1 repeat", "plan": "two.J1 is in plan.json, but was not asked for"},
    ),
    "another end": (other_attempts('"status":"failed"', '"status":"ok"'), {"attempts": "two.J0, attempt 1, ok"}),
    "another attempt": (other_attempts('"attempt":1', '"attempt":2'), {"attempts": "attempts 2"}),
    "an end less": (forget_the_last_end, {"attempts": "no end of attempt 1 names it"}),
    "no attempts": (lambda run: (run / "attempts.jsonl").unlink(), {"files": "attempts.jsonl is missing"}),
    "another machine": (
        in_file("run.json", lambda r: r["machines"][0].update(cpu="Faster CPU")),
        {"machine": "its machine facts are not those in run.json"},
    ),
    "another host": (in_result(lambda r: r["identity"].update(host="b")), {"results": "its host is b"}),
    "another boot": (in_result(lambda r: r["timeline"]["clock"].update(boot_id="b")), {"clocks": "2 boots"}),
    "a timeline that runs backwards": (in_result(backwards), {"timeline": "s before started"}),
    "no plan": (lambda run: (run / "plan.json").unlink(), {"files": "plan.json is missing"}),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_found_by_the_manifest_and_by_what_contradicts_it(name: str, run: Path) -> None:
    tamper, expected = TAMPERINGS[name]
    tamper(run)
    assert "as the run left them" in bad(run)["manifest"]
    manifest.seal(run)  # as a forger would
    found = bad(run)
    assert "manifest" not in found
    for about, words in expected.items():
        assert words in found.get(about, "nothing"), found


def test_a_change_on_the_command_line_excuses_only_itself(finished: Path, tmp_path: Path) -> None:
    """A plan that differs from the profile in more than what stands after `--` is found, in results alike."""
    arguments = ("jobs", str(finished / "p.json"), "-o", "out", "--name", "one", "--", "--items", "3")
    assert benchsuite(*arguments, cwd=tmp_path).returncode == 0
    run = tmp_path / "out"
    assert records(run)["plan"].text.endswith("with the changes --items 3")
    assert bad(run) == {}

    def shorter(job: Json) -> None:
        job.update(min_time_s=0.5, max_count=5)
        job["training"].update(precision="bf16")

    edit(run / "plan.json", lambda plan: [shorter(t["job"]) for wave in plan["waves"] for t in wave["tasks"]])
    edit(result_of(run, "one.J0"), lambda result: shorter(result["task"]["job"]))
    manifest.seal(run)
    words = bad(run)["plan"]
    for change in ("min_time_s 0.7 -> 0.5", "max_count none -> 5", "precision fp32 -> bf16"):
        assert f"one.J0: {change} in plan.json" in words
    assert "items" not in words


def test_a_single_task_is_planned_again_from_its_command_line(tmp_path: Path) -> None:
    changes = ["--items", "3", "--placement", "cpu", "--min-time-s", "0.5", "--warm-up-s", "0"]
    done = benchsuite("run", "faults:build", "-o", "out", "--", *changes, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "out"
    assert records(run)["plan"].text.endswith("a single task, which the command line gives again")
    assert bad(run) == {}

    def shorter(job: Json) -> None:
        job.update(max_count=5)
        job["training"].update(precision="bf16")

    edit(run / "plan.json", lambda plan: [shorter(t["job"]) for wave in plan["waves"] for t in wave["tasks"]])
    edit(next(run.glob("run.*.json")), lambda result: shorter(result["task"]["job"]))
    manifest.seal(run)
    words = bad(run)["plan"]
    assert "max_count none -> 5 in plan.json" in words
    assert "precision fp32 -> bf16 in plan.json" in words
    assert "items" not in words
    edit(run / "run.json", lambda record: record.update(command=["benchsuite", "run", "vae"]))
    assert "it names another model than plan.json" in bad(run)["plan"]


def test_another_plan_contradicts_the_records_unless_another_version_may_have_made_it() -> None:
    run = make_run()
    found = plan._compared(msgspec.structs.replace(run, code=Code(version=__version__)), ["a: x"], "")
    assert (found.state, found.details) == ("bad", ("a: x",))
    found = plan._compared(msgspec.structs.replace(run, code=Code(version="0.0.9")), ["a: x"], "")
    assert found.state == "unmet"
    assert found.text.startswith("not verified: this benchsuite makes another plan, since it changed or plan.json did")
    assert "run.json names benchsuite 0.0.9" in found.text


def test_each_changed_missing_and_additional_file_is_named(run: Path) -> None:
    series = sorted((run / "telemetry").iterdir())[0]
    series.unlink()
    in_result(faster)(run)
    add_a_copy(run)
    with (run / manifest.NAME).open("a") as file:
        file.write("nonsense\n" + "0" * 64 + "  ../p.json\n")
    lines = records(run)["manifest"].details
    assert f"telemetry/{series.name} is missing" in lines
    assert f"{result_of(run, 'one.J1').name} was changed" in lines
    assert "p.one.J0.20990101-000000-000000.json is additional: the run did not write it" in lines
    assert f"2 lines of {manifest.NAME} itself cannot be read" in lines
    assert len(lines) == 4


def test_logs_may_be_removed(run: Path) -> None:
    shutil.rmtree(run / "logs")
    found = records(run)
    assert found["manifest"].state == "ok"
    assert (found["events"].state, found["events"].text[:9]) == ("note", "4 streams")


# --- however a run ends -----------------------------------------------------------------------------------------------


def test_a_resumed_run_and_a_rerun_are_clean(run: Path, finished: Path) -> None:
    arguments = ("jobs", str(finished / "p.json"), "-o", str(run), "--resume", "--repeat", "3")
    done = benchsuite(*arguments, cwd=run.parent)
    assert done.returncode == 1, done.stderr
    again = benchsuite("rerun", str(result_of(run, "one.J0")), cwd=run.parent)
    assert again.returncode == 0, again.stderr
    found = records(run)
    assert bad(run) == {}
    assert "6 results" in found["files"].text
    assert (found["reruns"].state, found["reruns"].text[:8]) == ("note", "1 rerun ")


def test_a_resume_says_what_was_changed_since(run: Path, finished: Path) -> None:
    in_result(faster)(run)
    done = benchsuite("jobs", str(finished / "p.json"), "-o", str(run), "--resume", cwd=run.parent)
    assert f"since the run ended, {result_of(run, 'one.J1').name} was changed" in done.stderr


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_was_stopped_says_what_is_missing(signum: int, tmp_path: Path) -> None:
    """A signal that can be caught leaves a manifest, SIGKILL none; both say which tasks have not ended. Resumed, the
    run is whole and clean."""
    seen = tmp_path / "seen.json"
    profile = write_profile(tmp_path / "p.json", two={"params": {"file": str(seen)}, "min_time_s": 2}, three={})
    running = start("jobs", str(profile), "-o", "out", cwd=tmp_path, env=environ(), stderr=-3)
    wait_for(lambda: seen.exists() and (tmp_path / "out" / "logs" / "two.J0.a1.events.jsonl").exists())
    running.send_signal(signum)
    assert running.wait(timeout=120) in (143, -9)
    found = records(tmp_path / "out")
    assert bad(tmp_path / "out") == {}
    assert found["manifest"].state == ("ok" if signum == signal.SIGTERM else "unmet")
    assert found["tasks"].state == "unmet"
    assert [line.split(":")[0] for line in found["tasks"].details] == ["two.J0", "three.J0"]
    if signum == signal.SIGKILL:
        assert "was cut off" in found["manifest"].text
        done = benchsuite("jobs", str(profile), "-o", "out", "--resume", cwd=tmp_path)
        found = records(tmp_path / "out")
        assert {f.state for f in found.values()} == {"ok"}, (found, done.stderr)
        assert "3 results" in found["files"].text, "that of the attempt that was cut off too"


def test_a_run_that_went_on_after_a_reboot_names_other_facts_with_reason(run: Path) -> None:
    def rebooted(result: Json) -> None:
        result["machine"]["facts_sha256"] = "1" * 64
        result["timeline"]["clock"]["boot_id"] = "another"

    in_result(rebooted)(run)
    manifest.seal(run)
    assert set(bad(run)) == {"machine", "clocks"}
    in_file("run.json", lambda r: r.update(resumed=[["2026-01-01T00:00:00+00:00", "jobs --resume"]]))(run)
    manifest.seal(run)
    found = records(run)
    assert bad(run) == {}
    assert (found["machine"].state, found["machine"].details) == ("note", (result_of(run, "one.J1").name,))


def test_a_run_of_an_older_benchsuite_keeps_its_hashes(run: Path) -> None:
    """Its records have fewer fields: a job has no layout of channels, a machine no note on its GPUs."""

    def sha256(content: object) -> str:
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()

    plan, kept = json.loads((run / "plan.json").read_text()), json.loads((run / "run.json").read_text())
    tasks = [task for wave in plan["waves"] for task in wave["tasks"]]
    for task in tasks:
        del task["job"]["training"]["channels_last"], task["job"]["training"]["parallel"]
    del kept["machines"][0]["gpu_note"]
    (run / "plan.json").write_text(json.dumps(plan))
    (run / "run.json").write_text(json.dumps(kept))
    assert "machine" in bad(run), "today's machine has the note again, as none"

    jobs = {task["job"]["name"]: task["job"] for task in tasks}
    jobs = {name: {**job, "params": dict(sorted(job["params"].items()))} for name, job in jobs.items()}
    kept["profile"]["sha256"] = sha256([*jobs.values()])
    (run / "run.json").write_text(json.dumps(kept))
    machine = kept["machines"][0]
    facts = sha256({**machine, "packages": dict(sorted(machine["packages"].items()))})
    for file in run.glob("p.*.json"):
        edit(file, lambda r: r["machine"].update(facts_sha256=facts))
    manifest.seal(run)
    assert bad(run) == {}


def test_a_run_in_progress_is_said(run: Path) -> None:
    with (run / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = records(run)["manifest"]
    assert (found.state, "in progress" in found.text) == ("unmet", True)


# --- the command ------------------------------------------------------------------------------------------------------


def kept_in_part(folder: Path, statuses: dict[int, str], repeats: int) -> dict[str, Finding]:
    """The demands on a run of one job on one GPU: the outcome of each repeat; repeats without one never started."""
    tasks = [msgspec.structs.replace(make_task("vae", repeat), job=VAE) for repeat in range(repeats)]
    results = [
        make_result(repeat=repeat, status=status, task=tasks[repeat], rates=(100.0,) * 30 if status == "ok" else ())
        for repeat, status in statuses.items()
    ]
    keep_run(folder, results, tasks=tasks, run=make_run(gpus=1, repeats=repeats))
    return {f.about: f for f in check(folder)[DEMANDS]}


@pytest.mark.parametrize(
    ("statuses", "repeats", "failures", "remedy"),
    [
        # An interrupted task and one that never started are no failures, and the resume that finishes them suffices.
        ({0: "ok", 1: "ok", 2: "interrupted"}, 4, "ok", "jobs --resume {out}"),
        ({0: "ok", 1: "interrupted"}, 2, "ok", "jobs --resume {out} --repeat 3"),
        ({0: "ok"}, 1, "ok", "jobs --resume {out} --repeat 3"),
        # A failure stands: a repeat more than planned takes its place.
        ({0: "failed", 1: "ok", 2: "ok", 3: "failed"}, 4, "unmet", "jobs --resume {out} --repeat 5"),
        ({0: "failed", 1: "failed"}, 2, "unmet", "make a new run with --repeat 3"),
        ({}, 2, "unmet", "jobs --resume {out} --repeat 3"),
    ],
)
def test_the_remedy_for_few_repeats_is_a_command_that_the_run_takes(
    statuses: dict[int, str], repeats: int, failures: str, remedy: str, tmp_path: Path
) -> None:
    found = kept_in_part(tmp_path / "out", statuses, repeats)
    assert found["failures"].state == failures, found["failures"]
    assert found["repeats"].state == "unmet"
    assert (found["repeats"].remedy or "").endswith(remedy.format(out=tmp_path / "out"))


def test_a_run_in_progress_and_a_single_task_are_not_to_be_resumed(tmp_path: Path) -> None:
    kept_in_part(tmp_path / "out", {0: "ok"}, 4)
    with (tmp_path / "out" / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sections = check(tmp_path / "out")
        assert {f.remedy for f in sections[RECORDS] if f.about == "tasks"} == {"verify it again after its end"}
        (repeats,) = (f for f in sections[DEMANDS] if f.about == "repeats")
        assert "--resume" not in (repeats.remedy or "")
    single = ProfileUsed(name="run", path="", sha256="", text="", official=False)
    keep_run(tmp_path / "one", [make_result()], run=make_run(gpus=1, profile=single))
    (repeats,) = (f for f in check(tmp_path / "one")[DEMANDS] if f.about == "repeats")
    assert "this run cannot be resumed" in (repeats.remedy or "")


def test_exit_status_and_text(run: Path) -> None:
    plain = in_process("verify", "out", cwd=run.parent)
    assert (plain.returncode, plain.stderr) == (0, "")
    assert "BAD" not in plain.stdout
    assert "ok    manifest" in plain.stdout
    assert "note  repeats" in plain.stdout
    strict = in_process("verify", "out", "--strict", cwd=run.parent)
    assert strict.returncode == 1
    assert "BAD   repeats" in strict.stdout
    in_result(faster)(run)
    done = in_process("verify", "out", "--json", cwd=run.parent)
    found = json.loads(done.stdout)
    assert done.returncode == 0, "only --strict judges"
    assert {f["about"] for f in found["findings"] if f["bad"]} == {"manifest", "events"}
    assert {f["section"] for f in found["findings"]} == {RECORDS, DEMANDS}


def test_names_that_are_no_text_do_no_harm(run: Path) -> None:
    """A name in another encoding, and one that would clear the screen."""
    (run / os.fsdecode(b"p.\xff.json")).write_text("{}")
    (run / "p.\x1b[2J.json").write_text("{}")
    for option in ("--all", "--json"):
        done = in_process("verify", "out", option, cwd=run.parent)
        assert (done.returncode, done.stderr) == (0, "")
        assert "\x1b" not in done.stdout
        assert "not a result of benchsuite" in done.stdout


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.json").write_text("{}")
    one_line_error(in_process("verify", "nowhere", cwd=tmp_path), "nowhere", "no such folder")
    one_line_error(in_process("verify", "empty", cwd=tmp_path), "empty", "no results in this folder")
    one_line_error(in_process("verify", "file.json", cwd=tmp_path), "file.json", "name the folder")


# --- demands ----------------------------------------------------------------------------------------------------------


def device(index: int, **fields: Any) -> DeviceTelemetry:
    defaults: Json = {
        "samples": 15,
        "spreads": {},
        "energy_j": None,
        "energy_span_s": None,
        "clock_events_s": {"sw_power_cap": 9.0},
        "clock_events_span_s": 14.0,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "foreign": (),
        "reasons": {},
    }
    gpu = make_gpu(index)
    return DeviceTelemetry(uuid=gpu.uuid, pci=gpu.pci, visible_index=index, **{**defaults, **fields})


def good_results(job: Job, repeats: int = 3, gpus: int = 2, **fields: Any) -> Iterator[Result]:
    """A run in which everything is as it should be; `fields` change the result of GPU 0 in repeat 0."""
    telemetry, stolen = fields.pop("telemetry", {}), fields.pop("stolen", 0.002)
    for repeat in range(repeats):
        for gpu in range(gpus):
            odd = (repeat, gpu) == (0, 0)
            task = msgspec.structs.replace(make_task(job.name, repeat, gpu), job=job)
            defaults: Json = {
                "tenant": FENCED,
                "data": DataUsed(name="normal numbers", real=False),
                "code": Code(version="0.1.0", commit="1" * 40, dirty=False),
                "telemetry": Telemetry(
                    start_s=0,
                    end_s=15,
                    every_s=1,
                    devices=(device(gpu, **(telemetry if odd else {})),),
                    tenant=stolen_from(stolen if odd else 0.001),
                ),
            }
            result = make_result(repeat=repeat, gpu=gpu, task=task, **{**defaults, **(fields if odd else {})})
            yield with_stream(result, precision=CHECKED) if "measurement" not in fields else result


CHECKED = PrecisionCheck(
    asked="fp32", in_force="fp32", dtype="float32", parameters={"float32": 8}, matmul_error=1e-7, conv_error=1e-7
)


def with_stream(result: Result, **fields: Any) -> Result:
    streams: tuple[Stream, ...] = tuple(msgspec.structs.replace(s, **fields) for s in result.measurement.streams)
    return msgspec.structs.replace(result, measurement=msgspec.structs.replace(result.measurement, streams=streams))


def demands(folder: Path, results: list[Result], **run: Any) -> dict[str, Finding]:
    sha256 = load("smoke").sha256
    profile = ProfileUsed(name="smoke", path="smoke.yaml", sha256=sha256, text="vae: {}", official=True)
    code = Code(version="0.1.0", commit="1" * 40, dirty=False)
    repeats = max(result.task.repeat for result in results) + 1
    keep_run(folder, results, run=make_run(**{"profile": profile, "code": code, "repeats": repeats, **run}))
    return {f.about: f for f in check(folder)[DEMANDS]}


VAE = Job(name="vae", model="vae", placement=Placement(devices="each"))


def test_a_good_run_meets_every_demand_but_a_whole_profile(tmp_path: Path) -> None:
    found = demands(tmp_path / "run", list(good_results(VAE)))
    states = {about: finding.state for about, finding in found.items()}
    assert states.pop("weights") == "unmet", "weighed jobs of smoke were not run"
    assert set(states.values()) == {"ok"}, found
    assert set(states) == {
        "profile", "GPUs", "code", "repeats", "failures", "isolation", "overlap", "data", "precision", "stolen CPU",
        "throttling", "foreign", "ECC"
    }  # fmt: skip


CROWDED = "another run of benchsuite is on this machine (process 7): its share and ours overlap"
SHARED = msgspec.structs.replace(FENCED, crowded=True, reason=CROWDED)
UNKNOWN = {"clock_events_s": None, "foreign": None, "ecc_uncorrected": None, "reasons": {"foreign": "in a container"}}
LOST: Json = {"samples": 2, "unsampled": ((2.0, 15.0),), "reasons": {"samples": "gpu is lost"}}
ON_DATA = Job(name="vae", model="vae", data="mnist", page_cache="cold", placement=Placement(devices="each"))
READ = DataUsed(name="mnist", real=True, version="1", sha256="f" * 64, page_cache="cold", cached=0.0)
GENERATED = DataUsed(name="mnist", real=False, version="1", sha256="f" * 64, page_cache="cold", cached=0.0, size="full")
WARM = DataUsed(name="mnist", real=True, version="1", sha256="f" * 64, page_cache="cold", cached=0.7)


@pytest.mark.parametrize(
    ("about", "state", "words", "fields"),
    [
        ("isolation", "unmet", "not in force for 1 of 6 tasks", {"tenant": Tenant(asked="share", reason="not root")}),
        (
            "isolation",
            "unmet",
            "another run of benchsuite",
            {"tenant": msgspec.structs.replace(FENCED, crowded=True, reason=CROWDED)},
        ),
        ("failures", "unmet", "16.7 %: 1 of 6", {"status": "failed", "rates": ()}),
        ("overlap", "unmet", "during at least 55 % of each", {"origin_s": 1005.0}),
        ("stolen CPU", "unmet", "processor time from 1 task", {"stolen": 0.02}),
        ("stolen CPU", "ok", "at most 0.9 %", {"stolen": 0.009}),
        ("stolen CPU", "note", "known of 5 of 6", {"stolen": None}),
        ("throttling", "unmet", "1 GPU window", {"telemetry": {"clock_events_s": {"hw_thermal": 2.0}}}),
        ("throttling", "note", "known of 5 of 6", {"telemetry": UNKNOWN}),
        ("foreign", "unmet", "1 case", {"telemetry": {"foreign": (GpuProcess(pid=7, memory_bytes=1, here=True),)}}),
        ("foreign", "note", "in a container", {"telemetry": UNKNOWN}),
        ("ECC", "unmet", "1 GPU window", {"telemetry": {"ecc_uncorrected": 1}}),
        ("ECC", "note", "known of 5 of 6", {"telemetry": UNKNOWN}),
        ("telemetry", "unmet", "not sampled throughout in 1 task", {"telemetry": LOST}),
        ("throttling", "note", "known of 5 of 6 GPU windows: gpu is lost", {"telemetry": LOST}),
        ("ECC", "unmet", "1 GPU window", {"telemetry": {**LOST, "ecc_uncorrected": 1}}),
        ("code", "unmet", "2 versions", {"code": Code(version="0.2.0")}),
    ],
)
def test_what_is_not_met(about: str, state: str, words: str, fields: Json, tmp_path: Path) -> None:
    found = demands(tmp_path / "run", list(good_results(VAE, **fields)))[about]
    assert found.state == state, found
    assert words in found.text


def test_a_gpu_that_is_lost_in_mid_run_is_named_with_the_time_and_the_reason(tmp_path: Path) -> None:
    (detail,) = demands(tmp_path / "run", list(good_results(VAE, telemetry=LOST)))["telemetry"].details
    assert detail == "vae.J0.0: GPU 0: nothing sampled from 2 s on of the 15 s of its window: gpu is lost"


def test_a_gpu_that_is_left_out_is_named(tmp_path: Path) -> None:
    (machine,) = make_run().machines
    why = "NVML: GPU 2 does not answer and is left out: gpu is lost"
    machines = (msgspec.structs.replace(machine, gpu_note=why),)
    found = demands(tmp_path / "run", list(good_results(VAE)), machines=machines)["GPUs"]
    assert (found.state, found.text) == ("unmet", f"all 2 that answer are used; {why}")


@pytest.mark.parametrize(
    ("data", "state", "words"),
    [
        (READ, "ok", "real, version 1: vae"),
        (GENERATED, "unmet", "synthetic"),
        (WARM, "unmet", "1 task without the data that was asked for"),
        (None, "unmet", "6 tasks without the data that was asked for"),
    ],
)
def test_the_data_are_those_asked_for(data: DataUsed | None, state: str, words: str, tmp_path: Path) -> None:
    results = [with_data(r, READ if data is WARM and i else data) for i, r in enumerate(good_results(ON_DATA))]
    found = demands(tmp_path / "run", results)["data"]
    assert (found.state, words in found.text) == (state, True), found


def with_data(result: Result, data: DataUsed | None) -> Result:
    return msgspec.structs.replace(result, data=data)


@pytest.mark.parametrize(
    ("asked", "in_force", "state"),
    [
        ("fp32", "fp32", "ok"),
        ("fp32", "tf32 or fp16", "unmet"),
        ("tf32", "tf32 or fp16", "ok"),
        ("tf32", "fp32", "note"),
        ("amp-fp16", "bf16", "unmet"),
        ("bf16", "bf16", "ok"),
    ],
)
def test_precision_is_compared_with_what_was_asked(asked: Any, in_force: str, state: str, tmp_path: Path) -> None:
    job = Job(name="vae", model="vae", training=Training(precision=asked), placement=Placement(devices="each"))
    checked = msgspec.structs.replace(CHECKED, asked=asked, in_force=in_force)
    results = [with_stream(result, precision=checked) for result in good_results(job)]
    assert demands(tmp_path / "run", results)["precision"].state == state


@pytest.mark.parametrize(
    ("asked", "dtypes", "state", "words"),
    [
        ("fp32", {"float32": 9, "bfloat16": 1}, "unmet", "fp32 was asked for, parameters are bfloat16"),
        ("bf16", {"bfloat16": 9}, "unmet", "bf16 was asked for, parameters are bfloat16"),
        ("fp32", {"float64": 9}, "note", "fp32 was asked for, parameters are float64"),
        ("fp32", None, "note", "the dtype of parameters is not recorded"),
    ],
)
def test_the_dtype_of_parameters_is_part_of_the_precision(
    asked: Any, dtypes: dict[str, int] | None, state: str, words: str, tmp_path: Path
) -> None:
    job = Job(name="vae", model="vae", training=Training(precision=asked), placement=Placement(devices="each"))
    checked = msgspec.structs.replace(CHECKED, asked=asked, in_force=asked, parameters=dtypes)
    results = [with_stream(result, precision=checked) for result in good_results(job)]
    found = demands(tmp_path / "run", results)["precision"]
    assert (found.state, words in f"{found.text} {' '.join(found.details)}") == (state, True), found


def test_profile_gpus_and_repeats(tmp_path: Path) -> None:
    two = list(good_results(VAE, repeats=2))
    modified = ProfileUsed(
        name="mine", path="", sha256="a", text="vae: {}", official=False, based_on="smoke", differences=("vae: x",)
    )
    found = demands(tmp_path / "a", two, gpus=3, profile=modified)
    assert (found["profile"].state, found["profile"].details) == ("unmet", ("vae: x",))
    assert "2 of 3 used" in found["GPUs"].text
    assert "2 repeats" in found["repeats"].text
    claimed = ProfileUsed(name="smoke", path="", sha256="a", text="vae: {}", official=True)
    assert "ships another of that name" in demands(tmp_path / "b", two, profile=claimed)["profile"].text
