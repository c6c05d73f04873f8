"""One task's share of the machine: how a process enters it, which are in it, what the kernel counted, and its end."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from benchsuite import provisions
from benchsuite.host import cgroups, counters
from benchsuite.host.own_groups import own
from benchsuite.isolation import enter, made_groups


class Tenant:
    """One task's share of the machine.

    Args:
        facts: the record of the share.
        group: its control group; None if it has none.
        made: the group was made for this task, so that `close` removes it.
        affinity: the CPUs to bind processes to; empty if the group does it, or nothing.

    Attributes:
        prefix: the words to put before a command, so that it runs in the share.
        entered: the files and CPUs by which a process enters the share itself, see `enter.enter`.
        environ: variables for the command, unless the task sets them itself.
    """

    def __init__(
        self,
        facts: provisions.Tenant,
        group: cgroups.Cgroup | None = None,
        *,
        made: bool = False,
        affinity: Sequence[int] = (),
        environ: dict[str, str] | None = None,
    ) -> None:
        self._facts = facts
        self._group = group
        self._made = made
        self._own = own()
        self._before = counters.count(group) if group else counters.Counters()
        self._throttled_s = counters.throttled_s(self._own)
        self._last: provisions.Tenant | None = None
        joins = group.joins() if group else ()
        self.prefix = enter.prefix(joins, affinity)
        self.entered = tuple(map(str, joins)), tuple(affinity)
        self.environ = environ or {}

    @property
    def grouped(self) -> bool:
        """Is there a control group, which knows its processes?"""
        return self._group is not None

    @property
    def cpus(self) -> tuple[int, ...]:
        """The CPUs that it is confined to; empty if it is not confined."""
        return self._facts.cpus

    def pids(self) -> list[int]:
        """The living processes in its group; empty if it has no group."""
        return self._group.pids() if self._group else []

    def oom_kills(self) -> int | None:
        """How many of its processes were killed for want of memory so far; None if nothing counts them."""
        return counters.count(self._group).since(self._before).oom_kills if self._group else None

    def memory_in_use_bytes(self) -> int | None:
        """The memory that its group is charged with now; None if it has no group."""
        return counters.memory_in_use_bytes(self._group) if self._group else None

    def cpu_s(self) -> float | None:
        """The CPU time of its group so far; None if nothing counts it."""
        return counters.cpu_s(self._group) if self._group else None

    def kill(self) -> None:
        """SIGKILL to all in its group until it is empty, for a few seconds at most."""
        if self._group:
            self._group.kill()

    def described(self) -> provisions.Tenant:
        """The record of the share with what the kernel has counted so far, up to `close`."""
        return self._last or self._counted()

    def _counted(self) -> provisions.Tenant:
        found = counters.count(self._group).since(self._before) if self._group else counters.Counters()
        pressure = provisions.Pressure(
            cpu_some_s=found.cpu_some_s,
            cpu_full_s=found.cpu_full_s,
            memory_some_s=found.memory_some_s,
            memory_full_s=found.memory_full_s,
        )
        return msgspec.structs.replace(
            self._facts,
            oom_kills=found.oom_kills,
            peak_memory_bytes=found.peak_memory_bytes,
            peak_pids=found.peak_pids,
            throttled_s=counters.throttled_since_s(self._throttled_s, counters.throttled_s(self._own)),
            pressure=None if pressure == provisions.Pressure() else pressure,
        )

    def close(self) -> None:
        """Kill what is left in its group, and remove the group if it was made for the task. May be called twice."""
        if self._last is None:
            self._last = self._counted()
        if self._group and self._made:
            made_groups.end(self._group)
        elif self._group:
            self._group.kill()
