"""A run with a budget repeats the jobs that narrow the interval most, as long as its time lasts, and records it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import make_run, make_task
from scipy.special import digamma, polygamma
from support import benchsuite, in_process, one_line_error, write_profile

from benchsuite.commands._budget import known_jobs
from benchsuite.describe.budget import budget_s, written
from benchsuite.describe.plan import plan_of
from benchsuite.describe.tasks import Plan, Wave
from benchsuite.errors import UsageError
from benchsuite.launch import budget as spent
from benchsuite.launch import rounds
from benchsuite.launch.budget import Budget, Spending
from benchsuite.launch.rounds import Known, is_full, jobs_of_round
from benchsuite.report.read.load import load
from benchsuite.report.show.sections.origin import repeats_words
from benchsuite.report.stats.clustered import degrees_of_freedom
from benchsuite.report.stats.samples import weighted_mean
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.verify.budgets import finding
from benchsuite.report.verify.check import RECORDS, check
from benchsuite.rundir import RunDir
from benchsuite.schema import to_json


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [("30m", 1800, "30m"), ("2h", 7200, "2h"), ("1h30m", 5400, "1h30m"), ("90s", 90, "90s"), ("1H5s", 3605, "1h5s")],
)
def test_a_budget_is_a_number_of_hours_minutes_and_seconds(text: str, seconds: int, shown: str) -> None:
    assert (budget_s(text), written(seconds)) == (seconds, shown)


@pytest.mark.parametrize("text", ["", "30", "0m", "m", "30m1h", "1.5h", "-5m", "31000000s", "half an hour"])
def test_a_text_that_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="1h30m"):
        budget_s(text)


def test_three_rounds_are_full_and_then_every_third_one() -> None:
    assert [number for number in range(12) if is_full(number)] == [0, 1, 2, 5, 8, 11]


def job(scatter: float, repeats: int = 3, weight: float = 1.0, repeat_s: float = 10.0, run: int | None = None) -> Known:
    """A job whose log rates have this standard deviation, more or less."""
    logs = [scatter * (-1) ** k for k in range(repeats)]
    return Known(weight, logs, repeats if run is None else run, repeat_s)


def test_the_first_rounds_repeat_every_job_that_gives_numbers() -> None:
    jobs = {
        "good": job(0.01),
        "fails at times": job(0.01, 3, run=5),
        "fails as often": job(0.01, 3, run=6),
        "weightless": job(0.01, weight=0),
        "fails": job(0, 0, run=2),
        "failed once": job(0, 0, run=1),
    }
    assert jobs_of_round(1, jobs) == ["good", "fails at times", "weightless", "failed once"]


def test_a_chosen_round_repeats_noisy_weighty_and_short_jobs() -> None:
    quiet = {f"quiet{k}": job(0.001 * (1 + k / 10)) for k in range(6)}
    assert jobs_of_round(3, {**quiet, "noisy": job(0.1)}) == ["noisy"]
    alike = {f"j{k}": job(0.01) for k in range(6)}
    assert jobs_of_round(3, {**alike, "heavy": job(0.01, weight=9)}) == ["heavy"]
    assert jobs_of_round(3, {**alike, "short": job(0.01, repeat_s=1)})[0] == "short"
    assert "weightless" not in jobs_of_round(5, {**alike, "weightless": job(0.01, weight=0)})


def test_jobs_of_one_noise_are_all_repeated_whatever_their_samples_say() -> None:
    rng = random.Random(1)
    jobs = {f"j{k}": Known(1.0, [rng.gauss(0, 0.01) for _ in range(3)], 3, 10.0) for k in range(18)}
    assert jobs_of_round(3, jobs) == list(jobs)


def test_a_full_round_begins_with_the_noisiest_job_and_takes_one_without_a_variance() -> None:
    jobs = {"quiet": job(0.001), "unknown": job(0, 1), "noisy": job(0.1)}
    assert jobs_of_round(5, jobs) == ["noisy", "quiet", "unknown"]


def test_variances_move_to_the_typical_one_as_far_as_they_are_alike() -> None:
    unlike = [(10.0**-k, 2) for k in range(2, 12)]
    moved = rounds.moderated(unlike)
    assert moved == sorted(moved, reverse=True)
    assert unlike[0][0] / 3 < moved[0] < unlike[0][0]
    assert moved[-1] > unlike[-1][0]
    assert len(set(rounds.moderated([(1.0, 2), (1.1, 2), (0.9, 4)]))) == 1
    assert rounds.moderated([(0.5, 2)]) == [0.5]
    assert all(value > 0 for value in rounds.moderated([(0.0, 2), (0.0, 2), (1e-4, 2)]))


@pytest.mark.parametrize("df", [1, 2, 3, 8, 17])
def test_bias_and_spread_of_the_log_of_a_variance_are_those_of_scipy(df: int) -> None:
    bias, spread = rounds._of_log_variance(df)
    assert bias == pytest.approx(float(digamma(df / 2)) - math.log(df / 2))
    assert spread == pytest.approx(float(polygamma(1, df / 2)))


def keys(*repeats: int) -> set[tuple[int, int]]:
    return {(0, repeat) for repeat in repeats}


def test_degrees_of_freedom_are_those_of_the_repeats_that_bear_the_variance() -> None:
    every = sorted(keys(*range(8)))
    assert degrees_of_freedom([(1.0, keys(*range(8))), (2.0, keys(*range(8)))], every) == pytest.approx(7)
    assert degrees_of_freedom([(1e-6, keys(*range(8))), (1.0, keys(0, 1, 2))], every) == pytest.approx(2, abs=0.01)
    assert degrees_of_freedom([(0.0, keys(0, 1)), (0.0, keys(0, 1, 2))], every[:3]) == 2
    rates = {"quiet": {(0, k): 100 + 1e-4 * k for k in range(8)}, "noisy": {(0, 0): 90.0, (0, 1): 100.0, (0, 2): 110.0}}
    mean = weighted_mean(rates, {"quiet": 1.0, "noisy": 1.0})
    assert mean is not None
    assert (mean.n, mean.fewest, mean.df) == (8, 3, pytest.approx(2, abs=0.01))


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


SCATTER = {"quiet": 0.001, "calm": 0.002, "noisy": 0.2}


@pytest.fixture(name="clock")
def clock_fixture(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(spent, "time", clock)
    return clock


def first_pass() -> Plan:
    return plan_of([make_task(name, gpu=gpu) for name in SCATTER for gpu in (0, 1)])


def made_rates(folder: Path) -> dict[str, Known]:
    """Rates of the jobs of a plan's waves that have run."""
    done = [wave.tasks[0] for wave in RunDir(folder).plan().waves if wave.took_s is not None]
    return {
        name: Known(1.0, [random.Random(f"{name}{t.repeat}").gauss(0, of) for t in done if t.row == name], 0, 0.0)
        for name, of in SCATTER.items()
    }


class Spent:
    """A run with a budget in which each wave takes 10 s by the test's clock, and no worker runs."""

    def __init__(self, folder: Path, clock: Clock, limit_s: float, known: Any = made_rates) -> None:
        plan = first_pass()
        fresh = not (folder / "plan.json").exists()
        self.rundir = RunDir.create(folder, make_run(budget_s=limit_s), plan) if fresh else RunDir(folder)
        self.said: list[str] = []
        self.clock = clock
        budget = Budget(limit_s, known)
        self.spending = Spending(budget, self.rundir, self.rundir.plan(), self.said.append, clock.now_s)
        if fresh:
            for wave in plan.waves:
                self.run(wave)

    def run(self, wave: Wave) -> str:
        self.clock.now_s += 10
        self.spending.ended(wave)
        return wave.name

    def all(self) -> list[str]:
        return [self.run(wave) for wave in self.spending.further()]


def test_a_budget_is_spent_on_three_passes_and_then_on_the_noisy_job(tmp_path: Path, clock: Clock) -> None:
    run = Spent(tmp_path / "run", clock, limit_s=145)
    added = run.all()
    assert added[:6] == [f"{name}.R{k}" for k in (1, 2) for name in SCATTER]
    assert added[6:] == ["noisy.R3", "noisy.R4", "noisy.R5", "quiet.R5", "calm.R5"]
    assert run.said == ["--budget 2m25s: 2m20s used, 4 to 6 repeats of each job; no further repeat fits"]


def test_added_tasks_are_those_of_the_profile_in_that_repeat_on_all_its_gpus(tmp_path: Path, clock: Clock) -> None:
    run = Spent(tmp_path / "run", clock, limit_s=105)
    run.all()
    tasks = run.rundir.plan().tasks
    assert list(tasks) == [make_task(task.row, task.repeat, task.gpus[0].visible_index) for task in tasks]
    assert all(wave.took_s == 10 for wave in run.rundir.plan().waves)


def test_a_run_that_continues_has_the_time_that_is_left(tmp_path: Path, clock: Clock) -> None:
    begun = Spent(tmp_path / "run", clock, limit_s=145)
    some = begun.spending.further()
    first = [begun.run(next(some)) for _ in range(5)]
    clock.now_s += 5000
    again = Spent(tmp_path / "run", clock, limit_s=145)
    assert again.spending.left_words == "2m25s, of which 65s are left"
    rest = again.all()
    assert (first + rest)[:7] == [*(f"{name}.R{k}" for k in (1, 2) for name in SCATTER), "noisy.R3"]
    assert sum(wave.took_s or 0 for wave in again.rundir.plan().waves) == 140


def test_a_job_without_numbers_runs_twice_and_its_time_counts(tmp_path: Path, clock: Clock) -> None:
    def known(folder: Path) -> dict[str, Known]:
        return {**made_rates(folder), "calm": Known(1.0, [], 0, 0.0)}

    added = Spent(tmp_path / "run", clock, limit_s=100, known=known).all()
    assert [name for name in added if name.startswith("calm")] == ["calm.R1"]
    assert len(added) == 7


def test_a_skipped_job_and_a_training_to_its_end_are_not_repeated(tmp_path: Path, clock: Clock) -> None:
    run = Spent(tmp_path / "run", clock, limit_s=1000)
    quiet, calm, noisy = run.rundir.plan().waves
    skipped = msgspec.structs.replace(quiet, tasks=tuple(msgspec.structs.replace(t, skip="no") for t in quiet.tasks))
    trained = msgspec.structs.replace(
        calm,
        tasks=tuple(msgspec.structs.replace(t, job=msgspec.structs.replace(t.job, max_epochs=1)) for t in calm.tasks),
    )
    plan = Plan(waves=(skipped, trained, noisy))
    spending = Spending(Budget(100, made_rates), run.rundir, plan, run.said.append, clock.now_s)
    assert [run_.name for run_ in _ending(spending, clock)] == [f"noisy.R{k}" for k in range(1, 8)]


def _ending(spending: Spending, clock: Clock) -> Iterator[Wave]:
    for wave in spending.further():
        clock.now_s += 10
        spending.ended(wave)
        yield wave


def test_a_plan_that_cannot_be_written_ends_the_repeats(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Spent(tmp_path / "run", clock, limit_s=1000)

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spent, "write_again", full)
    assert run.all() == []
    assert run.said == ["plan.json could not be written, so no repeats are added: no space left on device"]


def of_command(*words: str) -> tuple[str, ...]:
    return ("benchsuite", "jobs", "suite", *words)


@pytest.mark.parametrize(
    ("command", "limit_s", "change", "trouble"),
    [
        (of_command("--budget", "100s"), 100, None, None),
        (of_command("--budget", "1h"), 100, None, "run.json says 100s, the command lines say 1h"),
        (of_command(), 100, None, "the command lines say none"),
        (of_command("--budget", "100s"), 100, 95.0, "quiet.R1 was added after 115s"),
    ],
)
def test_verify_checks_that_repeats_were_added_while_time_was_left(
    command: tuple[str, ...], limit_s: float, change: float | None, trouble: str | None, tmp_path: Path, clock: Clock
) -> None:
    run = Spent(tmp_path / "run", clock, limit_s=100)
    run.all()
    if change:
        first, *rest = run.rundir.plan().waves
        slow = Plan(waves=(msgspec.structs.replace(first, took_s=change), *rest))
        (run.rundir.path / "plan.json").write_bytes(to_json(slow))
    found = finding(run.rundir.path, msgspec.structs.replace(make_run(budget_s=limit_s), command=command))
    assert found.state == ("bad" if trouble else "ok")
    assert trouble is None or any(trouble in line for line in found.details)


def test_a_command_line_that_cannot_be_split_is_a_finding(tmp_path: Path) -> None:
    resumed = (("2026-01-01T00:00:00+00:00", "benchsuite jobs 'x"),)
    found = finding(tmp_path, msgspec.structs.replace(make_run(budget_s=100), resumed=resumed))
    assert (found.state, found.details) == (
        "bad",
        ("run.json: a command line of `resumed` cannot be read: No closing quotation",),
    )


@pytest.fixture(name="finished", scope="module")
def finished_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two quick jobs, which are too short for a number, so that each is repeated once."""
    folder = tmp_path_factory.mktemp("budget")
    profile = write_profile(folder / "p.json", one={}, two={})
    done = benchsuite("jobs", str(profile), "-o", "out", "--budget", "10m", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "--budget 10m: repeats follow once each job has run" in done.stderr
    assert "[4/4] two on CPU, repeat 1: ok" in done.stderr
    assert "2 repeats of each job; no job is repeated further" in done.stderr
    return folder / "out"


def test_the_records_of_a_run_with_a_budget_belong_together(finished: Path) -> None:
    found = {one.about: one for one in check(finished)[RECORDS]}
    assert {about for about, one in found.items() if one.state != "ok"} == set()
    assert "4 tasks: 2 rows in 2 rounds" in found["plan is whole"].text
    assert "2 waves added" in found["budget"].text


def test_a_repeat_that_the_profile_does_not_give_is_found(
    finished: Path, tmp_path: Path, copied: Callable[..., Path]
) -> None:
    run = copied(finished, tmp_path)
    plan = RunDir(run).plan()
    wave = plan.waves[-1]
    other = tuple(msgspec.structs.replace(task, row="three") for task in wave.tasks)
    (run / "plan.json").write_bytes(to_json(Plan(waves=(*plan.waves[:-1], Wave(name=wave.name, tasks=other)))))
    (found,) = (one for one in check(run)[RECORDS] if one.about == "plan")
    assert any("row differs from the new plan" in line for line in found.details)


@pytest.fixture(name="copied")
def copied_fixture() -> Callable[[Path, Path], Path]:
    import shutil

    return lambda source, folder: Path(shutil.copytree(source, folder / "copy"))


def test_the_report_says_that_the_budget_chose_the_repeats(finished: Path) -> None:
    assert repeats_words(summarise(load(finished))) == "2 repeats, chosen by --budget 10m"
    assert known_jobs(finished) == {name: Known(1.0, (), 0, 0.0) for name in ("one", "two")}


def test_a_resume_has_the_budget_of_the_run(finished: Path, tmp_path: Path, copied: Callable[..., Path]) -> None:
    run = copied(finished, tmp_path)
    one_line_error(in_process("jobs", "--resume", str(run), "--repeat", "3", cwd=tmp_path), "a higher --budget adds")
    again = in_process("jobs", "--resume", str(run), "--budget", "20m", "--dry-run", cwd=tmp_path)
    assert "# 0 tasks" in again.stdout
    assert "# --budget 20m" in again.stdout


def test_a_budget_that_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    profile = str(write_profile(tmp_path / "p.json", one={"min_time_s": 60, "max_time_s": 90}))
    short = in_process("jobs", profile, "--budget", "30s", cwd=tmp_path)
    one_line_error(short, "--budget 30s", "one pass over the profile takes about 70 s", "give --budget 2m", "--exclude")
    one_line_error(in_process("jobs", profile, "--budget", "5m", "--repeat", "2", cwd=tmp_path), "--repeat")
    one_line_error(in_process("jobs", profile, "--budget", "soon", cwd=tmp_path), "1h30m")
    shown = in_process("jobs", profile, "--budget", "5m", "--dry-run", cwd=tmp_path).stdout.splitlines()
    assert shown[-1] == "# --budget 5m: once these tasks have run, the run chooses the repeats"
    assert sum(line.startswith("# one.J") for line in shown) == 1
