"""For tests of what a report writes and draws: the command line in this process, and telemetry beside results."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchsuite import cli
from benchsuite.host.series import write_series
from benchsuite.records import Result
from benchsuite.rundir import results, slug
from benchsuite.schema import to_json
from benchsuite.telemetry import DeviceSample, Telemetry, TenantSample


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Exit status, stdout, stderr."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def sample(folder: Path, *, stolen: float = 0.0) -> None:
    """Keep telemetry of each result of a folder, as a run does: 20 samples of each GPU, or of a task on the CPU.

    Args:
        stolen: how many processors' time a hypervisor withholds.
    """
    for file, result in list(results(folder)):
        assert isinstance(result, Result)
        start_s = result.measurement.streams[0].origin_s
        times = [start_s + second for second in range(20)]
        series = f"telemetry/{slug(result.task.id)}.a1.jsonl"
        samples = [
            DeviceSample(
                monotonic_s=at, power_w=300 + at - start_s, sm_clock_mhz=1980, temperature_c=60, gpu_percent=99
            )
            for at in times
        ]
        own = [
            TenantSample(
                monotonic_s=at,
                processes=1,
                cpu_s=at - start_s,
                rss_bytes=2**30,
                cpus_busy_s=at,
                cpus_stolen_s=stolen * at,
            )
            for at in times
        ]
        write_series(folder / series, [(gpu, samples, {}) for gpu in result.task.gpus], own)
        seen = Telemetry(start_s=times[0], end_s=times[-1], every_s=1.0, series=series)
        file.write_bytes(to_json(msgspec.structs.replace(result, telemetry=seen)))
