"""What a reader of a report sees first, and why a figure is missing: a report that cannot mislead."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Call, keep_run, make_result, make_run, make_task
from msgspec.structs import replace
from outputs import beside, document_of, report_of, row, section, sentences, summary_for, texts, unwrapped

from benchsuite.describe.tasks import Job
from benchsuite.records import Failure, Result
from benchsuite.report.read.summary_file import read_summary, write_summary
from benchsuite.report.show.report import Report, document
from benchsuite.report.stats.compare import compare

ROOT = Path(__file__).resolve().parents[1]
BASELINES = ROOT / "baselines"
JOBS = ("atari", "convnet", "vae")
OOM = Failure(kind="OutOfMemoryError", message="CUDA out of memory.")


def suite(
    *, jobs: Sequence[str] = JOBS, gpus: int = 2, repeats: int = 3, fails: Collection[Any] = (), rate: float = 1000.0
) -> list[Result]:
    """Jobs on every GPU; `fails` holds the jobs that fail, or (job, GPU), or (job, GPU, repeat)."""
    found = []
    for job in jobs:
        for repeat in range(repeats):
            for gpu in range(gpus):
                if {job, (job, gpu), (job, gpu, repeat)} & set(fails):
                    found.append(make_result(job, (), gpu=gpu, repeat=repeat, status="oom", error=OOM))
                else:
                    found.append(make_result(job, [rate + 2 * repeat] * 30, gpu=gpu, repeat=repeat))
    return found


def run(folder: Path, **about: Any) -> Path:
    keep_run(folder, suite(**about), run=make_run(about.get("gpus", 2)))
    return folder


def first_lines(out: str) -> str:
    """What stands above the table of jobs, without its line breaks."""
    return unwrapped(out.partition("\n\n")[0])


# --- a job that fails -------------------------------------------------------------------------------------------------


def test_a_job_that_fails_leaves_no_score_no_ratio_and_no_price(call: Call, tmp_path: Path) -> None:
    here, base = run(tmp_path / "here", fails=["vae"]), run(tmp_path / "base")
    arguments = ("report", "--full", here, "--compare", base, "--price", "100")
    out = call(*arguments)[1]
    assert first_lines(out).startswith(
        f"vae FAILS in 6 of 6 tasks on 2x Test; 6 of 18 tasks failed; no score. "
        f"No ratio over all jobs to {base}: this run has no score. FAILS here and not in the baseline: vae."
    )
    block = unwrapped(out[out.index("\nScore ") :])
    assert "Score n/a INCOMPLETE no score" in block
    assert "Price / machine score n/a none: no machine score over all jobs" in block
    assert "No ratio this run: vae fails in 6 of 6 tasks; --partial compares the other jobs" in block
    assert not any(label in block for label in ("Speed ", "Machine score 2", "Per GPU", "Whole machine"))
    for name in ("m.md", "p.html", "j.json"):
        call(*arguments, f"--{name.rpartition('.')[2]}", tmp_path / name)
    written = (tmp_path / "m.md").read_text()
    assert written.splitlines()[2].startswith("vae FAILS in 6 of 6 tasks on 2x Test;")
    assert "| Per GPU" not in written
    page = (tmp_path / "p.html").read_text()
    assert page.index("vae FAILS in 6 of 6 tasks on 2x Test") < page.index('id="scores"')
    assert "Per GPU" not in page
    content = json.loads((tmp_path / "j.json").read_text())
    own, against = content["score"], content["comparisons"][0]
    assert (own["verdict"], own["reason"]) == ("FAIL", "vae fails in 6 of 6 tasks")
    assert [own[name] for name in ("value", "machine", "speed", "machine_speed", "interval")] == [None] * 5
    assert content["price"] == {"price": 100.0, "per_machine_score": None}
    assert [against["overall"][name] for name in ("per_gpu", "machine")] == [None, None]
    assert [job["verdict"]["word"] for job in against["jobs"]] == ["SAME", "SAME", "FAILS"]


def test_a_job_that_fails_here_and_not_in_the_base_stands_so_in_the_table(tmp_path: Path) -> None:
    here = summary_for(tmp_path / "here", *suite(fails=["vae"]))
    base = summary_for(tmp_path / "base", *suite(rate=900))
    for one, other, word, counts in (
        (here, base, "FAILS", "6 of 6 / 0 of 6"),
        (base, here, "BASE FAILS", "0 of 6 / 6 of 6"),
    ):
        shown = document_of(one, base=other)
        cells = row(section(shown, "Against base"), "vae")
        assert (cells["verdict"].text, cells["verdict"].tone, cells["ratio"].text) == (word, "bad", "n/a")
        assert cells["failed / baseline"].text == counts
        lines = sentences(section(shown, "Against base"))
        where = "here" if one is here else "in the baseline"
        assert f"Fails more often (exact test, family-wise error 5 %): vae ({where})" in lines


def test_a_part_is_scored_only_on_request_and_named_as_one(call: Call, tmp_path: Path) -> None:
    jobs = [f"job{i:02}" for i in range(18)]
    run(tmp_path / "here", jobs=jobs, gpus=1, repeats=1, fails=jobs[:2])
    run(tmp_path / "base", jobs=jobs, gpus=1, repeats=1)
    arguments = ("report", "--full", tmp_path / "here", "--compare", tmp_path / "base", "--price", "10")
    assert "18 jobs only" not in call(*arguments)[1]
    part = call(*arguments, "--partial")[1]
    assert first_lines(part).startswith(
        "job00 FAILS in 1 of 1 task, job01 FAILS in 1 of 1 task on 1x Test; 1.00x (SAME) base as a machine and a GPU, "
        "over 16 of 18 jobs only; 2 of 18 tasks failed. "
        "The score is over 16 of 18 jobs only: job00 fails in 1 of 1 task; job01 fails"
    )
    assert "per GPU 1.00x, whole machine 1.00x (1 GPU against 1), over 16 of 18 common jobs only" in first_lines(part)
    block = unwrapped(part[part.index("\nScore ") :])
    assert "1,000 INCOMPLETE PROVISIONAL over 16 of 18 jobs only" in block
    assert "ok tasks only, over 16 of 18 jobs only; no interval" in block
    assert "Price / machine score n/a none: no machine score over all jobs" in block, "a part has no price"
    assert "--partial" not in part


def test_a_job_that_never_succeeds_on_one_gpu_fails_a_run_below_the_limit(tmp_path: Path) -> None:
    """3 of 312 tasks are just under 1 %, up to which a run passes: the lines name the job, the GPU and the rule."""
    summary = summary_for(tmp_path, *suite(jobs=["vae"], gpus=4, fails=[("vae", 3)]), run=make_run(4))
    (job,) = summary.jobs
    ok = [task for task in job.tasks if task.status == "ok"]
    more = tuple(replace(task, repeat=3 + r, id=f"{task.id}.{r}") for r in range(100) for task in ok[:3])
    tasks = job.tasks + more
    shown = document_of(replace(summary, jobs=(replace(job, tasks=tasks, n=len(tasks), fail=3),)))
    first = shown.intro[0].text
    assert first.startswith("vae FAILS on GPU 3 in 3 of 3 tasks on 4x Test; score ")
    assert "3 of 312 tasks failed (vae 3 of 312)" in first
    assert shown.intro[1].text == "Never ok: vae on GPU 3 (3 of 3 tasks fail)."
    rate = "1.0 % | FAIL | 3 of 312 tasks not ok; up to 1 % passes, if every job succeeds on every GPU"
    assert beside(shown, "Failure rate") == rate


def test_the_first_line_names_the_jobs_that_fail_now_and_then(call: Call, tmp_path: Path) -> None:
    run(tmp_path / "run", fails=[("vae", 0, 1), ("atari", 1, 0), ("atari", 0, 2)])
    assert "3 of 18 tasks failed (atari 2 of 6, vae 1 of 6)" in first_lines(call("report", tmp_path / "run")[1])


# --- the baseline -----------------------------------------------------------------------------------------------------


def cut_off(folder: Path) -> Path:
    """A run of 18 tasks that ended after 14."""
    tasks = [make_task(job, repeat, gpu) for job in JOBS for repeat in range(3) for gpu in range(2)]
    keep_run(folder, suite()[:14], tasks)
    return folder


def test_a_base_that_was_cut_off_is_named(call: Call, tmp_path: Path) -> None:
    here, base = run(tmp_path / "here"), cut_off(tmp_path / "base")
    out = call("report", "--full", here, "--compare", base)[1]
    assert first_lines(out).startswith(
        "2x Test: score 1,000 (speed ±0.5 %) over 3 jobs; no ratio to base; no failures; "
    )
    assert f"No ratio over all jobs to {base}: the baseline: tasks to run: vae (4 of 6)." in first_lines(out)
    assert "No ratio the baseline: tasks to run: vae (4 of 6); --partial compares the other jobs" in unwrapped(out)
    code, own, error = call("report", base, "--fail-on", "failures")
    assert "2x Test is UNFINISHED: 4 of 18 tasks still to run; no failures so far." in first_lines(own)
    assert f"Continue: benchsuite jobs --resume {base}" in unwrapped(own)
    assert "0.0 % UNFINISHED so far (14 of 18 ended): 0 not ok" in unwrapped(own)
    assert (code, error) == (0, "")
    assert "incomplete: 4 tasks of 18 not run" in call("report", base, "--fail-on", "incomplete")[2]


def test_a_base_that_fails_is_named_beside_the_ratios(call: Call, tmp_path: Path) -> None:
    here, base = run(tmp_path / "here"), run(tmp_path / "base", fails=[("vae", 1)])
    out = call("report", "--full", here, "--compare", base)[1]
    assert "The baseline FAILs: 3 of its 18 tasks not ok." in first_lines(out)
    block = unwrapped(out[out.index("\nScore ") :])
    assert "Baseline FAIL: 3 of its 18 tasks not ok; never ok: vae on GPU 1 (3 of 3 tasks fail)" in block
    assert "0 of 18 tasks here, 3 of 18 in the baseline: no proof of a difference (exact test, p 0.23)" in block
    assert (
        "per GPU 1.00x, whole machine n/a (2 GPUs against 2); no ratio of the machines: "
        "vae never succeeds on GPU 1 on hostA in the baseline." in first_lines(out)
    )
    once = run(tmp_path / "once", fails=[("vae", 1, 0)])
    out = call("report", "--full", here, "--compare", once)[1]
    assert "per GPU 1.00x, whole machine 1.00x (2 GPUs against 2)" in first_lines(out)
    assert "2 GPUs against 2, tasks that fail count like ok ones; 95 %" in unwrapped(out)


def test_a_summary_keeps_the_states(call: Call, tmp_path: Path) -> None:
    """A run that was cut off and failed is no better as a summary, alone or as a base."""
    kept = tmp_path / "kept.json"
    call("summary", cut_off(tmp_path / "cut"), "-o", kept)
    assert "2x Test is UNFINISHED: 4 of 18 tasks still to run;" in first_lines(call("report", kept)[1])
    against = call("report", run(tmp_path / "whole"), "--compare", kept)[1]
    assert "the baseline: tasks to run: vae (4 of 6)" in first_lines(against)


# --- ratios per GPU and of machines -----------------------------------------------------------------------------------


def test_eight_gpus_against_one_are_named_per_gpu_and_as_machines(call: Call, tmp_path: Path) -> None:
    eight, one = run(tmp_path / "eight", gpus=8), run(tmp_path / "one", gpus=1)
    out = call("report", eight, "--compare", one)[1]
    assert f"Against {one}: per GPU 1.00x, whole machine 8.00x (8 GPUs against 1). Per GPU SAME" in first_lines(out)
    assert "whole machine FASTER (95 %: 7." in first_lines(out)
    back = first_lines(call("report", one, "--compare", eight)[1])
    assert re.search(r"per GPU 1\.00x, whole machine 0\.1[23]x \(1 GPU against 8\)\. Per GPU SAME", back)
    assert "whole machine SLOWER" in back


def test_the_interval_stands_beside_the_speed_and_contains_it(call: Call, tmp_path: Path) -> None:
    for name in ("h200x2.json", run(tmp_path / "run", rate=500)):
        out = call("report", BASELINES / name)[1]
        found = re.search(
            r"Speed +([0-9,.]+) without penalties, ok tasks only; 95 %: ([0-9,.]+) to ([0-9,.]+) \(±", unwrapped(out)
        )
        assert found
        speed, low, high = (float(text.replace(",", "")) for text in found.groups())
        assert low < speed < high
        assert speed == pytest.approx((low * high) ** 0.5, rel=1e-3), "centred as the mean is: in logs"
        score = re.search(r"\nScore +[0-9,.]+ ([^0-9]*)\n", out)
        assert score, "the score has no interval"


def test_a_verdict_on_windows_that_are_not_steady_is_marked(tmp_path: Path) -> None:
    here = summary_for(tmp_path / "here", *suite(rate=1200))
    base = summary_for(tmp_path / "base", *suite())
    shaky = replace(base, jobs=tuple(replace(job, unsteady=2) if job.name == "vae" else job for job in base.jobs))
    against = section(document_of(here, base=shaky), "Against base")
    assert row(against, "vae")["verdict"].text == "FASTER, on flagged windows"
    assert row(against, "atari")["verdict"].text == "FASTER"
    assert "The verdict rests on windows that are not steady: vae (0 here, 2 in the baseline)" in sentences(against)


# --- the reasons are true ---------------------------------------------------------------------------------------------


def test_another_batch_size_on_the_same_machine_is_named_and_apart_from_the_machines_ratio(tmp_path: Path) -> None:
    def of(batch: int) -> list[Result]:
        job = Job(name="vae", model="vae", params={"batch_size": batch})
        return [make_result(task=replace(make_task("vae"), job=job)), *suite(jobs=["atari"], gpus=1, repeats=1)]

    shown = document_of(summary_for(tmp_path / "a", *of(64)), base=summary_for(tmp_path / "b", *of(128)))
    cells = texts(row(section(shown, "Against base"), "vae"))
    assert (cells["ratio"], cells["verdict"]) == ("1.00", "n/a: batch size 64 against batch size 128")
    assert shown.intro[1].text.startswith(
        "batch size 64 is 1.00x (no verdict) batch size 128 over 1 job (vae), on the same machine as base, per GPU."
    )
    assert shown.intro[2].text.startswith("Against base: per GPU 1.00x")
    assert beside(shown, "Stand apart") == "vae (batch size 64 against batch size 128)"
    assert not any(re.search(r"need 3.*vae", line) for line in sentences(section(shown, "Against base")))


def test_a_published_baseline_keeps_no_figures_per_repeat(call: Call) -> None:
    out = call("report", BASELINES / "h200x2.json", "--compare", "v100")[1]
    assert (
        "Against v100: per GPU 3.03x, whole machine 0.76x (2 GPUs against 8). "
        "No verdict: the baseline keeps no numbers per repeat." in first_lines(out)
    )
    own = unwrapped(call("report", BASELINES / "v100.json")[1])
    assert "no interval: no numbers per repeat are kept" in own
    assert "Machine score n/a needs numbers per repeat, which are not kept" in own
    assert "--repeat" not in own, "its ten repeats were measured; they are not kept"


def test_a_job_that_name_or_exclude_left_out_is_no_lack_of_gpus(tmp_path: Path) -> None:
    summary = replace(summary_for(tmp_path, *suite(jobs=["vae"])), left_out=("atari", "scaling.2"))
    shown = document(report_of(summary, {"vae": 1, "atari": 1, "scaling.2": 1, "scaling.8": 1}))
    reason = "left out by --name or --exclude: atari, scaling.2"
    assert shown.intro[0].text.startswith(f"2x Test has no score: {reason};")
    assert beside(shown, "Incomplete").startswith(reason)
    assert beside(shown, "Do not apply") == "scaling.8 (the machine has fewer GPUs)"


# --- price and power --------------------------------------------------------------------------------------------------


def test_a_price_divides_the_machine_score_only(call: Call) -> None:
    out = call("report", BASELINES / "h200x2.json", "--price", "60000")[1]
    assert "Price / machine score 8.63 60,000 / 6,950 (less is better)" in unwrapped(out)
    assert out.count("less is better") == 1
    unknown = unwrapped(call("report", BASELINES / "v100.json", "--price", "60000")[1])
    assert "Price / machine score n/a none: no numbers per repeat are kept" in unknown


def test_power_comes_from_telemetry_and_is_absent_without(call: Call) -> None:
    out = unwrapped(call("report", BASELINES / "h200x2.json", "--power")[1])
    assert "Machine score / W 12.69 7,244 / 571 W of the GPUs in use, without the rest of the machine" in out
    without = unwrapped(call("report", BASELINES / "v100.json", "--power")[1])
    assert "Machine score / W n/a none: there is no GPU power of toy_reg, toy_lstm" in without
    assert "Machine score / W" not in call("report", BASELINES / "h200x2.json")[1]


def test_an_incomplete_run_has_no_power_either(call: Call, tmp_path: Path) -> None:
    summary = read_summary(BASELINES / "h200x2.json")
    jobs = tuple(
        replace(job, perf=None, perf_adj=0.0, fail=job.n) if job.name == "vae" else job for job in summary.jobs
    )
    write_summary(tmp_path / "s.json", replace(summary, jobs=jobs))
    out = unwrapped(call("report", tmp_path / "s.json", "--power", "--partial")[1])
    assert "Machine score / W n/a none: vae has no ok task of 6" in out


# --- small words ------------------------------------------------------------------------------------------------------


def test_forced_ratios_of_other_work_say_so_first(tmp_path: Path) -> None:
    base = summary_for(tmp_path / "base", *suite())
    other = replace(base, jobs=tuple(replace(job, workload="other") for job in base.jobs))
    report = report_of(base)
    forced = compare(base, other, report.score.weighing, "base", unlike=True)
    shown = document(Report("it", base, report.score, (forced,)))
    assert ", over 3 common jobs, 3 of another workload." in shown.intro[1].text


@pytest.mark.parametrize("width", [80, 120])
def test_the_whole_report_fits_its_width(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    run(tmp_path / "fails", fails=["vae", ("atari", 1)])
    for arguments in (
        (BASELINES / "h200x2.json", "--compare", "h200", "--compare", "v100", "--power", "--price", "1"),
        (tmp_path / "fails", "--compare", tmp_path / "fails", "--compare", BASELINES / "h200x2.json", "--partial"),
    ):
        out = call("report", "--full", *arguments)[1]
        assert max(map(len, out.splitlines())) <= width
        figures = [line for line in out.splitlines() if line.startswith(("Per GPU /", "Whole machine /"))]
        assert all(re.search(r" ([0-9.]+x|no ratio) ", line) for line in figures), "labels leave room for the figures"
