"""Tenants: which fences are chosen and why, in made-up version 2 machines; and real ones, which really confine."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import make_task
from fake_cgroups import GIB, KernelV2, own_ground, v2_tree

from benchsuite import provisions
from benchsuite.describe.tasks import Job, Task
from benchsuite.describe.training import Training
from benchsuite.errors import UsageError
from benchsuite.host import cgroups, own_groups
from benchsuite.host.cgroups import Cgroup, CgroupPlace
from benchsuite.host.kernel_files import started_ticks
from benchsuite.isolation import enter, made_groups, prepared_groups, run_names
from benchsuite.isolation.fencing import Fencing, Isolation
from benchsuite.isolation.run_names import RunName
from benchsuite.isolation.tenant import Tenant
from benchsuite.isolation.threads import thread_environ

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "cgroup_setup.sh"
MIB = 1 << 20


def wave(count: int, **fields: Any) -> list[Task]:
    return [make_task(gpu=index, **fields) for index in range(count)]


def machine_task() -> Task:
    return msgspec.structs.replace(make_task(), job=Job(name="x", model="vae", tenant="machine"))


# --- version 2, made up -----------------------------------------------------------------------------------------------


@pytest.fixture(name="kernel")
def kernel_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelV2:
    kernel = KernelV2(tmp_path / "sys/fs/cgroup")
    kernel.install(monkeypatch)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    return kernel


def choose(
    tmp_path: Path, own: str = "/", isolation: Isolation = "auto", *, require: bool = False, largest: int = 2
) -> Fencing:
    return Fencing.choose(isolation, require=require, largest=largest, root=v2_tree(tmp_path, own))


def run_groups(kernel: KernelV2) -> list[Path]:
    return sorted(kernel.mount.rglob("benchsuite-*"))


def test_in_the_root_group_tenants_are_made_below_it(tmp_path: Path, kernel: KernelV2) -> None:
    (kernel.mount / "cgroup.procs").write_text("1")
    fencing = choose(tmp_path, require=True)
    tenants = fencing.fence(wave(2))
    said = [tenant.described() for tenant in tenants]
    assert [(t.cpu, t.memory, t.cpus, t.memory_bytes) for t in said] == [
        ("cpuset-v2", "v2", (0, 1, 2, 3), 128 * GIB),
        ("cpuset-v2", "v2", (4, 5, 6, 7), 128 * GIB),
    ]
    assert all(t.reason == "groups were made on the fly" for t in said)
    [run] = run_groups(kernel)
    assert run.parent == kernel.mount
    assert run.name.startswith(f"benchsuite-{os.getpid()}-{started_ticks(os.getpid())}")
    first = run / (said[0].group or "").rpartition("/")[2]
    texts = {
        name: (first / name).read_text()
        for name in ("cpuset.cpus", "memory.max", "memory.swap.max", "memory.oom.group")
    }
    assert texts == {
        "cpuset.cpus": "0-3",
        "memory.max": str(128 * GIB),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
    }
    assert tenants[0].prefix == enter.prefix([first / "cgroup.procs"]), "one hierarchy, entered once"
    assert tenants[0].environ == {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}, "it has a GPU"
    for tenant in tenants:
        tenant.close()
    fencing.close()
    assert run_groups(kernel) == []


@pytest.mark.parametrize("given", ["", "cpuset memory pids"])
def test_a_group_with_processes_gets_siblings_where_that_is_allowed(
    tmp_path: Path, kernel: KernelV2, given: str
) -> None:
    (kernel.mount / "cgroup.subtree_control").write_text("cpuset memory pids")
    (kernel.add("user") / "cgroup.subtree_control").write_text(given)
    kernel.add("user/scope", pids="1")
    found = choose(tmp_path, "/user/scope", require=True).describe()
    assert (found.cpu, found.memory) == ("cpuset-v2", "v2")
    assert [run.parent.name for run in run_groups(kernel)] == ["user"]


def test_without_a_sibling_affinity_is_left_and_the_reason_said(tmp_path: Path, kernel: KernelV2) -> None:
    (kernel.mount / "cgroup.subtree_control").write_text("cpuset memory pids")
    kernel.add("user", pids="1")
    kernel.add("user/scope", pids="1")
    fencing = choose(tmp_path, "/user/scope")
    found = fencing.describe()
    assert (found.cpu, found.memory, found.memory_bytes) == ("affinity", "none", None)
    assert "holds processes" in found.reason
    assert run_groups(kernel) == []
    first, second = fencing.fence(wave(2))
    assert first.prefix[-3:] == ["--cpus", "0,1,2,3", "--"]
    assert second.prefix[-3:] == ["--cpus", "4,5,6,7", "--"]
    assert first.pids() == []
    first.kill()
    with pytest.raises(UsageError) as error:
        choose(tmp_path, "/user/scope", require=True)
    assert "holds processes" in str(error.value)
    assert "sudo scripts/cgroup_setup.sh" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_container_whose_own_group_is_all_it_sees(tmp_path: Path, kernel: KernelV2) -> None:
    (kernel.mount / "cgroup.type").write_text("domain")
    (kernel.mount / "cgroup.procs").write_text("1")
    assert "holds processes" in choose(tmp_path).describe().reason


def test_controllers_are_decided_one_by_one(tmp_path: Path, kernel: KernelV2) -> None:
    (kernel.mount / "cgroup.subtree_control").write_text("memory pids")
    kernel.add("user")
    kernel.add("user/scope", pids="1")
    fencing = choose(tmp_path, "/user/scope")
    found = fencing.describe()
    assert (found.cpu, found.memory) == ("affinity", "v2")
    assert "no cpuset group of our own" in found.reason
    [tenant, _] = fencing.fence(wave(2))
    assert "--join" in tenant.prefix
    assert "--cpus" in tenant.prefix
    with pytest.raises(UsageError, match="cpuset"):
        choose(tmp_path, "/user/scope", require=True)
    with pytest.raises(UsageError, match="--isolation cgroup: no cpuset group confines tasks"):
        choose(tmp_path, "/user/scope", "cgroup")
    fencing.close()
    assert run_groups(kernel) == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_hierarchy_that_cannot_be_written(tmp_path: Path, kernel: KernelV2, number: int) -> None:
    kernel.refused = {"": number}
    found = choose(tmp_path).describe()
    assert (found.cpu, found.memory) == ("affinity", "none")
    assert os.strerror(number).lower() in found.reason


def test_no_hierarchy_at_all(tmp_path: Path) -> None:
    fencing = Fencing.choose("auto", require=False, largest=1, root=tmp_path)
    assert "it is not mounted" in fencing.describe().reason
    assert fencing.describe().cpu == "affinity"
    with pytest.raises(UsageError, match=r"--isolation cgroup: .*it is not mounted"):
        Fencing.choose("cgroup", require=False, largest=1, root=tmp_path)


def test_memory_of_unknown_size_is_not_dealt_out(
    tmp_path: Path, kernel: KernelV2, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = v2_tree(tmp_path)
    (root / "proc/meminfo").unlink()
    monkeypatch.setattr("benchsuite.host.cpus.host_memory_bytes", lambda root: None)
    fencing = Fencing.choose("auto", require=False, largest=2, root=root)
    said = fencing.fence(wave(2))[0].described()
    assert (said.cpu, said.memory, said.memory_bytes) == ("cpuset-v2", "none", None)
    assert "the size of the memory is not known" in said.reason
    with pytest.raises(UsageError, match="no memory group confines tasks"):
        Fencing.choose("cgroup", require=False, largest=2, root=root)


def test_a_limit_that_may_exist_unseen_is_in_the_result(tmp_path: Path) -> None:
    root = v2_tree(tmp_path)
    (root / "proc/self/cgroup").write_text("0::/gone\n")
    fencing = Fencing.choose("affinity", require=False, largest=1, root=root)
    assert "names the group /gone, which is not visible here" in fencing.fence(wave(1))[0].described().reason


def test_a_process_that_cannot_enter_is_found_out(
    tmp_path: Path, kernel: KernelV2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made_groups, "entering_fails", lambda files: "it is closed")
    found = choose(tmp_path).describe()
    assert (found.cpu, found.memory) == ("affinity", "none")
    assert "it is closed" in found.reason
    assert run_groups(kernel) == []


def test_more_tasks_than_cpus_share_them_and_that_is_said_or_refused(tmp_path: Path, kernel: KernelV2) -> None:
    tenants = choose(tmp_path, largest=9).fence(wave(9))
    said = tenants[8].described()
    assert (said.cpu, said.cpus, said.memory) == ("none", (), "v2")
    assert "8 usable CPUs are fewer than 9 tasks" in said.reason
    assert tenants[8].environ == both(1)
    with pytest.raises(UsageError, match="fewer than 9 tasks"):
        choose(tmp_path, require=True, largest=9)
    with pytest.raises(UsageError, match="fewer than 9 tasks"):
        choose(tmp_path, require=True, largest=2).fence(wave(9))


def test_what_is_asked_is_what_is_done(tmp_path: Path, kernel: KernelV2) -> None:
    nothing = choose(tmp_path, isolation="none")
    [tenant] = nothing.fence(wave(1))
    assert (tenant.prefix, tenant.environ) == ([], both(1))
    said = tenant.described()
    assert (said.isolation, said.cpu, said.memory, said.reason) == (
        "none",
        "none",
        "none",
        "--isolation none was asked for",
    )
    with pytest.raises(UsageError, match="no fence at all"):
        choose(tmp_path, isolation="none", require=True)
    said = choose(tmp_path, isolation="affinity", require=True).fence(wave(2))[1].described()
    assert (said.cpu, said.memory, said.cpus) == ("affinity", "none", (4, 5, 6, 7))
    assert run_groups(kernel) == []


def test_a_task_may_have_the_machine(tmp_path: Path, kernel: KernelV2) -> None:
    [tenant] = choose(tmp_path).fence([machine_task()])
    said = tenant.described()
    assert (said.asked, said.cpus, said.memory_bytes) == ("machine", tuple(range(8)), 256 * GIB)


def threads_of(gpu: int | None, asked: str = "auto", ranks: int = 1, **environ: str) -> dict[str, str]:
    """The variables that a task gets on 8 CPUs."""
    task = make_task(gpu=gpu, ranks=ranks)
    job = msgspec.structs.replace(task.job, training=Training(intra_op_threads=asked))
    return thread_environ(msgspec.structs.replace(task, job=job, environ=environ), 8)


def both(number: int) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(number), "MKL_NUM_THREADS": str(number)}


def test_a_task_on_a_gpu_has_one_thread_unless_its_job_asks_for_its_cpus() -> None:
    assert threads_of(gpu=0) == both(1)
    assert threads_of(gpu=0, asked="cpus") == both(8)
    assert threads_of(gpu=None) == threads_of(gpu=None, asked="cpus") == both(8)
    assert threads_of(gpu=None, ranks=2) == both(4)


@pytest.mark.parametrize("gpu", [None, 0])
def test_a_number_in_one_variable_holds_for_the_other(gpu: int | None) -> None:
    assert threads_of(gpu, OMP_NUM_THREADS="3") == {"MKL_NUM_THREADS": "3"}
    assert threads_of(gpu, OMP_NUM_THREADS="3,2") == {"MKL_NUM_THREADS": "3"}, "the first is of the outer level"
    assert threads_of(gpu, MKL_NUM_THREADS="9") == {"OMP_NUM_THREADS": "9"}
    assert threads_of(gpu, OMP_NUM_THREADS="2", MKL_NUM_THREADS="9") == {}
    assert threads_of(gpu, OMP_NUM_THREADS="many") == {}


def test_the_users_own_thread_numbers_stand(tmp_path: Path, kernel: KernelV2) -> None:
    [tenant] = choose(tmp_path).fence(wave(1, environ={"OMP_NUM_THREADS": "3"}))
    assert tenant.environ == {"MKL_NUM_THREADS": "3"}


def test_a_task_on_a_gpu_has_one_thread_without_a_fence_too() -> None:
    [tenant] = Fencing("none").fence(wave(1))
    assert tenant.environ == both(1)
    [bare] = Fencing("none").fence([make_task(gpu=None)])
    assert bare.environ == {}


def test_cpus_are_near_the_gpu(tmp_path: Path, kernel: KernelV2) -> None:
    fencing = choose(tmp_path)
    for index, near in ((0, "4-7"), (1, "0-3")):
        folder = tmp_path / f"sys/bus/pci/devices/0000:0{index}:00.0"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(str(1 - index))
        (folder / "local_cpulist").write_text(near)
    assert [t.described().cpus for t in fencing.fence(wave(2))] == [(4, 5, 6, 7), (0, 1, 2, 3)]


# --- prepared groups, made up -----------------------------------------------------------------------------------------


def students(kernel: KernelV2, cpus: list[str], memory: list[str], below: str = "") -> None:
    """Prepared groups, around a hierarchy in which nothing can be made on the fly."""
    (kernel.mount / "cgroup.subtree_control").write_text("cpuset memory pids")
    if below:
        kernel.add(below)
        (kernel.mount / below / "cgroup.subtree_control").write_text("cpuset memory pids")
    for index, (some, limit) in enumerate(zip(cpus, memory, strict=True)):
        folder = kernel.add(f"{below}/student{index}".strip("/"))
        (folder / "cpuset.cpus.effective").write_text(some)
        (folder / "memory.max").write_text(limit)
    kernel.add("box", pids="1")
    kernel.add("box/own", pids="1")
    kernel.refused = {"box": errno.EACCES}


@pytest.mark.parametrize("below", ["", "benchsuite"])
def test_prepared_groups_are_taken_where_none_can_be_made(tmp_path: Path, kernel: KernelV2, below: str) -> None:
    students(kernel, ["0-1", "6-7"], ["1048576", "1048576"], below)
    fencing = choose(tmp_path, "/box/own", require=True)
    first, second = fencing.fence(wave(2))
    said = second.described()
    assert (said.cpu, said.memory, said.cpus, said.memory_bytes) == ("cpuset-v2", "v2", (6, 7), 1048576)
    assert (said.group, said.reason) == ("student1", "prepared groups are used")
    assert first.prefix == enter.prefix([kernel.mount / below / "student0/cgroup.procs"])
    first.close()
    assert (kernel.mount / below / "student0").is_dir(), "what others prepared stays"
    other = choose(tmp_path, "/box/own").describe()
    assert (other.cpu, "in use by another run" in other.reason) == ("affinity", True)
    fencing.close()
    assert choose(tmp_path, "/box/own").describe().cpu == "cpuset-v2"


@pytest.mark.parametrize(
    ("cpus", "memory", "reason"),
    [
        (["0-1", "2"], ["max"] * 2, "student1 has 1 CPUs but student0 has 2; they must be equal in number"),
        (["0-1", "1-2"], ["4096"] * 2, "student0 and student1 share CPUs 1; they must be disjoint"),
        (["0-1", "62-63"], ["4096"] * 2, "student1 has CPUs 62-63, which may not be used here"),
        (["0-1", "2-3"], ["4096", "8192"], "student1 may use 8192 bytes but student0 4096; they must be equal"),
        (["0-1", "2-3"], ["4096", "max"], "student1 has no memory limit"),
        (["0-1", "2-3"], [str(200 * GIB)] * 2, "more than the"),
        (["0-1"], ["4096"], "only 1 groups are prepared, for 2 tasks side by side"),
    ],
)
def test_unequal_prepared_groups_are_refused_with_the_reason(
    tmp_path: Path, kernel: KernelV2, cpus: list[str], memory: list[str], reason: str
) -> None:
    students(kernel, cpus, memory)
    found = choose(tmp_path, "/box/own").describe()
    assert (found.cpu, found.memory) == ("affinity", "none")
    assert reason in found.reason
    with pytest.raises(UsageError, match=reason.split(";")[0]):
        choose(tmp_path, "/box/own", require=True)


def test_prepared_groups_with_processes_in_them_are_refused(tmp_path: Path, kernel: KernelV2) -> None:
    students(kernel, ["0-1", "6-7"], ["1048576", "1048576"])
    (kernel.mount / "student1/cgroup.procs").write_text("1")
    assert "student1 already holds processes (1)" in choose(tmp_path, "/box/own").describe().reason


def test_prepared_groups_hold_no_whole_machine(tmp_path: Path, kernel: KernelV2) -> None:
    students(kernel, ["0-1", "6-7"], ["1048576", "1048576"])
    fencing = choose(tmp_path, "/box/own", require=True)
    [tenant] = fencing.fence([machine_task()])
    said = tenant.described()
    assert (tenant.prefix, said.cpu, said.memory) == ([], "none", "none")
    assert "no group bounds" in said.reason


# --- real groups ------------------------------------------------------------------------------------------------------


@pytest.fixture(name="ground")
def ground_fixture(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cgroup]:
    """A real group of the test's own, which it takes for the one that it is in."""
    with own_ground() as ground:
        monkeypatch.setattr(own_groups, "look", lambda root=None: own_groups.OwnGroups(dict(ground.places)))
        yield ground


@pytest.fixture(name="fencing")
def fencing_fixture(ground: Cgroup) -> Iterator[Fencing]:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two tenants need two CPUs")
    try:
        fencing = Fencing.choose("auto", require=True, largest=2)
    except UsageError as error:
        pytest.skip(str(error))
    yield fencing
    fencing.close()


def python(prefix: list[str], code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, **options
    )


def wait_members(tenant: Tenant, number: int) -> list[int]:
    deadline = time.monotonic() + 10
    while len(tenant.pids()) < number and time.monotonic() < deadline:
        time.sleep(0.02)
    return tenant.pids()


def test_two_tenants_have_disjoint_cpus_for_real(fencing: Fencing) -> None:
    tenants = fencing.fence(wave(2))
    seen = []
    for tenant in tenants:
        code = "import os, json; print(json.dumps(sorted(os.sched_getaffinity(0))))"
        done = python(tenant.prefix, code)
        assert done.returncode == 0, done.stderr
        seen.append(tuple(json.loads(done.stdout)))
        assert seen[-1] == tenant.described().cpus
        foreign = (os.sched_getaffinity(0) - set(seen[-1])).pop()
        assert "Invalid argument" in python(tenant.prefix, f"import os; os.sched_setaffinity(0, [{foreign}])").stderr
    assert not set(seen[0]) & set(seen[1])
    assert len(seen[0]) == len(seen[1]) > 0
    for tenant in tenants:
        tenant.close()


def test_the_memory_limit_kills_the_task_and_nobody_else(fencing: Fencing) -> None:
    fencing.memory_bytes = 200 * MIB
    first, second = fencing.fence(wave(2))
    with subprocess.Popen([*second.prefix, "sleep", "60"]) as neighbour:
        small = python(first.prefix, f"x = bytearray({40 * MIB}); print('fits')")
        assert (small.returncode, small.stdout) == (0, "fits\n")
        assert first.described().oom_kills == 0
        done = python(first.prefix, f"x = bytearray({300 * MIB}); print('not confined')")
        assert done.returncode == -9, done.stdout
        said = first.described()
        assert said.oom_kills
        assert said.memory_bytes == 100 * MIB
        assert 40 * MIB <= (said.peak_memory_bytes or 0) <= 100 * MIB
        assert first.oom_kills() == said.oom_kills
        assert second.described().oom_kills == 0
        assert neighbour.poll() is None
        second.kill()
    first.close()
    second.close()
    assert first.described() == said, "what was counted is kept when the group is gone"


def test_a_killed_helper_shows_in_the_counter_though_the_task_lives(fencing: Fencing) -> None:
    if "memory" in fencing.versions and fencing.versions["memory"] == 2:
        pytest.skip("version 2 kills the whole group")
    fencing.memory_bytes = 200 * MIB
    tenant, other = fencing.fence(wave(2))
    code = f"import subprocess, sys; print(subprocess.call([sys.executable, '-c', 'bytearray({300 * MIB})']))"
    done = python(tenant.prefix, code)
    assert (done.returncode, done.stdout) == (0, "-9\n")
    assert tenant.described().oom_kills == 1
    tenant.close()
    other.close()


def test_two_fencings_of_one_process_do_not_touch_each_other(fencing: Fencing) -> None:
    [tenant] = fencing.fence(wave(1))
    with subprocess.Popen([*tenant.prefix, "sleep", "60"]) as child:
        wait_members(tenant, 1)
        Fencing.choose("auto", require=True, largest=1).close()
        assert tenant.pids() == [child.pid]
        tenant.close()
        assert child.wait(5) == -9


def test_closing_ends_all_and_leaves_nothing(fencing: Fencing, ground: Cgroup) -> None:
    [tenant] = fencing.fence(wave(1))
    child = subprocess.Popen([*tenant.prefix, "sh", "-c", "setsid sleep 300 & sleep 300"])
    pids = wait_members(tenant, 3)
    assert len(pids) == 3
    tenant.close()
    assert child.wait(5) == -9
    assert all(started_ticks(pid) is None for pid in pids)
    assert tenant.pids() == []
    tenant.close()
    late = python(tenant.prefix, "print('in')")
    assert (late.returncode, late.stdout) == (125, "")
    fencing.close()
    assert not [path for folder in ground.folders() for path in folder.glob("benchsuite-*")]


def test_pressure_and_numbers_are_counted_where_the_kernel_does(fencing: Fencing) -> None:
    [tenant] = fencing.fence(wave(1))
    python(tenant.prefix, "x = bytearray(30 << 20)")
    said = tenant.described()
    assert (said.peak_memory_bytes or 0) > 30 * MIB
    if said.pressure:
        assert (said.pressure.cpu_some_s or 0) >= 0
    assert said.throttled_s is None or said.throttled_s >= 0
    tenant.close()


LEFT_BEHIND = """
import json, subprocess, sys, time
from pathlib import Path
from benchsuite.host.cgroups import CgroupPlace
from benchsuite.isolation import enter, made_groups
own = {name: CgroupPlace(p[0], Path(p[1]), Path(p[2])) for name, p in json.loads(sys.argv[1]).items()}
made = made_groups.MadeGroups.prove(own, (int(sys.argv[2]),), 1 << 30)
group = made.group((int(sys.argv[2]),), 1 << 30)
child = subprocess.Popen([*enter.prefix(group.joins()), "sh", "-c", "sleep 300 & wait"])
while len(group.pids()) < 2:
    time.sleep(0.01)
sleeper = next(pid for pid in group.pids() if pid != child.pid)
print(made.run.folders()[0].name, sleeper, child.pid, flush=True)
time.sleep(300)
"""


def places(ground: Mapping[str, CgroupPlace]) -> str:
    return json.dumps({name: (p.version, str(p.folder), str(p.mount)) for name, p in ground.items()})


def swept_of(*names: str) -> list[str]:
    """What a run that starts says it ended of these; in version 2 it also ends what other tests left beside."""
    return [
        line for line in Fencing.choose("none", require=False, largest=1).swept if any(name in line for name in names)
    ]


def test_what_a_killed_run_left_is_found_ended_and_reported(ground: Cgroup) -> None:
    cpu = str(min(os.sched_getaffinity(0)))
    words = [sys.executable, "-c", LEFT_BEHIND, places(ground.places), cpu]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout
            name, pid, shell = run.stdout.readline().split()
            group = ground.below(name)
            assert swept_of(name) == [], "a living run keeps its groups"
            assert group.folders()[0].is_dir()
        finally:
            run.send_signal(signal.SIGKILL)
    while started_ticks(int(shell)) is not None:
        time.sleep(0.01)  # the kernel ends it with its parent, but not its child
    assert started_ticks(int(pid)) is not None, "what its task started lives on"
    assert swept_of(name) == [f"control group {name}, left by an ended run with 1 process: removed"]
    assert started_ticks(int(pid)) is None
    assert not any(folder.exists() for folder in group.folders())
    assert swept_of(name) == []


def test_a_run_of_another_container_is_never_taken_for_a_dead_one(ground: Cgroup) -> None:
    """Its pid counts in another pid namespace. Its group may hold no process yet."""
    name = f"benchsuite-{os.getpid()}-1-ns1"
    other = ground.below(name)
    other.create()
    assert swept_of(name) == []
    assert all(folder.is_dir() for folder in other.folders())
    own = RunName.of(Path(run_names.new()))
    assert own == RunName(os.getpid(), started_ticks(os.getpid()) or 0, here=True)
    made_groups.end(other)


def test_a_name_with_a_reused_pid_is_stale_and_other_names_are_left(ground: Cgroup) -> None:
    names = f"benchsuite-{os.getpid()}-1", "benchsuite-mine"
    stale, other = map(ground.below, names)
    stale.create()
    other.create()
    assert swept_of(*names) == [f"control group {names[0]}, left by an ended run: removed"]
    assert all(folder.is_dir() for folder in other.folders())
    assert other.remove()


# --- the script that prepares groups ----------------------------------------------------------------------------------


def setup(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(SCRIPT), *words], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(name="alone")
def alone_fixture() -> Iterator[None]:
    """The names of prepared groups are the machine's: one test at a time."""
    if os.getuid():
        pytest.skip("groups are prepared by root")
    with SCRIPT.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(name="prepare")
def prepare_fixture(alone: None) -> Iterator[Any]:
    if prepared_groups.find(own_groups.own()):
        pytest.skip("this machine has prepared groups, which tests leave alone")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two groups need two CPUs")
    done = setup("--count", "2", "--user", "nobody")
    if done.returncode and "holds processes" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    yield done
    assert setup("--remove").returncode == 0
    assert prepared_groups.find(own_groups.own()) == []


def state() -> list[tuple[object, ...]]:
    groups = prepared_groups.find(own_groups.own())
    cpus = [cgroups.cpus_of(group.places["cpuset"].folder) for group in groups if "cpuset" in group.places]
    memory = [cgroups.limit_of(group.places["memory"]) for group in groups if "memory" in group.places]
    return [tuple(cpus), tuple(memory), tuple(group.folders()[0].stat().st_uid for group in groups)]


def test_the_script_makes_equal_groups_again_and_again_and_removes_them(prepare: Any) -> None:
    first = state()
    assert len(first[0]) == len(first[1]) == 2
    cpus = [set(cgroups.cpus_of(g.places["cpuset"].folder)) for g in prepared_groups.find(own_groups.own())]
    assert prepared_groups.unequal_cpus(cpus, os.sched_getaffinity(0)) is None
    assert setup("--count", "2", "--user", "nobody").returncode == 0
    assert state() == first
    assert setup("--count", "1", "--user", "nobody").returncode == 0
    assert len(state()[0]) == 1
    assert setup("--count", "2", "--user", "nobody").returncode == 0
    assert state() == first


def test_the_script_leaves_a_group_in_use_alone(prepare: Any) -> None:
    [group, _] = prepared_groups.find(own_groups.own())
    with subprocess.Popen([*enter.prefix(group.joins()), "sleep", "60"]) as child:
        deadline = time.monotonic() + 5
        while child.pid not in group.pids() and time.monotonic() < deadline:
            time.sleep(0.02)
        done = setup("--remove")
        assert (done.returncode, "is in use by processes" in done.stderr) == (1, True)
        child.kill()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--count", "many"), "whole number"),
        (("--count", "100000"), "need as many CPUs"),
        (("--user", "no-such-user"), "no user"),
        (("--what",), "not understood"),
        (("--count",), "needs a number"),
    ],
)
def test_the_script_says_what_is_wrong(alone: None, words: tuple[str, ...], said: str) -> None:
    before = prepared_groups.find(own_groups.own())
    done = setup(*words)
    assert done.returncode == 1
    assert said in done.stderr
    assert prepared_groups.find(own_groups.own()) == before


def test_another_user_can_use_the_groups(prepare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the user `nobody`, who can make none on the fly: the prepared ones are proven, entered and confine."""
    if (own_groups.own().get("cpuset") or CgroupPlace(2, Path(), Path())).version == 2:
        pytest.skip("in version 2 a user's shell must have been moved by the script")
    system_python = "/usr/bin/python3"
    root = str(SCRIPT.parents[1])
    monkeypatch.setenv("PYTHONPATH", root)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    probe = [system_python, "-c", "import benchsuite.isolation.enter"]
    if not Path(system_python).exists() or subprocess.run(probe, user="nobody", check=False).returncode:
        pytest.skip("nobody cannot run Python here")
    monkeypatch.setattr(sys, "executable", system_python)
    os.seteuid(65534)
    try:
        fencing = Fencing.choose("auto", require=True, largest=2)
        _, tenant = fencing.fence(wave(2))
        said = tenant.described()
        assert said.reason.startswith("prepared groups are used")
        assert (said.cpu, said.memory, said.group) == ("cpuset-v1", "v1", "student1")
        done = python(tenant.prefix, "import os; print(os.geteuid(), sorted(os.sched_getaffinity(0)))")
        assert done.stdout == f"65534 {list(said.cpus)}\n", done.stderr
        tenant.close()
        fencing.close()
    finally:
        os.seteuid(0)


def test_a_rerun_has_the_very_processors_of_its_task_where_they_are() -> None:
    """Of cores with two threads each, 0 to 7 and 16 to 23 are eight cores; 0 to 15 would be sixteen."""
    share = provisions.Tenant(asked="share", reason="v2", cpus=(*range(8), *range(16, 24)), memory_bytes=1 << 30)
    same = Fencing("auto", cpus=tuple(range(32)), count=32, memory_bytes=1 << 40)
    same.limit(share)
    assert (same.cpus, same.count, same.memory_bytes) == (share.cpus, 16, 1 << 30)
    other = Fencing("auto", cpus=tuple(range(20)), count=20, memory_bytes=1 << 20)
    other.limit(share)
    assert (other.cpus, other.count, other.memory_bytes) == (tuple(range(20)), 16, 1 << 20)
