"""What a reader sees; plain text, at two widths."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import keep_results, keep_run, make_result, make_run, make_task
from rich.console import Console

from benchsuite.records import Code, Failure, ProfileUsed, Result
from benchsuite.report.compare import compare
from benchsuite.report.figures import number, one_line, ratio
from benchsuite.report.load import load
from benchsuite.report.render import Report, render
from benchsuite.report.score import score
from benchsuite.report.summarise import summarise
from benchsuite.report.summary import Summary
from benchsuite.report.weights import Weights, weigh
from benchsuite.tasks import RerunOf


def text_of(
    summary: Summary, weights: dict[str, float] | None = None, base: Summary | None = None, width: int = 120
) -> str:
    laid = weigh(Weights(weights, "w.json", "b" * 64), summary)
    comparison = compare(summary, base, laid, "base") if base else None
    out = io.StringIO()
    console = Console(file=out, width=width, markup=False, emoji=False, highlight=False)
    render(Report("run", summary, score(summary, laid), comparison), console)
    return out.getvalue()


def summary_for(folder: Path, *results: Result, **more: Any) -> Summary:
    keep_run(folder / "run", results, **more)
    return summarise(load(folder / "run"))


def line_of(text: str, start: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.strip().startswith(start))
    return words(line)


def words(line: str) -> list[str]:
    return line.split()


def test_a_row_and_its_figures(tmp_path: Path) -> None:
    results = [make_result(rates=[(90, 110)[gpu]] * 30, gpu=gpu, repeat=r) for r in range(3) for gpu in range(2)]
    text = text_of(summary_for(tmp_path, *results), {"vae": 8})
    assert line_of(text, "vae ") == [
        "vae",
        "6",
        "0",
        "100.00",
        "image/s",
        "10.0",
        "90.00",
        "±0.0",
        "%",
        "8",
        "108",
        "54.0",
    ]
    assert line_of(text, "Score  ") == words("Score 90.00 95 %: 90.00 to 90.00 (±0.0 %)")
    assert line_of(text, "Failure rate")[2:5] == ["0.0", "%", "PASS"]
    assert "INCOMPLETE" not in text
    assert "PROVISIONAL" not in text


def test_one_sample(tmp_path: Path) -> None:
    text = text_of(summary_for(tmp_path, make_result(rates=[50] * 30)))
    assert line_of(text, "vae ") == words("vae 1 0 50.00 image/s n/a 50.00 n/a 1 18 9.0")
    assert line_of(text, "Score  ")[1:] == ["50.00", "PROVISIONAL"]
    assert "1 repeat with a figure for every scored job; an interval needs 3" in text


def test_a_failed_job(tmp_path: Path) -> None:
    oom = Failure(kind="OutOfMemoryError", message="CUDA out of memory.\nTried [red]hard[/red]")
    failed = [make_result("x", gpu=gpu, status="oom", error=oom, rates=()) for gpu in range(3)]
    text = text_of(
        summary_for(tmp_path, make_result("a"), make_result("c", rates=[25] * 60), *failed), {"a": 1, "c": 1, "x": 1}
    )
    assert line_of(text, "x ") == words("x 3 3 n/a n/a n/a 0.00 n/a 1 0 0.0")
    assert "INCOMPLETE" in line_of(text, "Score  ")
    assert "covers 66 % of the weight; no ok task: x" in text
    assert "FAIL" in line_of(text, "Failure rate")
    assert "x.J0.0 J0.1 J0.2" in text
    assert "CUDA out of memory." in text
    for never in ("nan", "inf ", "Traceback", "Tried"):
        assert never not in text


def test_all_failed(tmp_path: Path) -> None:
    text = text_of(summary_for(tmp_path, make_result(status="timeout", rates=())))
    assert "no score: no weighed job has a throughput" in text
    assert "100.0 %   FAIL" in text


def test_every_kind_of_trouble_has_its_reason(tmp_path: Path) -> None:
    tasks = [make_task(gpu=gpu) for gpu in range(3)]
    results = [make_result(rates=[5, 50]), make_result(gpu=1, rates=[60, 140] * 15)]
    summary = summary_for(tmp_path, *results, tasks=tasks)
    (tmp_path / "run" / "bad.json").write_bytes(b"[]")
    text = text_of(summarise(load(tmp_path / "run")))
    assert "insufficient  vae.J0.0 on GPU 0" in text
    assert "2 slices, 1.0 s in all" in text
    assert "not run       vae.J0.2 on GPU 2" in text
    assert "40.0 %" in " ".join(line_of(text, "vae.J0.1"))
    assert "bad.json  not a result of benchsuite" in text
    assert "Files that cannot be used (1; counted as no task)" in text
    assert summary.jobs[0].n == 3


def test_reruns_are_shown_beside_the_original(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (original,) = keep_run(folder, [make_result()])
    rerun = make_task(rerun_of=RerunOf(result=original.name, changes=("precision: fp32 -> bf16",)))
    stray = make_task(gpu=1, rerun_of=RerunOf(result="elsewhere.json"))
    keep_results(folder, [make_result(rates=[150] * 30, task=rerun), make_result(task=stray)])
    text = text_of(summarise(load(folder)), width=160)
    assert "Reruns (in no figure above)" in text
    assert "150.00    100.00   1.50" in text
    assert "precision: fp32 -> bf16" in text
    assert "elsewhere.json (not here, or not ok)" in text


def test_a_comparison(tmp_path: Path) -> None:
    summary = summary_for(tmp_path, make_result(), make_result("mine"))
    jobs = (msgspec.structs.replace(summary.jobs[0], perf=80.0, perf_adj=50.0, workload="other"),)
    base = msgspec.structs.replace(summary, jobs=jobs, provenance="measured with care", source="old")
    text = text_of(summary, base=base)
    section = text.partition("Against base")[2]
    assert line_of(section, "vae ") == words("vae 100.00 80.00 1.25 100.00 50.00 2.00")
    assert "Not the same workload: vae" in text
    assert "Only in this run: mine" in text
    assert "old; hostA: 2 x NVIDIA Test" in text
    assert "measured with care" in text
    assert "2.00   100.00 / 50.00, over 1 common job" in " ".join(text.split("Score ratio")[1].splitlines()[0:1])


def test_what_stands_beside_the_score(tmp_path: Path) -> None:
    profile = ProfileUsed(
        name="tweaked",
        path="t.json",
        sha256="c" * 64,
        text="{}",
        official=False,
        based_on="standard",
        differences=("vae.batch_size: 128 -> 64",),
    )
    code = Code(version="0.1.0", commit="d" * 40, dirty=True)
    run = make_run(4, profile=profile, code=code)
    summary = summary_for(tmp_path, make_result(code=code), make_result(gpu=1, code=code), run=run)
    text = text_of(summary, {"vae": 1, "scaling.8": 2})
    assert "tweaked, MODIFIED from standard, sha256 cccccccccccc: vae.batch_size: 128 -> 64" in text
    assert "w.json, not the shipped weights of this profile, sha256 bbbbbbbbbbbb" in text
    assert "hostA: 4 x NVIDIA Test, driver 580.0" in text
    assert "2 used of 4 present" in text
    assert "CPU none, memory none (not fenced)" in text
    assert "at least 100 % of their windows" in text
    assert "benchsuite 0.1.0 at dddddddddddd, with uncommitted changes" in text
    assert "36 slices, 18.0 s" in text
    assert "scaling.8 (the machine has fewer GPUs)" in text


def test_without_a_plan_it_says_so(tmp_path: Path) -> None:
    keep_results(tmp_path, [make_result()])
    (tmp_path / "x.json").write_bytes(b"")
    text = text_of(summarise(load(tmp_path)))
    assert "no plan.json: n counts the results found, lost tasks are not seen; 1 file could not be used" in text
    assert "every job weighs 1 (no weights are shipped for this profile)" in text


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_too_wide_and_no_name_is_cut(tmp_path: Path, width: int) -> None:
    names = ("convnet_fp16", "scaling.8", "fast_style", "translator")
    results = [make_result(name, rates=[999_998.0] * 30, repeat=r) for r in range(3) for name in names]
    summary = summary_for(tmp_path, *results)
    text = text_of(summary, base=summary, width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    for name in names:
        assert line_of(text.partition("Against")[0], name)[:4] == [name, "3", "0", "999,998.00"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "n/a"),
        (0.0, "0.00"),
        (0.01234, "0.0123"),
        (14.706, "14.71"),
        (1054.784, "1,054.78"),
        (12_345_678.9, "12,345,679"),
        (1e300, "1e+300"),
    ],
)
def test_numbers(value: float | None, shown: str) -> None:
    assert number(value) == shown


def test_ratios_and_foreign_text() -> None:
    assert [ratio(value) for value in (None, 1.0, 0.0, 0.0123)] == ["n/a", "1.00", "0.00", "0.0123"]
    assert one_line("\n a\x1b[31m\tb\nsecond") == "a [31m b"
    assert one_line("x" * 500).endswith("x...")
    assert one_line(None) == "no reason is recorded"
