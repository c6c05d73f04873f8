"""GPUs side by side: matrices, failures, the outlier and its likely cause."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import Call, keep_results, keep_run, make_result, make_run, make_task
from made_telemetry import make_device, make_telemetry, stolen_from
from outputs import line_of
from pandas import DataFrame

from benchsuite.describe.tasks import Gpu
from benchsuite.records import Pressure, Result, Tenant
from benchsuite.report.read.load import load
from benchsuite.report.show.sections.gpus import findings, percent_of_best
from benchsuite.report.stats.causes import NO_TELEMETRY, NOTHING_DIFFERS
from benchsuite.report.stats.gpu_cells import GpuKey
from benchsuite.report.stats.gpus import (
    ALL_JOBS,
    GpuComparison,
    compare_gpus,
)
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.stats.verdict import FAMILY_ERROR, holm

SLOW = 3


def of(folder: Path, results: Sequence[Result], gpus: int = 8) -> GpuComparison:
    keep_run(folder / "run", results, run=make_run(gpus))
    return compare_gpus(summarise(load(folder / "run")))


def reported(found: GpuComparison) -> str:
    return "\n".join(line.text for line in findings(found))


def eight(
    *,
    factor: float = 0.9,
    gauges: Mapping[str, float] | None = None,
    events: Mapping[str, float] | None = None,
    slow: Mapping[str, Any] | None = None,
    jobs: Sequence[str] = ("vae",),
    repeats: int = 3,
    gpus: int = 8,
    watched: bool = True,
) -> list[Result]:
    """Eight GPUs with 1 % of noise; one at `factor` of the others' rate, whose telemetry differs in what is given."""
    draw, results = random.Random(1), []
    for job in jobs:
        for repeat in range(repeats):
            for gpu in range(gpus):
                rate = 100_000 * (1 + draw.gauss(0, 0.01)) * (factor if gpu == SLOW else 1)
                odd = gpu == SLOW
                device = make_device(
                    gpu, gauges if odd else None, {"sw_power_cap": 1.5, **((events or {}) if odd else {})}
                )
                fields: dict[str, Any] = {"telemetry": make_telemetry(device)} if watched else {}
                fields |= dict(slow or {}) if odd else {}
                results.append(make_result(job, [rate] * 30, repeat=repeat, gpu=gpu, **fields))
    return results


def starved(**fields: float) -> dict[str, Tenant]:
    return {
        "tenant": Tenant(
            asked="share",
            reason="v2",
            throttled_s=fields.get("throttled_s", 0.0),
            pressure=Pressure(cpu_some_s=fields.get("cpu_some_s", 0.0)),
        )
    }


def robbed(results: Sequence[Result]) -> list[Result]:
    """A hypervisor withholds a fifth of the processor time of the slow one's tasks, a hundredth of the others'."""
    found = []
    for result in results:
        share = 0.2 if result.task.gpus[0].visible_index == SLOW else 0.01
        assert result.telemetry
        telemetry = msgspec.structs.replace(result.telemetry, tenant=stolen_from(share))
        found.append(msgspec.structs.replace(result, telemetry=telemetry))
    return found


def limited(results: Sequence[Result]) -> list[Result]:
    """The cards are allowed 700 W, the slow one 400 W."""

    def card(gpu: Gpu) -> Gpu:
        return msgspec.structs.replace(gpu, power_limit_w=400.0 if gpu.visible_index == SLOW else 700.0)

    found = []
    for result in results:
        task = msgspec.structs.replace(result.task, gpus=tuple(map(card, result.task.gpus)))
        found.append(msgspec.structs.replace(result, task=task))
    return found


@pytest.mark.parametrize(
    ("results", "causes"),
    [
        (
            eight(events={"sw_thermal": 6.0}, gauges={"temperature_c": 88.0, "sm_clock_mhz": 1500.0}),
            [
                "sw_thermal slow-down for 40 % of the time (others 0 %)",
                "88 °C (others 64 °C)",
                "1,500 MHz (others 1,755 MHz)",
            ],
        ),
        (eight(events={"hw_power_brake": 15.0}), ["hw_power_brake slow-down for 100 % of the time (others 0 %)"]),
        (eight(gauges={"sm_clock_mhz": 1410.0}), ["its SM clock is 1,410 MHz (others 1,755 MHz)"]),
        (eight(events={"sw_power_cap": 12.0}), ["at its power cap for 80 % of the time (others 10 %)"]),
        (limited(eight()), ["its power limit is 400 W (others 700 W)"]),
        (eight(gauges={"temperature_c": 80.0}), ["it is at 80 °C (others 64 °C)"]),
        (
            eight(gauges={"pcie_rx_mib_s": 1200.0, "sm_percent": 60.0}),
            ["PCIe brings in 1,200 MiB/s (others 3,400 MiB/s)", "its SMs are busy for 60 % (others 83 %)"],
        ),
        (eight(gauges={"pcie_tx_mib_s": 50.0}), ["PCIe takes out 50 MiB/s (others 200 MiB/s)"]),
        (eight(gauges={"gpu_percent": 70.0}), ["a kernel runs for 70 % of the time (others 97 %)"]),
        (eight(slow=starved(cpu_some_s=509.5)), [NOTHING_DIFFERS]),
        (robbed(eight()), ["a hypervisor withholds 20 % of its processors' time (others 1 %)"]),
        (eight(), [NOTHING_DIFFERS]),
        (eight(watched=False), [NO_TELEMETRY]),
    ],
)
def test_a_slow_gpu_is_named_with_its_cause(tmp_path: Path, results: list[Result], causes: list[str]) -> None:
    found = of(tmp_path, results)
    (outlier,) = found.outliers
    assert outlier.gpu == GpuKey("hostA", SLOW, "GPU-0003")
    (one,) = outlier.deviations
    assert (one.job, one.repeats) == ("vae", 3)
    assert one.effect == pytest.approx(-0.1, abs=0.02)
    assert one.p < 0.001
    assert len(outlier.causes) == len(causes)
    for cause, said in zip(causes, outlier.causes, strict=True):
        assert cause in said
    assert "GPU 3 (0003) on hostA is slower: vae -" in reported(found)


@pytest.mark.parametrize(
    ("slow", "cause"),
    [
        ({"cpu_some_s": 509.5}, "its processes wait for a CPU for 50 % of the time (others 0 %)"),
        ({"throttled_s": 203.8}, "the CPU quota holds it back for 20 % of the time (others 0 %)"),
    ],
)
def test_a_tenant_without_enough_cpu(tmp_path: Path, slow: dict[str, float], cause: str) -> None:
    quiet = starved()["tenant"]
    results = [
        result if result.task.gpus[0].visible_index == SLOW else msgspec.structs.replace(result, tenant=quiet)
        for result in eight(slow=starved(**slow))
    ]
    (outlier,) = of(tmp_path, results).outliers
    assert outlier.causes == (cause,)


def test_a_warm_up_that_ends_too_late_is_a_cause(tmp_path: Path) -> None:
    results = [
        make_result(
            repeat=r, gpu=g, rates=[60_000 + r] * 14 + [100_000 + 10 * g] * 16 if g == SLOW else [100_000 + 9 * r] * 30
        )
        for r in range(3)
        for g in range(8)
    ]
    (outlier,) = of(tmp_path, results).outliers
    assert outlier.causes[-1] == "3 of its 3 windows are not steady"


def test_a_fast_gpu_is_named_without_a_cause(tmp_path: Path) -> None:
    found = of(tmp_path, eight(factor=1.08))
    (outlier,) = found.outliers
    assert (outlier.gpu.index, outlier.causes) == (SLOW, ())
    assert "is faster: vae +" in reported(found)


def test_jobs_together_find_what_none_finds_alone(tmp_path: Path) -> None:
    found = of(tmp_path, eight(factor=0.96, jobs=("a", "b", "c", "d")))
    (outlier,) = found.outliers
    assert ALL_JOBS in [one.job for one in outlier.deviations]
    assert found.tests == 5 * 8


def test_alike_gpus_raise_no_alarm() -> None:
    draw, suites = random.Random(7), [str(suite) for suite in range(200)]
    tasks = [
        {"job": suite, "repeat": r, "gpu": GpuKey("h", g, str(g)), "perf": 1000 * (1 + draw.gauss(0, 0.03))}
        for suite in suites
        for g in range(8)
        for r in range(3)
    ]
    tests = _tests(deviations(DataFrame(tasks)))
    adjusted = [holm(np.array([one.p for _, one in tests if one.job == suite])) for suite in suites]
    alarms = sum(p.min() <= FAMILY_ERROR for p in adjusted)
    assert len(tests) == 200 * 8
    # 5 % of 200 and two standard errors.
    assert alarms <= 16


def test_a_difference_of_no_account_is_no_outlier(tmp_path: Path) -> None:
    # Exactly 1 % in each repeat: certain, but small.
    results = [
        make_result(repeat=r, gpu=g, rates=[990 if g == SLOW else 1000] * 30) for r in range(3) for g in range(8)
    ]
    found = of(tmp_path, results)
    assert found.outliers == ()
    assert "No GPU is an outlier: in 8 tests" in reported(found)


def test_the_healthy_two_of_three_are_not_blamed(tmp_path: Path) -> None:
    results = [
        make_result(repeat=r, gpu=g, rates=[(100_000, 100_500, 90_000)[g] + 100 * ((r + g) % 3)] * 30)
        for r in range(3)
        for g in range(3)
    ]
    assert [outlier.gpu.index for outlier in of(tmp_path, results, 3).outliers] == [2]


@pytest.mark.parametrize(
    ("gpus", "repeats", "why"),
    [(8, 2, "2 repeats with at least 3 GPUs ok, 3 are needed"), (2, 5, "2 GPUs, 3 are needed")],
)
def test_too_few_to_test(tmp_path: Path, gpus: int, repeats: int, why: str) -> None:
    found = of(tmp_path, eight(gpus=gpus, repeats=repeats), gpus)
    assert (found.tests, found.outliers, found.untested) == (0, (), {"vae": why})
    assert reported(found) == f"Not tested: vae ({why})."


def test_too_few_that_have_all_repeats(tmp_path: Path) -> None:
    ok = {0: (0, 1, 2), 1: (0, 1), 2: (1, 2), 3: (0, 2)}
    results = [
        make_result(repeat=r, gpu=g) if r in ok[g] else make_result(repeat=r, gpu=g, status="oom", rates=())
        for g in ok
        for r in range(3)
    ]
    assert of(tmp_path, results, 4).untested == {"vae": "1 GPU with 3 repeats, 3 are needed"}


def test_a_gpu_that_fails_is_shown_and_the_others_tested(tmp_path: Path) -> None:
    results = eight()
    results[5] = make_result(gpu=5, status="oom", rates=())
    for place in (7, 15, 23):
        results[place] = make_result(repeat=place // 8, gpu=7, status="failed", rates=())
    found = of(tmp_path, results)
    cells = list(found.cells["vae"].values())
    assert [(cell.fail, cell.n) for cell in cells] == [(0, 3)] * 5 + [(1, 3), (0, 3), (3, 3)]
    assert (cells[7].mean, percent_of_best(found.cells["vae"], "mean", found.gpus[7])) == (None, None)
    assert [outlier.gpu.index for outlier in found.outliers] == [SLOW]
    # Five have no failure in three repeats but for those that failed.
    assert found.tests == 6


def test_matrices(call: Call, tmp_path: Path) -> None:
    rates = {0: (100, 90, 80), 1: (50, 60, 40), 2: (0, 20, 100)}
    results = [
        make_result(repeat=r, gpu=g, rates=[rate] * 30)
        if rate
        else make_result(repeat=r, gpu=g, status="oom", rates=())
        for g, of_gpu in rates.items()
        for r, rate in enumerate(of_gpu)
    ]
    keep_run(tmp_path / "run", results, run=make_run(3))
    code, out, err = call("report", tmp_path / "run", "--compare-gpus")
    assert (code, err) == (0, "")
    out = out[out.index("GPUs side by side") :]
    for title, row in (
        ("Mean over repeats", "vae 100.0 55.6 66.7 fail 1/3"),
        ("Lowest of the repeats", "vae 100.0 50.0 25.0 fail 1/3"),
        ("Highest of the repeats", "vae 100.0 60.0 100.0 fail 1/3"),
    ):
        table = out[out.index(title) :].splitlines()
        assert table[1].strip() == "hostA"
        assert table[2].split() == ["job", "0", "0000", "1", "0001", "2", "0002"]
        assert table[3].split() == row.split()
    assert "GPUs side by side" not in call("report", tmp_path / "run")[1]


def test_hosts_have_matrices_of_their_own_and_one_best(call: Call, tmp_path: Path) -> None:
    results = [
        make_result(gpu=g, host=host, rates=[rate] * 30)
        for host, rate in (("east", 100), ("west", 50))
        for g in range(2)
    ]
    keep_results(tmp_path, results)
    out = call("report", tmp_path, "--compare-gpus")[1]
    out = out[out.index("GPUs side by side") :]
    assert out.index("east") < out.index("west")
    assert line_of(out[out.index("west") :], "vae ") == ["vae", "50.0", "50.0"]
    assert "One repeat" in out
    assert "Lowest" not in out


@pytest.mark.parametrize("width", [80, 120])
def test_it_fits_with_failures_everywhere(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    results = eight(jobs=("resnet50_bf16", "x"))
    results[8:16] = [make_result("resnet50_bf16", repeat=1, gpu=g, status="oom", rates=()) for g in range(8)]
    keep_run(tmp_path / "run", results, run=make_run(8))
    monkeypatch.setenv("COLUMNS", str(width))
    out = call("report", tmp_path / "run", "--compare-gpus")[1]
    assert all(len(line) <= width for line in out.splitlines())
    assert out.count("1/3") >= 8


def test_planned_but_not_run(tmp_path: Path) -> None:
    tasks = [make_task(repeat=r, gpu=g) for r in range(2) for g in range(2)]
    keep_run(tmp_path / "run", [make_result()], tasks)
    found = compare_gpus(summarise(load(tmp_path / "run")))
    assert [(cell.n, cell.fail, cell.not_run) for cell in found.cells["vae"].values()] == [(2, 0, 1), (2, 0, 2)]


def test_nothing_is_placed_by_gpu(call: Call, tmp_path: Path) -> None:
    keep_results(tmp_path, [make_result(gpu=None)])
    assert "No job is placed on each GPU" in call("report", tmp_path, "--compare-gpus")[1]
