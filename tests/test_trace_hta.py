"""The division of a timeline agrees with that of HolisticTraceAnalysis, where that package is installed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchsuite.trace import timeline
from benchsuite.trace.utilisation import analysed

AMP = Path(__file__).parent / "data" / "traces" / "kineto_amp.json.gz"


@pytest.mark.filterwarnings("ignore")
def test_window_compute_and_idle_time_are_those_of_holistic_trace_analysis(tmp_path: Path) -> None:
    hta = pytest.importorskip("hta.trace_analysis")
    file = str(shutil.copy(AMP, tmp_path / "trace.json.gz"))
    (theirs,) = hta.TraceAnalysis({0: file}, str(tmp_path)).get_temporal_breakdown(visualize=False).to_dict("records")
    (ours,) = analysed(timeline.read(AMP))
    rounded_us = 1.1 * ours.launches  # it rounds each kernel, copy and fill down to whole microseconds
    assert theirs["kernel_time(us)"] == pytest.approx(1e6 * ours.window_s, abs=2)
    assert 0 <= 1e6 * ours.compute_s - theirs["compute_time(us)"] <= rounded_us
    assert 0 <= theirs["idle_time(us)"] - 1e6 * ours.idle.total_s <= rounded_us
