"""Every kind of plot: drawn from a summary, a file that is not overwritten, and one line where there is nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
import scipy  # which imports its parts on first use: `scipy.stats` takes a second
from conftest import keep_run, make_gpu, make_result, make_task
from made_sharing import keep_shared
from made_sweeps import keep_sweep
from outputs import call, sample
from support import in_process, one_line_error

from benchsuite.bleu_scores import Bleu, BleuEpoch, TaskBleu, path_in
from benchsuite.describe.tasks import Job, Placement
from benchsuite.measurement import Measurement
from benchsuite.report import plots
from benchsuite.report.read.summary_file import write_summary
from benchsuite.report.show.axes import PALETTE
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.scaling import curves
from benchsuite.schema import to_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

JOB = Job(name="s", model="vae", placement=Placement(devices="progression"))
KINDS = ("batch", "bleu", "compare", "scaling", "speedup", "telemetry", "throughput")
SCORES = Bleu(
    **{"signature": "s", "beam": 5, "max_length": 80, "alpha": 0.6, "beta": 0.1, "device": "cpu"},
    tasks=(
        TaskBleu(
            **{"task": "vae.J0", "attempt": 1, "model": "gnmt", "test_set": "wmt16 test", "sentences": 9},
            epochs=tuple(
                BleuEpoch(epoch=epoch, bleu=bleu, elapsed_s=1.0, translations="t")
                for epoch, bleu in ((1, 2.0), (2, 9.0))
            ),
        ),
    ),
)


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
    assert tuple(plots.kinds()) == tuple(sorted((*KINDS, "partially_fused")))  # the last: see test_report_sharing
    assert all(what for what in plots.kinds().values())


@pytest.mark.parametrize(
    ("kind", "ending", "magic"),
    [*((kind, ".png", b"\x89PNG") for kind in KINDS), ("scaling", ".svg", b"<?xml"), ("scaling", ".pdf", b"%PDF")],
)
def test_a_kind_is_drawn_to_a_new_file(
    kind: str, ending: str, magic: bytes, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if kind == "batch":
        run = keep_sweep(tmp_path / "run", {"a": {8: 100.0, 16: 190.0, 32: 195.0, 64: None}})
    elif kind == "speedup":
        run = keep_shared(tmp_path / "run")
    else:
        run = keep_progression(tmp_path / "run", {1: [100.0] * 3, 2: [180.0, 170.0, 190.0]})
    if kind == "bleu":
        (run / "bleu").mkdir()
        path_in(run).write_bytes(to_json(SCORES))
    if kind == "telemetry":
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
        assert [set(line.get_ydata()) for line in curves_in(axes)] == [{rate}, {rate}]  # type: ignore[arg-type]
        # Slices of 0.5 s up to 15 s: the window is from 5 s to 14 s.
        assert [(span.get_x(), span.get_x() + span.get_width()) for span in axes.patches] == [(5.0, 14.0)]  # type: ignore[attr-defined]
    (only,) = axes_of("throughput", tmp_path, task="b.J0.1")
    assert len(curves_in(only)) == 1


def curves_in(axes: Axes) -> list[Line2D]:
    """The lines of a panel without the thick ones, which mark means."""
    return [line for line in axes.lines if line.get_linewidth() < 4]


def names_in(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.texts]


def drawn_plot(kind: str, run: Path, **fields: object) -> Figure:
    return plots.draw(kind, plots.Source(summary_of(run), run, **fields))  # type: ignore[arg-type]


def test_each_repeat_has_a_name_and_a_colour_and_its_mean_is_marked(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result(rates=[rate] * 30, repeat=i) for i, rate in enumerate((90, 100, 110))])
    figure = drawn_plot("throughput", tmp_path)
    assert names_in(figure)[:3] == ["repeat 0", "repeat 1", "repeat 2"]
    (axes,) = figure.axes
    assert len({line.get_color() for line in curves_in(axes)}) == 3
    means = [line for line in axes.lines if line not in curves_in(axes)]
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in means] == [
        ([5.0, 14.0], [pytest.approx(rate)] * 2) for rate in (90, 100, 110)
    ]
    assert axes.get_title(loc="right") == "n = 3, mean 100, std 8.2 %"
    assert figure.get_suptitle() == "Throughput: 1 x NVIDIA Test (hostA), profile suite"
    assert "3 repeats" in figure.get_supxlabel()


def test_a_gpu_is_a_colour_and_a_repeat_is_a_dash(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result(gpu=gpu, repeat=repeat) for gpu in range(2) for repeat in range(2)])
    figure = drawn_plot("throughput", tmp_path)
    assert names_in(figure)[:4] == ["GPU 0", "GPU 1", "repeat 0", "repeat 1"]
    looks = {(line.get_color(), line.get_linestyle()) for line in curves_in(figure.axes[0])}
    assert len(looks) == 4


def test_of_many_lines_the_worst_are_named_and_the_number_of_the_others_is_given(tmp_path: Path) -> None:
    rates = [100 + repeat for repeat in range(14)] + [10]
    keep_run(tmp_path, [make_result(rates=[rate] * 30, repeat=i) for i, rate in enumerate(rates)])
    figure = drawn_plot("throughput", tmp_path)
    legend = figure.axes[0].get_legend()
    assert legend is not None
    names = [text.get_text() for text in legend.texts]
    assert (names[0], names[-1], len(names)) == ("GPU 0, repeat 14", "5 others, nearer to the median", 11)
    assert "worst first" in figure.get_supxlabel()


def test_a_job_without_a_line_is_named_with_the_reason(tmp_path: Path) -> None:
    results = [make_result("a"), make_result("big", rates=(), status="failed"), make_result("c", rates=[10.0] * 2)]
    keep_run(tmp_path, results)
    figure = drawn_plot("throughput", tmp_path)
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.axison] == ["a", "c"]
    assert [line.get_marker() for axes in figure.axes for line in curves_in(axes)] == ["None", "o"]
    notes = " ".join(figure.get_supxlabel().split())
    assert "Without a line, no slice was measured: big, 1 of 1 task (failed: the task is failed)." in notes
    assert "Not ok, in no mean: c, 1 of 1 task (insufficient" in notes


def test_a_burst_leaves_room_for_what_is_usual_and_is_reported(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result(rates=[100.0] * 28 + [85_000.0, 200.0]), make_result(gpu=1, rates=[90.0] * 30)])
    (axes,) = axes_of("throughput", tmp_path)
    assert axes.get_ylim() == (0, pytest.approx(250 * 1.05))
    assert [text.get_text() for text in axes.texts] == ["1 slice above, up to 85,000"]
    keep_run(tmp_path / "calm", [make_result(rates=[100.0] * 29 + [240.0])])
    (axes,) = axes_of("throughput", tmp_path / "calm")
    assert (axes.get_ylim(), list(axes.texts)) == ((0, pytest.approx(240 * 1.05)), [])


def test_far_ratios_lie_on_an_axis_that_fits_them(tmp_path: Path) -> None:
    rates = {"slow": 10, "same": 100, "fast": 2000}
    keep_run(tmp_path / "here", [make_result(job, [rate] * 30) for job, rate in rates.items()])
    keep_run(tmp_path / "base", [make_result(job, [100] * 30) for job in rates])
    base = summary_of(tmp_path / "base")
    (axes,) = axes_of("compare", tmp_path / "here", base=base, base_name=str(tmp_path / "base"))
    low, high = axes.get_xlim()
    assert low < 0.1 < 20 < high < 30
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "whole machine, 1 GPU against 1",
        "per GPU, all 3 jobs",
        "slow",
        "same",
        "fast",
    ]
    assert "per GPU" in axes.get_xlabel()


def test_a_comparison_names_each_job_that_it_leaves_out_with_the_reason(tmp_path: Path) -> None:
    other = Job(name="other", model="vae", params={"latent": 3}, placement=Placement(devices="each"))
    here = [make_result("a"), make_result("fails", rates=(), status="failed"), make_result("new"), make_result("other")]
    there = [make_result("a"), make_result("fails"), make_result("old"), make_result(task=make_task(job=other))]
    keep_run(tmp_path / "here", here)
    keep_run(tmp_path / "base", there)
    base = summary_of(tmp_path / "base")
    figure = drawn_plot("compare", tmp_path / "here", base=base, base_name="base")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["fails", "a"]
    assert figure.axes[0].texts[0].get_text() == "FAILS: fails in 1 of 1 task here"
    notes = " ".join(figure.get_supxlabel().split())
    for note in ("not in the baseline: new", "not in this run: old", "No ratio over all jobs: this run has no score"):
        assert note in notes
    assert "Left out, another workload: " in notes
    unlike = drawn_plot("compare", tmp_path / "here", base=base, base_name="base", compare_unlike=True)
    assert "other" in [label.get_text() for label in unlike.axes[0].get_yticklabels()]


def test_a_comparison_of_settings_names_the_difference_of_each_row(tmp_path: Path) -> None:
    job = Job(name="vae", model="vae", params={"batch_size": 3}, placement=Placement(devices="each"))
    keep_run(tmp_path / "here", [make_result("vae")])
    keep_run(tmp_path / "base", [make_result(task=make_task(job=job))])
    figure = drawn_plot("compare", tmp_path / "here", base=summary_of(tmp_path / "base"), base_name="base")
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(rows) == 2
    assert all("batch size" in row for row in rows), rows


def test_ideal_scaling_and_each_repeat_have_a_name(tmp_path: Path) -> None:
    keep_progression(tmp_path / "run", {1: [1e4, 10_200.0, 9_800.0], 2: [18e3, 18_360.0, 17_640.0]})
    (axes,) = axes_of("scaling", tmp_path / "run")
    legend = axes.get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.texts} == {"ideal (linear)", "each repeat", "mean, 95 % interval"}
    repeats = [sorted(line.get_ydata()) for line in axes.lines if line.get_marker() == "_"]  # type: ignore[arg-type]
    assert [9_800.0, 1e4, 10_200.0] in [pytest.approx(of) for of in repeats]


def test_one_colour_a_name_in_all_panels(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result(job, gpu=None) for job in "abc"])
    sample(tmp_path, stolen=1.0)
    # Nothing was stolen from the first: its panel begins with another.
    first = next(iter(sorted((tmp_path / "telemetry").glob("a.*"))))
    first.write_text(first.read_text().replace('"cpus_stolen_s":', '"cpus_stolen_x":'))
    figure = plots.draw("telemetry", plots.Source(summary_of(tmp_path), tmp_path))
    stolen = next(axes for axes in figure.axes if axes.get_title(loc="left") == "CPUs stolen")
    assert [line.get_color() for line in stolen.lines] == [PALETTE[1], PALETTE[2]]
    (legend,) = figure.legends
    shown = [(text.get_text(), line.get_color()) for text, line in zip(legend.texts, legend.get_lines(), strict=False)]
    assert shown == [("a.J0", PALETTE[0]), ("b.J0", PALETTE[1]), ("c.J0", PALETTE[2])]


def test_of_many_jobs_telemetry_names_those_in_grey_and_each_has_a_lane(tmp_path: Path) -> None:
    jobs = [f"job_{place}" for place in range(12)]
    keep_run(
        tmp_path, [make_result(job, gpu=None, rates=[100.0] * 2 if job == "job_11" else [100.0] * 30) for job in jobs]
    )
    sample(tmp_path)
    figure = drawn_plot("telemetry", tmp_path)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == jobs
    names = names_in(figure)
    assert "job_11" in names, "its task is not ok"
    assert "3 other jobs" in names
    assert "Grey: job_8, job_9, job_10." in figure.get_supxlabel()


def test_a_panel_without_a_job_shows_nothing(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result(job) for job in "abcde"])
    assert [axes.axison for axes in axes_of("throughput", tmp_path)] == [True] * 5 + [False]


def test_the_rates_of_ranks_are_added_up(tmp_path: Path) -> None:
    result = make_result(rates=[100.0] * 30)
    (stream,) = result.measurement.streams
    both = Measurement(streams=(stream, msgspec.structs.replace(stream, rank=1)))
    keep_run(tmp_path, [msgspec.structs.replace(result, measurement=both)])
    (axes,) = axes_of("throughput", tmp_path)
    assert set(curves_in(axes)[0].get_ydata()) == {200.0}  # type: ignore[arg-type]


def test_telemetry_shows_what_was_sampled(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result(gpu=0), make_result(gpu=1)])
    sample(tmp_path)
    panels = axes_of("telemetry", tmp_path)
    assert [(axes.get_title(loc="left"), axes.get_ylabel()) for axes in panels[1:]] == [
        ("power", "W"),
        ("SM clock", "MHz"),
        ("temperature", "°C"),
        ("GPU busy", "%"),
        ("CPUs busy", "CPUs"),
        ("memory", "GiB"),
    ]
    assert [list(line.get_ydata())[:2] for line in panels[1].lines] == [[300.0, 301.0]] * 2  # type: ignore[arg-type]
    assert len(axes_of("telemetry", tmp_path, task="vae.J0.1")[0].lines) == 1


def test_the_interval_of_a_ratio_is_welchs(tmp_path: Path) -> None:
    """Logs 0.01, 0.02, 0.03 against -0.02, 0, 0.02: by scipy.stats.ttest_ind(equal_var=False)."""
    for name, logs in (("a", (0.01, 0.02, 0.03)), ("b", (-0.02, 0.0, 0.02))):
        # Many items a slice, so that whole ones are exact enough.
        keep_run(tmp_path / name, [make_result(rates=[1e9 * math.exp(x)] * 30, repeat=i) for i, x in enumerate(logs)])
    (axes,) = axes_of("compare", tmp_path / "a", base=summary_of(tmp_path / "b"), base_name="b")
    expected = scipy.stats.ttest_ind([0.01, 0.02, 0.03], [-0.02, 0.0, 0.02], equal_var=False).confidence_interval(0.95)
    of_job = axes.get_yticklabels()[-1].get_text(), len(axes.get_yticklabels()) - 1
    segments = [s for of in axes.collections for s in of.get_segments() if s[0][1] == of_job[1]]  # type: ignore[attr-defined]
    assert of_job[0] == "vae"
    assert [np.log(s[:, 0]) for s in segments] == [pytest.approx(tuple(expected), abs=1e-7)]


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
    one_line_error(nothing, "no job with placement gpu_progression has a number")
    assert not (tmp_path / "scaling.png").exists()
