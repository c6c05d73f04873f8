"""The tidy frame: one row a job; and pandas stays out of what does not need it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import keep_run, make_gpu, make_result, make_run, make_task
from made_telemetry import make_device, make_telemetry

from benchsuite.describe.tasks import Job, Placement
from benchsuite.report.read.summary import Summary
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.frame import job_frame


def summary(folder: Path) -> Summary:
    job = Job(name="group", model="vae", placement=Placement(devices="progression"))
    group = make_task(job=job, gpus=(make_gpu(0), make_gpu(1)), ranks=2)
    telemetry = make_telemetry(make_device(0, events={"sw_power_cap": 3.0}))
    results = [
        make_result("vae", [100.0] * 30, telemetry=telemetry),
        make_result("vae", (), gpu=1, status="oom"),
        make_result(rates=[50.0] * 30, task=group),
    ]
    tasks = [*(result.task for result in results), make_task("vae", gpu=2)]
    keep_run(folder, results, tasks, run=make_run(3))
    return summary_of(folder)


def test_a_job_frame_has_the_figures_of_records_within_and_the_time_under_each_clock_event(tmp_path: Path) -> None:
    frame = job_frame(summary(tmp_path)).set_index("name")
    vae = frame.loc["vae"]
    assert (vae["n"], vae["fail"], vae["perf"], vae["use_power_w"]) == (3, 1, 100.0, 650.0)
    assert (vae["use_sw_power_cap"], vae["use_hw_thermal"]) == (0.2, 0.0)
    assert frame.loc["group.2", "use_sw_power_cap"] is None


def test_pandas_stays_out_of_what_does_not_need_it(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result()])
    run = str(tmp_path)
    commands = [["list", "plots"], ["summary", run], ["report", run], ["report", "--md", "-", run]]
    code = f"import sys; from benchsuite.cli import main\nfor command in {commands!r}:\n    try: main(command)\n"
    code += "    except SystemExit as end: print('LOADED', end.code, 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    assert found == ["LOADED 0 False"] * 4


def test_one_result_in_words_needs_no_pandas_and_no_scipy(tmp_path: Path) -> None:
    """The run prints one line a result; what it imports for it would disturb the tasks that still train."""
    keep_run(tmp_path, [make_result()])
    code = (
        "import sys; from pathlib import Path; from benchsuite.rundir import results\n"
        "from benchsuite.report.show.one_line import figure\n"
        f"print([figure(result).words for _, result in results(Path({str(tmp_path)!r}))])\n"
        "print({'pandas', 'scipy', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['100.0 image/s (18 slices, 9.0 s)']", "set()"]
