"""Give each task a fenced share of the machine. The fences are tried once a run, then dealt out wave by wave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from benchsuite import provisions
from benchsuite.describe.tasks import Task
from benchsuite.errors import UsageError
from benchsuite.host import cgroups, cpus, own_groups
from benchsuite.isolation import made_groups
from benchsuite.isolation.prepared_groups import PreparedGroups
from benchsuite.isolation.tenant import Tenant
from benchsuite.isolation.threads import thread_environ

Isolation = Literal["auto", "cgroup", "affinity", "none"]
PAGE_BYTES = 4096
REMEDY = "prepare groups with: sudo scripts/cgroup_setup.sh, or leave out --require-isolation"


@dataclass
class Fencing:
    """How the tasks of a run are fenced.

    Attributes:
        isolation: what the user asked for.
        require: refuse a task instead of running it in a weaker fence.
        made, prepared: the groups in use; at most one of the two.
        versions: the controllers that confine, with the version of each.
        reason: why these fences are used and no others.
        swept: a line for each leftover of a dead run that was found.
        cpus: the CPUs to deal out.
        count: how many of them may be busy at once.
        memory_bytes: the memory to deal out; None if its size is not known, and then no memory fence is possible.
        unknown: what the kernel's files leave unknown about limits on this process, each in a line.
        crowded: the other runs on this machine, in words; empty if there are none.
        root: the folder that holds `proc` and `sys`.
    """

    isolation: Isolation
    require: bool = False
    made: made_groups.MadeGroups | None = None
    prepared: PreparedGroups | None = None
    versions: dict[str, int] = field(default_factory=dict)
    reason: str = ""
    swept: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    count: int = 1
    memory_bytes: int | None = None
    unknown: tuple[str, ...] = ()
    crowded: str = ""
    root: Path = Path("/")

    @classmethod
    def choose(
        cls, isolation: Isolation, *, require: bool, largest: int, sweep: bool = True, root: Path = Path("/")
    ) -> Fencing:
        """Find out which fences are possible here, by trying them.

        Args:
            largest: how many tasks run side by side at most.
            sweep: end what dead runs left.

        Raises:
            UsageError: a fence is required and not possible, or groups are asked for and cannot confine both CPUs and
                memory. No group is left behind.
        """
        groups = own_groups.look(root)
        own = groups.places
        memory = cpus.memory(root)
        fencing = cls(
            isolation,
            require,
            swept=made_groups.sweep(own) if sweep else (),
            crowded=_crowded(own),
            cpus=cpus.usable_cpus(root),
            count=cpus.usable_count(root),
            memory_bytes=memory.total_bytes,
            unknown=(*groups.unknown, *([memory.note] if memory.note else [])),
            root=root,
        )
        if isolation in ("auto", "cgroup"):
            fencing._find_groups(own, largest)
        else:
            fencing.reason = f"--isolation {isolation} was asked for"
        if isolation == "cgroup" and (lacking := fencing._lacking()):
            fencing.close()
            partly = "" if len(lacking) == len(made_groups.WANTED) else f"no {lacking[0]} group confines tasks: "
            raise UsageError(f"--isolation cgroup: {partly}{fencing.reason}; --isolation auto takes what is possible")
        if require and (missing := fencing._missing(largest)):
            fencing.close()
            raise UsageError(f"--require-isolation: {missing}; {REMEDY}")
        return fencing

    def _find_groups(self, own: dict[str, cgroups.CgroupPlace], largest: int) -> None:
        """Use the groups that confine more controllers; groups made on the fly rather than prepared ones if equal."""
        self.made = made_groups.MadeGroups.prove(own, self.cpus, self.memory_bytes)
        self.versions = self.made.versions
        self.reason = "groups were made on the fly"
        if len(self.versions) == len(made_groups.WANTED):
            return
        why = "; ".join(f"no {name} group of our own: {self.made.why_not[name]}" for name in self._lacking())
        self.prepared = PreparedGroups.prove(own, self.cpus, self.memory_bytes, max(1, largest))
        if len(self.prepared.versions) > len(self.versions):
            self.made.close()
            self.made, self.versions = None, self.prepared.versions
            self.reason = "prepared groups are used"
            if self._lacking():
                self.reason += f", which do not confine {' and '.join(self._lacking())}"
        else:
            self.reason = f"{why}; {self.prepared.why_not or 'prepared groups confine no more'}"
            self.prepared.close()
            self.prepared = None
            if not self.versions:
                self.made = None

    def _lacking(self) -> list[str]:
        return [name for name in made_groups.WANTED if name not in self.versions]

    def _missing(self, largest: int) -> str | None:
        """Why a required fence is not possible; None if it is."""
        if self.isolation == "none":
            return "--isolation none asks for no fence at all"
        if not self.prepared and largest > self.count:
            return f"{largest} tasks side by side cannot have CPUs of their own: {self._few(largest)}"
        if self.isolation != "affinity" and self._lacking():
            return f"no fence for {' and '.join(self._lacking())} is possible here: {self.reason}"
        return None

    def _few(self, tasks: int) -> str:
        return f"{self.count} usable CPUs are fewer than {tasks} tasks"

    def limit(self, share: provisions.Tenant) -> None:
        """Deal out no more than the share of an earlier task.

        Tasks get the same CPUs if all of them may be used here, else as many near the GPU, and no more memory.
        """
        if share.cpus and set(share.cpus) <= set(self.cpus):
            self.cpus = share.cpus
        if share.cpus:
            self.count = min(self.count, len(share.cpus))
        if share.memory_bytes:
            self.memory_bytes = min(self.memory_bytes or share.memory_bytes, share.memory_bytes)

    def describe(self) -> provisions.Tenant:
        """The share of a task that runs alone."""
        return self._facts("share", self.cpus, self.memory_bytes)

    def _facts(self, asked: str, cpus: Sequence[int], memory_bytes: int | None) -> provisions.Tenant:
        """The record of a share; `cpus` is empty if there are fewer CPUs than tasks."""
        cpu = "affinity" if self.isolation in ("auto", "affinity") else "none"
        if "cpuset" in self.versions:
            cpu = f"cpuset-v{self.versions['cpuset']}"
        memory = f"v{self.versions['memory']}" if "memory" in self.versions else "none"
        return provisions.Tenant(
            asked=asked,
            isolation=self.isolation,
            cpu=cpu if cpus else "none",
            memory=memory,
            reason="; ".join(filter(None, [self.reason, self.crowded, *self.unknown])),
            crowded=bool(self.crowded),
            cpus=tuple(cpus) if cpu != "none" else (),
            memory_bytes=memory_bytes if memory != "none" else None,
        )

    def fence(self, tasks: Sequence[Task]) -> list[Tenant]:
        """A tenant for each task of a wave, in order. A task that asks for the machine gets all of it.

        Raises:
            UsageError: a fence is required and no longer possible.
        """
        tenants: list[Tenant] = []
        try:
            dealt = self._deal(tasks)
            for index, (task, mine) in enumerate(zip(tasks, dealt, strict=True)):
                tenants.append(self._tenant(task, index, mine, len(tasks)))
        except UsageError:
            for tenant in tenants:
                tenant.close()
            raise
        return tenants

    def _deal(self, tasks: Sequence[Task]) -> list[tuple[int, ...]]:
        """The CPUs of each task; empty for those that share if there are too few. Copies on one GPU have the same."""
        sharing = {_place(task): task for task in tasks if task.job.tenant != "machine"}
        nears = [
            tuple(cpu for gpu in task.gpus for cpu in cpus.near_gpu(gpu.pci, self.root)) for task in sharing.values()
        ]
        cores = cpus.topology(self.root, self.cpus)
        dealt = cpus.shares(cores, nears, self.count) if sharing else []
        shares = dict(zip(sharing, dealt or [()] * len(sharing), strict=True))
        return [self.cpus if task.job.tenant == "machine" else shares[_place(task)] for task in tasks]

    def _tenant(self, task: Task, index: int, mine: tuple[int, ...], tasks: int) -> Tenant:
        if self.prepared:
            return self._prepared_tenant(task, index, mine, self.prepared)
        whole = task.job.tenant == "machine"
        memory_bytes = self.memory_bytes
        if memory_bytes is not None and not whole:
            memory_bytes = memory_bytes // tasks // PAGE_BYTES * PAGE_BYTES
        facts = self._facts(task.job.tenant, mine, memory_bytes)
        if not mine and self.isolation != "none":
            self._refuse(self._few(tasks))
            facts = msgspec.structs.replace(facts, reason=f"{self._few(tasks)}; {facts.reason}")
        if not self.made:
            return self._entered(task, facts, None)
        try:
            group = self.made.group(mine, memory_bytes)
        except OSError as error:
            return self._unfenced(task, facts, f"the group could not be made: {made_groups.said(error)}")
        return self._entered(task, facts, group)

    def _prepared_tenant(self, task: Task, index: int, mine: tuple[int, ...], prepared: PreparedGroups) -> Tenant:
        asked = task.job.tenant
        if asked == "machine":
            return self._unfenced(
                task, self._facts(asked, (), None), "the whole machine was asked for, which no group bounds"
            )
        if index >= len(prepared.groups):
            return self._unfenced(
                task, self._facts(asked, (), None), f"only {len(prepared.groups)} groups are prepared"
            )
        if prepared.cpus:
            mine = prepared.cpus[index]
        return self._entered(task, self._facts(asked, mine, prepared.memory_bytes), prepared.groups[index])

    def _entered(self, task: Task, facts: provisions.Tenant, group: cgroups.Cgroup | None) -> Tenant:
        """The tenant of a share, in this group if there is one."""
        if group:
            facts = msgspec.structs.replace(facts, group=_name(group))
        affinity = facts.cpus if facts.cpu == "affinity" else ()
        share = min(len(facts.cpus) or self.count, self.count) if facts.cpu != "none" or task.ranks > 1 else None
        threads = None if share is None else max(1, share // task.job.processes)
        return Tenant(
            facts, group, made=self.made is not None, affinity=affinity, environ=thread_environ(task, threads)
        )

    def _refuse(self, why: str) -> None:
        if self.require:
            raise UsageError(f"--require-isolation: {why}; {REMEDY}")

    def _unfenced(self, task: Task, facts: provisions.Tenant, why: str) -> Tenant:
        if facts.asked != "machine" or self.made:
            self._refuse(why)
        reason = f"{why}; {facts.reason}"
        bare = provisions.Tenant(asked=facts.asked, isolation=self.isolation, reason=reason, crowded=facts.crowded)
        return Tenant(bare, environ=thread_environ(task, None))

    def close(self) -> None:
        """Remove the groups that were made and release the prepared ones; close the tenants before."""
        if self.made:
            self.made.close()
        if self.prepared:
            self.prepared.close()


def _place(task: Task) -> tuple[str, ...]:
    """What tasks have in common that share a GPU, or are copies on the CPU; for any other task its id."""
    gpus = tuple(gpu.parent or gpu.uuid for gpu in task.gpus)
    return ("copies", *gpus) if task.job.processes > 1 else ("task", task.id)


def _crowded(own: dict[str, cgroups.CgroupPlace]) -> str:
    others = made_groups.others(own)
    who = ", ".join(others)
    return f"another run of benchsuite is on this machine ({who}): its share and ours overlap" if others else ""


def _name(group: cgroups.Cgroup) -> str:
    folder = group.folders()[0]
    return folder.name if not folder.parent.name.startswith("benchsuite-") else f"{folder.parent.name}/{folder.name}"
