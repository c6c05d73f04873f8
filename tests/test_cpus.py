"""What is ours of a machine (not the host's), how it is built, and how CPUs are dealt out to tenants."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from fake_cgroups import GIB, V2_LINE, tree, v1_line, v2_tree

from benchsuite.host.cpus import Core, Memory, memory, near_gpu, shares, topology, usable_count, usable_cpus
from benchsuite.host.kernel_files import parse_cpus, render_cpus

HOST = range(64)


# --- CPUs that are ours -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quota", "affinity", "usable"),
    [
        ("200000 100000", 64, 2),
        ("250000 100000", 64, 3),
        ("50000 100000", 64, 1),
        ("max 100000", 64, 64),
        (None, 3, 3),
        ("800000 100000", 3, 3),
    ],
)
def test_a_quota_and_the_affinity_bound_what_may_be_kept_busy(
    tmp_path: Path, quota: str | None, affinity: int, usable: int
) -> None:
    root = v2_tree(tmp_path, "/", **({"cpu__max": quota} if quota else {"cgroup__procs": ""}))
    assert usable_count(root, range(affinity)) == usable
    assert len(usable_cpus(root, range(affinity))) == affinity


@pytest.mark.parametrize(("quota", "usable"), [("-1", 64), ("150000", 2), ("0", 64)])
def test_a_version_1_quota_of_minus_one_is_none(tmp_path: Path, quota: str, usable: int) -> None:
    files = {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": "100000"}
    root = tree(tmp_path, v1_line("cpu,cpuacct"), "4:cpu,cpuacct:/box", _in("cpu,cpuacct/box", files))
    assert usable_count(root, HOST) == usable


def _in(folder: str, files: dict[str, str]) -> dict[str, str]:
    return {f"sys/fs/cgroup/{folder}/{name}": text for name, text in files.items()}


def test_the_least_quota_of_all_groups_around_us_counts(tmp_path: Path) -> None:
    files = {**_in("pod", {"cpu.max": "300000 100000"}), **_in("pod/box", {"cpu.max": "900000 100000"})}
    assert usable_count(tree(tmp_path, V2_LINE, "0::/pod/box", files), HOST) == 3


def test_a_container_that_sees_its_own_group_as_the_mount(tmp_path: Path) -> None:
    files = _in("cpu", {"cpu.cfs_quota_us": "400000", "cpu.cfs_period_us": "100000"})
    root = tree(tmp_path, v1_line("cpu", "/docker/abc"), "4:cpu:/docker/abc", files)
    assert usable_count(root, HOST) == 4
    outside = tree(tmp_path, v1_line("cpu"), "4:cpu:/../../other", files)
    assert usable_count(outside, HOST) == 4


def test_the_own_cpuset_bounds_the_cpus(tmp_path: Path) -> None:
    assert usable_cpus(v2_tree(tmp_path, cpuset__cpus__effective="2-3,9"), HOST) == (2, 3, 9)


def test_a_machine_without_control_groups(tmp_path: Path) -> None:
    assert usable_count(tmp_path, range(5)) == 5
    assert usable_cpus(tmp_path, {7, 1}) == (1, 7)


def test_a_process_bound_to_one_cpu_has_that_one() -> None:
    one = max(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, {{{one}}})\n"
        "from benchsuite.host.cpus import usable_count, usable_cpus\n"
        "print(usable_cpus(), usable_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"({one},) 1\n"


def test_this_machines_memory_is_at_most_what_the_kernel_counts() -> None:
    found, host = memory(), psutil.virtual_memory()
    assert 0 < found.available_bytes <= found.total_bytes <= host.total
    assert found.source == ("host" if found.total_bytes == host.total else "cgroup")


# --- memory that is ours ----------------------------------------------------------------------------------------------


def test_the_groups_limit_is_the_memory_and_its_cache_is_available(tmp_path: Path) -> None:
    stat = f"anon {3 * GIB}\ninactive_file {3 * GIB}\nactive_file 5"
    files = {"memory__max": 8 * GIB, "memory__current": 6 * GIB, "memory__stat": stat}
    found = memory(v2_tree(tmp_path, "/box", **files))
    assert (found.total_bytes, found.available_bytes) == (8 * GIB, 5 * GIB)
    assert (found.source, found.note) == ("cgroup", None)


@pytest.mark.parametrize("limit", ["max", str(512 * GIB)])
def test_no_limit_or_one_over_the_host_is_the_hosts_memory(tmp_path: Path, limit: str) -> None:
    found = memory(v2_tree(tmp_path, memory__max=limit, memory__current=GIB))
    assert (found.total_bytes, found.available_bytes, found.source) == (256 * GIB, 192 * GIB, "host")


def test_version_1_writes_no_limit_as_a_huge_number(tmp_path: Path) -> None:
    files = _in("memory/box", {"memory.limit_in_bytes": "9223372036854771712", "memory.usage_in_bytes": str(GIB)})
    found = memory(tree(tmp_path, v1_line("memory"), "4:memory:/box", files))
    assert (found.total_bytes, found.source) == (256 * GIB, "host")


def test_a_version_1_limit(tmp_path: Path) -> None:
    stat = f"inactive_file 1\ntotal_inactive_file {GIB}"
    said = {"memory.limit_in_bytes": 4 * GIB, "memory.usage_in_bytes": 2 * GIB, "memory.stat": stat}
    files = _in("memory/box", {name: str(value) for name, value in said.items()})
    found = memory(tree(tmp_path, v1_line("memory"), "4:memory:/box", files))
    assert (found.total_bytes, found.available_bytes, found.source) == (4 * GIB, 3 * GIB, "cgroup")


@pytest.mark.parametrize("unreadable", ["folder", "text"])
def test_a_limit_that_cannot_be_read_is_said(tmp_path: Path, unreadable: str) -> None:
    root = v2_tree(tmp_path, cgroup__procs="", **({"memory__max": "?!"} if unreadable == "text" else {}))
    if unreadable == "folder":
        (root / "sys/fs/cgroup/memory.max").mkdir()
    found = memory(root)
    assert (found.total_bytes, found.source) == (256 * GIB, "host")
    assert found.note
    assert "memory.max" in found.note


@pytest.mark.parametrize("meminfo", [None, "", "MemTotal:\n", "MemTotal: many kB\nMemAvailable: \u00b2 kB\n"])
def test_memory_is_known_from_elsewhere_or_null_if_meminfo_is_hidden_or_malformed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meminfo: str | None
) -> None:
    root = tree(tmp_path, "", "", {} if meminfo is None else {"proc/meminfo": meminfo})
    if meminfo is None:
        (root / "proc/meminfo").unlink()
    here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert memory(root) == Memory(here, None, "host")
    monkeypatch.setattr(os, "sysconf", lambda name: -1)
    found = memory(root)
    assert (found.total_bytes, found.available_bytes) == (None, None)
    assert "does not report the size of the memory" in (found.note or "")


def test_a_groups_limit_is_the_memory_if_that_of_the_host_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: -1)
    root = v2_tree(tmp_path, memory__max=str(4 * GIB), memory__current=str(GIB))
    (root / "proc/meminfo").unlink()
    assert (memory(root).total_bytes, memory(root).source) == (4 * GIB, "cgroup")


# --- how it is built --------------------------------------------------------------------------------------------------


def machine(root: Path, nodes: int = 2, cores: int = 4, threads: int = 2) -> Path:
    """CPUs numbered as Linux does it: the first thread of all cores, then the second; `cores` a node."""
    total = nodes * cores
    files = {}
    for cpu in range(total * threads):
        siblings = ",".join(str(cpu % total + total * t) for t in range(threads))
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = siblings
    for node in range(nodes):
        mine = [cpu for cpu in range(total * threads) if cpu % total // cores == node]
        files[f"sys/devices/system/node/node{node}/cpulist"] = render_cpus(mine)
    return tree(root, "", "", files)


def test_cores_threads_and_nodes_are_read(tmp_path: Path) -> None:
    found = topology(machine(tmp_path, nodes=2, cores=2), range(8))
    assert found == (Core((0, 4), 0), Core((1, 5), 0), Core((2, 6), 1), Core((3, 7), 1))
    assert topology(tmp_path, (1, 3, 5)) == (Core((1, 5), 0), Core((3,), 1))


def test_a_cpu_of_which_nothing_is_said_is_a_core(tmp_path: Path) -> None:
    assert topology(tmp_path, (0, 1)) == (Core((0,)), Core((1,)))


def test_near_cpus_of_a_gpu_by_its_address(tmp_path: Path) -> None:
    machine(tmp_path)
    for address, node, near in (
        ("0000:3b:00.0", "1", "4-7,12-15"),
        ("10000:e1:00.0", "0", ""),
        ("0000:06:00.0", "-1", "0-15"),
    ):
        folder = tmp_path / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(node + "\n")
        (folder / "local_cpulist").write_text(near + "\n")
    assert near_gpu("00000000:3B:00.0", tmp_path) == (4, 5, 6, 7, 12, 13, 14, 15)
    assert near_gpu("00010000:E1:00.0", tmp_path) == (0, 1, 2, 3, 8, 9, 10, 11)
    assert near_gpu("00000000:06:00.0", tmp_path) == (), "-1 is no node"
    assert near_gpu("00000000:99:00.0", tmp_path) == ()
    assert near_gpu("nonsense", tmp_path) == ()


def test_lists_of_cpus() -> None:
    assert parse_cpus("0-2,8,10-11") == (0, 1, 2, 8, 10, 11)
    assert parse_cpus("") == ()
    for malformed in ("x", "0-", "-3", "1-2-3", "0,?", "0-99999999999", "\u0663", "9" * 5000):
        assert parse_cpus(malformed) == ()
    assert render_cpus((8, 0, 1, 2, 11, 10)) == "0-2,8,10-11"


# --- dealing out ------------------------------------------------------------------------------------------------------


def check(cores: Sequence[Core], dealt: Sequence[Sequence[int]], tenants: int, *, whole: bool = True) -> None:
    """Disjoint, equal in number, and no core in two tenants."""
    flat = [cpu for cpus in dealt for cpu in cpus]
    assert len(dealt) == tenants
    assert len(flat) == len(set(flat))
    assert len({len(cpus) for cpus in dealt}) == 1
    if whole:
        for core in cores:
            assert sum(bool(set(core.cpus) & set(cpus)) for cpus in dealt) <= 1, f"{core} is shared"


@pytest.mark.parametrize("tenants", [1, 2, 3, 4, 5, 8])
def test_cores_are_never_shared_and_shares_are_equal(tmp_path: Path, tenants: int) -> None:
    cores = topology(machine(tmp_path), range(16))
    dealt = shares(cores, [()] * tenants, 16)
    check(cores, dealt, tenants)
    assert len(dealt[0]) == 16 // tenants // 2 * 2, "a thread that would split a core is left out"


def test_without_threads_each_gets_its_arithmetic_share(tmp_path: Path) -> None:
    cores = topology(machine(tmp_path, nodes=1, cores=7, threads=1), range(7))
    assert shares(cores, [()] * 3, 7) == [(0, 1), (2, 3), (4, 5)]


def test_a_tenant_stays_on_one_node(tmp_path: Path) -> None:
    cores = topology(machine(tmp_path), range(16))
    node_of = {cpu: core.node for core in cores for cpu in core.cpus}
    for cpus in shares(cores, [()] * 4, 16):
        assert len({node_of[cpu] for cpu in cpus}) == 1


def test_tenants_get_cpus_near_their_gpu_whatever_their_order(tmp_path: Path) -> None:
    cores = topology(machine(tmp_path), range(16))
    first, second = (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)
    dealt = shares(cores, [(), second, first, second], 16)
    check(cores, dealt, 4)
    assert set(dealt[1] + dealt[3]) == set(second)
    assert set(dealt[2]) < set(first)
    assert set(dealt[0]) < set(first), "who has no wish takes what is left"


def test_a_crowded_node_spills_over(tmp_path: Path) -> None:
    cores = topology(machine(tmp_path), range(16))
    dealt = shares(cores, [(0, 1, 2, 3)] * 4, 16)
    check(cores, dealt, 4)
    assert len(dealt[0]) == 4


def test_threads_of_a_core_part_only_when_there_are_more_tenants_than_cores(tmp_path: Path) -> None:
    cores = topology(machine(tmp_path, nodes=1, cores=2), range(4))
    check(cores, shares(cores, [()] * 3, 4), 3, whole=False)
    assert shares(cores, [()] * 2, 4) == [(0, 2), (1, 3)]


def test_cores_of_different_size_give_equal_shares() -> None:
    cores = [Core((0, 1)), Core((2, 3)), Core((4,)), Core((5,)), Core((6,)), Core((7,))]
    dealt = shares(cores, [()] * 3, 8)
    check(cores, dealt, 3)
    assert len(dealt[0]) == 2
    check(cores, shares(cores, [()] * 5, 8), 5)


def test_fewer_cpus_than_tenants_is_no_share(tmp_path: Path) -> None:
    cores = topology(machine(tmp_path, nodes=1, cores=2, threads=1), range(2))
    assert shares(cores, [()] * 3, 2) == []


def test_a_quota_makes_shares_smaller(tmp_path: Path) -> None:
    cores = topology(machine(tmp_path), range(16))
    assert [len(cpus) for cpus in shares(cores, [()] * 2, 8)] == [4, 4]
    assert shares(cores, [()] * 4, 2) == []
