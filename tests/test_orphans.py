"""Orphans of tasks are reaped once they are dead, and no other process is."""

from __future__ import annotations

import os
import subprocess

import psutil
from support import wait_for

from benchsuite.host.kernel_files import children
from benchsuite.launch import orphans


def is_zombie(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_dead_orphans_are_reaped_and_the_processes_that_we_wait_for_are_not() -> None:
    with orphans.adopted():
        before = {*children(os.getpid())}
        words = ["sh", "-c", "(sleep 0.01 &); exit 3"]
        ours = [subprocess.Popen(words, start_new_session=leads) for leads in (True, False)]
        wait_for(lambda: len({*children(os.getpid())} - before) == 4)
        found = {*children(os.getpid())} - before
        wait_for(lambda: all(map(is_zombie, found)))
        orphans.reap()
        left = {*children(os.getpid())} - before
        assert {one.pid for one in ours} <= left
        assert len(left) == 3, "an orphan in our own session may be a child that we wait for"
        assert [one.wait() for one in ours] == [3, 3]
    for pid in left - {one.pid for one in ours}:
        os.waitpid(pid, 0)


def test_living_orphans_live_on_until_their_wave_ends() -> None:
    with orphans.adopted() as end_orphans:
        before = {*children(os.getpid())}
        first = subprocess.Popen(["sh", "-c", "(sleep 600 &); exit 0"], start_new_session=True)
        assert first.wait() == 0
        (orphan,) = {*children(os.getpid())} - before
        orphans.reap()
        assert not is_zombie(orphan)
        assert end_orphans() == [f"process {orphan} (sleep) had left its task and has been killed"]
        assert not psutil.pid_exists(orphan)


def test_without_a_child_there_is_nothing_to_reap() -> None:
    orphans.Reaper().look()
