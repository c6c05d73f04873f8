"""Control groups made on the fly: find out where they can be made, make them, and remove those of dead runs.

They are called `benchsuite-<pid>-<start time>-ns<pid namespace>/tenant-<i>` and lie below this process's own group of
each hierarchy, so that the limits on that group also hold for them. Cgroup v2 allows no limits below a group that holds
processes, except the root. Then a sibling of this process's group is tried.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchsuite.host.cgroups import KILL_LIMIT_S, UNIFIED, Cgroup, CgroupPlace, enable
from benchsuite.isolation import enter, run_names
from benchsuite.isolation.run_names import RunName

WANTED = ("cpuset", "memory")
# These controllers help to count and to kill, and confine nothing.
EXTRA = ("pids", "freezer", UNIFIED)
JOIN_LIMIT_S = 20.0

_numbers = itertools.count()


@dataclass
class MadeGroups:
    """The group of this run, in which its tenants' groups are made.

    Attributes:
        run: the group, in the hierarchies in which it could be made.
        why_not: why it could not be made in the others, by controller.
    """

    run: Cgroup = field(default_factory=lambda: Cgroup({}))
    why_not: dict[str, str] = field(default_factory=dict)

    @classmethod
    def prove(cls, own: Mapping[str, CgroupPlace], cpus: Sequence[int], memory_bytes: int | None) -> MadeGroups:
        """Make the run's group and a probe in it, limit the probe, and let a process enter it.

        Args:
            own: the groups of this process.
            cpus: the CPUs to deal out; the probe gets the first.
            memory_bytes: the memory to deal out; None if it is not known, and then no memory group is made.
        """
        bases, why_not = _bases(own)
        if memory_bytes is None and "memory" in bases:
            del bases["memory"]
            why_not["memory"] = "the size of the memory is not known, so it cannot be dealt out"
        name, made = run_names.new(), cls(why_not=why_not)
        for controller in (*WANTED, *EXTRA):
            if controller in bases:
                made._try(controller, bases[controller].below(name), cpus, memory_bytes)
        while made.versions and (problem := made._try_entering(cpus, memory_bytes)):
            controller, reason = problem
            made._drop(controller, reason)
        if not made.versions:
            made.close()
        return made

    @property
    def versions(self) -> dict[str, int]:
        """The wanted controllers that are proven, with the version of each."""
        return {name: self.run.places[name].version for name in WANTED if name in self.run.places}

    def _try(self, controller: str, place: CgroupPlace, cpus: Sequence[int], memory_bytes: int | None) -> None:
        group = Cgroup({controller: place})
        try:
            group.create()
            if place.version == 2 and controller != UNIFIED and (why := enable(place.folder, [controller])):
                raise OSError(0, why[controller])
            probe = group.below("probe")
            try:
                probe.create()
                _limit(probe, cpus[:1], memory_bytes)
            finally:
                probe.remove()
        except OSError as error:
            if not any(other.folder == place.folder for other in self.run.places.values()):
                group.remove()
            self.why_not[controller] = said(error)
            return
        self.run = Cgroup({**self.run.places, controller: place})

    def _try_entering(self, cpus: Sequence[int], memory_bytes: int | None) -> tuple[str, str] | None:
        """The controller whose group no process can enter, and why; None if all can be entered."""
        probe = self.run.below("probe")
        try:
            probe.create()
            _limit(probe, cpus[:1], memory_bytes)
            why = entering_fails(probe.joins())
            if why is None:
                return None
            for controller, place in probe.places.items():
                if alone := entering_fails([place.folder / "cgroup.procs"]):
                    return controller, alone
        except OSError as error:
            why = said(error)
        finally:
            end(probe)
        return next(iter(self.versions)), why

    def _drop(self, controller: str, reason: str) -> None:
        """Give up a controller and all others that share its folder."""
        folder = self.run.places[controller].folder
        lost = [name for name, place in self.run.places.items() if place.folder == folder]
        Cgroup({name: self.run.places[name] for name in lost}).remove()
        self.why_not.update(dict.fromkeys(lost, reason))
        self.run = Cgroup({name: place for name, place in self.run.places.items() if name not in lost})

    def group(self, cpus: Sequence[int], memory_bytes: int | None) -> Cgroup:
        """A new group, confined to these CPUs (empty: those of the run) and this memory.

        Raises:
            OSError: it cannot be made any more; nothing is left of it.
        """
        group = self.run.below(f"tenant-{next(_numbers)}")
        try:
            group.create()
            _limit(group, cpus, memory_bytes)
        except OSError:
            group.remove()
            raise
        return group

    def close(self) -> bool:
        """Remove the run's group; False if something of it stays."""
        return end(self.run)


def _limit(group: Cgroup, cpus: Sequence[int], memory_bytes: int | None) -> None:
    if "cpuset" in group.places and cpus:
        group.set_cpus(cpus)
    if "memory" in group.places and memory_bytes is not None:
        group.set_memory(memory_bytes)


def said(error: OSError) -> str:
    """The error with its file, if it names one. Case stays: the error may hold a path."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


def end(group: Cgroup) -> bool:
    """Kill what is in a group and remove it; False if something of it stays.

    A process that enters between the two is killed in the next round.
    """
    return any(group.kill(limit_s) and group.remove(limit_s=1.0) for limit_s in (KILL_LIMIT_S, 1.0, 1.0))


def entering_fails(files: Sequence[Path]) -> str | None:
    """Run `true` inside these groups; the error if it cannot join them, else None."""
    try:
        done = subprocess.run(
            [*enter.prefix(files), "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=JOIN_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"a process that enters did not run: {error}"
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return lines[-1].partition("in its fence: ")[2] or lines[-1] if done.returncode else None


# --- where ------------------------------------------------------------------------------------------------------------


def _bases(own: Mapping[str, CgroupPlace]) -> tuple[dict[str, CgroupPlace], dict[str, str]]:
    """The groups below which groups may be made, and why there is no such group, each by controller."""
    seen = {name: place for name, place in own.items() if place.exact}
    bases = {name: place for name, place in seen.items() if place.version == 1}
    why_not = {}
    unified = seen.get(UNIFIED)
    missing = [name for name in (*WANTED, "pids") if name not in bases]
    if unified:
        base, refused = unified_base(unified, missing)
        why_not.update(refused)
        bases |= dict.fromkeys((*(name for name in missing if name not in refused), UNIFIED), base)
    for name in missing:
        if name not in bases and name not in why_not:
            hidden = "its own group cannot be seen from here" if name in own or UNIFIED in own else "it is not mounted"
            why_not[name] = f"no cgroup has the {name} controller: {hidden}"
    return bases, why_not


def unified_base(own: CgroupPlace, wanted: Collection[str]) -> tuple[CgroupPlace, dict[str, str]]:
    """The version 2 group below which most of the wanted controllers can be used, and why the others cannot.

    It is this process's own group or the one around it: in both cases the same limits hold.

    Args:
        own: this process's own group.
        wanted: the controllers.
    """
    best: tuple[CgroupPlace, dict[str, str]] | None = None
    said: dict[str, list[str]] = {name: [] for name in wanted}
    for folder in list(own.chain())[:2]:
        if os.access(folder, os.W_OK):
            why_not = enable(folder, wanted)
        else:
            why_not = dict.fromkeys(wanted, f"{folder}: this user cannot make groups there")
        for name, why in why_not.items():
            said[name].append(why)
        if best is None or len(why_not) < len(best[1]):
            best = CgroupPlace(2, folder, own.mount), why_not
        if not why_not:
            break
    base, why_not = best or (own, {})
    return base, {name: ", and ".join(said[name]) for name in why_not}


# --- leftovers --------------------------------------------------------------------------------------------------------


def sweep(own: Mapping[str, CgroupPlace]) -> tuple[str, ...]:
    """Kill and remove the groups of dead runs, found by the pid and start time in their names; a line for each.

    A group of another pid namespace is left as it is, since its run may be alive.
    """
    found: dict[str, dict[str, CgroupPlace]] = {}
    for controller, place in own.items():
        if not place.exact:
            continue
        # In version 2 they may also be siblings of this process's group.
        for base in list(place.chain())[: place.version]:
            for folder in _stale(base):
                places = found.setdefault(folder.name, {})
                key = f"{controller} {base}" if controller in places else controller
                places[key] = CgroupPlace(place.version, folder, place.mount)
    lines = []
    for name, places in sorted(found.items()):
        group = Cgroup(places)
        pids = group.pids()
        if 0 in pids:
            # Its processes are in another pid namespace, where the pid in the name is that of another process.
            continue
        held = f" with {len(pids)} {'process' if len(pids) == 1 else 'processes'}" if pids else ""
        lines.append(
            f"control group {name}, left by an ended run{held}: {'removed' if end(group) else 'cannot be removed'}"
        )
    return tuple(lines)


def others(own: Mapping[str, CgroupPlace]) -> list[str]:
    """The other living runs that have groups where those of this run would lie: "process 7", "another container"."""
    found: set[int] = set()
    elsewhere = False
    for controller, place in own.items():
        with contextlib.suppress(OSError):
            for folder in place.folder.iterdir() if place.exact else ():
                run = RunName.of(folder)
                if run and run.here and run.alive():
                    found.add(run.pid)
                elif run and not run.here and not elsewhere:
                    elsewhere = bool(Cgroup({controller: CgroupPlace(place.version, folder, place.mount)}).pids())
    return [
        *(f"process {pid}" for pid in sorted(found - {os.getpid()})),
        *(["a process of another container"] if elsewhere else []),
    ]


def _stale(base: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for folder in sorted(base.iterdir()):
            run = RunName.of(folder)
            if run and run.here and folder.is_dir() and not run.alive():
                yield folder
