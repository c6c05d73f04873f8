"""What a reader sees; plain text, at two widths."""

from __future__ import annotations

import contextlib
import fcntl
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import keep_results, keep_run, make_result, make_run, make_task
from rich.console import Console

from benchsuite.describe.tasks import RerunOf
from benchsuite.records import Code, Failure, Measurement, ProfileUsed, Result
from benchsuite.report.read.load import load
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell, Run
from benchsuite.report.show.format import number, one_line, ratio
from benchsuite.report.show.one_line import figure
from benchsuite.report.show.render import Report, render
from benchsuite.report.stats.compare import compare
from benchsuite.report.stats.score import score
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.stats.weights import Weights, weigh
from benchsuite.rundir import LOCK, Attempt, RunDir


def text_of(
    summary: Summary,
    weights: dict[str, float] | None = None,
    base: Summary | None = None,
    width: int = 120,
    title: str = "base",
) -> str:
    laid = weigh(Weights(weights, "w.json", "b" * 64), summary)
    comparisons = (compare(summary, base, laid, title),) if base else ()
    out = io.StringIO()
    console = Console(file=out, width=width, markup=False, emoji=False, highlight=False)
    render(Report(title, summary, score(summary, laid), comparisons), console)
    return out.getvalue()


def summary_for(folder: Path, *results: Result, **more: Any) -> Summary:
    keep_run(folder / "run", results, **more)
    return summarise(load(folder / "run"))


def line_of(text: str, start: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.strip().startswith(start))
    return words(line)


def words(line: str) -> list[str]:
    return line.split()


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """As while a run is going on in a folder."""
    with (folder / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_a_wide_interval_is_told_as_it_lies(tmp_path: Path) -> None:
    wide = [make_result(rates=[rate] * 30, repeat=repeat) for repeat, rate in enumerate((50, 100, 150))]
    summary = summary_for(tmp_path, *wide)
    (job,) = summary.jobs
    assert job.interval
    below, above = (round(100 * (end / 100 - 1)) for end in (job.interval.low, job.interval.high))
    assert (below, above) == (-77, 261)
    assert f" +{above} {below} % " in text_of(summary)
    assert Cell((Run(f"+{above} {below} %"),)).value == above


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
    assert line_of(text, "Score  ") == words(
        "Score 90.00 without the variance penalty 100.00, 95 %: 100.00 to 100.00 (±0.0 %)"
    )
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
    jobs = (msgspec.structs.replace(summary.jobs[0], perf=80.0, perf_adj=50.0),)
    base = msgspec.structs.replace(summary, jobs=jobs, provenance="measured with care", source="old")
    text = text_of(summary, base=base)
    section = text.partition("Against base")[2]
    assert line_of(section, "vae ") == words("vae 100.00 80.00 1.25 n/a n/a 2.00")
    assert "Not the same workload" not in text
    assert "Only in this run: mine" in text
    assert "old; hostA: 2 x NVIDIA Test" in text
    assert "measured with care" in text
    assert "2.00   100.00 / 50.00, over 1 common job" in " ".join(text.split("Score ratio")[1].splitlines()[0:1])


def test_unlike_workloads_are_not_compared(tmp_path: Path) -> None:
    summary = summary_for(tmp_path, make_result(), make_result("x"), make_result("y"))
    jobs = [msgspec.structs.replace(job, perf=10.0, perf_adj=10.0) for job in summary.jobs]
    x_other, y_other = (msgspec.structs.replace(job, workload="other") for job in jobs[1:])
    text = text_of(summary, base=msgspec.structs.replace(summary, jobs=(jobs[0], x_other, y_other)), width=160)
    section = text.partition("Against base")[2]
    assert line_of(section, "x ") == words("x 100.00 10.00 n/a n/a other workload n/a")
    assert "Not the same workload, left out of both scores: x, y\n" in section
    assert line_of(text, "Score ratio")[2:] == words("10.00 100.00 / 10.00, over 1 common job; left out: x, y")
    nothing = text_of(summary, base=msgspec.structs.replace(summary, jobs=(x_other, y_other)))
    assert "no ratio: no weighed job has the same workload and a throughput on both sides" in nothing
    assert "Score ratio" not in nothing


def test_an_unknown_workload_of_the_base_is_told(tmp_path: Path) -> None:
    summary = summary_for(tmp_path, make_result())
    (job,) = summary.jobs
    base = msgspec.structs.replace(summary, jobs=(msgspec.structs.replace(job, workload=None),))
    text = text_of(summary, base=base)
    assert "The workload of the base is not known, taken to be the same by profile and name: vae\n" in text
    assert line_of(text, "Score ratio")[2] == "1.00"


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
    assert "trained during 100 % of each one's window" in text
    assert "benchsuite 0.1.0 at dddddddddddd, with uncommitted changes" in text
    assert "36 slices, 18.0 s" in text
    assert "scaling.8 (the machine has fewer GPUs)" in text


def test_without_a_plan_it_says_so(tmp_path: Path) -> None:
    keep_results(tmp_path, [make_result()])
    (tmp_path / "x.json").write_bytes(b"")
    text = text_of(summarise(load(tmp_path)))
    assert "no plan.json: n counts the results found, lost tasks are not seen; 1 file could not be used" in text
    assert "every job weighs 1 (no weights are shipped for this profile)" in text


POISON = "\x1b[2J\x1b]0;x\x07\r\n\x9b31m\u202eScore          999"


def poisoned(value: Any) -> Any:
    """The same content, every text of which begins and ends with what a terminal, or a reader, would fall for."""
    if isinstance(value, dict):
        return {f"{key}{POISON}" if " " in key else key: poisoned(of) for key, of in value.items()}
    if isinstance(value, list):
        return [poisoned(of) for of in value]
    return f"{POISON}{value}{POISON}" if isinstance(value, str) and value not in ("summary", "ok") else value


@pytest.mark.parametrize("width", [40, 120])
def test_no_control_character_of_a_file_gets_through(tmp_path: Path, width: int) -> None:
    folder = tmp_path / "run"
    oom = Failure(kind="oom", message="no memory")
    results = [make_result(), make_result("x", status="oom", error=oom), make_result("y", rates=[60, 140] * 15)]
    keep_run(folder, results, run=make_run(2, code=Code(version="0.1.0", commit="d" * 40)))
    rerun = make_task(rerun_of=RerunOf(result="elsewhere.json", changes=("a -> b",)))
    keep_results(folder, [make_result(task=rerun), make_result(task=rerun, status="oom", error=oom)])
    (folder / "bad.json").write_bytes(b"[]")
    clean = msgspec.structs.replace(summarise(load(folder)), provenance="measured")
    summary = msgspec.convert(poisoned(msgspec.to_builtins(clean)), Summary)
    jobs = [msgspec.structs.replace(job, excluded=POISON, workload=None) for job in summary.jobs[:1]]
    jobs += [msgspec.structs.replace(job, name=f"theirs{POISON}") for job in summary.jobs[1:]]
    for base in (summary, msgspec.structs.replace(summary, jobs=tuple(jobs))):
        for shown in (summary, msgspec.structs.replace(summary, machine=None, in_progress=True)):
            text = text_of(shown, {f"missing{POISON}": 1.0, f"scaling.9{POISON}": 1.0}, base, width, POISON)
            assert all(c.isprintable() for c in text.replace("\n", ""))


def test_a_result_cannot_forge_a_line_or_steer_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b[2Jvae\nScore  999"
    result = make_result(evil, host=evil)
    (stream,) = result.measurement.streams
    streams = Measurement(streams=(msgspec.structs.replace(stream, unit=evil),))
    error = Failure(kind="x", message=evil)
    failed = make_result("x", gpu=1, host=evil, status="failed", error=error, rates=())
    keep_results(tmp_path, [msgspec.structs.replace(result, measurement=streams), failed])
    summary = summarise(load(tmp_path))
    text = text_of(summary, base=summary, width=200)
    assert all(c.isprintable() for c in text.replace("\n", ""))
    assert text.count("[2Jvae") >= 6
    assert not any(line.strip().startswith("Score  999") for line in text.splitlines())
    failure = figure(msgspec.structs.replace(failed, error=error)).words
    assert (failure, figure(result).words.count("\n")) == ("[2Jvae", 0)
    assert figure(msgspec.structs.replace(result, measurement=streams)).words.startswith("100.00 [2Jvae/s (18 slices")


def going_on(folder: Path) -> Summary:
    """Of six tasks two are ok, one failed, two are running and one has not begun."""
    tasks = [make_task(repeat=repeat, gpu=gpu) for repeat in range(3) for gpu in range(2)]
    results = [make_result(task=tasks[0]), make_result(task=tasks[1], status="oom", rates=())]
    keep_run(folder, [*results, make_result(task=tasks[2])], tasks)
    for task in tasks[3:5]:
        RunDir(folder).note_attempt(Attempt(event="start", task=task.id, attempt=1, at=""))
    with held(folder):
        return summarise(load(folder))


def test_a_run_in_progress(tmp_path: Path) -> None:
    text = text_of(going_on(tmp_path / "run"))
    assert line_of(text, "job ")[:5] == words("job n fail to run")
    assert line_of(text, "vae ")[:8] == words("vae 6 1 3 100.00 image/s 0.0 66.67")
    assert "In progress: 3 of 6 tasks still to run. Running now: vae.J1.1 on GPU 1; vae.J2.0 on GPU 0.\n" in text
    assert line_of(text, "Score  ")[1:3] == ["66.67", "INCOMPLETE"]
    assert "in progress: 3 of 6 tasks still to run" in text.partition("Incomplete")[2]
    assert line_of(text, "Failure rate")[2:] == words("33.3 % UNFINISHED so far (3 of 6 ended): 1 not ok")
    section = text.partition("Not ok ")[2].partition("Score ")[0]
    assert section.count("vae.J") == 1
    for never in ("interrupted", "PASS", "FAIL", "not run"):
        assert never not in text
    assert "its run is still in progress" in text_of(going_on(tmp_path / "a"), base=going_on(tmp_path / "b"))


def test_the_same_run_after_it_was_cut_off(tmp_path: Path) -> None:
    going_on(tmp_path / "run")
    text = text_of(summarise(load(tmp_path / "run")))
    assert "to run" not in line_of(text, "job ")
    assert line_of(text, "vae ")[:3] == words("vae 6 4")
    assert "interrupted  vae.J1.1 J2.0" in text
    assert line_of(text, "Failure rate")[4] == "FAIL"
    assert "n progress" not in text


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [], [make_task(gpu=gpu) for gpu in range(12)])
    for gpu in range(10):
        RunDir(tmp_path / "run").note_attempt(Attempt(event="start", task=f"vae.J0.{gpu}", attempt=1, at=""))
    with held(tmp_path / "run"):
        text = text_of(summarise(load(tmp_path / "run")), width=300)
    assert "vae.J0.7 on GPU 7 and 2 more." in text
    assert line_of(text, "Failure rate")[2:] == words("n/a UNFINISHED so far (0 of 12 ended): 0 not ok")
    assert "no score: no weighed job has a throughput" in text
    assert "Not ok" not in text
    assert line_of(text, "vae ")[:8] == words("vae 12 0 12 n/a n/a n/a n/a")


@pytest.mark.parametrize(
    ("gpus", "tasks", "told"),
    [
        ((0,), 1, "throughputs of all tasks of a wave added up (1 GPU)"),
        ((0, 1), 2, "throughputs of all tasks of a wave added up (2 GPUs)"),
        ((None,), 1, None),
        ((None, None), 2, "throughputs of all tasks of a wave added up (no GPU)"),
    ],
)
def test_a_machine_score_only_where_there_is_something_to_add_up(
    tmp_path: Path, gpus: tuple[int | None, ...], tasks: int, told: str | None
) -> None:
    """On the CPU two results of one wave are copies."""
    made = [(gpu, make_task(gpu=gpu)) for gpu in gpus]
    copies = [(gpu, msgspec.structs.replace(task, id=f"{task.id}.{i}", copy=i)) for i, (gpu, task) in enumerate(made)]
    keep_results(tmp_path, [make_result(gpu=gpu, task=task) for gpu, task in copies])
    text = text_of(summarise(load(tmp_path)))
    if told is None:
        assert "Machine score" not in text
    else:
        assert line_of(text, "Machine score") == words(f"Machine score {100 * tasks}.00 {told}")


def test_columns_go_whole_and_names_never(tmp_path: Path) -> None:
    names = ("toy_reg", "convnet_fp16", "translator")
    results = [make_result(name, rates=[999_998.0] * 30, repeat=r) for r in range(3) for name in names]
    failed = make_result("x_with_a_long_name", status="oom", rates=())
    summary = summary_for(tmp_path, *results, failed)
    heads = {}
    for width in (40, 60, 80, 120):
        text = text_of(summary, base=summary, width=width)
        table, _, section = text.partition("Against")
        assert max(len(line) for line in text.splitlines()) <= width
        heads[width] = line_of(table, "job ")
        for name in names:
            assert line_of(table, f"{name} ")[:3] == [name, "3", "0"]
            assert "999,998.00" in line_of(table, f"{name} ")
            assert "1.00" in line_of(section, f"{name} ")
        assert line_of(table, "x_with_a_long_name ")[1:3] == ["1", "1"]
        if width > 40:
            assert line_of(text, "oom ")[1] == "x_with_a_long_name.J0.0"
    assert heads[40] == words("job n fail perf")
    assert heads[60] == words("job n fail perf unit std% perf_adj")
    assert heads[80] == words("job n fail perf unit std% perf_adj 95 % weight")
    assert heads[120] == [*heads[80], "slices", "seconds"]
    assert "Not shown for want of width" not in text
    assert "Not shown for want of width: unit, std%" in text_of(summary, width=40).replace("\n", " ")


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
