"""The command, machines and isolation behind the figures, as facts."""

from __future__ import annotations

from collections.abc import Iterator

from benchsuite.describe.invocation import pasteable
from benchsuite.records import Machine
from benchsuite.report.format import NONE, count, number, one_line
from benchsuite.report.read.load import Loaded
from benchsuite.report.read.summary import Summary
from benchsuite.report.show.document import Cell, Column, Fact, Table, fact, table


def environment(summary: Summary, loaded: Loaded | None) -> Iterator[Fact]:
    """What is recorded of the run's command, date, machines and isolation."""
    run = loaded.run if loaded else None
    if run:
        yield fact("Command", one_line(pasteable(run.command), 2000))
        for at, command in run.resumed:
            yield fact("Resumed", f"{one_line(at)}: {one_line(command, 2000)}")
    if summary.created:
        yield fact("Created", one_line(summary.created))
    for machine in summary.machines:
        yield from _machine_facts(machine)
    for kind, tasks in summary.isolation.items():
        yield fact("Isolation", f"{one_line(kind, 400)} ({count(tasks, 'task')})")


def gpu_table(machine: Machine) -> Table:
    """The GPUs of a machine."""
    return table(
        (
            Column("GPU", lambda gpu: str(gpu.visible_index) if gpu.uuid in machine.visible else "not used"),
            Column("name", lambda gpu: gpu.name),
            Column("UUID", lambda gpu: gpu.uuid, rank=2),
            Column("PCI", lambda gpu: gpu.pci, rank=3),
            Column("memory", lambda gpu: Cell(_bytes(gpu.memory_bytes), gpu.memory_bytes), right=True),
            Column("power limit", lambda gpu: _unit(gpu.power_limit_w, "W"), right=True, rank=1),
            Column("SM clock, at most", lambda gpu: _unit(gpu.max_sm_clock_mhz, "MHz"), right=True, rank=1),
        ),
        machine.gpus,
    )


def _machine_facts(machine: Machine) -> Iterator[Fact]:
    yield fact("Host", one_line(machine.host))
    yield fact("System", one_line(f"{machine.system}, kernel {machine.kernel}"))
    yield fact("CPU", f"{one_line(machine.cpu)}, {machine.cpus_usable} of {machine.cpus} usable")
    yield fact("Memory", _bytes(machine.memory_bytes))
    yield fact("Driver", one_line(machine.driver) if machine.driver else NONE)
    yield fact("GPUs", f"{len(machine.gpus)}{f' ({one_line(machine.gpu_note)})' if machine.gpu_note else ''}")
    yield fact("Python", one_line(machine.python))


def _unit(value: float | None, unit: str) -> Cell:
    return Cell(NONE if value is None else f"{value:.0f} {unit}", value)


def _bytes(size: int | None) -> str:
    return NONE if size is None else f"{number(size / 2**30)} GiB"
