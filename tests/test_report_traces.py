"""`report --traces`: the recordings of a traced run beside the figures of a run."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
from conftest import Call, keep_run, make_gpu, make_result, make_run, make_task

from benchsuite.describe.tasks import Job, Trace
from benchsuite.measurement import Measurement, Traced
from benchsuite.records import Result

AMP = Path(__file__).parent / "data" / "traces" / "kineto_amp.json.gz"


def result_of(job: str, trace: Trace | None = None) -> Result:
    task = make_task(job=Job(name=job, model="vae"), gpus=(make_gpu(0, "NVIDIA H100"),), trace=trace)
    result = make_result(task=task)
    traced = Traced(file="logs/a.trace.json.gz", steps=3, elapsed_s=0.06, step_s=0.05) if trace else None
    streams = tuple(msgspec.structs.replace(one, traced=traced) for one in result.measurement.streams)
    return msgspec.structs.replace(result, measurement=Measurement(streams=streams))


def test_a_report_shows_where_the_time_of_its_traced_jobs_goes(call: Call, tmp_path: Path) -> None:
    out, traces = tmp_path / "out", tmp_path / "traces"
    keep_run(out, [result_of("a"), result_of("b")], run=make_run(1))
    keep_run(traces, [result_of("a", Trace(tool="timeline", steps=3))], run=make_run(1))
    (traces / "logs").mkdir(exist_ok=True)
    shutil.copy(AMP, traces / "logs" / "a.trace.json.gz")
    status, shown, _ = call("report", out, "--traces", traces, "--html", tmp_path / "page.html")
    assert status == 0
    for text in (shown, (tmp_path / "page.html").read_text(encoding="utf-8")):
        assert "a on GPU 0: where its time goes" in text
        assert "GPU 0 runs kernels for 24.1 % of 0.0666 s" in text and "idle: host" in text
    status, _, error = call("report", out, "--traces", out)
    assert status == 2
    assert error.startswith(f"benchsuite: {out}: no recording of the report's jobs (a, b); name a folder that")
