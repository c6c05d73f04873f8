"""Why a job is slower or faster than in a baseline: the split of its time, and what stays without an explanation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Call
from made_summaries import flat, made_run
from outputs import report_of
from support import in_process, one_line_error
from test_report_bottlenecks import BASELINES, BUSY, IDLE

from benchsuite.report.read.use import Use
from benchsuite.report.show.sections.explained import explained_section
from benchsuite.report.stats.explain import Explained, explain

# Many tasks: the split has a small error.
MANY = {"tasks": 100}


def split(here: dict[str, Any], base: dict[str, Any], ratio: float = 0.8, **fields: Any) -> Explained:
    """The only job, on this run and on the baseline at a rate of 100."""
    run = made_run(flat("a", 100.0 * ratio, use=Use(**{**MANY, **here}), **fields))
    other = made_run(flat("a", 100.0, use=Use(**{**MANY, **base}), **fields))
    (comparison,) = report_of(run, base=other).comparisons
    (found,) = explain(run, comparison)
    return found


def sums_up(found: Explained) -> bool:
    return sum(found.parts.values()) + found.rest == pytest.approx(found.change)


def test_a_lower_clock_explains_a_job_that_the_cores_limit() -> None:
    full = {**BUSY, "gpu_percent": 100.0, "tensor_percent": 60.0}
    found = split({**full, "sm_clock_mhz": 1584.0, "clock_events": {"sw_power_cap": 0.9}}, full)
    assert found.parts == {"SM clock": pytest.approx(0.25)}
    assert (found.change, found.rest_share) == (pytest.approx(0.25), pytest.approx(0.0, abs=1e-9))
    assert found.signs[:2] == ("SM clock 1,980 MHz -> 1,584 MHz", "at the power limit 0 % -> 90 %")


def test_a_clock_explains_no_more_than_its_formula_says() -> None:
    full = {**BUSY, "gpu_percent": 100.0, "tensor_percent": 60.0}
    found = split({**full, "sm_clock_mhz": 1800.0}, full)
    assert found.parts == {"SM clock": pytest.approx(0.1), "kernels": pytest.approx(0.15)}
    assert sums_up(found)


@pytest.mark.parametrize("unit", ["dram_percent", None], ids=["memory bandwidth", "not known"])
def test_the_sm_clock_explains_no_job_that_another_unit_limits(unit: str | None) -> None:
    base = {**BUSY, "gpu_percent": 100.0, unit: 85.0} if unit else {"gpu_percent": 100.0, "sm_clock_mhz": 1980.0}
    found = split({**base, "sm_clock_mhz": 1584.0}, base)
    assert found.parts == {"kernels": pytest.approx(0.25)}
    assert bool(found.missing) is (unit is None), "without the limiting unit, the report says so"


def test_the_clock_of_the_memory_explains_a_job_that_the_memory_limits() -> None:
    base = {**BUSY, "gpu_percent": 100.0, "dram_percent": 85.0, "memory_clock_mhz": 3000.0}
    assert split({**base, "memory_clock_mhz": 2400.0}, base).parts == {"memory clock": pytest.approx(0.25)}


def test_a_wait_for_batches_explains_idle_time_and_no_more() -> None:
    base = {**BUSY, "gpu_percent": 80.0}
    # 80 kernel and 20 idle of 100; here 80 and 45 of 125, of which 40 are spent waiting for batches.
    found = split({**base, "gpu_percent": 64.0, "input_waiting": 0.32}, base)
    assert found.parts == {"input": pytest.approx(0.25)}
    found = split({**base, "gpu_percent": 64.0, "input_waiting": 0.08}, base)
    assert found.parts == {"input": pytest.approx(0.1), "host": pytest.approx(0.15)}
    assert sums_up(found)


def test_idle_time_of_a_job_that_copies_limit_is_not_the_hosts() -> None:
    base = {**IDLE, "gpu_percent": 20.0, "pcie_rx_mib_s": 45_000.0}
    assert split({**base, "gpu_percent": 16.0, "pcie_rx_mib_s": 36_000.0}, base).parts == {
        "copies": pytest.approx(0.25)
    }


def test_a_faster_job_is_split_alike() -> None:
    found = split({**IDLE, "gpu_percent": 25.0}, IDLE, ratio=1.25)
    assert (found.change, found.parts) == (pytest.approx(-0.2), {"host": pytest.approx(-0.2)})


def test_parts_within_the_error_of_the_split_are_not_explained() -> None:
    """One task on either side: a share of the time scatters by 3.9 points."""
    found = split({**IDLE, "tasks": 1, "gpu_percent": 19.0}, {**IDLE, "tasks": 1}, ratio=1 / 1.08)
    assert found.error == pytest.approx(2 * 0.039 * (1 + 1.08**2) ** 0.5)
    assert (found.parts, found.rest_share) == ({}, 1.0)


@pytest.mark.parametrize(("here", "base"), [({}, BUSY), (BUSY, {}), ({}, {})])
def test_without_counters_nothing_is_explained(here: dict[str, Any], base: dict[str, Any]) -> None:
    found = split(here, base)
    assert (found.parts, found.rest_share, found.error) == ({}, 1.0, None)
    assert "did not record how long kernels run" in found.missing[0]


def test_a_group_says_that_its_kernels_communicate() -> None:
    base = {**BUSY, "gpu_percent": 100.0}
    assert "kernels include those of communication" in split(base, base, ranks=2).missing


def test_jobs_within_the_margin_need_no_explanation() -> None:
    run, base = made_run(flat("a", 101.0, use=Use(**BUSY))), made_run(flat("a", 100.0, use=Use(**BUSY)))
    (comparison,) = report_of(run, base=base).comparisons
    assert explain(run, comparison) == []
    (part,) = explained_section(run, comparison).parts
    assert getattr(part, "text", "") == "No job with a ratio differs by more than 2 %."


def test_one_machine_beside_another_of_the_same_gpus_differs_by_its_host(call: Call) -> None:
    """Real figures: kernels take the same time on both, and the second machine's GPUs wait longer."""
    arguments = ("report", BASELINES / "h200.json", "--compare", BASELINES / "h200x2.json")
    plain = call(*arguments)[1]
    assert len(plain.splitlines()) <= 40 and "Why" not in plain
    code, out, _ = call(*arguments, "--explain")
    assert code == 0
    assert "Why: against" in out
    content = json.loads(call(*arguments, "--json", "-")[1])
    found = {one["job"]: one for one in content["comparisons"][0]["explained"]}
    assert list(found["toy_reg"]["parts"]) == ["host"]
    assert found["toy_reg"]["parts"]["host"] == pytest.approx(-0.335, abs=0.005)
    assert found["cart"]["rest_share"] == 1.0, "a job on the CPU"
    assert "translator" not in found, "its ratio is within the margin"


def test_a_baseline_without_counters_is_named_in_place_of_a_table(call: Call) -> None:
    out = " ".join(call("report", BASELINES / "h200.json", "--compare", "v100", "--explain")[1].split())
    assert "No ratio can be split: 16 jobs without the counters of both runs." in out
    assert "The baseline did not record how long kernels run: reso, recom" in out
    assert "not explained" not in out


def test_explain_needs_a_baseline(tmp_path: Path) -> None:
    base = str(BASELINES / "h200.json")
    one_line_error(in_process("report", base, "--explain", cwd=tmp_path), "--explain: name a baseline with --compare")
    one_line_error(
        in_process("report", "--systems", base, base, "--explain", cwd=tmp_path), "does not go with --explain"
    )
