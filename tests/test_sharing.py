"""Models that share a GPU: the axes, the plan, the search for what fits, MPS and MIG. Nothing here needs a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from conftest import make_gpu, make_run
from support import PROGRAMS, environ, in_process, one_line_error

from benchsuite.describe import sharing
from benchsuite.describe.jobs import resolve
from benchsuite.describe.matrix import cells
from benchsuite.describe.plan import make_plan, plan_of, with_numbers
from benchsuite.describe.tasks import FIT, Job, Plan, Task
from benchsuite.errors import ProfileError, UsageError
from benchsuite.host.monitor import Monitor
from benchsuite.isolation.fencing import Fencing
from benchsuite.launch import copies, mig, mps
from benchsuite.launch import sharing as shared_gpus
from benchsuite.launch.context import RunContext, WaveContext, WaveError
from benchsuite.launch.ledger import Ledger
from benchsuite.launch.searches import searches
from benchsuite.records import Result
from benchsuite.rundir import RunDir, results
from benchsuite.searches import CopiesProbe

TOOLS = PROGRAMS / "fake_gpu_tools"


def job_of(**fields: Any) -> Job:
    return resolve("v", {"model": "vae", **fields}, "p.yaml")


def planned(gpus: int = 1, **fields: Any) -> Plan:
    return make_plan("p", [job_of(**fields)], [make_gpu(at) for at in range(gpus)], environ={})


# --- axes and plan ----------------------------------------------------------------------------------------------------


def test_ways_and_numbers_are_axes_and_serial_has_one_model() -> None:
    job = job_of(sharing=["serial", "concurrent", "fused"], copies=[1, 4], matrix={"precision": ["fp32", "bf16"]})
    found = {cell.name: cell.job for cell in cells(job)}
    assert [*found][:5] == [
        "v[precision=fp32,sharing=serial,copies=1]",
        "v[precision=fp32,sharing=concurrent,copies=1]",
        "v[precision=fp32,sharing=concurrent,copies=4]",
        "v[precision=fp32,sharing=fused,copies=1]",
        "v[precision=fp32,sharing=fused,copies=4]",
    ]
    assert len(found) == 10
    assert [found[name].training.array for name in [*found][:5]] == [1, 1, 1, 1, 4]


def test_copies_are_tasks_of_one_wave_on_each_gpu() -> None:
    plan = planned(gpus=2, sharing="mps", copies=[3])
    (wave,) = plan.waves
    assert [(task.id, task.copy, task.gpus[0].visible_index) for task in wave.tasks] == [
        (f"v[sharing=mps,copies=3].J0.{gpu}.c{copy}", copy, gpu) for gpu in (0, 1) for copy in (0, 1, 2)
    ]


def test_single_values_are_no_axes() -> None:
    assert [task.id for task in planned(sharing="concurrent", copies=2).tasks] == ["v.J0.0.c0", "v.J0.0.c1"]


def test_a_way_that_needs_a_gpu_is_skipped_without_one() -> None:
    (task,) = planned(gpus=0, sharing="mps", copies=2, placement="per_gpu_or_cpu").tasks
    assert task.skip == "sharing mps divides a GPU, and none is visible"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sharing": "mpz"}, "field 'sharing': unknown 'mpz'; did you mean 'mps'?"),
        ({"copies": 2}, "field 'copies': serial trains one model"),
        ({"copies": [1, 2]}, "field 'sharing': serial trains one model"),
        ({"sharing": "mps", "copies": 0}, "field 'copies': expected a number from 1 on, or fit; found 0"),
        ({"sharing": "mps", "copies": [2, "fit"]}, "field 'copies': fit finds all numbers"),
        ({"sharing": [], "copies": 2}, "field 'sharing' has no values"),
        ({"sharing": "mig", "copies": 8}, "field 'copies': mig has at most 7, found 8"),
        ({"sharing": "mps", "copies": 2, "placement": "all_gpus"}, "give placement per_gpu"),
        ({"sharing": "mps", "copies": 2, "params": {"batch_size": "auto"}}, "give batch_size a number"),
        ({"sharing": "mps", "copies": 2, "array": 2}, "leave 'array' out"),
        ({"sharing": ["fused"], "copies": 2, "matrix": {"array": [1, 2]}}, "leave 'array' out"),
        (
            {"sharing": "mps", "matrix": {"sharing": ["mps"]}},
            "field 'sharing' is also an axis of 'matrix'; give it once",
        ),
        ({"sharing": "mps", "copies": 2, "params": {"lr": [0.1, 0.2]}}, "mps with copies 2 trains 1 in a process"),
        ({"placement": {"devices": "each", "copies": 2}}, "field 'placement': unknown field 'copies'"),
    ],
)
def test_what_cannot_be_shared_is_refused_in_one_line(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ProfileError, match=r"^p\.yaml: job 'v': ") as refused:
        job_of(**fields)
    assert words in str(refused.value)


def test_copies_have_the_processors_of_their_gpu_and_a_part_of_its_memory() -> None:
    fencing = replace(Fencing("affinity"), cpus=tuple(range(8)), count=8, memory_bytes=8 << 30)
    tenants = fencing.fence(planned(gpus=2, sharing="concurrent", copies=2).tasks)
    dealt = [tenant.cpus for tenant in tenants]
    assert dealt[0] == dealt[1]
    assert dealt[2] == dealt[3]
    assert not set(dealt[0]) & set(dealt[2])
    on_cpu = make_plan("p", [job_of(sharing="concurrent", copies=4, placement="cpu")], [], environ={}).tasks
    assert {tenant.environ["OMP_NUM_THREADS"] for tenant in fencing.fence(on_cpu)} == {"2"}


# --- what fits --------------------------------------------------------------------------------------------------------


def bounded(most: int, broken: int = 10**9) -> Callable[[int], copies.Tried]:
    def attempt(number: int) -> copies.Tried:
        fits = number <= most and number < broken
        probe = CopiesProbe(copies=number, fits=fits, device_bytes=None, host_bytes=None, elapsed_s=0.0)
        return copies.Tried(probe, "" if fits else "no memory", bug=number >= broken)

    return attempt


@pytest.mark.parametrize("most", [1, 2, 3, 7, 48, 100, 4096])
def test_the_largest_number_that_fits_is_found_exactly_and_nothing_is_tried_twice(most: int) -> None:
    found = copies.search(bounded(most), 4096, 10, "seed")
    tried = [probe.copies for probe in found.probes]
    assert found.most == most
    assert len(set(tried)) == len(tried) <= 26
    assert {1, most} <= set(found.numbers) <= set(range(1, most + 1))
    assert len(found.numbers) == min(10, most)


def test_a_failure_that_is_no_want_of_memory_ends_the_search_and_is_measured() -> None:
    found = copies.search(bounded(100, broken=8), 4096, 3, "seed")
    assert (found.most, found.limit) == (4, "8: no memory")
    assert found.numbers[-1] == 8
    assert copies.search(bounded(0), 4096, 3, "seed").numbers == (1,)


def test_the_draw_is_seeded_and_dense_at_small_numbers() -> None:
    drawn = [sharing.numbers(100, 10, f"seed {at}") for at in range(200)]
    assert drawn[0] == sharing.numbers(100, 10, "seed 0") != drawn[1]
    inner = [number for numbers in drawn for number in numbers[1:-1]]
    assert sum(number <= 50 for number in inner) > 0.8 * len(inner)


def test_a_plan_gets_the_numbers_that_were_found_in_place_of_the_task_that_stood_for_them() -> None:
    plan = planned(sharing=["serial", "concurrent"], copies="fit")
    assert [task.job.copies for task in plan.tasks] == [1, FIT]
    settled = with_numbers(plan, {"v[sharing=concurrent,copies=fit]": (1, 3)})
    assert settled == planned(sharing=["serial", "concurrent"], copies=[1, 3])
    assert with_numbers(settled, {"v[sharing=concurrent,copies=fit]": (1, 3)}) == settled


@pytest.mark.torch
def test_what_fits_is_searched_before_the_run_and_a_resume_searches_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU no more copies are tried than there are CPUs."""
    monkeypatch.setenv("PYTHONPATH", environ()["PYTHONPATH"])
    monkeypatch.setattr(sharing, "MOST", {**sharing.MOST, "concurrent": 2})
    (tmp_path / "p.yaml").write_text(
        "g: {entry: 'grows:build', params: {batch_size: 1}, placement: cpu, sharing: concurrent, copies: fit,"
        " min_time_s: 0.5, warm_up_s: 0}\n"
    )
    done = in_process("jobs", "p.yaml", "-o", "out", "--isolation", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    (search,) = searches(RunDir(out)).values()
    assert search.most == search.numbers[-1] == min(2, len(os.sched_getaffinity(0)))
    kept = [result for _, result in results(out) if isinstance(result, Result)]
    assert {result.status for result in kept} == {"ok"}
    assert len(kept) == sum(search.numbers)
    assert {task.job.copies for task in RunDir(out).plan().tasks} == set(search.numbers)
    assert {(r.sharing.way, r.sharing.copies) for r in kept if r.sharing} == {
        ("concurrent", number) for number in search.numbers
    }
    again = in_process("jobs", "--resume", "out", cwd=tmp_path)
    assert "Nothing to do" in again.stderr
    assert "searching" not in again.stderr


# --- MPS --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{TOOLS}:{os.environ['PATH']}")


@contextmanager
def run_of(folder: Path, tasks: tuple[Task, ...], **fields: Any) -> Iterator[RunContext]:
    rundir = RunDir.create(folder / "run", make_run(), plan_of(tasks))
    said: list[str] = []
    with Monitor([]) as monitor:
        fencing = Fencing("none")
        yield RunContext(Ledger(rundir), dict(os.environ), fencing, monitor, said.append, lambda: False, **fields)
    (folder / "said").write_text("\n".join(said))


def entered(mean: AbstractContextManager[Any]) -> None:
    """Enter a mean and leave it."""
    with mean:
        pass


def children() -> list[str]:
    found = [" ".join(child.cmdline()) for child in psutil.Process().children() if child.status() != "zombie"]
    return [one for one in found if "nvidia-cuda-mps" in one]


@pytest.mark.usefixtures("tools")
def test_a_daemon_of_our_own_serves_one_wave_and_is_gone_after_it_however_the_wave_ends(tmp_path: Path) -> None:
    tasks = planned(sharing="mps", copies=2).tasks
    with (
        run_of(tmp_path, tasks) as run,
        pytest.raises(KeyboardInterrupt),
        shared_gpus.shared(run, WaveContext(tasks)) as wave,
    ):
        pipes = Path(wave.environ[mps.PIPES])
        assert (pipes.parent.stat().st_mode & 0o777, pipes.stat().st_mode & 0o777) == (0o700, 0o700)
        assert (pipes / "devices").read_text().strip() == "GPU-0000"
        assert len(children()) == 1
        raise KeyboardInterrupt
    assert not pipes.parent.exists()
    assert children() == []
    (noted,) = RunDir(tmp_path / "run").attempts()
    assert (noted.event, noted.task) == ("prepare", tasks[0].id)


@pytest.mark.usefixtures("tools")
def test_a_task_counts_as_under_mps_only_if_the_daemon_lists_it(tmp_path: Path) -> None:
    tasks = planned(sharing="mps", copies=2).tasks
    with run_of(tmp_path, tasks) as run, shared_gpus.shared(run, WaveContext(tasks)) as wave:
        proof, clients = wave.sharing, Path(wave.environ[mps.PIPES], "clients")
        assert proof
        clients.write_text(f"{os.getpid()}\n")
        proof.look([(tasks[0], os.getpid()), (tasks[1], 1 << 22)])
        first, second = (proof.used(task) for task in tasks)
    assert (first.in_use, first.copies) == (True, 2)
    assert (second.in_use, second.seen) == (False, "the MPS server did not list the task among its clients")


@pytest.mark.usefixtures("tools")
def test_pids_of_another_namespace_are_counted(tmp_path: Path) -> None:
    tasks = planned(sharing="mps", copies=2).tasks
    with run_of(tmp_path, tasks) as run, shared_gpus.shared(run, WaveContext(tasks)) as wave:
        assert wave.sharing
        Path(wave.environ[mps.PIPES], "clients").write_text("4000001 4000002")
        wave.sharing.look([(tasks[0], 1 << 22), (tasks[1], 1 << 22)])
        assert [wave.sharing.used(task).in_use for task in tasks] == [True, True]


@pytest.mark.usefixtures("tools")
def test_a_daemon_that_does_not_start_is_named_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MPS_FAILS", "1")
    tasks = planned(sharing="mps", copies=2).tasks
    with run_of(tmp_path, tasks) as run, pytest.raises(WaveError, match="did not start: Cannot find MPS control"):
        entered(mps.daemon(run, tasks))


@pytest.mark.usefixtures("tools")
def test_a_daemon_that_does_not_quit_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MPS_STAYS", "1")
    monkeypatch.setattr(mps, "QUIT_LIMIT_S", 0.1)
    tasks = planned(sharing="mps", copies=2).tasks
    with run_of(tmp_path, tasks) as run, mps.daemon(run, tasks):
        pass
    assert children() == []


def test_other_ways_do_not_meet_a_daemon_of_the_machine(tmp_path: Path) -> None:
    tasks = planned(sharing=["serial", "concurrent"], copies=[2]).waves[0].tasks
    with run_of(tmp_path, tasks) as run, shared_gpus.shared(run, WaveContext(tasks)) as wave:
        assert [*Path(wave.environ[mps.PIPES]).iterdir()] == []


def test_without_its_program_a_way_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="sharing mps needs nvidia-cuda-mps-control, which is not on PATH"):
        shared_gpus.check(planned(sharing="mps", copies=2).tasks, allow_mig=False)
    with pytest.raises(UsageError, match="allow it with --allow-mig"):
        shared_gpus.check(planned(sharing="mig", copies=2).tasks, allow_mig=False)


# --- MIG --------------------------------------------------------------------------------------------------------------

OFFERED = """
| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |
|                                Free/Total   GiB              CE    JPEG  OFA  |
|   0  MIG 1g.10gb         19     7/7        9.75       No     16     1     0   |
|   0  MIG 1g.10gb+me      20     1/1        9.75       No     16     1     0   |
|   0  MIG 1g.20gb         15     4/4        19.62      No     26     1     0   |
|   0  MIG 2g.20gb         14     3/3        19.62      No     32     2     0   |
|   0  MIG 3g.40gb          9     2/2        39.50      No     60     3     0   |
|   0  MIG 4g.40gb          5     1/1        39.50      No     64     4     0   |
|   0  MIG 7g.80gb          0     1/1        79.25      No     132    7     0   |
"""


@pytest.fixture
def card(tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "card"
    state.mkdir()
    monkeypatch.setenv("FAKE_SMI", str(state))
    (state / "mode").write_text("Disabled\n")
    (state / "lgip").write_text(OFFERED)
    (state / "instances").write_text("")
    return state


def whole(card: Path) -> bool:
    return (card / "mode").read_text() == "Disabled\n" and not (card / "instances").read_text()


@pytest.mark.parametrize(
    ("number", "ids"),
    [(1, "0"), (2, "9 9"), (3, "14 14 14"), (4, "14 14 14 19"), (5, "14 14 19 19 19"), (7, "19 19 19 19 19 19 19")],
)
def test_each_number_has_a_plan_of_what_the_gpu_offers(number: int, ids: str) -> None:
    assert [profile.id for profile in mig.chosen(mig.profiles(OFFERED), number)] == ids.split()


def test_each_copy_has_an_instance_and_the_gpu_is_whole_again_however_the_wave_ends(card: Path, tmp_path: Path) -> None:
    tasks = planned(sharing="mig", copies=4).tasks
    with (
        run_of(tmp_path, tasks, allow_mig=True) as run,
        pytest.raises(KeyboardInterrupt),
        shared_gpus.shared(run, WaveContext(tasks)) as wave,
    ):
        assert [task.gpus[0].uuid for task in wave.tasks] == ["MIG-0", "MIG-1", "MIG-2", "MIG-3"]
        assert [task.environ["CUDA_VISIBLE_DEVICES"] for task in wave.tasks][3] == "MIG-3"
        assert {task.gpus[0].parent for task in wave.tasks} == {"GPU-0000"}
        assert not whole(card)
        raise KeyboardInterrupt
    assert whole(card)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("needs_reset", "switches MIG on only with a reset"),
        ("full", "exited with status 4: Insufficient Resources"),
    ],
)
def test_a_gpu_that_cannot_be_divided_is_left_whole(card: Path, tmp_path: Path, file: str, words: str) -> None:
    (card / file).touch()
    tasks = planned(sharing="mig", copies=2).tasks
    with run_of(tmp_path, tasks, allow_mig=True) as run, pytest.raises(WaveError, match=words):
        entered(mig.divided(run, tasks))
    assert whole(card)


def test_a_gpu_that_is_divided_already_is_not_touched(card: Path, tmp_path: Path) -> None:
    (card / "mode").write_text("Enabled\n")
    tasks = planned(sharing="mig", copies=2).tasks
    for allowed, words in ((True, "it is left as it is"), (False, "--allow-mig is not given")):
        with run_of(tmp_path / words, tasks, allow_mig=allowed) as run, pytest.raises(WaveError, match=words):
            entered(mig.divided(run, tasks))
    assert all("query" in call for call in (card / "calls").read_text().splitlines())


def test_a_copy_is_not_run_alone(tmp_path: Path) -> None:
    done = in_process("run", "vae", "--", "--sharing", "concurrent", "--copies", "2", cwd=tmp_path)
    one_line_error(done, "--copies: 'run' makes one task")
    assert msgspec.to_builtins(job_of(sharing="fused", copies=3))["training"]["array"] == 3
