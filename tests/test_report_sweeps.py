"""Sweeps over the batch size: the knee, the sizes that do not fit, the table, and the plot."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_sweeps import keep_sweep
from outputs import document_of, section

from benchsuite.errors import ResultError
from benchsuite.report import plots
from benchsuite.report.show.document import Table
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.sweeps import sweeps

RATES: dict[int, float | str | None] = {8: 100.0, 16: 190.0, 32: 200.0, 64: None, 1: 20.0, 128: "failed"}


def test_the_knee_is_the_smallest_batch_with_95_percent_of_the_best_rate(tmp_path: Path) -> None:
    (sweep,) = sweeps(summary_of(keep_sweep(tmp_path, {"a": RATES})))
    assert [point.batch for point in sweep.points] == [1, 8, 16, 32, 64, 128]
    assert (sweep.job, sweep.unit, sweep.knee) == ("a", "image", 16)
    assert [point.of_best for point in sweep.points[:4]] == pytest.approx([0.1, 0.5, 0.95, 1.0])
    assert [(point.rate, point.oom, point.state) for point in sweep.points[4:]] == [
        (None, True, ""),
        (None, False, "failed"),
    ]
    assert sweep.points[3].memory_bytes == 32 * 2**30


def test_a_rate_that_may_still_rise_has_no_knee(tmp_path: Path) -> None:
    rising = {"a": {8: 100.0, 16: 190.0, 32: None}, "b": {8: 100.0, 16: None}, "c": {8: None, 16: None}}
    found = sweeps(summary_of(keep_sweep(tmp_path, rising)))
    assert [sweep.knee for sweep in found] == [None, None, None]


def test_one_batch_size_is_no_sweep(tmp_path: Path) -> None:
    summary = summary_of(keep_sweep(tmp_path, {"a": {8: 100.0}}))
    assert sweeps(summary) == []
    with pytest.raises(ResultError, match="no job with an axis batch_size"):
        plots.draw("batch", plots.Source(summary))


def test_the_table_has_a_row_for_each_size_with_its_use_and_marks_those_that_do_not_fit(tmp_path: Path) -> None:
    document = document_of(summary_of(keep_sweep(tmp_path, {"a": RATES})))
    (part,) = section(document, "Sweeps").parts
    assert isinstance(part, Table)
    rows = [dict(zip([c.name for c in part.columns], [cell.text for cell in row], strict=True)) for row in part.rows]
    assert [row["rate"] for row in rows] == ["20.00", "100.0", "190.0", "200.0", "OOM", "failed"]
    assert [row[""] for row in rows] == ["", "", "knee", "", "", ""]
    assert rows[2] | {"unit": ""} == {
        "job": "a", "batch": "16", "rate": "190.0", "unit": "", "of best %": "95.0", "": "knee", "GiB": "16.00",
        "SM %": "83", "tensor %": "12", "W/GPU": "650", "items/J": "0.29",
    }  # fmt: skip


def test_the_first_line_calls_a_batch_that_does_not_fit_no_failure_of_its_job(tmp_path: Path) -> None:
    (first,) = document_of(summary_of(keep_sweep(tmp_path, {"a": RATES}))).intro[:1]
    assert first.text.startswith("a[batch_size=128] FAILS in 1 of 1 task, a runs out of memory at batch 64 on")
    (first,) = document_of(summary_of(keep_sweep(tmp_path / "b", {"b": {8: 1.0, 16: None, 32: None}}))).intro[:1]
    assert first.text.startswith("b runs out of memory at batch 16, 32 on")
    assert "FAILS" not in first.text


def test_the_plot_rings_the_knee_and_marks_out_of_memory_at_the_axis(tmp_path: Path) -> None:
    summary = summary_of(keep_sweep(tmp_path, {"a": RATES, "$b$": {8: 50.0, 16: 100.0, 32: 101.0, 64: None}}))
    figure = plots.draw("batch", plots.Source(summary))
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.axison]
    assert titles[:2] == ["rate, % of the sweep's best", "peak memory, GiB"]
    assert "memory bandwidth, % of peak" not in titles, "no run records it"
    lines = figure.axes[0].lines
    crosses = [line for line in lines if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [[64], [64]]
    assert len({line.get_ydata()[0] for line in crosses}) == 2, "they do not hide each other"  # type: ignore[index]
    rings = [line for line in lines if line.get_markerfacecolor() == "none"]
    assert [list(line.get_xdata()) for line in rings] == [[16], [16]]
    notes = " ".join(figure.get_supxlabel().split())
    assert "Knees: a 16, $b$ 16." in notes
    assert "Out of memory: a 64; $b$ 64." in notes
    assert "Without a number: a 128 (failed)." in notes


def test_a_single_sweep_is_drawn_in_items_per_second(tmp_path: Path) -> None:
    figure = plots.draw("batch", plots.Source(summary_of(keep_sweep(tmp_path, {"a": RATES}))))
    assert figure.axes[0].get_title(loc="left") == "image/s"
