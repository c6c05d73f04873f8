"""A report's document, cell by cell; and what a terminal makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import keep_results, keep_run, make_result, make_run, make_task
from outputs import (
    beside,
    document_of,
    drawn,
    held,
    line_of,
    row,
    section,
    sentences,
    summary_for,
    text_of,
    texts,
)

from benchsuite.describe.tasks import ProfileUsed, RerunOf
from benchsuite.measurement import Measurement
from benchsuite.records import Code, Failure, Result
from benchsuite.report.format import number, one_line, ratio, share
from benchsuite.report.read.load import load
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.show.document import Cell, Column, Document, Fact, Section, Span, Table, fact, sentence, table
from benchsuite.report.show.markdown import markdown
from benchsuite.report.show.one_line import figure as words_of
from benchsuite.report.stats.summarise import summarise
from benchsuite.rundir import Attempt, RunDir

OOM = Failure(kind="OutOfMemoryError", message="CUDA out of memory.\nTried [red]hard[/red]")


def loaded(folder: Path) -> Document:
    return document_of(summarise(load(folder)))


def names(of: Section) -> list[list[str]]:
    return [[column.name for column in part.columns] for part in of.parts if isinstance(part, Table)]


# --- tables -----------------------------------------------------------------------------------------------------------


def test_a_table_is_made_of_columns_that_each_know_their_cells() -> None:
    columns: tuple[Column[float | None], ...] = (
        Column("std%", lambda value: value, share, right=True, rank=4),
        Column("twice", lambda value: Cell("x", 2.0, "warn") if value else Cell("n/a")),
        Column("empty", lambda value: "n/a", optional=True),
    )
    made = table(columns, (0.123, None), "why", lambda value: "" if value else "bad")
    assert [column.name for column in made.columns] == ["std%", "twice"]
    assert made.legend == "why"
    assert made.rows == (
        (Cell("12.3", 0.123), Cell("x", 2.0, "warn")),
        (Cell("n/a", None, "bad"), Cell("n/a", None, "bad")),
    )
    assert [cell.absent for cell in made.rows[1]] == [True, True]


def test_an_optional_column_stays_where_one_cell_is_there() -> None:
    column: Column[str] = Column("some", lambda text: text, optional=True)
    assert [len(table((column,), rows).columns) for rows in (("n/a", "x"), ("n/a", "n/a"), ())] == [1, 0, 0]


# --- jobs and score ---------------------------------------------------------------------------------------------------


def test_a_row_and_its_figures(tmp_path: Path) -> None:
    results = [make_result(rates=[(90, 110)[gpu]] * 30, gpu=gpu, repeat=r) for r in range(3) for gpu in range(2)]
    document = document_of(summary_for(tmp_path, *results), {"vae": 8})
    cells = row(section(document, "Jobs"), "vae")
    assert texts(cells) == {
        "job": "vae", "n": "6", "fail": "0", "perf": "100.0", "unit": "image/s", "std%": "10.0", "perf_adj": "90.00",
        "95 %": "±0.0 %", "weight": "8", "slices": "108", "seconds": "54.0",
    }  # fmt: skip
    values = {name: cell.value for name, cell in cells.items() if name not in ("job", "unit")}
    assert values == {
        "n": 6, "fail": 0, "perf": 100.0, "std%": pytest.approx(0.1), "perf_adj": pytest.approx(90.0),
        "95 %": pytest.approx(0.0, abs=1e-9), "weight": 8.0, "slices": 108, "seconds": pytest.approx(54.0),
    }  # fmt: skip
    assert {cell.tone for cell in cells.values()} == {""}
    assert beside(document, "Score") == "90.00 | with its penalties for variance and failures"
    speed = beside(document, "Speed")
    assert speed == "100.0 | without penalties, ok tasks only; 95 %: 100.0 to 100.0 (±0.0 %) over 3 repeats"
    assert beside(document, "Failure rate") == "0.0 % | PASS | 0 of 6 tasks not ok; up to 1 % passes"
    assert (beside(document, "Incomplete"), beside(document, "Provisional")) == ("", "")


def test_a_wide_interval_is_shown_as_it_lies(tmp_path: Path) -> None:
    wide = [make_result(rates=[rate] * 30, repeat=repeat) for repeat, rate in enumerate((50, 100, 150))]
    cell = row(section(document_of(summary_for(tmp_path, *wide)), "Jobs"), "vae")["95 %"]
    assert (cell.text, cell.value) == ("+261 -77 %", pytest.approx(2.61, abs=0.01))


def test_one_sample(tmp_path: Path) -> None:
    document = document_of(summary_for(tmp_path, make_result(rates=[50] * 30)))
    assert [cell.text for cell in row(section(document, "Jobs"), "vae").values()] == [
        "vae", "1", "0", "50.00", "image/s", "n/a", "50.00", "n/a", "1", "18", "9.0",
    ]  # fmt: skip
    assert beside(document, "Score") == "50.00 | PROVISIONAL | with its penalties for variance and failures"
    assert beside(document, "Speed") == (
        "50.00 | without penalties, ok tasks only; no interval: 1 repeat of every job, 3 are needed"
    )
    assert "1 repeat with a number for every scored job; an interval needs 3" in beside(document, "Provisional")


def test_a_failed_job(tmp_path: Path) -> None:
    failed = [make_result("x", gpu=gpu, status="oom", error=OOM, rates=()) for gpu in range(3)]
    results = (make_result("a"), make_result("c", rates=[25] * 60), *failed)
    document = document_of(summary_for(tmp_path, *results), {"a": 1, "c": 1, "x": 1})
    cells = row(section(document, "Jobs"), "x")
    assert [cell.text for cell in cells.values()] == [
        "x", "3", "3", "n/a", "n/a", "n/a", "0.00", "n/a", "1", "0", "0.0",
    ]  # fmt: skip
    assert {cell.tone for cell in cells.values()} == {"bad"}
    assert {cell.tone for cell in row(section(document, "Jobs"), "a").values()} == {""}
    assert cells["perf"].value is None
    assert beside(document, "Score") == "n/a | INCOMPLETE | no score"
    assert [beside(document, label) for label in ("Speed", "Machine score")] == ["", ""]
    assert beside(document, "Incomplete") == (
        "x fails in 3 of 3 tasks; 66 % of the weight has numbers; --partial scores the other jobs"
    )
    assert beside(document, "Never ok") == "x (3 of 3 tasks fail)"
    assert document.score
    (_, rate) = document.score.own
    assert rate.beside[0].spans == (Span("FAIL", "bad", strong=True),)
    trouble = row(section(document, "Not ok"), "oom")
    assert texts(trouble) == {
        "status": "oom", "task": "x.J0.0 J0.1 J0.2", "why": "OutOfMemoryError: CUDA out of memory.",
    }  # fmt: skip
    assert trouble["status"].tone == "bad"


def test_all_failed(tmp_path: Path) -> None:
    document = document_of(summary_for(tmp_path, make_result(status="timeout", rates=())))
    assert document.intro[0].text == "vae FAILS in 1 of 1 task on 1x Test; 1 of 1 task failed; no score."
    assert beside(document, "Score") == "n/a | INCOMPLETE | no score"
    assert beside(document, "Incomplete") == "vae fails in 1 of 1 task; 0 % of the weight has numbers"
    assert beside(document, "Failure rate").startswith("100.0 % | FAIL")
    text = drawn(document, 120)
    assert not any(never in text for never in ("nan", "inf ", "Traceback", "None"))


@pytest.mark.parametrize(
    ("gpus", "score"),
    [
        ((0,), "100.0 | of the one GPU; without penalties 100.0"),
        ((0, 1), "200.0 | all 2 GPUs together; without penalties 200.0"),
        ((None,), ""),
        ((None, None), "200.0 | all tasks at once, no GPU; without penalties 200.0"),
    ],
)
def test_a_machine_score_only_where_there_is_something_to_add_up(
    tmp_path: Path, gpus: tuple[int | None, ...], score: str
) -> None:
    """On the CPU two results of one wave are copies."""
    made = [(gpu, make_task(gpu=gpu)) for gpu in gpus]
    copies = [(gpu, msgspec.structs.replace(task, id=f"{task.id}.{i}", copy=i)) for i, (gpu, task) in enumerate(made)]
    keep_results(tmp_path, [make_result(gpu=gpu, task=task) for gpu, task in copies])
    assert beside(loaded(tmp_path), "Machine score") == score


def test_what_stands_beside_the_score(tmp_path: Path) -> None:
    profile = ProfileUsed(
        name="tweaked", path="t.json", sha256="c" * 64, text="{}", official=False, based_on="standard",
        differences=("vae.batch_size: 128 -> 64",),
    )  # fmt: skip
    code = Code(version="0.1.0", commit="d" * 40, dirty=True)
    results = (make_result(code=code), make_result(gpu=1, code=code))
    summary = summary_for(tmp_path, *results, run=make_run(4, profile=profile, code=code))
    document = document_of(summary, {"vae": 1, "scaling.8": 2})
    for label, text in {
        "Profile": "tweaked, MODIFIED from standard, sha256 cccccccccccc: vae.batch_size: 128 -> 64",
        "Weights": "w.json, not the shipped weights of this profile, sha256 bbbbbbbbbbbb",
        "Machine": "hostA: 4 x NVIDIA Test, driver 580.0",
        "GPUs": "2 used of 4 present",
        "Isolation": "CPU none, memory none (not fenced)",
        "Overlap": "all tasks that ran together trained during 100 % of each one's window",
        "Code": "benchsuite 0.1.0 at dddddddddddd, with uncommitted changes",
        "Measured": "18 s in 36 slices",
        "Do not apply": "scaling.8 (the machine has fewer GPUs)",
    }.items():
        assert beside(document, label) == text


def test_without_a_plan_it_says_so(tmp_path: Path) -> None:
    keep_results(tmp_path, [make_result()])
    (tmp_path / "x.json").write_bytes(b"")
    document = loaded(tmp_path)
    assert beside(document, "Tasks") == (
        "no plan.json: n counts the results found, lost tasks are not seen; 1 file could not be used"
    )
    assert beside(document, "Weights") == "every job weighs 1 (no weights are shipped for this profile)"


# --- what went wrong --------------------------------------------------------------------------------------------------


def test_every_kind_of_trouble_has_its_reason(tmp_path: Path) -> None:
    tasks = [make_task(gpu=gpu) for gpu in range(3)]
    keep_run(tmp_path, [make_result(rates=[5, 50]), make_result(gpu=1, rates=[60] * 19 + [140] * 11)], tasks)
    (tmp_path / "bad.json").write_bytes(b"[]")
    document = loaded(tmp_path)
    assert row(section(document, "Jobs"), "vae")["n"].value == 3
    short = row(section(document, "Not ok"), "insufficient")
    assert short["task"].text == "vae.J0.0 on GPU 0"
    assert "2 slices, 1.0 s in all" in short["why"].text
    assert row(section(document, "Jobs"), "vae")["to run"].value == 1
    unsteady = row(section(document, "Flagged"), "vae.J0.1")
    assert unsteady["spread"].text.startswith("40.0 ± ")
    assert unsteady["spread"].value == pytest.approx(0.4)
    assert unsteady["error"].value == pytest.approx(0.66, abs=0.01)
    ((bad,),) = section(document, "Files that cannot be used (1; counted as no task)").parts
    assert isinstance(bad, Fact)
    assert (bad.label, bad.sentence.text.split(" of ")[0]) == ("bad.json", "not a result")
    assert "flagged" in row(section(document, "Jobs"), "vae")


def test_reruns_are_shown_beside_the_original(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (original,) = keep_run(folder, [make_result()])
    rerun = make_task(rerun_of=RerunOf(result=original.name, changes=("precision: fp32 -> bf16",)))
    stray = make_task(gpu=1, rerun_of=RerunOf(result="elsewhere.json"))
    keep_results(folder, [make_result(rates=[150] * 30, task=rerun), make_result(task=stray)])
    reruns = section(loaded(folder), "Reruns (in no number above)")
    cells = row(reruns, "vae.J0.0")
    assert [cells[name].text for name in ("perf", "original", "ratio")] == ["150.0", "100.0", "1.50"]
    assert cells["of"].text == f"{original.name}; precision: fp32 -> bf16"
    alone = row(reruns, "vae.J0.1")
    assert alone["of"].text == "elsewhere.json (not here, or not ok)"
    assert (alone["ratio"].text, alone["ratio"].value) == ("n/a", None)


# --- comparisons ------------------------------------------------------------------------------------------------------


def slowed(job: JobSummary, perf: float, **fields: Any) -> JobSummary:
    """The job with another rate in its figures, repeats and tasks."""
    repeats = tuple(msgspec.structs.replace(repeat, perf=perf) for repeat in job.repeats)
    tasks = tuple(msgspec.structs.replace(task, perf=perf) for task in job.tasks)
    figures = {"perf": perf, "perf_adj": perf, "repeats": repeats, "tasks": tasks, **fields}
    return msgspec.structs.replace(job, **figures)


def test_a_comparison(tmp_path: Path) -> None:
    summary = summary_for(tmp_path, make_result(), make_result("mine"))
    jobs = (slowed(summary.jobs[0], 80.0, perf_adj=50.0),)
    base = msgspec.structs.replace(summary, jobs=jobs, provenance="measured with care", source="old")
    document = document_of(summary, base=base)
    against = section(document, "Against base")
    assert texts(row(against, "vae")) == {
        "job": "vae", "perf": "100.0", "baseline": "80.00", "ratio": "1.25", "95 %": "n/a", "verdict": "n/a",
    }  # fmt: skip
    assert row(against, "vae")["ratio"].value == pytest.approx(1.25)
    assert sentences(against)[0].startswith("Baseline: old; hostA: 2 x NVIDIA Test")
    assert sentences(against)[0].endswith("measured with care")
    assert "Only in this run: mine" in sentences(against)
    assert not any("Not the same workload" in line for line in sentences(against))
    reason = "this run has 1 ok repeat and the baseline has 1 ok repeat; 3 are needed"
    assert beside(document, "Per GPU") == f"1.25x | over 1 common job; no interval: {reason}"
    assert beside(document, "Whole machine") == "1.25x | 1 GPU against 1"
    assert beside(document, "Stand apart") == "mine (not in the baseline)"
    assert beside(document, "Baseline's score") == "50.00, with its penalties"
    assert document.intro[1].text == (
        f"Against base: per GPU 1.25x, whole machine 1.25x (1 GPU against 1). "
        f"No verdict: {reason} (run both with --repeat 3)."
    )


def test_verdicts_have_their_tones(tmp_path: Path) -> None:
    repeats = [(name, r) for name in ("fast", "slow", "near") for r in range(3)]
    results = [make_result(name, [100 + r] * 30, repeat=r) for name, r in repeats]
    factors = {"fast": 0.5, "slow": 2.0, "near": 1.0}
    others = [make_result(name, [factors[name] * (100.1 + r)] * 30, repeat=r) for name, r in repeats]
    here, base = summary_for(tmp_path / "here", *results), summary_for(tmp_path / "base", *others)
    against = section(document_of(here, base=base), "Against base")
    cells = [row(against, name)["verdict"] for name in factors]
    assert [(cell.text.split()[0], cell.tone) for cell in cells] == [
        ("FASTER", "good"),
        ("SLOWER", "bad"),
        ("AMBIGUOUS", "warn"),
    ]


def test_unlike_workloads_are_not_compared(tmp_path: Path) -> None:
    summary = summary_for(tmp_path, make_result(), make_result("x"), make_result("y"))
    jobs = [slowed(job, 10.0) for job in summary.jobs]
    x_other, y_other = (msgspec.structs.replace(job, workload="other") for job in jobs[1:])
    document = document_of(summary, base=msgspec.structs.replace(summary, jobs=(jobs[0], x_other, y_other)))
    against = section(document, "Against base")
    assert [cell.text for cell in row(against, "x").values()] == [
        "x", "100.0", "10.00", "n/a", "n/a", "other workload",
    ]  # fmt: skip
    assert (
        "Not the same workload, not compared; --compare-unlike compares them: x (the differing setting is not kept), "
        "y (the differing setting is not kept)" in sentences(against)
    )
    assert not any("need 3: x" in line for line in sentences(against)), "the workload is the reason, not the repeats"
    assert (
        document.intro[1].text
        == "No ratio over all jobs to base: another workload: x, y (--compare-unlike compares them)."
    )
    assert beside(document, "No ratio") == (
        "another workload: x, y (--compare-unlike compares them); --partial compares the other jobs"
    )
    assert beside(document, "Per GPU") == ""
    nothing = document_of(summary, base=msgspec.structs.replace(summary, jobs=(x_other, y_other)))
    assert beside(nothing, "No ratio") == (
        "another workload: x, y (--compare-unlike compares them); no weighed job can be compared"
    )
    assert beside(nothing, "Per GPU") == ""


def test_an_unknown_workload_of_the_base_is_named(tmp_path: Path) -> None:
    summary = summary_for(tmp_path, make_result())
    (job,) = summary.jobs
    document = document_of(
        summary, base=msgspec.structs.replace(summary, jobs=(msgspec.structs.replace(job, workload=None),))
    )
    unknown = "The workload of the baseline is not known, taken to be the same by profile and name: vae"
    assert unknown in sentences(section(document, "Against base"))
    assert beside(document, "Per GPU").startswith("1.00x |")


# --- a run in progress ------------------------------------------------------------------------------------------------


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
    document = document_of(going_on(tmp_path / "run"))
    cells = texts(row(section(document, "Jobs"), "vae"))
    assert list(cells)[:5] == ["job", "n", "fail", "to run", "perf"]
    assert list(cells.values())[:8] == ["vae", "6", "1", "3", "100.0", "image/s", "0.0", "66.67"]
    progress = "In progress: 3 of 6 tasks still to run. Running now: vae.J1.1 on GPU 1; vae.J2.0 on GPU 0."
    assert document.intro[0].text == (
        "2x Test is UNFINISHED: 3 of 6 tasks still to run; 1 of 3 tasks failed so far (vae 1 of 3)."
    )
    assert document.intro[1].text == "Not ok so far: vae on GPU 1 (1 of 1 task fails)."
    assert document.intro[3].text == progress
    assert beside(document, "Score") == "n/a | INCOMPLETE | no score"
    assert "in progress: 3 of 6 tasks still to run" in beside(document, "Incomplete")
    assert beside(document, "Failure rate") == "33.3 % | UNFINISHED | so far (3 of 6 ended): 1 not ok"
    (troubles,) = (part for part in section(document, "Not ok").parts if isinstance(part, Table))
    assert [line[1].text for line in troubles.rows] == ["vae.J0.1 on GPU 1"]
    text = drawn(document, 120)
    assert not any(never in text for never in ("interrupted", "PASS", "FAIL", "never run"))
    base = section(document_of(going_on(tmp_path / "a"), base=going_on(tmp_path / "b")), "Against")
    assert "its run is still in progress" in sentences(base)[0]


def test_an_interrupted_run_is_unfinished_and_its_open_tasks_are_no_failures(tmp_path: Path) -> None:
    going_on(tmp_path / "run")
    document = loaded(tmp_path / "run")
    cells = row(section(document, "Jobs"), "vae")
    assert (cells["n"].value, cells["fail"].value, cells["to run"].value) == (6, 1, 3)
    assert document.intro[0].text.startswith("2x Test is UNFINISHED: 3 of 6 tasks still to run; 1 of 3 tasks failed")
    (troubles,) = (part for part in section(document, "Not ok").parts if isinstance(part, Table))
    assert [line[1].text for line in troubles.rows] == ["vae.J0.1 on GPU 1"]
    assert beside(document, "Failure rate") == "33.3 % | UNFINISHED | so far (3 of 6 ended): 1 not ok"
    assert "n progress" not in drawn(document, 120)


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [], [make_task(gpu=gpu) for gpu in range(12)])
    for gpu in range(10):
        RunDir(tmp_path / "run").note_attempt(Attempt(event="start", task=f"vae.J0.{gpu}", attempt=1, at=""))
    with held(tmp_path / "run"):
        document = loaded(tmp_path / "run")
    assert document.intro[0].text == "12x Test is UNFINISHED: 12 of 12 tasks still to run; no failures so far."
    assert document.intro[-1].text.endswith("vae.J0.7 on GPU 7; and 2 more.")
    assert beside(document, "Failure rate") == "n/a | UNFINISHED | so far (0 of 12 ended): 0 not ok"
    assert beside(document, "Score") == "n/a | INCOMPLETE | no score"
    assert [of.title for of in document.sections if of.title == "Not ok"] == []
    cells = texts(row(section(document, "Jobs"), "vae"))
    assert list(cells.values())[:8] == ["vae", "12", "0", "12", "n/a", "n/a", "n/a", "n/a"]


# --- on a terminal ----------------------------------------------------------------------------------------------------


def test_a_terminal_shows_all_in_order() -> None:
    columns: tuple[Column[str], ...] = (Column("name", str), Column("length", len, right=True))
    facts = (fact("a.json", "empty"), fact("bb.json", "cut"))
    shown = Document(
        title="a machine",
        intro=(sentence("The headline."), sentence("the machine")),
        jobs=Section("Jobs", (table(columns, ("vae", "y"), "The legend."),)),
        sections=(Section("More", (sentence("First."), table(columns, ("z",), "Another."), facts)),),
        score=None,
    )
    assert [line.rstrip() for line in drawn(shown, 40).splitlines()] == [
        "The headline.", "the machine", "",
        "name  length", "vae        3", "y          1", "The legend.", "",
        "More ───────────────────────────────────",
        "  First.", "", "  name  length", "  z          1", "  Another.", "  a.json   empty", "  bb.json  cut",
    ]  # fmt: skip


def test_the_scores_figures_stand_one_below_the_other(tmp_path: Path) -> None:
    text = text_of(summary_for(tmp_path, make_result()))
    lines = [line for line in text.splitlines() if line.startswith(("Score  ", "Machine score", "Failure rate"))]
    assert [line.index(end) + len(end) for line, end in zip(lines, ("100.0", "100.0", "0.0 %"), strict=True)] == [
        len("Machine score  100.0")
    ] * 3


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
    weights = {f"missing{POISON}": 1.0, f"scaling.9{POISON}": 1.0}
    for base in (summary, msgspec.structs.replace(summary, jobs=tuple(jobs))):
        for shown in (summary, msgspec.structs.replace(summary, machines=(), in_progress=True)):
            document = document_of(shown, weights, base)
            for text in (drawn(document, width), markdown(document)):
                assert all(c.isprintable() for c in text.replace("\n", ""))
            assert text_of(shown, weights, base, width, POISON).replace("\n", "").isprintable()


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
    failure = words_of(msgspec.structs.replace(failed, error=error)).words
    assert (failure, words_of(result).words.count("\n")) == ("[2Jvae", 0)
    assert words_of(msgspec.structs.replace(result, measurement=streams)).words.startswith("100.0 [2Jvae/s (18 slices")


def long_names(*names: str) -> list[Result]:
    return [make_result(name, rates=[999_998.0] * 30, repeat=r) for r in range(3) for name in names]


def test_columns_go_whole_and_names_never(tmp_path: Path) -> None:
    jobs = ("toy_reg", "convnet_fp16", "translator")
    summary = summary_for(tmp_path, *long_names(*jobs), make_result("x_with_a_long_name", status="oom", rates=()))
    heads = {}
    for width in (40, 60, 80, 120):
        text = text_of(summary, base=summary, width=width)
        top, _, below = text.partition("\njob ")[2].partition("Against")
        top, below = f"job {top}", below.partition("Where the time went")[0]
        assert max(len(line) for line in text.splitlines()) <= width
        heads[width] = line_of(top, "job ")
        for name in jobs:
            assert line_of(top, f"{name} ")[:3] == [name, "3", "0"]
            assert "1,000,000" in line_of(top, f"{name} ")
            assert "1.00" in line_of(below, f"{name} ")
        assert line_of(top, "x_with_a_long_name ")[1:3] == ["1", "1"]
        if width > 40:
            assert line_of(text, "oom ")[1] == "x_with_a_long_name.J0.0"
    assert heads[40] == ["job", "n", "fail", "perf"]
    assert heads[60] == ["job", "n", "fail", "perf", "unit", "std%", "perf_adj"]
    assert heads[80] == ["job", "n", "fail", "perf", "unit", "std%", "perf_adj", "95", "%", "weight", "seconds"]
    assert heads[120] == [*heads[80][:-1], "slices", "seconds"]
    assert "Not shown for want of width" not in text
    assert "Not shown for want of width: unit, std%" in text_of(summary, width=40).replace("\n", " ")


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_too_wide_and_no_name_is_cut(tmp_path: Path, width: int) -> None:
    jobs = ("convnet_fp16", "scaling.8", "fast_style", "translator")
    summary = summary_for(tmp_path, *long_names(*jobs))
    text = text_of(summary, base=summary, width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    for name in jobs:
        assert line_of(text.partition("\njob ")[2].partition("Against")[0], name)[:4] == [name, "3", "0", "1,000,000"]


# --- as Markdown ------------------------------------------------------------------------------------------------------


def test_markdown_is_whole_and_escaped() -> None:
    columns: tuple[Column[str], ...] = (Column("a|b", str), Column("n", len, right=True))
    facts = (fact("f|g", "<b>\nline"),)
    shown = Document("*x*", (), None, (Section("A_b `c`", (table(columns, ("_y|",), "E = *"), facts)),), None)
    assert markdown(shown).splitlines() == [
        "# \\*x\\*", "", "## A_b \\`c\\`", "",
        "| a\\|b | n |", "| --- | ---: |", "| \\_y\\| | 3 |", "", "E = \\*", "",
        "|  |  |", "| --- | --- |", "| f\\|g | \\<b\\> line |",
    ]  # fmt: skip


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "n/a"),
        (0.0, "0.00"),
        (0.01234, "0.0123"),
        (14.706, "14.71"),
        (99.996, "100.0"),
        (314_048.69, "314,000"),
        (12_345_678.9, "12,350,000"),
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
