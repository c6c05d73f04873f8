"""Several runs of one machine, reported together as sessions."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Call, keep_run, make_result, make_run, make_task
from made_telemetry import make_device, make_telemetry

from benchsuite.describe.tasks import Job, Placement, RerunOf
from benchsuite.errors import ResultError, UsageError
from benchsuite.records import Result
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.read.summary_file import read_summary, write_summary
from benchsuite.report.sources import run_names, summary_of, summary_of_runs
from benchsuite.report.stats.compare import find_base
from benchsuite.report.stats.scaling import curves
from benchsuite.report.stats.sessions import not_in_every, together

BASELINES = Path(__file__).resolve().parents[1] / "baselines"


def keep_session(folder: Path, results: Sequence[Result], day: int, **fields: Any) -> Path:
    """A run folder of that day of January; `driver`, `host` and `gpu` (its model) are of the machine."""
    used = len({gpu.uuid for result in results for gpu in result.task.gpus})
    run = make_run(used)
    (machine,) = run.machines
    model = fields.pop("gpu", "NVIDIA Test")
    profile = msgspec.structs.replace(run.profile, **fields.pop("profile", {}))
    cards = tuple(msgspec.structs.replace(card, name=model) for card in machine.gpus)
    machine = msgspec.structs.replace(machine, gpus=cards, **fields)
    created = f"2026-01-{day:02d}T16:00:00+00:00"
    keep_run(folder, results, run=msgspec.structs.replace(run, created=created, machines=(machine,), profile=profile))
    return folder


def measured(rates: Sequence[float], job: str = "vae", gpus: int = 1, **fields: Any) -> list[Result]:
    """One repeat a rate; each further GPU is 10 % faster than the one before."""
    return [
        make_result(job, [rate * 1.1**gpu] * 30, repeat=repeat, gpu=gpu, slice_s=10.0, **fields)
        for repeat, rate in enumerate(rates)
        for gpu in range(gpus)
    ]


def three(folder: Path) -> list[Path]:
    """Three sessions of three repeats on one GPU, whose means of logs are ln 100 - 0.02, ln 100 and ln 100 + 0.02."""
    rates = [[100 * math.exp(shift + noise) for noise in (-0.004, 0, 0.004)] for shift in (-0.02, 0, 0.02)]
    days = enumerate(rates, start=5)
    return [keep_session(folder / "abc"[day - 5], measured(of, origin_s=1000.0 * day), day) for day, of in days]


def only_job(summary: Summary) -> JobSummary:
    (job,) = summary.jobs
    return job


def test_a_single_summary_stays_as_it_is(tmp_path: Path) -> None:
    alone = summary_of(three(tmp_path)[0])
    assert together([alone], ["a"]) is alone
    assert alone.sessions == ()


def test_three_sessions_are_the_sample(tmp_path: Path) -> None:
    job = only_job(summary_of_runs(three(tmp_path)))
    assert job.interval is not None
    # s = 0.02, t(0.975, df 2) = 4.302653: half = exp(t * s / sqrt(3)) - 1
    assert (job.interval.of, job.interval.repeats) == ("session", 3)
    assert job.interval.half == pytest.approx(math.expm1(4.302653 * 0.02 / math.sqrt(3)), rel=1e-3)
    alone = only_job(summary_of(tmp_path / "a")).interval
    assert alone is not None
    assert (alone.of, alone.repeats) == ("repeat", 3)
    assert alone.half < job.interval.half / 4


def test_two_sessions_are_taken_as_repeats(tmp_path: Path) -> None:
    job = only_job(summary_of_runs(three(tmp_path)[:2]))
    assert job.interval is not None
    assert (job.interval.of, job.interval.repeats) == ("repeat", 6)
    assert [(r.session, r.repeat) for r in job.repeats] == [(s, r) for s in range(2) for r in range(3)]


@pytest.mark.parametrize("copies", [1, 2])
def test_the_figures_are_those_of_one_run_with_all_repeats(tmp_path: Path, copies: int) -> None:
    sharing: Any = "concurrent" if copies > 1 else "serial"
    record = Job(name="vae", model="vae", placement=Placement(devices="each"), sharing=sharing, copies=copies)

    def result(repeat: int, gpu: int, copy: int, rate: float) -> Result:
        task = msgspec.structs.replace(
            make_task("vae", repeat, gpu, job=record), copy=copy, id=f"{repeat}.{gpu}.{copy}"
        )
        telemetry = make_telemetry(make_device(gpu, {"gpu_percent": rate / 2}, {"sw_thermal": 1.5}, energy_j=90 * rate))
        if (repeat, gpu) == (3, 1):
            return make_result(task=task, status="oom", rates=())
        return make_result(task=task, rates=[rate + gpu - copy] * 30, slice_s=10.0, telemetry=telemetry)

    rates = [[100, 104], [98, 95], [103, 110]]
    places = [(gpu, copy) for gpu in range(2) for copy in range(copies)]
    flat = [
        result(repeat, gpu, copy, rate)
        for repeat, rate in enumerate(rate for of in rates for rate in of)
        for gpu, copy in places
    ]
    whole = only_job(summary_of(keep_session(tmp_path / "whole", flat, 1)))
    parts = [
        keep_session(
            tmp_path / str(s), [result(r + 2 * s, g, c, rates[s][r]) for r in range(2) for g, c in places], s + 2
        )
        for s in range(3)
    ]
    merged = only_job(summary_of_runs(parts))
    for name in ("n", "fail", "not_run", "to_run", "perf", "std", "perf_adj", "min", "max", "slices", "unsteady"):
        assert getattr(merged, name) == getattr(whole, name), name
    assert merged.use is not None
    assert whole.use is not None
    assert merged.use.items_per_joule == pytest.approx(whole.use.items_per_joule)
    assert msgspec.structs.replace(merged.use, items_per_joule=None) == msgspec.structs.replace(
        whole.use, items_per_joule=None
    )
    assert (merged.std_parts, merged.seconds) == (whole.std_parts, whole.seconds)
    assert [r.perf for r in merged.repeats] == [r.perf for r in whole.repeats]


def test_a_job_that_a_session_lacks_is_named(tmp_path: Path, call: Call) -> None:
    """Its interval is over repeats, which the report says as well."""
    loader = [measured([200, 202, 204], "loader"), measured([210, 211, 212], "loader"), []]
    failed = [make_result("wlm", status="oom", rates=(), repeat=repeat) for repeat in range(3)]
    wlm = [failed, measured([50, 51, 52], "wlm"), measured([53, 54, 55], "wlm")]
    vae = [measured([100 + day, 101, 102]) for day in range(3)]
    runs = [
        keep_session(tmp_path / str(day), [*vae[day], *loader[day], *wlm[day]], day + 1, boot_id=str(day))
        for day in range(3)
    ]
    summary = summary_of_runs(runs)
    assert not_in_every(summary) == {
        "loader": "in 2 of 3 sessions, its interval is over repeats",
        "wlm": "ok in 2 of 3 sessions, its interval is over repeats",
    }
    assert [job.n for job in summary.jobs] == [9, 6, 9]
    _, out, _ = call("report", "--full", *runs)
    flat = " ".join(out.split())
    assert "Not in every session loader: in 2 of 3 sessions, its interval is over repeats; wlm: ok in 2 of 3" in flat
    assert "over sessions (needs 3); over repeats where a job is ok in fewer than 3." in flat
    session, status, task = next(line for line in out.splitlines() if " oom " in line).split()[:3]
    assert (session, status, task) == ("1", "oom", "wlm.J0.0")


def test_the_report_says_what_an_interval_includes(tmp_path: Path, call: Call) -> None:
    runs = three(tmp_path)

    def said(*arguments: str | Path) -> str:
        _, out, _ = call("report", "--full", *arguments)
        return " ".join(out.split())

    one, two, all_three = said(runs[0]), said(*runs[:2]), said(*runs)
    assert "Sessions one session: an interval leaves out what changes between runs; 3 sessions include it" in one
    assert "perf's interval over repeats (needs 3)." in one
    assert "UTC), taken as repeats: from 3 sessions on an interval includes the variation between them" in two
    assert "3 sessions, 9 repeats" in all_three
    assert "Sessions 3 sessions (2026-01-05 16:00 UTC, 2026-01-06 16:00 UTC, 2026-01-07 16:00 UTC): an" in all_three
    assert "perf's interval over sessions (needs 3)." in all_three
    assert "Sessions" not in said(BASELINES / "v100.json")  # it keeps no repeats


def test_hosts_and_differences_between_sessions_are_said(tmp_path: Path, call: Call) -> None:
    here = keep_session(tmp_path / "a", measured([100, 101, 102]), 1)
    there = keep_session(tmp_path / "b", measured([103, 104, 105], host="hostB"), 2, host="hostB", driver="590.0")
    summary = summary_of_runs([here, there])
    assert [(s.source, s.hosts, s.differences) for s in summary.sessions] == [
        ("a", ("hostA",), ()),
        ("b", ("hostB",), ("driver 580.0 -> 590.0",)),
    ]
    assert (summary.gpus_used, summary.gpus_present, summary.created) == (1, 1, "2026-01-01T16:00:00+00:00")
    _, out, _ = call("report", "--full", here, there)
    flat = " ".join(out.split())
    assert "on 2 hosts (hostA, hostB), taken as repeats" in flat
    assert "Session 2 differs driver 580.0 -> 590.0" in flat


def test_sessions_that_train_different_things_are_a_mean_over_different_work(tmp_path: Path) -> None:
    task = make_task()
    other = msgspec.structs.replace(task, job=msgspec.structs.replace(task.job, params={"batch_size": 64}))
    one = keep_session(tmp_path / "a", [make_result(task=task)], 1)
    two = keep_session(tmp_path / "b", [make_result(task=other, rates=[90.0] * 30)], 2)
    assert only_job(summary_of_runs([one, two])).unlike == ("params.batch_size none -> 64",)


def test_facts_of_the_runs_add_up(tmp_path: Path) -> None:
    runs = three(tmp_path)
    rerun = make_task(rerun_of=RerunOf(result="x.json", changes=()))
    runs.append(keep_session(tmp_path / "d", [*measured([101, 102, 103]), make_result(task=rerun)], 9))
    (runs[0] / "suite.odd.json").write_text("{}")
    summary = summary_of_runs(runs)
    assert summary.isolation == {"CPU none, memory none (not fenced)": 12}
    assert [bad.file for bad in summary.bad_files] == ["a/suite.odd.json"]
    assert [rerun.task.session for rerun in summary.reruns] == [3]
    assert (summary.source, summary.planned, len(summary.machines)) == ("a, b, c, d", True, 1)
    assert summary.profile == summary_of(runs[0]).profile


def test_a_summary_of_sessions_is_kept_and_joined_by_more(tmp_path: Path, call: Call) -> None:
    a, b, c = three(tmp_path)
    kept = tmp_path / "ab.json"
    assert call("summary", a, b, "-o", kept)[0] == 0
    whole, joined = summary_of_runs([a, b, c]), summary_of_runs([kept, c])
    assert joined == whole
    last_first = summary_of_runs([c, kept])
    assert [s.source for s in last_first.sessions] == ["c", "a", "b"]
    assert [task.session for task in only_job(last_first).tasks] == [0] * 3 + [1] * 3 + [2] * 3
    assert only_job(last_first).interval == only_job(whole).interval
    write_summary(tmp_path / "abc.json", whole)
    assert read_summary(tmp_path / "abc.json") == whole


@pytest.mark.parametrize(
    ("fields", "gpus", "why"),
    [
        ({"gpu": "V100"}, 1, "1 x NVIDIA Test, {b}: 1 x V100; sessions are runs of one machine or of equal machines"),
        ({}, 2, "1 x NVIDIA Test, {b}: 2 x NVIDIA Test; sessions are"),
        ({"profile": {"name": "other"}}, 1, "profile suite, {b}: profile other; sessions are runs of one profile"),
        ({"profile": {"based_on": "x"}}, 1, r"profile suite, {b}: profile suite \(based on x\); sessions"),
    ],
)
def test_runs_that_are_no_sessions_of_one_machine_are_refused(
    tmp_path: Path, fields: dict[str, Any], gpus: int, why: str
) -> None:
    one = keep_session(tmp_path / "a", measured([100, 101, 102]), 1)
    other = keep_session(tmp_path / "b", measured([103, 104, 105], gpus=gpus), 2, **fields)
    with pytest.raises(ResultError, match=f"{one}: {why.format(b=other)}"):
        summary_of_runs([one, other])


def test_the_same_run_is_named_once(tmp_path: Path, call: Call) -> None:
    a, b, _ = three(tmp_path)
    copy = shutil.copytree(a, tmp_path / "copy")
    (copy / "run.json").unlink()  # only the results say which run it is
    kept = tmp_path / "kept.json"
    write_summary(kept, summary_of_runs([a, b]))
    for other in (a, copy, kept):
        status, _, err = call("report", "--full", b if other == a else a, a, other)
        assert (status, err.count("\n")) == (2, 1)
        assert "are the same run; name each run once" in err


def test_a_published_baseline_is_no_session(tmp_path: Path, call: Call) -> None:
    run = three(tmp_path)[0]
    status, _, err = call("report", "--full", run, "--compare", f"{run},v100")
    assert status == 2
    assert "v100: it keeps no single tasks and repeats, so that it cannot be one of several sessions" in err


def test_several_runs_of_a_baseline(tmp_path: Path, call: Call) -> None:
    a, b, c = three(tmp_path)
    here = keep_session(tmp_path / "here", measured([120, 121, 122]), 20)
    assert find_base(f"{a},{b},{c}") == summary_of_runs([a, b, c])
    _, out, _ = call("report", "--full", here, "--compare", f"{a},{b},{c}", "--compare", str(b))
    flat = " ".join(out.split())
    assert "a, b, c; 3 sessions; hostA" in flat
    assert flat.count("Baseline:") == 2


def test_commas_separate_runs_unless_a_name_has_them(tmp_path: Path) -> None:
    odd = keep_session(tmp_path / "a,b", measured([100, 101, 102]), 1)
    assert run_names(str(odd)) == [str(odd)]
    assert find_base(str(odd)).source == "a,b"
    assert run_names("v100,h200") == ["v100", "h200"]
    for empty in ("", "a,,b", "a,", ",a"):
        with pytest.raises(UsageError, match="an empty name of a run"):
            run_names(empty)


def test_files_of_a_report_of_sessions(tmp_path: Path, call: Call) -> None:
    runs, page = three(tmp_path), tmp_path / "page.html"
    status, out, _ = call("report", "--full", *runs, "--json", "-", "--html", page)
    assert status == 0
    written = json.loads(out)
    assert written["title"] == ", ".join(map(str, runs))
    assert [session["source"] for session in written["summary"]["sessions"]] == ["a", "b", "c"]
    assert (written["jobs"][0]["interval_of"], written["jobs"][0]["interval_repeats"]) == ("session", 3)
    html = page.read_text()
    assert "this page is of several sessions; the page of a single results folder shows them" in html
    assert "Throughput over time</h2>" not in html


def test_a_summary_of_sessions_is_plotted_as_one_run_is(tmp_path: Path, call: Call) -> None:
    a, b, c = three(tmp_path)
    write_summary(tmp_path / "ab.json", summary_of_runs([a, b]))
    base = f"{tmp_path / 'ab.json'},{c}"
    assert call("plot", "--kind", "compare", tmp_path / "ab.json", "--base", base, "-o", tmp_path / "x.svg")[0] == 0
    assert "(a, b) against a, b, c" in (tmp_path / "x.svg").read_text()
    status, _, err = call("plot", "--kind", "throughput", tmp_path / "ab.json", "-o", tmp_path / "y.svg")
    assert (status, err.count("\n")) == (2, 1)


def test_efficiency_of_scaling_is_over_sessions(tmp_path: Path) -> None:
    record = Job(name="s", model="vae", placement=Placement(devices="progression"))
    runs = []
    for day, slower in enumerate((1.0, 0.9, 0.8), start=1):
        tasks = [make_task("s", repeat, gpus=make_task(gpu=0).gpus, ranks=ranks, job=record) for ranks in (1, 2)
                 for repeat in range(2)]  # fmt: skip
        results = [
            make_result(task=task, rates=[100.0 if task.ranks == 1 else 200.0 * slower] * 30, slice_s=10.0)
            for task in tasks
        ]
        runs.append(keep_session(tmp_path / str(day), results, day))
    (curve,) = curves(summary_of_runs(runs))
    interval = curve.points[1].interval
    assert interval is not None
    assert (interval.of, interval.repeats) == ("session", 3)
