"""Models that share a GPU, as the report shows them: rates together, speed-ups, the tables, the plot, the advice."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from conftest import keep_run, make_gpu
from made_sharing import GRAPHED, keep_shared, shared_result
from outputs import document_of, section
from support import in_process

from benchsuite.describe.jobs import resolve
from benchsuite.describe.plan import make_plan
from benchsuite.errors import ResultError
from benchsuite.report import plots
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Table
from benchsuite.report.show.sections.advice import advice
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.sharing import Line, shared


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return keep_shared(tmp_path_factory.mktemp("shared") / "run")


@pytest.fixture(scope="module")
def summary(run: Path) -> Summary:
    return summary_of(run)


def test_the_rate_of_copies_is_that_of_all_in_the_time_that_their_windows_share(summary: Summary) -> None:
    (model,) = shared(summary)
    (one, two, four) = model.lines[Line("concurrent", "fp32")]
    assert [point.copies for point in (one, two, four)] == [1, 2, 4]
    assert dict(two.runs) == {0: pytest.approx(160.0), 1: pytest.approx(176.0)}
    assert four.rate == pytest.approx(252.0)
    assert two.overlap == pytest.approx(8.8 / 9.0, abs=0.03)
    assert four.memory_bytes == 4 << 30


def test_an_array_and_one_model_alone_have_their_own_rate(summary: Summary) -> None:
    (model,) = shared(summary)
    assert (model.name, model.unit, model.base) == ("v", "image", pytest.approx(105.0))
    assert model.speed_up(model.lines[Line("fused", "fp32")][2].rate) == pytest.approx(4.0)
    assert model.speed_up(model.lines[Line("serial", "fp32", "reduce-overhead")][0].rate) == pytest.approx(1.6)


def test_a_number_with_a_copy_out_of_memory_has_no_rate(summary: Summary) -> None:
    (model,) = shared(summary)
    lost = model.lines[Line("concurrent", "bf16")][2]
    assert (lost.rate, lost.state) == (None, "OOM")


def test_the_tables_show_gains_the_best_and_every_number(summary: Summary) -> None:
    parts = section(document_of(summary), "Models that share").parts
    tables = [part for part in parts if isinstance(part, Table)]
    gains, best, every = ([_row(table, row) for row in table.rows] for table in tables)
    assert gains[0] == {
        "model": "v", "precision": "fp32", "fused": "fused fp32", "copies": "4", "speed-up": "4.00",
        "over serial": "4.00", "over serial, compiled": "2.50", "over concurrent": "1.67",
    }  # fmt: skip
    assert gains[1]["over serial"] == "5.00"
    assert gains[1]["over serial, compiled"] == "n/a", "the graphed job is in fp32"
    assert {row["way"]: row["copies"] for row in best}["concurrent bf16"] == "2"
    assert len(every) == 15
    assert [row["rate"] for row in every if row["way"] == "concurrent bf16"] == ["126.0", "210.0", "OOM"]
    two = next(row for row in every if (row["way"], row["copies"]) == ("concurrent fp32", "2"))
    assert (two["SM %"], two["tensor %"], two["W/GPU"], two["GiB"]) == ("83", "12", "650", "2.00")


def _row(table: Table, row: Any) -> dict[str, str]:
    return dict(zip([column.name for column in table.columns], [cell.text for cell in row], strict=True))


def test_the_plot_has_a_line_for_each_way_and_a_csv_with_the_columns_of_hfta(run: Path, tmp_path: Path) -> None:
    done = in_process("plot", str(run), "--kind", "speedup", "-o", "s.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "s.png").read_bytes()[:4] == b"\x89PNG"
    rows = [*csv.DictReader(io.StringIO((tmp_path / "s.csv").read_text()))]
    assert [row["B"] for row in rows] == ["1", "2", "4"]
    assert [*rows[0]][1:6] == [
        "serial:bf16:0",
        "serial:bf16:1",
        "serial:bf16:avg",
        "serial:bf16:min",
        "serial:bf16:max",
    ]
    assert float(rows[2]["fused:bf16:1"]) == pytest.approx(660.0)
    assert float(rows[1]["concurrent:fp32:avg"]) == pytest.approx(168.0)
    assert rows[1]["serial:fp32:avg"] == rows[2]["concurrent:bf16:avg"] == ""
    assert float(rows[0]["serial+reduce-overhead:fp32:0"]) == GRAPHED


def test_the_lines_are_normalised_and_serial_is_horizontal(summary: Summary) -> None:
    from benchsuite.report.plots import speedup  # matplotlib takes long to import

    (drawn,) = plots.draw_all("speedup", plots.Source(summary))
    lines = {line.get_label(): line for line in drawn.figure.axes[0].lines}
    assert list(lines["fused fp32"].get_ydata()) == pytest.approx([1.0, 2.0, 4.0])
    assert list(lines["serial fp32"].get_xdata()) == [1, 4]
    assert list(lines["serial fp32, reduce-overhead"].get_ydata()) == pytest.approx([1.6, 1.6])
    assert speedup.table(shared(summary)[0]) == drawn.csv
    assert "Without a number: concurrent bf16 4 (OOM)." in drawn.figure.get_supxlabel().replace("\n", " ")


def test_several_models_have_a_figure_each(tmp_path: Path) -> None:
    raw = {"model": "vae", "sharing": ["serial", "fused"], "copies": [1, 2]}
    jobs = [resolve(name, {**raw, "params": {"batch_size": size}}, "p") for name, size in (("a", 8), ("b", 16))]
    plan = make_plan("suite", jobs, [make_gpu(0)], environ={})
    keep_run(tmp_path, [shared_result(task) for task in plan.tasks])
    assert [drawn.name for drawn in plots.draw_all("speedup", plots.Source(summary_of(tmp_path)))] == ["a", "b"]


def test_without_one_model_alone_nothing_is_normalised(tmp_path: Path) -> None:
    keep_shared(tmp_path, 1, sharing=["concurrent"], matrix={})
    with pytest.raises(ResultError, match="no rate of one model alone to divide by"):
        plots.draw("speedup", plots.Source(summary_of(tmp_path)))


def test_the_advice_names_the_most_jobs_per_hour_and_per_kilowatt_hour(summary: Summary) -> None:
    found = advice(summary, "vae on a GPU", items=3600.0)
    (part,) = found.sections
    words = [line.text for line in part.parts if not isinstance(line, Table)]
    assert words == [
        "Most jobs per hour: fused bf16 with 4 models, 630.0 jobs an hour on a GPU, 6.00 times one model alone.",
        "Most jobs per kilowatt-hour: fused bf16 with 4 models, 969.2 jobs.",
    ]
    (table,) = (line for line in part.parts if isinstance(line, Table))
    assert _row(table, table.rows[0])["hours/job"] == "0.00635"
    assert [line.text for line in found.intro] == [
        "v[precision=bf16,sharing=concurrent,copies=4]: oom: the task is oom"
    ]


def test_the_plot_of_partially_fused_arrays_divides_by_one_model_alone(tmp_path: Path) -> None:
    same = {"model": "convnet", "params": {"arch": "resnet18"}}
    arrays = {**same, "sharing": "fused", "copies": 2, "matrix": {"unfused_units": [0, 10]}}
    plan = make_plan("suite", [resolve("a", same, "p"), resolve("b", arrays, "p")], [make_gpu(0)], environ={})
    keep_run(tmp_path, [shared_result(task) for task in plan.tasks])
    (drawn,) = plots.draw_all("partially_fused", plots.Source(summary_of(tmp_path)))
    line = drawn.figure.axes[0].lines[0]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([0, 10], pytest.approx([2.0, 2.0]))
    assert next(csv.reader(io.StringIO(drawn.csv)))[:2] == ["unfused_units", "fused:fp32:avg"]
    (model,) = shared(summary_of(tmp_path))
    assert [point.copies for point in model.lines[Line("fused", "fp32")]] == [2], (
        "units that stay unfused are another work"
    )


def test_copies_in_processes_have_no_place_on_the_roofline(summary: Summary) -> None:
    from benchsuite.report.stats.roofline import roofline

    assert all(roofline(job) is None for job in summary.jobs if job.settings.get("sharing") == "concurrent")
