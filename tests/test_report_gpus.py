"""GPUs side by side: matrices, failures, the outlier and its likely cause, the suspects, and what is not tested."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import scipy  # which imports its parts on first use: `scipy.stats` takes a second
from conftest import Call, keep_results, keep_run, make_result, make_run, make_task
from made_telemetry import make_device, make_telemetry, stolen_from
from outputs import line_of

from benchsuite.describe.tasks import Gpu
from benchsuite.provisions import Pressure, Tenant
from benchsuite.records import Result
from benchsuite.report.read.load import load
from benchsuite.report.show.sections.gpus import findings
from benchsuite.report.stats.causes import NO_TELEMETRY, NOTHING_DIFFERS
from benchsuite.report.stats.gpu_cells import GpuKey
from benchsuite.report.stats.gpu_tests import compare_speeds, deviations, smallest_effects
from benchsuite.report.stats.gpus import (
    ALL_JOBS,
    GpuComparison,
    compare_gpus,
)
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.stats.verdict import FAMILY_ERROR

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
    repeats: int = 5,
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
    assert (one.job, one.repeats) == ("vae", 5)
    assert one.effect == pytest.approx(-0.1, abs=0.02)
    assert one.p is not None
    assert one.adjusted is not None
    assert one.p < 0.0001
    assert one.p < one.adjusted < 0.001
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
    found = of(tmp_path, eight(factor=0.97, jobs=("a", "b", "c", "d"), repeats=5))
    (outlier,) = found.outliers
    # One of the four jobs is significant by itself.
    assert [one.job for one in outlier.deviations] == [ALL_JOBS, "a"]
    assert outlier.deviations[0].effect == pytest.approx(-0.03, abs=0.005)
    assert found.tests == 5 * 8
    assert found.suspects == ()


def test_a_failed_task_costs_neither_a_repeat_nor_a_job(tmp_path: Path) -> None:
    jobs = ("a", "b", "c", "d")
    results = eight(factor=0.97, jobs=jobs, repeats=5)
    for nth, job in enumerate(jobs):
        place = nth * 5 * 8 + nth * 8 + SLOW
        assert results[place].task.job.name == job
        results[place] = make_result(job, repeat=nth, gpu=SLOW, status="failed", rates=())
    (outlier,) = of(tmp_path, results).outliers
    (one,) = outlier.deviations
    assert (one.job, one.repeats) == (ALL_JOBS, 5)
    assert one.effect == pytest.approx(-0.03, abs=0.005)


def test_a_job_that_is_slower_shifts_no_repeat_by_its_absence() -> None:
    """A GPU that is much slower in one job fails in it once: its repeats still agree about all jobs."""
    logs = np.random.default_rng(5).normal(0, 1e-4, (6, 5, 8))
    logs[0, :, SLOW] -= 0.5
    logs[0, 2, SLOW] = np.nan
    _, together = compare_speeds(logs)
    assert together is not None
    assert together.mean[SLOW] == pytest.approx(-0.5 / 6, rel=0.2)
    assert together.std[SLOW] < 2e-4
    assert together.n.tolist() == [5] * 8


def test_complete_repeats_give_students_t() -> None:
    logs = np.random.default_rng(6).normal(0, 0.01, (4, 5, 8))
    jobs, together = compare_speeds(logs)
    assert together is not None
    own = deviations(logs)
    assert jobs.p == pytest.approx(scipy.stats.ttest_1samp(own, 0, axis=1).pvalue)
    assert jobs.std == pytest.approx(own.std(axis=1, ddof=1))
    # Jobs that scatter alike weigh the same.
    alike = np.stack([logs[0], -logs[0], logs[0]])
    _, together = compare_speeds(alike)
    assert together is not None
    assert together.p == pytest.approx(scipy.stats.ttest_1samp(deviations(alike).mean(axis=0), 0).pvalue)


def test_a_noisy_gpu_is_judged_by_its_own_scatter() -> None:
    draw, alarms, suites = np.random.default_rng(7), 0, 200
    std = np.where(np.arange(8) == SLOW, 0.3, 0.1)
    for _ in range(suites):
        jobs, together = compare_speeds(draw.normal(size=(4, 3, 8)) * std)
        assert together is not None
        alarms += jobs.outliers.any() or together.outliers.any()
    # 5 % and two standard errors; a variance that is pooled over GPUs names one in most suites.
    assert alarms <= 0.05 * suites + 2 * np.sqrt(0.05 * 0.95 * suites)


def test_a_noisy_job_does_not_hide_a_slower_gpu() -> None:
    draw, found, suites = np.random.default_rng(8), 0, 50
    std = np.array([0.003] * 5 + [0.05])[:, None, None]
    for _ in range(suites):
        logs = draw.normal(size=(6, 5, 8)) * std
        logs[:, :, SLOW] -= 0.03
        _, together = compare_speeds(logs)
        assert together is not None
        found += bool(together.outliers[SLOW])
    assert found >= 0.9 * suites


def test_the_power_is_what_a_simulation_finds() -> None:
    draw, suites = np.random.default_rng(9), 200
    smallest, found = [], 0
    for slow in (0.0, 0.2):
        for _ in range(suites):
            logs = draw.normal(0, 0.1, (4, 5, 8))
            logs[:, :, SLOW] += np.log1p(-slow)
            jobs, together = compare_speeds(logs)
            assert together is not None
            smallest += [] if slow else [smallest_effects(jobs, together)[0]]
            found += bool(slow and together.outliers[SLOW])
    assert np.median(np.array(smallest, dtype=float)) == pytest.approx(0.2, abs=0.01)
    assert 0.7 < found / suites < 0.95


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


def test_two_gpus_are_not_tested(tmp_path: Path) -> None:
    found = of(tmp_path, eight(gpus=2), 2)
    assert (found.tests, found.outliers, found.suspects, found.power) == (0, (), (), None)
    assert reported(found) == "Not tested: vae (2 GPUs, 3 are needed)."


def test_too_few_repeats_name_a_suspect(tmp_path: Path) -> None:
    found = of(tmp_path, eight(factor=0.5, repeats=2))
    assert (found.tests, found.outliers) == (0, ())
    assert "GPU 3 (0003) on hostA is 50." in reported(found)
    assert "% slower in vae (2 repeats): not tested, 3 repeats are needed." in reported(found)
    assert "Not tested: vae (2 repeats with at least 3 GPUs ok, 3 are needed)." in reported(found)
    assert "No GPU is an outlier" not in reported(found)


def test_a_suspect_in_one_job_is_named_there(tmp_path: Path) -> None:
    jobs = ("a", "b", "c", "d")
    found = of(tmp_path, [*eight(factor=0.5, repeats=2, jobs=jobs[:1]), *eight(factor=1, repeats=2, jobs=jobs[1:])])
    (suspect,) = found.suspects
    assert (suspect.gpu.index, [one.job for one in suspect.deviations]) == (SLOW, ["a"])


def test_a_suspect_in_all_jobs_is_named_once(tmp_path: Path) -> None:
    (suspect,) = of(tmp_path, eight(factor=0.5, repeats=2, jobs=("a", "b", "c", "d"))).suspects
    assert (suspect.gpu.index, [one.job for one in suspect.deviations]) == (SLOW, [ALL_JOBS])


def one_gpu_at(*shares: float) -> list[Result]:
    """Eight GPUs; in each repeat the rate of `SLOW` is this share of the others'."""
    return [
        make_result(repeat=r, gpu=g, rates=[1000 * (share if g == SLOW else 1) + (r * g) % 3] * 30)
        for r, share in enumerate(shares)
        for g in range(8)
    ]


def test_a_suspect_without_significance_has_the_repeats_that_would_decide(tmp_path: Path) -> None:
    found = of(tmp_path, one_gpu_at(0.95, 0.88, 0.94))
    (suspect,) = found.suspects
    (one,) = suspect.deviations
    assert one.p is not None
    assert one.adjusted is not None
    assert 0.02 < one.p < 0.1
    assert one.adjusted > 0.5
    assert one.decides is not None
    assert 5 < one.decides < 100
    assert (
        f"% slower in vae (p {one.p:.2g}, 3 repeats): about {one.decides} repeats would decide if the difference holds."
        in reported(found)
    )


def test_what_noise_alone_makes_likely_is_no_suspicion(tmp_path: Path) -> None:
    assert of(tmp_path, one_gpu_at(1.0, 0.8, 0.95)).suspects == ()


def test_the_cause_of_a_suspect_is_named_where_telemetry_shows_it(tmp_path: Path) -> None:
    found = of(tmp_path, eight(factor=0.5, repeats=2, gauges={"sm_clock_mhz": 900.0}))
    assert "Likely cause: its SM clock is 900 MHz (others 1,755 MHz)." in reported(found)
    assert "Likely cause" not in reported(of(tmp_path / "alike", eight(factor=0.5, repeats=2)))


def test_gpus_without_enough_repeats_are_named(tmp_path: Path) -> None:
    ok = {0: (0, 1, 2), 1: (0, 1), 2: (1, 2), 3: (0, 2), 4: (0, 1, 2)}
    results = [
        make_result(repeat=r, gpu=g) if r in ok[g] else make_result(repeat=r, gpu=g, status="oom", rates=())
        for g in ok
        for r in range(3)
    ]
    found = of(tmp_path, results, 5)
    assert (found.tests, found.untested) == (2, {})
    assert {gpu.index: dict(jobs) for gpu, jobs in found.untested_gpus.items()} == {
        g: {"vae": "2 repeats ok, 3 are needed"} for g in (1, 2, 3)
    }
    assert "GPU 1 (0001) on hostA: not tested in any job (2 repeats ok, 3 are needed)." in reported(found)
    assert "No GPU is an outlier in the tests that could be made: in 2 tests" in reported(found)


def test_repeats_in_which_the_other_gpus_fail_do_not_count(tmp_path: Path) -> None:
    fails = {(0, 1), (0, 2), (0, 3)}
    results = [
        make_result(repeat=r, gpu=g, status="oom", rates=()) if (r, g) in fails else make_result(repeat=r, gpu=g)
        for r in range(3)
        for g in range(4)
    ]
    found = of(tmp_path, results, 4)
    assert found.tests == 0
    assert found.untested == {"vae": "2 repeats with at least 3 GPUs ok, 3 are needed"}


def test_jobs_that_are_not_tested_on_a_gpu_are_named(tmp_path: Path) -> None:
    results = eight(factor=1, jobs=("a", "b"), repeats=3)
    results[5] = make_result("a", repeat=0, gpu=5, status="failed", rates=())
    found = of(tmp_path, results)
    assert "GPU 5 (0005) on hostA: not tested in a (2 repeats ok, 3 are needed)." in reported(found)


def test_a_gpu_that_fails_is_shown_and_the_others_tested(tmp_path: Path) -> None:
    results = eight()
    results[5] = make_result(gpu=5, status="oom", rates=())
    for place in (7, 15, 23):
        results[place] = make_result(repeat=place // 8, gpu=7, status="failed", rates=())
    found = of(tmp_path, results)
    cells = list(found.cells["vae"].values())
    assert [(cell.fail, cell.n) for cell in cells] == [(0, 5)] * 5 + [(1, 5), (0, 5), (3, 5)]
    assert cells[7].mean is not None
    assert [outlier.gpu.index for outlier in found.outliers] == [SLOW]
    # The last GPU has two repeats.
    assert found.tests == 7


def never_on(gpu: int, repeats: int, jobs: Sequence[str] = ("vae", "gpt")) -> list[Result]:
    """The first job fails in each repeat on one of eight GPUs."""
    return [
        make_result(job, repeat=r, gpu=g, status="failed", rates=())
        if (job, g) == (jobs[0], gpu)
        else make_result(job, repeat=r, gpu=g, rates=[1000 + (3 * r + g) % 5] * 30)
        for job in jobs
        for r in range(repeats)
        for g in range(8)
    ]


def test_a_job_that_never_succeeds_on_one_gpu_is_named(tmp_path: Path) -> None:
    found = of(tmp_path, never_on(3, 12))
    (failing,) = found.failing
    assert (failing.gpu.index, failing.fail, failing.ended) == (3, 12, 24)
    assert (failing.others_fail, failing.others_ended) == (0, 168)
    said = reported(found)
    assert "GPU 3 (0003) on hostA: vae fails in 12 of 12 tasks; 0 of 84 on the others, p < 0.0001." in said
    assert "not tested in vae (0 repeats ok, 3 are needed)" in said
    assert "No GPU is an outlier" not in said


def test_its_other_failures_are_counted_with_those_of_the_job(tmp_path: Path) -> None:
    results = never_on(3, 4)
    results[-5] = make_result("gpt", repeat=3, gpu=3, status="oom", rates=())
    said = reported(of(tmp_path, results))
    assert "on hostA: 5 of 8 tasks fail; 0 of 56 on the others, p < 0.0001. vae fails in 4 of 4 tasks; 0 of 28" in said


def test_it_is_named_whatever_p_is(tmp_path: Path) -> None:
    found = of(tmp_path, never_on(3, 1))
    (failing,) = found.failing
    assert failing.adjusted > FAMILY_ERROR
    assert "GPU 3 (0003) on hostA: vae fails in 1 of 1 task; 0 of 7 on the others, p 0.12." in reported(found)


def test_a_job_that_fails_everywhere_is_no_matter_of_a_gpu(tmp_path: Path) -> None:
    results = [make_result(repeat=r, gpu=g, status="failed", rates=()) for r in range(3) for g in range(8)]
    assert of(tmp_path, results).failing == ()


def test_a_gpu_that_fails_more_often_is_named(tmp_path: Path) -> None:
    results = eight(factor=1, jobs=("a", "b"), repeats=10)
    for place, result in enumerate(results):
        if result.task.gpus[0].visible_index == 2 and result.task.repeat in (1, 4, 7):
            results[place] = make_result(result.task.job.name, repeat=result.task.repeat, gpu=2, status="oom", rates=())
    results[0] = make_result("a", gpu=0, status="oom", rates=())
    found = of(tmp_path, results)
    (failing,) = found.failing
    assert (failing.gpu.index, failing.never) == (2, ())
    assert "GPU 2 (0002) on hostA: 6 of 20 tasks fail; 1 of 140 on the others, p < 0.0001." in reported(found)


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
        ("Mean over repeats", "vae +50.0 -16.7 0.0 fail 1/3"),
        ("Lowest of the repeats", "vae +100.0 0.0 -50.0 fail 1/3"),
        ("Highest of the repeats", "vae 0.0 -40.0 0.0 fail 1/3"),
    ):
        table = out[out.index(title) :].splitlines()
        assert table[1].strip() == "hostA"
        assert table[2].split() == ["job", "0", "0000", "1", "0001", "2", "0002"]
        assert table[3].split() == row.split()
    assert "GPUs side by side" not in call("report", tmp_path / "run")[1]


def test_hosts_have_matrices_of_their_own_and_one_median(call: Call, tmp_path: Path) -> None:
    results = [
        make_result(gpu=g, host=host, rates=[rate] * 30)
        for host, rate in (("east", 100), ("west", 50))
        for g in range(2)
    ]
    keep_results(tmp_path, results)
    out = call("report", tmp_path, "--compare-gpus")[1]
    out = out[out.index("GPUs side by side") :]
    assert out.index("east") < out.index("west")
    assert line_of(out[out.index("west") :], "vae ") == ["vae", "-33.3", "-33.3"]
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
    assert out.count("1/5") >= 8


def test_planned_but_not_run(tmp_path: Path) -> None:
    tasks = [make_task(repeat=r, gpu=g) for r in range(2) for g in range(2)]
    keep_run(tmp_path / "run", [make_result()], tasks)
    found = compare_gpus(summarise(load(tmp_path / "run")))
    assert [(cell.n, cell.fail, cell.not_run) for cell in found.cells["vae"].values()] == [(2, 0, 1), (2, 0, 2)]


def test_nothing_is_placed_by_gpu(call: Call, tmp_path: Path) -> None:
    keep_results(tmp_path, [make_result(gpu=None)])
    assert "No job is placed on each GPU" in call("report", tmp_path, "--compare-gpus")[1]
