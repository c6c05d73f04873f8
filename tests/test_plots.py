"""Every kind of plot: drawn from a summary, a file that is not overwritten, and one line where there is nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from conftest import keep_run, make_result, make_task
from support import benchsuite, one_line_error

from benchsuite.report import plots
from benchsuite.report.scaling import curves
from benchsuite.report.summarise import summary_of
from benchsuite.tasks import Job, Placement

JOB = Job(name="s", model="vae", placement=Placement(devices="progression"))
KINDS = ("scaling",)


def keep_progression(folder: Path, rates: dict[int, list[float]]) -> Path:
    """A run with a group of so many GPUs, whose repeats had these totals."""
    results = []
    for gpus, totals in rates.items():
        for repeat, total in enumerate(totals):
            task = make_task("s", repeat=repeat)
            owned = tuple(gpu for index in range(gpus) for gpu in make_task(gpu=index).gpus)
            name = f"s.J{repeat}.{gpus - 1}"
            task = msgspec.structs.replace(task, id=name, job=JOB, gpus=owned, ranks=gpus)
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
    report = benchsuite("report", str(run), cwd=tmp_path).stdout
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
def test_a_kind_is_drawn_to_a_new_file(kind: str, ending: str, magic: bytes, tmp_path: Path) -> None:
    run = keep_progression(tmp_path / "run", {1: [100.0] * 3, 2: [180.0, 170.0, 190.0]})
    done = benchsuite("plot", str(run), "--kind", kind, "-o", f"p{ending}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    content = (tmp_path / f"p{ending}").read_bytes()
    assert content.startswith(magic)
    assert len(content) > 4000
    again = benchsuite("plot", str(run), "--kind", kind, "-o", f"p{ending}", cwd=tmp_path)
    one_line_error(again, f"p{ending}", "exists and is not overwritten")
    assert (tmp_path / f"p{ending}").read_bytes() == content


def test_bad_use_of_plot_is_one_line(tmp_path: Path) -> None:
    run = keep_progression(tmp_path / "run", {1: [100.0]})
    one_line_error(benchsuite("plot", str(run), "--kind", "scalng", cwd=tmp_path), "scalng", "scaling")
    one_line_error(benchsuite("plot", str(run), "--kind", "scaling", "-o", "x.jpg", cwd=tmp_path), "x.jpg", ".png")
    keep_run(tmp_path / "other", [make_result()])
    nothing = benchsuite("plot", "other", "--kind", "scaling", cwd=tmp_path)
    one_line_error(nothing, "no job with placement gpu_progression has a figure")
    assert not (tmp_path / "scaling.png").exists()
