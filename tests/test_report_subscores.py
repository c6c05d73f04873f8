"""Sub-scores: what limits a job, groups without survivors, the job that moves the score, and the score per watt."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from conftest import make_result, make_task
from msgspec.structs import replace
from outputs import row, sentences, summary_for, texts

from benchsuite import files
from benchsuite.report.read.summary import JobSummary, Repeat, TaskGpu, TaskSummary
from benchsuite.report.read.use import Use
from benchsuite.report.show.sections.power import power_figure
from benchsuite.report.show.sections.subscores import influence_words, subscores_section
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.influence import influences
from benchsuite.report.stats.limits import limited_by
from benchsuite.report.stats.power import gpu_power_w, score_per_watt
from benchsuite.report.stats.subscores import GroupRatio, SubScore, group_ratios, sub_scores
from benchsuite.report.stats.weights import read_weights

Jobs = dict[str, JobSummary]


def job(
    name: str, *rates: float | None, busy: float | None = None, precision: str = "fp32", **fields: Any
) -> JobSummary:
    """A job with one task a repeat on one GPU, which runs kernels for `busy` percent of the time at 200 W."""
    ok = [rate for rate in rates if rate is not None]
    perf = math.fsum(ok) / len(ok) if ok else None
    repeats = tuple(Repeat(repeat=i, tasks=1, ok=int(rate is not None), perf=rate) for i, rate in enumerate(rates))
    figures = {"n": len(rates), "fail": len(rates) - len(ok), "perf": perf, "perf_adj": perf or 0.0, "repeats": repeats}
    use = None if busy is None else Use(gpu_percent=busy, power_w=200.0)
    tasks = tuple(
        TaskSummary(
            id=f"{name}.{i}",
            repeat=i,
            device="GPU 0",
            status="failed" if rate is None else "ok",
            perf=rate,
            gpus=(TaskGpu(index=0, uuid="a"),),
        )
        for i, rate in enumerate(rates)
    )
    own = {"settings": {"precision": precision}, "use": use, "tasks": tasks, **figures}
    return JobSummary(name=name, job=name, **{**own, **fields})


def named(*jobs: JobSummary) -> Jobs:
    return {of.name: of for of in jobs}


def equal(jobs: Jobs) -> dict[str, float]:
    return dict.fromkeys(jobs, 1.0)


def group(found: tuple[SubScore, ...], name: str) -> SubScore:
    (only,) = (one for one in found if one.name == name)
    return only


def baseline(name: str) -> tuple[Jobs, dict[str, float]]:
    """The jobs of a shipped baseline, and the standard weights of those that it has."""
    summary = summary_of(files.find("baselines", name))
    weights = read_weights(files.find("weights", "standard"))
    return {of.name: of for of in summary.jobs}, {of.name: weights[of.name] for of in summary.jobs}


# What limits a job.


@pytest.mark.parametrize("name", ["h200", "h200x2"])
def test_the_jobs_of_the_standard_profile_on_h200_are_limited_as_their_telemetry_shows(name: str) -> None:
    jobs, _ = baseline(name)
    by: dict[str, set[str]] = {}
    for of in jobs.values():
        by.setdefault(limited_by(of).by, set()).add(of.name)
    gpu = {"translator", "wlm", "wlmfp16", "ssd", "fast_style", "convnet", "convnet_fp16", "scaling.1"}
    host = {"toy_reg", "toy_lstm", "vae", "loader", "reso", "minigrid", "atari", "dcgan", "recom"}
    group = {"communication": {"scaling.2"}} if name == "h200x2" else {}
    assert by == {"GPU": gpu, "host": host, "CPU": {"cart"}, **group}


def test_the_evidence_is_in_words() -> None:
    use = Use(gpu_percent=22.4, sm_percent=3.2, cpu_waiting=0.12)
    words = "a kernel runs for 22 % of the time, SMs busy 3 %, waits for a CPU for 12 % of the time"
    assert limited_by(job("a", 1.0, use=use)).evidence == words
    assert limited_by(job("a", 1.0, ranks=2, backend="nccl")).evidence == "2 ranks over nccl"


def test_a_busy_group_of_ranks_counts_as_communication() -> None:
    assert limited_by(job("a", 1.0, busy=99, ranks=2)).by == "communication"


def test_small_kernels_without_gaps_keep_the_host_waiting() -> None:
    assert limited_by(job("a", 1.0, use=Use(gpu_percent=98, sm_percent=8))).by == "GPU"
    assert limited_by(job("a", 1.0, use=Use(sm_percent=8))).by == "host"


def test_a_tag_fills_in_where_no_telemetry_is_and_overrides_none() -> None:
    tags = ("nightly", "limited:Host")
    assert limited_by(job("a", 1.0, tags=tags)).by == "host"
    assert limited_by(job("a", 1.0, tags=tags)).evidence == "tag limited:Host, no telemetry"
    assert limited_by(job("a", 1.0, tags=tags, busy=90)).by == "GPU"
    assert limited_by(job("a", 1.0, tags=("limited:weather",))).by == "not known"


def test_a_job_that_had_to_run_on_the_cpu_is_limited_by_it() -> None:
    tasks = (TaskSummary(id="a", repeat=0, device="CPU", status="ok"),)
    assert limited_by(job("a", 1.0, tasks=tasks)).by == "CPU"
    assert limited_by(job("a", 1.0, devices="none")).by == "CPU"


def test_a_summary_keeps_the_tags_of_a_job(tmp_path: Path) -> None:
    tagged = make_task()
    tagged = replace(tagged, job=replace(tagged.job, tags=("limited:gpu",)))
    (of,) = summary_for(tmp_path, make_result(task=tagged)).jobs
    assert of.tags == ("limited:gpu",)


# Sub-scores.


def test_a_sub_score_is_the_weighted_geometric_mean_of_perf() -> None:
    jobs = named(job("a", 100.0, busy=90), job("b", 1000.0, busy=95), job("c", 5.0, busy=3))
    found = sub_scores(jobs, {"a": 1, "b": 3, "c": 4})
    of = group(found, "GPU")
    # exp((1 * ln 100 + 3 * ln 1000) / 4) = 10 ** 2.75
    assert (of.value, of.jobs, of.weight, of.share) == (pytest.approx(562.3413), ("a", "b"), 4, 0.5)
    assert group(found, "host").value == pytest.approx(5)
    assert group(found, "fp32").jobs == ("a", "b", "c")


def test_the_interval_of_a_sub_score_is_centred_on_it_and_covers_the_repeats() -> None:
    found = sub_scores(
        named(job("a", 100.0, 104.0, 96.0, busy=90), job("b", 50.0, 51.0, 49.0, busy=90)), {"a": 1, "b": 1}
    )
    of = group(found, "GPU")
    assert of.value and of.interval
    assert of.interval.low * of.interval.high == pytest.approx(of.value**2)
    logs = [(math.log(a) + math.log(b)) / 2 for a, b in ((100, 50), (104, 51), (96, 49))]
    mean = sum(logs) / 3
    error = math.sqrt(sum((x - mean) ** 2 for x in logs) / 2 / 3)
    assert math.log1p(of.interval.half) == pytest.approx(4.302653 * error)


def test_a_job_without_a_figure_leaves_its_group_without_a_sub_score() -> None:
    """The group never becomes a score of the survivors: without b it would be 100."""
    jobs = named(job("a", 100.0, busy=90), job("b", None, None, busy=90), job("c", 5.0, busy=3))
    found = sub_scores(jobs, equal(jobs))
    assert (group(found, "GPU").value, group(found, "GPU").reason) == (None, "b has no ok task of 2")
    assert group(found, "host").value == pytest.approx(5)
    assert group(found, "fp32").value is None


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        (job("b", 1.0, 1.0, busy=90, not_run=1, to_run=1), "b has 1 task still to run"),
        (job("b", 1.0, 1.0, busy=90, to_run=2), "b has 2 tasks still to run"),
        (job("b", 0.0, busy=90), "b has a throughput of 0"),
    ],
)
def test_a_task_that_never_ran_leaves_its_group_without_a_sub_score(lost: JobSummary, reason: str) -> None:
    jobs = named(job("a", 100.0, busy=90), lost)
    assert (group(sub_scores(jobs, equal(jobs)), "GPU").value, group(sub_scores(jobs, equal(jobs)), "GPU").reason) == (
        None,
        reason,
    )


def test_a_lost_job_whose_group_is_not_known_may_belong_to_any() -> None:
    """A job without an ok task has no telemetry. It must not lift the group that it would belong to."""
    jobs = named(job("a", 100.0, busy=90), job("b", None), job("c", 5.0, busy=3))
    found = sub_scores(jobs, equal(jobs))
    reason = "b has no ok task of 1 (of unknown group)"
    assert [group(found, name).value for name in ("GPU", "host", "not known", "fp32")] == [None] * 4
    assert group(found, "GPU").reason == group(found, "host").reason == reason
    absent = sub_scores(named(job("a", 100.0, busy=90)), {"a": 1, "b": 1})
    assert group(absent, "fp32").reason == "b is not in the run (of unknown group)"
    assert group(sub_scores(jobs, {"a": 1, "b": 0, "c": 1}), "GPU").value == pytest.approx(100)


def test_groups_of_ranks_stand_apart_from_the_precisions() -> None:
    jobs = named(job("a", 100.0, busy=90), job("b.2", 50.0, ranks=2), job("c", 5.0, busy=80, precision="bf16"))
    found = sub_scores(jobs, equal(jobs))
    assert [(of.kind, of.name, of.jobs) for of in found] == [
        ("limit", "GPU", ("a", "c")),
        ("limit", "communication", ("b.2",)),
        ("precision", "fp32", ("a",)),
        ("precision", "bf16", ("c",)),
    ]


# Against a base.


def ratios(here: Jobs, base: Jobs) -> dict[str, GroupRatio]:
    found = sub_scores(here, equal(here))
    against = group_ratios(found, here, base, equal(here))
    return {of.name: one for of, one in zip(found, against, strict=True)}


def test_a_ratio_has_welchs_interval_around_it() -> None:
    here, base = named(job("a", 110.0, 112.0, 108.0, busy=90)), named(job("a", 100.0, 100.5, 99.5))
    found = ratios(here, base)["GPU"]
    # The geometric means over repeats, of which an arithmetic mean would be off the centre of the interval.
    assert found.value == pytest.approx((110 * 112 * 108 / (100 * 100.5 * 99.5)) ** (1 / 3))
    assert found.low and found.high
    assert found.low * found.high == pytest.approx(found.value**2)
    # Standard errors of the logs 0.01050 and 0.00289 give 2.30 degrees of freedom and t = 3.81.
    assert math.log(found.high / found.value) == pytest.approx(0.0415, rel=0.02)


def test_the_same_run_has_a_ratio_of_one() -> None:
    jobs, weights = baseline("h200x2")
    found = group_ratios(sub_scores(jobs, weights), jobs, jobs, weights)
    assert [of.value for of in found] == pytest.approx([1.0] * 6)
    assert all(of.low and of.high and of.low < 1 < of.high for of in found)


def test_a_ratio_needs_every_job_of_the_group_on_both_sides() -> None:
    here = named(job("a", 100.0, busy=90), job("b", 100.0, busy=90), job("c", 9.0, busy=1))
    base = named(job("a", 50.0), job("c", 3.0))
    found = ratios(here, base)
    assert (found["GPU"].value, found["GPU"].reason) == (None, "the baseline has no comparable b")
    assert found["host"].value == pytest.approx(3)
    lost = ratios(here, {**base, "b": job("b", None)})["GPU"]
    assert (lost.value, lost.reason) == (None, "in the baseline, b has no ok task of 1")


def test_a_ratio_without_repeats_says_why_it_has_no_interval() -> None:
    here = named(job("a", 100.0, 101.0, 99.0, busy=90))
    two = ratios(here, named(job("a", 50.0, 51.0)))["GPU"]
    assert two.low is None
    assert two.reason == "the baseline has 2 repeats with a number of each job; an interval needs 3"
    none = ratios(here, named(replace(job("a", 50.0), repeats=(), tasks=())))["GPU"]
    assert none.value == pytest.approx((100 * 101 * 99) ** (1 / 3) / 50)
    assert none.reason == "the baseline keeps no numbers per repeat, so no interval"


# Which job moves the score.


def test_vae_makes_most_of_the_variance_of_two_h200() -> None:
    jobs, weights = baseline("h200x2")
    found = influences(jobs, weights)
    assert found[0].job == "vae"
    assert math.fsum(one.share for one in found) == pytest.approx(1)
    words = "vae makes 77 % of the score's variance (weight 8 of 128, 39.1 % between repeats)."
    assert influence_words(found) == words


def test_the_share_of_a_job_grows_with_the_square_of_its_weight() -> None:
    jobs = named(job("a", 100.0, 101.0, 99.0), job("b", 100.0, 101.0, 99.0))
    assert [(one.job, one.share) for one in influences(jobs, {"a": 1, "b": 3})] == [
        ("b", pytest.approx(0.9)),
        ("a", pytest.approx(0.1)),
    ]


def test_without_a_dominant_job_the_three_largest_are_named() -> None:
    jobs = named(*(job(name, 100.0, 101.0, 99.0) for name in "abcd"))
    words = "No job dominates the score's variance; most comes from a 25 %, b 25 %, c 25 %."
    assert influence_words(influences(jobs, equal(jobs))) == words


def test_no_influence_is_stated_without_three_repeats_of_each_job_or_without_scatter() -> None:
    steady, short = job("a", 100.0, 101.0, 99.0), job("b", 5.0, 6.0)
    for jobs in (named(steady, short), named(steady, job("b", None)), named(job("a", 7.0, 7.0, 7.0))):
        assert influences(jobs, equal(jobs)) == ()
    assert influences(named(steady), {"a": 1, "b": 1}) == ()
    assert influence_words(()) == ""


# Score per watt.


def test_the_power_of_a_job_is_that_of_all_its_gpus_at_the_same_time() -> None:
    tasks = [
        TaskSummary(
            id=f"{i}.{gpu}", repeat=i, device=f"GPU {gpu}", status="ok", gpus=(TaskGpu(index=gpu, uuid=str(gpu)),)
        )
        for i in range(3)
        for gpu in (0, 1, 1)  # two tasks share the second GPU
    ]
    assert gpu_power_w(job("a", 1.0, busy=90, tasks=tuple(tasks))) == pytest.approx(400)
    assert gpu_power_w(job("a", 1.0)) is None


def test_the_score_per_watt_divides_the_machine_score_and_leaves_cpu_jobs_out_of_both() -> None:
    on_cpu = job("c", 7.0, devices="none")
    jobs = named(job("a", 100.0, busy=90), job("b", 400.0, use=Use(gpu_percent=9, power_w=50.0)), on_cpu)
    found = score_per_watt(jobs, equal(jobs))
    assert (found.machine, found.watts) == (pytest.approx(200), pytest.approx(100))
    assert (found.value, found.left_out) == (pytest.approx(2), ("c",))
    assert [words.text for words in power_figure(found).beside] == [
        "200.0 / 100 W of the GPUs in use, without the rest of the machine (more is better)",
        "without c, on the CPU",
    ]


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        (job("b", 1.0), "there is no GPU power of b"),
        (job("b", None, busy=90), "b has no ok task of 1"),
        (job("b", None, devices="none"), "b has no ok task of 1"),
        (job("b", 1.0, 1.0, busy=90, fail=2), "there is no machine throughput of b"),
        (replace(job("b", 1.0, busy=90), repeats=()), "there is no machine throughput of b"),
    ],
)
def test_there_is_no_score_per_watt_unless_every_job_has_its_figures(lost: JobSummary, reason: str) -> None:
    jobs = named(job("a", 100.0, busy=90), lost)
    found = score_per_watt(jobs, equal(jobs))
    assert (found.value, found.reason) == (None, reason)
    assert [words.text for words in power_figure(found).beside] == [f"none: {reason}"]


def test_a_job_that_the_run_lacks_leaves_no_score_per_watt() -> None:
    assert score_per_watt(named(job("a", 1.0, busy=90)), {"a": 1, "b": 1}).reason == "b is not in the run"
    assert score_per_watt(named(job("a", 1.0, devices="none")), {"a": 1}).reason == "no weighed job runs on a GPU"


def test_the_machine_score_per_watt_of_the_baselines() -> None:
    """Two H200 train 1.7 times as much as one, at twice the power."""
    one, two = (score_per_watt(*baseline(name), penalized=False) for name in ("h200", "h200x2"))
    assert one.watts and two.watts and one.value and two.value
    assert (one.watts, two.watts) == (pytest.approx(289, abs=1), pytest.approx(571, abs=1))
    assert two.value / one.value == pytest.approx(0.87, abs=0.02)


# The section.


def test_the_section_shows_each_kind_that_splits_the_jobs_with_the_ratio_and_what_it_lacks() -> None:
    jobs, weights = baseline("h200x2")
    base, _ = baseline("h200")
    found = sub_scores(jobs, weights)
    of = subscores_section(found, influences(jobs, weights), {"h200": group_ratios(found, jobs, base, weights)})
    assert of
    host = texts(row(of, "limited by the host"))
    assert (host["weight %"], host["sub-score"], host["ratio per GPU"], host["n"]) == ("50.0", "7,845", "0.79", "9")
    assert "95 % of ratio" not in host  # the baseline has two repeats
    assert row(of, "communication")["ratio per GPU"].text == "n/a"
    assert "vae: a kernel runs for 17 % of the time" in row(of, "limited by the host")["jobs"].note
    assert "Against h200 (communication): the baseline has no comparable scaling.2." in sentences(of)
    assert sentences(of)[-1].startswith("vae makes 77 %")


def test_the_section_says_why_a_group_has_no_sub_score() -> None:
    jobs = named(job("a", 100.0, busy=90), job("b", None, busy=90), job("c", 5.0, busy=3))
    of = subscores_section(sub_scores(jobs, equal(jobs)))
    assert of
    assert row(of, "limited by the GPU")["sub-score"].text == "n/a"
    assert sentences(of) == ["No sub-score 'limited by the GPU': b has no ok task of 1."]


def test_a_run_whose_jobs_are_alike_has_no_section() -> None:
    alike = named(job("a", 100.0, busy=90), job("b", 100.0, busy=80))
    assert subscores_section(sub_scores(alike, equal(alike))) is None
    jobs, weights = baseline("v100")  # a publication without telemetry and settings
    assert subscores_section(sub_scores(jobs, weights)) is None


def test_a_run_without_any_sub_score_has_no_section() -> None:
    jobs = named(job("a", 100.0, busy=90), job("b", None), job("c", 5.0, busy=3))
    assert subscores_section(sub_scores(jobs, equal(jobs))) is None
