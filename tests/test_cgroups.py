"""Control groups: found in what /proc says, and real ones where this machine lets us make them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_cgroups import V2_LINE, own_ground, tree, v1_line
from support import wait_for

from benchsuite.host import cgroups
from benchsuite.host.cgroups import UNIFIED, Cgroup, CgroupPlace, enable
from benchsuite.host.counters import Counters, count, throttled_s, throttled_since_s
from benchsuite.host.kernel_files import started_ticks
from benchsuite.host.own_groups import look, own
from benchsuite.isolation import enter, made_groups

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def folders(root: Path, *names: str) -> None:
    for name in names:
        (root / "sys/fs/cgroup" / name).mkdir(parents=True, exist_ok=True)


# --- where this process is --------------------------------------------------------------------------------------------


def test_each_controller_has_its_own_place_and_version(tmp_path: Path) -> None:
    unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
    lines = "\n".join([v1_line("memory"), v1_line("cpu,cpuacct"), v1_line("xattr,name=systemd"), unified])
    groups = "9:name=systemd:/s\n4:memory:/a/b\n3:cpu,cpuacct:/\n0::/u"
    root = tree(tmp_path, lines, groups, {"sys/fs/cgroup/unified/u/cgroup.controllers": "hugetlb"})
    folders(root, "memory/a/b", "cpu,cpuacct")
    found = own(root)
    mount = root / "sys/fs/cgroup"
    assert found["memory"] == CgroupPlace(1, mount / "memory/a/b", mount / "memory")
    assert found["cpu"] == found["cpuacct"] == CgroupPlace(1, mount / "cpu,cpuacct", mount / "cpu,cpuacct")
    assert found[UNIFIED] == found["hugetlb"] == CgroupPlace(2, mount / "unified/u", mount / "unified")
    assert "cpuset" not in found
    assert list(found["memory"].chain()) == [mount / "memory/a/b", mount / "memory/a", mount / "memory"]
    assert list(found["cpu"].chain()) == [mount / "cpu,cpuacct"]


def test_the_mount_may_be_a_part_of_the_hierarchy_and_its_name_escaped(tmp_path: Path) -> None:
    root = tree(
        tmp_path, V2_LINE.replace(" / /sys/fs/cgroup", r" /docker/abc /sys/my\040groups"), "0::/docker/abc/x", {}
    )
    (root / "sys/my groups/x").mkdir(parents=True)
    assert own(root)[UNIFIED].folder == root / "sys/my groups/x"


def test_a_group_that_cannot_be_seen_is_not_taken_for_ours(tmp_path: Path) -> None:
    root = tree(tmp_path, v1_line("memory"), "4:memory:/../../elsewhere", {})
    folders(root, "memory")
    assert own(root)["memory"] == CgroupPlace(
        1, root / "sys/fs/cgroup/memory", root / "sys/fs/cgroup/memory", exact=False
    )
    made = made_groups.MadeGroups.prove(own(root), (0,), 1 << 30)
    assert made.versions == {}
    assert "cannot be seen" in made.why_not["memory"]
    assert list((root / "sys/fs/cgroup/memory").iterdir()) == []


MISSING = "names the group /gone, which is not visible here"
MOUNTED = f"30 24 0:26 / /elsewhere rw - ext4 disk rw\n{V2_LINE}"


@pytest.mark.parametrize(
    ("mountinfo", "cgroup", "said"),
    [
        (MOUNTED, "0::/gone", MISSING),
        ("", "0::/gone", MISSING),
        (v1_line("memory"), "4:memory:/gone", f"{MISSING}: limits that it sets (memory)"),
        (MOUNTED, "nonsense", "'nonsense' is malformed"),
        (MOUNTED, "0::", "'0::' is malformed"),
        (MOUNTED, "0::/\n7", "'7' is malformed"),
        (MOUNTED, "0::/" + "long" * 2000, "is not visible here"),
        (MOUNTED, "0::/a\0b", "is not visible here"),
        ("30 24\n" + MOUNTED, "0::/", "'30 24' is malformed"),
        ("30 24 0:26 / no-point rw - cgroup2 x rw\n" + MOUNTED, "0::/", "no-point"),
        (V2_LINE.partition(" - ")[0], "0::/", "is malformed"),
    ],
)
def test_a_group_that_is_hidden_or_a_malformed_line_is_reported_and_ends_nothing(
    tmp_path: Path, mountinfo: str, cgroup: str, said: str
) -> None:
    root = tree(tmp_path, mountinfo, cgroup, {"sys/fs/cgroup/cpu.stat": "throttled_usec 5000000"})
    found = look(root)
    assert any(said in line for line in found.unknown), found.unknown
    assert all(line.isprintable() for line in found.unknown)
    if "visible" in said:
        assert throttled_s(found.places) == {}, "the counter of another group is not ours"


@pytest.mark.parametrize(
    ("mountinfo", "cgroup"),
    [(MOUNTED, "0::/"), ("", ""), (v1_line("cpu,cpuacct"), "3:cpu,cpuacct:/\n9:name=systemd:/gone\n8:net_cls:/gone")],
)
def test_nothing_is_unknown_if_each_limiting_group_is_visible(tmp_path: Path, mountinfo: str, cgroup: str) -> None:
    root = tree(tmp_path, mountinfo, cgroup, {})
    folders(root, "", "cpu,cpuacct")
    assert look(root).unknown == ()


def test_a_mount_point_may_hold_any_character(tmp_path: Path) -> None:
    odd = "/sys/a\u2028b\x0c"
    root = tree(tmp_path, V2_LINE.replace("/sys/fs/cgroup", odd), "0::/x", {})
    (root / odd.lstrip("/") / "x").mkdir(parents=True)
    assert own(root)[UNIFIED].folder == root / odd.lstrip("/") / "x"


def test_no_control_groups_at_all(tmp_path: Path) -> None:
    assert own(tmp_path) == {}
    assert throttled_s({}) == {}


# --- counters ---------------------------------------------------------------------------------------------------------


def test_counters_of_version_2(tmp_path: Path) -> None:
    said = {
        "memory.events": "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\noom_group_kill 1",
        "memory.peak": "1048576",
        "pids.peak": "9",
        "cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=500000",
        "cpu.stat": "usage_usec 5\nnr_throttled 4\nthrottled_usec 1500000",
    }
    for name, text in said.items():
        (tmp_path / name).write_text(text)
    place = CgroupPlace(2, tmp_path, tmp_path)
    found = count(Cgroup(dict.fromkeys(("memory", "pids", UNIFIED), place)))
    assert found == Counters(1, 1048576, 9, 2.5, 0.5, None, None), (
        "a group was killed once, its first victim counted twice"
    )
    assert throttled_s({UNIFIED: place})[place.folder] == 1.5


def test_counters_of_version_1(tmp_path: Path) -> None:
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3")
    (tmp_path / "memory.max_usage_in_bytes").write_text("4096")
    (tmp_path / "memory.failcnt").write_text("0")
    (tmp_path / "cpu.stat").write_text("nr_periods 9\nnr_throttled 1\nthrottled_time 250000000")
    place = CgroupPlace(1, tmp_path, tmp_path)
    assert count(Cgroup({"memory": place})) == Counters(oom_kills=3, peak_memory_bytes=4096)
    assert count(Cgroup({"cpuset": place})) == Counters()
    assert throttled_s({"cpu": place})[place.folder] == 0.25


def test_throttling_is_that_of_the_group_where_it_grew_most() -> None:
    """An ancestor with a long past must not hide what our own quota did."""
    ours, above = Path("/a/b"), Path("/a")
    assert throttled_since_s({ours: 0.0, above: 100.0}, {ours: 30.0, above: 100.0}) == 30.0
    assert throttled_since_s({}, {}) is None


def test_only_what_a_task_added_is_its_own() -> None:
    before = Counters(oom_kills=2, peak_memory_bytes=100, peak_pids=3, cpu_some_s=1.5)
    after = Counters(oom_kills=3, peak_memory_bytes=100, peak_pids=8, cpu_some_s=2.0)
    assert after.since(before) == Counters(oom_kills=1, peak_memory_bytes=None, peak_pids=8, cpu_some_s=0.5)


# --- processes --------------------------------------------------------------------------------------------------------


def test_a_process_is_its_pid_and_start_and_a_zombie_is_dead() -> None:
    assert started_ticks(os.getpid()) == started_ticks(os.getpid())
    child = subprocess.Popen(["true"])
    deadline = time.monotonic() + 5
    while started_ticks(child.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert started_ticks(child.pid) is None
    assert Path(f"/proc/{child.pid}").exists(), "it is a zombie"
    child.wait()


def test_the_wrapper_says_in_one_line_what_it_cannot_enter(tmp_path: Path) -> None:
    missing = tmp_path / "gone" / "cgroup.procs"
    done = subprocess.run([*enter.prefix([missing]), "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert done.stderr.splitlines() == [
        f"benchsuite: cannot start the task in its fence: {missing}: No such file or directory"
    ]
    done = subprocess.run([*enter.prefix([], [0]), "no-such-program"], capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (125, 1)
    for words in (["--cpus", "0"], ["--what", "x", "--", "true"], ["--"]):
        done = subprocess.run([sys.executable, enter.__file__, *words], capture_output=True, text=True, check=False)
        assert (done.returncode, len(done.stderr.splitlines())) == (125, 1)
    assert enter.prefix([]) == []


def test_the_wrapper_keeps_pid_arguments_descriptors_and_signals() -> None:
    reading, writing = os.pipe()
    code = "import os,signal,sys; os.write(int(sys.argv[1]), f'{os.getpid()} {os.sched_getaffinity(0)}'.encode())"
    cpu = min(os.sched_getaffinity(0))
    child = subprocess.Popen([*enter.prefix([], [cpu]), sys.executable, "-c", code, str(writing)], pass_fds=(writing,))
    assert child.wait(20) == 0
    os.close(writing)
    with os.fdopen(reading) as file:
        assert file.read() == f"{child.pid} {{{cpu}}}"
    piped = subprocess.run([*enter.prefix([], [cpu]), "sh", "-c", "kill -PIPE $$"], check=False)
    assert piped.returncode == -13, "SIGPIPE is not ignored"


# --- real groups ------------------------------------------------------------------------------------------------------


@pytest.fixture(name="ground")
def ground_fixture() -> Iterator[Cgroup]:
    """A group of the test's own, empty, in all hierarchies where it can be had."""
    with own_ground() as ground:
        yield ground


@pytest.fixture(name="group")
def group_fixture(ground: Cgroup) -> Iterator[Cgroup]:
    group = ground.below("one")
    group.create()
    yield group
    made_groups.end(group)


def start(group: Cgroup, command: list[str]) -> subprocess.Popen[str]:
    words = [*enter.prefix(group.joins()), *command]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_members(group: Cgroup, number: int) -> list[int]:
    deadline = time.monotonic() + 120
    while len(group.pids()) < number and time.monotonic() < deadline:
        time.sleep(0.02)
    return group.pids()


def test_killing_a_group_ends_a_grandchild_in_a_session_of_its_own(group: Cgroup) -> None:
    inner = "import subprocess, sys, time; subprocess.Popen(['sleep', '300'], start_new_session=True); time.sleep(300)"
    with start(group, [sys.executable, "-c", inner]) as child:
        pids = wait_members(group, 2)
        assert child.pid in pids
        assert len(pids) == 2
        assert group.kill()
        assert child.wait(60) == -9
    assert group.pids() == []
    assert all(started_ticks(pid) is None for pid in pids)
    assert group.remove()


def test_a_group_that_another_removes_meanwhile_is_empty(tmp_path: Path) -> None:
    """As where two runs that start sweep what a third one left: folders vanish while they are gone through."""
    group = Cgroup({"memory": CgroupPlace(1, tmp_path / "run", tmp_path)})
    code = (
        "import pathlib, sys\n"
        "probe = pathlib.Path(sys.argv[1]) / 'run/probe'\n"
        "while True: probe.mkdir(parents=True); probe.rmdir(); probe.parent.rmdir()"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) as other:
        try:
            wait_for(group.folders()[0].exists)
            assert [group.pids() for _ in range(3000)] == [[]] * 3000
        finally:
            other.kill()


@pytest.mark.parametrize("without", [(), (UNIFIED,), (UNIFIED, "freezer")], ids=["all", "freezer", "signals only"])
def test_killing_works_without_the_help_of_the_kernel(ground: Cgroup, without: tuple[str, ...]) -> None:
    places = {name: place for name, place in ground.places.items() if name not in without}
    if {place.version for place in places.values()} == {2}:
        pytest.skip("version 2 kills by itself")
    group = Cgroup(places).below("bare")
    group.create()
    forks = "import os, time\nfor _ in range(5): os.fork()\ntime.sleep(300)"
    with start(group, [sys.executable, "-c", forks]) as child:
        assert len(wait_members(group, 32)) == 32
        assert group.kill()
        assert child.wait(5) == -9
    assert group.pids() == []
    assert group.remove()


def test_a_group_with_members_stays_and_one_without_goes_with_all_below_it(group: Cgroup) -> None:
    group.below("deep").create()
    group.below("deep").below("deeper").create()
    with start(group, SLEEP) as child:
        each = [Cgroup({name: place}) for name, place in group.places.items()]
        wait_for(lambda: all(one.pids() == [child.pid] for one in each))
        assert not group.remove(limit_s=0.1)
        group.kill()
        child.wait(5)
    assert group.remove()
    assert not any(folder.exists() for folder in group.folders())
    assert group.remove(), "twice is fine"


def test_who_is_late_finds_no_group_to_enter(group: Cgroup) -> None:
    assert made_groups.end(group)
    with start(group, SLEEP) as child:
        assert child.wait(10) == 125
        assert child.stderr
        assert "No such file or directory" in child.stderr.read()


def test_processes_that_enter_while_the_group_is_ended_do_not_survive(group: Cgroup) -> None:
    children = [start(group, SLEEP) for _ in range(12)]
    time.sleep(0.05)
    assert made_groups.end(group)
    for child in children:
        with child:
            assert child.wait(10) in (-9, 125)
    assert not any(folder.exists() for folder in group.folders())


def test_cpus_that_are_not_there_are_refused(group: Cgroup) -> None:
    if "cpuset" not in group.places:
        pytest.skip("no cpuset controller here")
    with pytest.raises(OSError, match=r"cpuset\.cpus"):
        group.set_cpus((4000,))


def test_version_2_gives_no_controller_below_a_group_with_processes() -> None:
    """The real rule, with whichever controller version 2 has here."""
    place = own().get(UNIFIED)
    names = sorted(set(own()) - {UNIFIED}) if place else []
    names = [name for name in names if own()[name].version == 2]
    if os.getuid() or not place or not names or (place.folder / "cgroup.type").exists():
        pytest.skip("needs to be root in a version 2 root group with a controller")
    name = names[0]
    was = (place.folder / "cgroup.subtree_control").read_text().split()
    group = Cgroup({UNIFIED: place.below(f"benchsuite-rule-{os.getpid()}")})
    try:
        assert enable(place.folder, [name]) == {}, "the root is exempt"
        group.create()
        box = group.below("box")
        box.create()
        folder = group.folders()[0]
        assert enable(folder, [name]) == {}
        with start(box, SLEEP):
            wait_members(box, 1)
            why = enable(box.folders()[0], [name])
            assert "holds processes" in why[name]
            inside = CgroupPlace(2, box.folders()[0], place.mount)
            base, refused = made_groups.unified_base(inside, [name])
            assert (base.folder, refused) == (folder, {}), "a sibling may have it"
            group.kill()
    finally:
        made_groups.end(group)
        if name not in was:
            cgroups.kernel_files.write(place.folder / "cgroup.subtree_control", f"-{name}")
