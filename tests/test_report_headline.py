"""The first sentence of a report, the form in few lines, and the conditions of `--fail-on`."""

from __future__ import annotations

import html
import io
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import Call, keep_run, make_result, make_run
from made_summaries import flat, made_run
from outputs import document_of, report_of, summary_for, unwrapped
from rich.console import Console

from benchsuite.records import Failure
from benchsuite.report.read.summary import Summary
from benchsuite.report.read.summary_file import read_summary
from benchsuite.report.show.brief import LINES
from benchsuite.report.show.export import to_json
from benchsuite.report.show.html import page
from benchsuite.report.show.markdown import markdown
from benchsuite.report.show.report import Report, document, headline_text
from benchsuite.report.show.terminal import render_brief
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.compare import compare, find_base
from benchsuite.report.stats.score import score
from benchsuite.report.stats.weights import weigh, weights_for

BASELINES = Path(__file__).resolve().parents[1] / "baselines"
SHIPPED = tuple(sorted(path.stem for path in BASELINES.glob("*.json")))


def report_against(name: str, *bases: str, price: float | None = None) -> Report:
    """The report of a shipped baseline against others."""
    summary = read_summary(BASELINES / f"{name}.json")
    laid = weigh(weights_for(summary.profile, None), summary)
    found = tuple(compare(summary, find_base(base), laid, base) for base in bases)
    return Report(name, summary, score(summary, laid), found, price=price)


def brief_lines(report: Report, width: int) -> list[str]:
    out = io.StringIO()
    render_brief(report, Console(file=out, width=width, markup=False, emoji=False, highlight=False))
    return out.getvalue().splitlines()


def first(summary: Summary, base: Summary | None = None) -> str:
    return document_of(summary, base=base).intro[0].text


# --- the form in few lines --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "base"), [*pairwise(SHIPPED), (SHIPPED[-1], SHIPPED[0]), *pairwise(SHIPPED[::-1])])
def test_each_format_begins_with_one_sentence_and_a_terminal_needs_at_most_40_lines(name: str, base: str) -> None:
    report = report_against(name, base)
    said = headline_text(report)
    assert len(said) <= 160
    assert json.loads(to_json(report))["headline"] == said
    assert next(iter(json.loads(to_json(report)))) == "headline"
    text = re.sub(r"\\(.)", r"\1", markdown(document(report)))
    assert text.splitlines()[2] == said
    body = page(report, None).partition("<h1")[2].partition("</h1>")[2]
    assert unwrapped(html.unescape(re.sub(r"<[^>]*>", "", body))).startswith(said)
    for width in (80, 100, 120):
        lines = brief_lines(report, width)
        assert len(lines) <= LINES
        assert max(map(len, lines)) <= width
        assert unwrapped("\n".join(lines)).startswith(said)
        assert "Run with --full." in unwrapped("\n".join(lines[-3:]))


@pytest.mark.parametrize("width", [80, 100, 120])
def test_two_baselines_and_a_price_fit_into_40_lines(width: int) -> None:
    lines = brief_lines(report_against("h200x2", "h200", "v100", price=60000), width)
    assert len(lines) <= LINES
    assert any(line.startswith("Price / machine score") for line in lines[:20])


def test_the_worst_jobs_stand_first_and_the_rest_is_counted(tmp_path: Path) -> None:
    names = [f"job{i:02}" for i in range(40)]
    results = [make_result(name, [100 + r] * 30, repeat=r) for name in names for r in range(3)]
    results += [make_result("bad", (), repeat=r, status="failed", error=BOOM) for r in range(3)]
    keep_run(tmp_path / "run", results)
    report = report_of(summary_of(tmp_path / "run"))
    lines = brief_lines(report, 100)
    assert len(lines) <= LINES
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("job ")) + 1 :]
    assert table[0].split()[:4] == ["bad", "3", "of", "3"]
    (rest,) = (line for line in lines if line.startswith("and "))
    assert re.fullmatch(r"and \d+ more jobs, none failed or flagged", rest.strip())


BOOM = Failure(kind="ValueError", message="boom")


def test_a_failure_is_shown_with_its_type_its_message_and_its_log(call: Call, tmp_path: Path) -> None:
    good = [make_result("a", repeat=r) for r in range(3)]
    bad = [make_result("big", (), repeat=r, status="failed", error=BOOM) for r in range(3)]
    keep_run(tmp_path / "run", [*good, *bad], run=make_run(1))
    (tmp_path / "run" / "logs").mkdir(exist_ok=True)
    code, out, _ = call("report", tmp_path / "run")
    assert code == 0
    assert unwrapped(out).startswith("big FAILS in 3 of 3 tasks on 1x Test; 3 of 6 tasks failed; no score.")
    assert "ValueError: boom" in out
    assert str(tmp_path / "run" / "logs" / "big.J0.0.a1.err") in re.sub(r"\s", "", out)


def test_files_that_cannot_be_used_are_named_in_few_lines_too(call: Call, tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result()])
    (tmp_path / "x.json").write_bytes(b"")
    out = call("report", tmp_path)[1]
    assert "Files that cannot be used (1; counted as no task):" in out
    assert "x.json" in out


# --- the sentence -----------------------------------------------------------------------------------------------------


def test_a_run_alone_is_judged_by_its_score_and_the_job_that_varies_most() -> None:
    noisy = made_run(flat("even", 100.0, gpus=2), flat("noisy", 100.0, gpus=2), gpus=2)
    assert re.fullmatch(
        r"2x Test: score \d+.* \(speed ±0\.0 %\) over 2 jobs; no failures; every job varies by under 1 %\.",
        first(noisy),
    )


def test_ratios_have_their_interval_and_their_word(tmp_path: Path) -> None:
    here = summary_for(tmp_path / "a", *(make_result("a", [200 + r] * 30, repeat=r) for r in range(3)))
    base = summary_for(tmp_path / "b", *(make_result("a", [100 + r] * 30, repeat=r) for r in range(3)))
    for one, other, words in (
        (here, base, r"1\.99x \(1\.\d+ to 2\.\d+, FASTER\)"),
        (base, here, r"0\.50x \(0\.\d+ to 0\.\d+, SLOWER\)"),
    ):
        assert re.match(rf"1x Test is {words} base as a machine and a GPU; no failures", first(one, other))


# --- conditions -------------------------------------------------------------------------------------------------------


def runs(folder: Path) -> tuple[Path, Path]:
    """A run, and one that is half as fast."""
    keep_run(folder / "fast", [make_result("a", [200 + r] * 30, repeat=r) for r in range(3)])
    keep_run(folder / "slow", [make_result("a", [100 + r] * 30, repeat=r) for r in range(3)])
    return folder / "fast", folder / "slow"


def test_slower_is_a_condition_with_exit_status_3(call: Call, tmp_path: Path) -> None:
    fast, slow = runs(tmp_path)
    code, _, err = call("report", slow, "--compare", fast, "--fail-on", "slower")
    assert (code, err.count("\n")) == (3, 1)
    assert err.startswith(f"benchsuite: --fail-on slower: slower than {fast} as a machine (0.50x)")
    assert call("report", fast, "--compare", slow, "--fail-on", "slower,failures,incomplete,flagged")[0] == 0
    assert call("report", slow, "--compare", slow, "--fail-on", "slower")[0] == 0


def test_what_cannot_be_judged_is_no_success(call: Call, tmp_path: Path) -> None:
    for name in ("a", "b"):
        keep_run(tmp_path / name, [make_result("a", [100 if name == "a" else 90] * 30)])
    code, _, err = call("report", tmp_path / "a", "--compare", tmp_path / "b", "--fail-on", "slower")
    assert code == 3
    assert "slower: cannot be judged against" in err


def test_failures_incomplete_and_flagged_each_say_why(call: Call, tmp_path: Path) -> None:
    bad = make_result("big", (), status="failed", error=BOOM)
    keep_run(tmp_path, [make_result("a", [60] * 19 + [140] * 11), bad])
    code, _, err = call("report", tmp_path, "--fail-on", "failures, incomplete,flagged")
    assert code == 3
    assert err == (
        "benchsuite: --fail-on failures: 1 of 2 tasks failed (big 1 of 1); incomplete: big fails in 1 of 1 task; "
        "flagged: 1 task not steady (a 1 of 1)\n"
    )


def test_no_ok_task_stays_exit_status_1(call: Call, tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result("big", (), status="failed", error=BOOM)])
    assert call("report", tmp_path, "--fail-on", "failures")[0] == 1


def test_wrong_conditions_are_one_line_with_a_remedy(call: Call, tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result()])
    for value, words in (
        ("junk", "no condition 'junk'; known: failures, slower, incomplete, flagged"),
        ("", "no condition ''; known: failures"),
        ("slower", "--fail-on slower: name a baseline with --compare"),
    ):
        code, out, err = call("report", tmp_path, "--fail-on", value)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert words in err
