"""The charts of the page: ratio bars, the table of scores, the heat map of GPUs, and scaling."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from conftest import keep_run, make_gpu, make_result, make_run, make_task
from outputs import report_of, summary_for

from benchsuite.describe.tasks import Task
from benchsuite.records import Failure, Result
from benchsuite.report.read.load import load
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.html.bars import Axis, Bars, bars
from benchsuite.report.show.html.heat import heat_map, shade
from benchsuite.report.show.html.scaling import scaling_figures
from benchsuite.report.show.html.scores import score_table
from benchsuite.report.stats.summarise import summarise

BROKEN = Failure(kind="ValueError", message="boom", traceback=None)
# Of three repeats.
NOISE = (0.998, 1.0, 1.002)


def repeats(job: str, rate: float) -> list[Result]:
    return [make_result(job, [rate * noise] * 30, repeat=repeat) for repeat, noise in enumerate(NOISE)]


def failed(job: str) -> list[Result]:
    return [make_result(job, (), repeat=repeat, status="failed", error=BROKEN) for repeat in range(3)]


def summary_of_jobs(folder: Path, *groups: list[Result]) -> Summary:
    return summary_for(folder, *(result for group in groups for result in group))


@pytest.fixture(name="chart")
def chart_fixture(tmp_path: Path) -> Bars:
    rates = {"same": 10_000, "fast": 20_000, "slow": 5000, "new": 1000}
    here = summary_of_jobs(tmp_path / "here", *(repeats(job, rate) for job, rate in rates.items()), failed("broken"))
    jobs = ("same", "fast", "slow", "broken", "old")
    # Not the same rates, which would make identical content.
    base = summary_of_jobs(tmp_path / "base", *(repeats(job, 10_010) for job in jobs))
    (comparison,) = report_of(here, base=base).comparisons
    return bars(here, comparison)


def test_failures_come_first_and_then_the_smallest_ratio(chart: Bars) -> None:
    shown = [(bar.name, bar.look, bar.word, bar.ratio.text) for bar in chart.jobs]
    assert shown == [
        ("broken", "fails", "FAILS", "n/a"),
        ("slow", "slower", "SLOWER", "0.50x"),
        ("same", "same", "SAME", "1.00x"),
        ("fast", "faster", "FASTER", "2.00x"),
    ]
    assert (chart.only_here, chart.only_base) == (("new",), ("old",))


def test_bars_start_at_one_on_a_logarithmic_axis(chart: Bars) -> None:
    places = {bar.name: bar.place or 0.0 for bar in chart.jobs}
    assert places["same"] == pytest.approx(chart.one, abs=0.2)
    assert places["fast"] - chart.one == pytest.approx(chart.one - places["slow"], abs=0.5), "twice and half as fast"
    slow = chart.jobs[1]
    assert slow.low is not None and slow.high is not None
    assert slow.low < places["slow"] < slow.high
    assert chart.repeats and len(slow.points) == len(slow.base_points) == 3
    assert chart.jobs[0].place is None and "fails in 3 of 3" in chart.jobs[0].why


def test_every_direction_has_a_mark_of_its_own(chart: Bars) -> None:
    """Colour alone does not reach every reader."""
    assert len({bar.mark for bar in chart.jobs}) == len(chart.jobs)


@pytest.mark.parametrize(
    ("ratios", "labels"),
    [
        ([0.97, 1.04], ["0.98x", "1x", "1.02x", "1.04x"]),
        ([0.8, 1.3], ["0.8x", "0.9x", "1x", "1.1x", "1.2x", "1.3x"]),
        ([0.5, 7], ["0.5x", "1x", "2x", "4x"]),
        ([1e-6, 3], ["1e-06x", "0.0001x", "0.01x", "1x"]),
        ([], ["0.995x", "1x", "1.005x", "1.01x"]),
    ],
)
def test_ticks_are_round_ratios_around_one(ratios: list[float], labels: list[str]) -> None:
    assert [label for _, label in Axis(ratios, []).ticks()] == labels


def test_a_wide_interval_does_not_squeeze_the_axis() -> None:
    near, far = Axis([0.9, 1.1], [1.2]), Axis([0.9, 1.1], [1e9])
    assert near.place(1.2) < 100
    assert far.place(1e9) == 100
    assert far.place(1.1) > 30


def test_a_shared_reason_is_stated_once(tmp_path: Path) -> None:
    here = summary_of_jobs(tmp_path / "here", *(repeats(job, 100) for job in "abc"))
    base = summary_of_jobs(tmp_path / "base", *(repeats(job, 90)[:2] for job in "abc"))
    (comparison,) = report_of(here, base=base).comparisons
    chart = bars(here, comparison)
    assert "3 are needed" in chart.shared
    assert {bar.why for bar in (*chart.overall, *chart.jobs)} == {""}
    assert {bar.look for bar in chart.jobs} == {"none"}


def test_the_table_of_scores_has_a_row_for_each_system(tmp_path: Path) -> None:
    here = summary_of_jobs(tmp_path / "here", repeats("a", 100), repeats("b", 100))
    base = summary_of_jobs(tmp_path / "base", repeats("a", 50), repeats("b", 50))
    assert score_table(report_of(here)) is None
    found = score_table(report_of(here, base=base, title="old"))
    assert found
    names = [column.name for column in found.columns]
    own, other = (dict(zip(names, (cell.text for cell in row), strict=True)) for row in found.rows)
    assert (own["system"], own["per GPU"], own["failed tasks"]) == ("this run", "", "0 of 6")
    assert (other["system"], other["per GPU"], other["verdict"]) == ("old", "2.00x", "FASTER")


def eight(job: str, rates: dict[int, float]) -> list[Result]:
    return [make_result(job, [rate] * 30, gpu=gpu) for gpu, rate in rates.items()]


def test_the_heat_map_compares_each_gpu_with_the_jobs_median(tmp_path: Path) -> None:
    """A job on several GPUs has no place in it."""
    results = eight("a", {0: 100, 1: 100, 2: 88, 3: 104})
    results += [make_result("b", [10] * 30, gpu=0), make_result("b", (), gpu=1, status="oom")]
    both = msgspec.structs.replace(make_task("c"), gpus=(make_gpu(0), make_gpu(1)))
    keep_run(tmp_path, [*results, make_result(task=both)], run=make_run(4))
    found = heat_map(summarise(load(tmp_path)))
    assert found
    assert [host for host, _ in found.hosts] == ["hostA"]
    assert [gpu.text for gpu in found.gpus] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    rows = dict(found.rows)
    assert [(cell.text, shade(cell)) for cell in rows["a"]] == [
        ("0.0", "even"), ("0.0", "even"), ("\N{MINUS SIGN}12.0", "cold3"), ("+4.0", "warm1"),
    ]  # fmt: skip
    assert rows["a"][2].note.splitlines()[1:3] == ["88.00 items/s", "1 task, 0 failed"]
    assert [(cell.text, shade(cell)) for cell in rows["b"][:3]] == [
        ("0.0", "even"), ("1/1 failed", "absent failed"), ("n/a", "absent"),
    ]  # fmt: skip
    assert "c" not in rows
    assert found.all_jobs[2].text == "\N{MINUS SIGN}12.0"


def test_one_gpu_makes_no_heat_map(tmp_path: Path) -> None:
    assert heat_map(summary_for(tmp_path, make_result())) is None


def test_scaling_is_drawn_beside_the_ideal_line(tmp_path: Path) -> None:
    results = [make_result(task=group(1), rates=[100] * 30), make_result(task=group(2), rates=[180] * 30)]
    (figure,) = scaling_figures(summary_for(tmp_path, *results))
    assert figure.name == "big"
    assert "90 % of ideal at 2 GPUs" in figure.note
    svg = str(figure.svg)
    assert svg.count("<circle") == 2 and 'class="ideal"' in svg
    assert re.search(r'data-tip="2 GPUs: 180\S* image/s\n90.0 % of ideal"', svg)


def group(gpus: int) -> Task:
    task = make_task("big")
    return msgspec.structs.replace(
        task,
        id=f"big.{gpus}.J0",
        row=f"big.{gpus}",
        axes={"gpus": gpus},
        per=gpus,
        gpus=tuple(make_gpu(index) for index in range(gpus)),
    )
