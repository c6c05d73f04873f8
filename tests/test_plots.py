"""Every kind of plot: drawn from a summary, a file that is not overwritten, and one line where there is nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from conftest import keep_run, make_gpu, make_result, make_task
from outputs import call, sample
from scipy import stats
from support import in_process, one_line_error

from benchsuite.describe.tasks import Job, Placement
from benchsuite.measurement import Measurement
from benchsuite.report import plots
from benchsuite.report.read.summary_file import write_summary
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.scaling import curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

JOB = Job(name="s", model="vae", placement=Placement(devices="progression"))
KINDS = ("compare", "scaling", "telemetry", "throughput")


def keep_progression(folder: Path, rates: dict[int, list[float]]) -> Path:
    """A run with groups of GPUs: number of GPUs -> the totals of its repeats."""
    results = []
    for gpus, totals in rates.items():
        for repeat, total in enumerate(totals):
            task = make_task(repeat=repeat, job=JOB, gpus=tuple(map(make_gpu, range(gpus))), ranks=gpus)
            results.append(make_result(rates=[total] * 30, task=task))
    keep_run(folder, results)
    return folder


def test_efficiency_is_the_rate_of_a_gpu_against_that_of_one_alone(tmp_path: Path) -> None:
    run = keep_progression(tmp_path / "run", {1: [1e4, 10_200.0, 9_800.0], 2: [18e3, 18_360.0, 17_640.0], 4: [3e4] * 3})
    (curve,) = curves(summary_of(run))
    assert [(p.gpus, p.total, p.per_gpu) for p in curve.points] == [
        (1, pytest.approx(1e4), pytest.approx(1e4)),
        (2, pytest.approx(18e3), pytest.approx(9e3)),
        (4, pytest.approx(3e4), pytest.approx(7500.0)),
    ]
    assert [p.efficiency for p in curve.points] == pytest.approx([1.0, 0.9, 0.75])
    one, two, four = (p.interval for p in curve.points)
    assert one is None
    assert two is not None
    assert (two.low, two.high) == (pytest.approx(0.9), pytest.approx(0.9)), "the repeats agree on the ratio exactly"
    assert four is not None
    assert four.low < 0.75 < four.high
    report = in_process("report", "--full", str(run), cwd=tmp_path).stdout
    assert "Scaling" in report
    assert "90.0 to 90.0" in report


def test_without_a_single_gpu_or_three_repeats_there_is_no_efficiency_or_interval(tmp_path: Path) -> None:
    (alone,) = curves(summary_of(keep_progression(tmp_path / "a", {2: [180.0] * 3})))
    assert (alone.points[0].total, alone.points[0].efficiency) == (pytest.approx(180.0), None)
    (few,) = curves(summary_of(keep_progression(tmp_path / "b", {1: [100.0] * 2, 2: [180.0] * 2})))
    assert (few.points[1].efficiency, few.points[1].interval) == (pytest.approx(0.9), None)


def test_the_kinds_are_those_that_are_tested() -> None:
    assert tuple(plots.kinds()) == KINDS
    assert all(what for what in plots.kinds().values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ending", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_a_kind_is_drawn_to_a_new_file(
    kind: str, ending: str, magic: bytes, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = keep_progression(tmp_path / "run", {1: [100.0] * 3, 2: [180.0, 170.0, 190.0]})
    sample(run)
    file = tmp_path / f"p{ending}"
    asked = ("plot", run, "--kind", kind, "-o", file, *(("--base", run) if kind == "compare" else ()))
    assert call(capsys, *asked)[0] == 0
    content = file.read_bytes()
    assert content.startswith(magic)
    assert len(content) > 4000
    code, _, err = call(capsys, *asked)
    assert code == 2
    assert "exists already and is not overwritten" in err
    assert file.read_bytes() == content


@pytest.mark.parametrize("kind", ["telemetry", "throughput"])
def test_names_are_text_and_not_mathematics(kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    task = make_task("$\\frac{$", gpu=None)
    keep_run(tmp_path / "run", [make_result(task=task)])
    sample(tmp_path / "run")
    svg = tmp_path / "p.svg"
    assert call(capsys, "plot", tmp_path / "run", "--kind", kind, "-o", svg, "--task", task.id)[0] == 0


def axes_of(kind: str, run: Path, **fields: object) -> list[Axes]:
    return list(plots.draw(kind, plots.Source(summary_of(run), run, **fields)).axes)  # type: ignore[arg-type]


def test_throughput_has_a_panel_a_job_and_a_line_a_task_whose_window_is_shaded(tmp_path: Path) -> None:
    results = [make_result(job, [rate] * 30, gpu=gpu) for job, rate in (("a", 50), ("b", 80)) for gpu in (0, 1)]
    keep_run(tmp_path, results)
    panels = axes_of("throughput", tmp_path)
    assert [axes.get_title(loc="left") for axes in panels] == ["a", "b"]
    for axes, rate in zip(panels, (50, 80), strict=True):
        assert [set(line.get_ydata()) for line in axes.lines] == [{rate}, {rate}]  # type: ignore[arg-type]
        # Slices of 0.5 s up to 15 s: the window is from 5 s to 14 s.
        assert [(span.get_x(), span.get_x() + span.get_width()) for span in axes.patches] == [(5.0, 14.0)] * 2  # type: ignore[attr-defined]
    (only,) = axes_of("throughput", tmp_path, task="b.J0.1")
    assert len(only.lines) == 1


def test_a_burst_leaves_room_for_what_is_usual_and_is_reported(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result(rates=[100.0] * 28 + [85_000.0, 200.0]), make_result(gpu=1, rates=[90.0] * 30)])
    (axes,) = axes_of("throughput", tmp_path)
    assert axes.get_ylim() == (0, pytest.approx(250 * 1.05))
    assert axes.get_title(loc="right") == "1 slice above, up to 85,000"
    keep_run(tmp_path / "calm", [make_result(rates=[100.0] * 29 + [240.0])])
    (axes,) = axes_of("throughput", tmp_path / "calm")
    assert (axes.get_ylim(), axes.get_title(loc="right")) == ((0, pytest.approx(240 * 1.05)), "")


def test_far_ratios_lie_on_an_axis_that_fits_them(tmp_path: Path) -> None:
    rates = {"slow": 10, "same": 100, "fast": 2000}
    keep_run(tmp_path / "here", [make_result(job, [rate] * 30) for job, rate in rates.items()])
    keep_run(tmp_path / "base", [make_result(job, [100] * 30) for job in rates])
    base = summary_of(tmp_path / "base")
    (axes,) = axes_of("compare", tmp_path / "here", base=base, base_name=str(tmp_path / "base"))
    low, high = axes.get_xlim()
    assert (low * high, high) == (pytest.approx(1), pytest.approx(20**1.05))
    assert axes.get_title(loc="left").endswith(" against base")


def test_one_colour_a_name_in_all_panels(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result(job, gpu=None) for job in "abc"])
    sample(tmp_path, stolen=1.0)
    # Nothing was stolen from the first: its panel begins with another.
    first = next(iter(sorted((tmp_path / "telemetry").glob("a.*"))))
    first.write_text(first.read_text().replace('"cpus_stolen_s":', '"cpus_stolen_x":'))
    figure = plots.draw("telemetry", plots.Source(summary_of(tmp_path), tmp_path))
    stolen = next(axes for axes in figure.axes if axes.get_ylabel() == "CPUs stolen")
    assert [line.get_color() for line in stolen.lines] == ["C1", "C2"]
    (legend,) = figure.legends
    shown = [(text.get_text(), line.get_color()) for text, line in zip(legend.texts, legend.get_lines(), strict=True)]
    assert shown == [("a.J0", "C0"), ("b.J0", "C1"), ("c.J0", "C2")]


def test_a_panel_without_a_job_shows_nothing(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result(job) for job in "abcde"])
    assert [axes.axison for axes in axes_of("throughput", tmp_path)] == [True] * 5 + [False]


def test_the_rates_of_ranks_are_added_up(tmp_path: Path) -> None:
    result = make_result(rates=[100.0] * 30)
    (stream,) = result.measurement.streams
    both = Measurement(streams=(stream, msgspec.structs.replace(stream, rank=1)))
    keep_run(tmp_path, [msgspec.structs.replace(result, measurement=both)])
    (axes,) = axes_of("throughput", tmp_path)
    assert set(axes.lines[0].get_ydata()) == {200.0}  # type: ignore[arg-type]


def test_telemetry_shows_what_was_sampled(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result(gpu=0), make_result(gpu=1)])
    sample(tmp_path)
    panels = axes_of("telemetry", tmp_path)
    assert [axes.get_ylabel() for axes in panels] == ["power, W", "SM clock, MHz", "temperature, °C", "GPU busy, %"]
    assert [list(line.get_ydata())[:2] for line in panels[0].lines] == [[300.0, 301.0]] * 2  # type: ignore[arg-type]
    assert len(axes_of("telemetry", tmp_path, task="vae.J0.1")[0].lines) == 1


def test_the_interval_of_a_ratio_is_welchs(tmp_path: Path) -> None:
    """Logs 0.01, 0.02, 0.03 against -0.02, 0, 0.02: by scipy.stats.ttest_ind(equal_var=False)."""
    for name, logs in (("a", (0.01, 0.02, 0.03)), ("b", (-0.02, 0.0, 0.02))):
        # Many items a slice, so that whole ones are exact enough.
        keep_run(tmp_path / name, [make_result(rates=[1e9 * math.exp(x)] * 30, repeat=i) for i, x in enumerate(logs)])
    (axes,) = axes_of("compare", tmp_path / "a", base=summary_of(tmp_path / "b"), base_name="b")
    expected = stats.ttest_ind([0.01, 0.02, 0.03], [-0.02, 0.0, 0.02], equal_var=False).confidence_interval(0.95)
    (shown,) = [line for line in axes.lines if line.get_linewidth() == 2]
    assert np.log(np.asarray(shown.get_xdata())) == pytest.approx(tuple(expected), abs=1e-7)


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        (["--kind", "throughput"], ["a summary holds no slices", "results folder"]),
        (["--kind", "telemetry"], ["a summary holds no slices"]),
        (["--kind", "compare"], ["--base"]),
        (["--kind", "compare", "--base", "other"], ["no job has a ratio to other"]),
    ],
)
def test_a_kind_without_what_it_needs_is_one_line(asked: list[str], parts: list[str], tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [make_result()])
    keep_run(tmp_path / "other", [make_result("elsewhere")])
    write_summary(tmp_path / "s.json", summary_of(tmp_path / "run"))
    one_line_error(in_process("plot", "s.json", *asked, cwd=tmp_path), *parts)


def test_what_a_folder_lacks_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result(rates=())])
    for kind, task, part in (
        ("throughput", (), "no task has recorded a slice"),
        ("telemetry", (), "no telemetry of any task"),
        ("telemetry", ("--task", "vea.J0.0"), "did you mean 'vae.J0.0'"),
    ):
        code, _, err = call(capsys, "plot", tmp_path, "--kind", kind, "-o", tmp_path / "p.png", *task)
        assert code == 2
        assert part in err


def test_bad_use_of_plot_is_one_line(tmp_path: Path) -> None:
    run = keep_progression(tmp_path / "run", {1: [100.0]})
    one_line_error(in_process("plot", str(run), "--kind", "scalng", cwd=tmp_path), "scalng", "scaling")
    one_line_error(in_process("plot", str(run), "--kind", "scaling", "-o", "x.jpg", cwd=tmp_path), "x.jpg", ".png")
    keep_run(tmp_path / "other", [make_result()])
    nothing = in_process("plot", "other", "--kind", "scaling", cwd=tmp_path)
    one_line_error(nothing, "no job with placement gpu_progression has a figure")
    assert not (tmp_path / "scaling.png").exists()
