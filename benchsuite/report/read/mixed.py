"""Results of unlike machines or software among the tasks of one report.

Results of one run are of one machine: a run continues only on its own host, processor and GPUs. A folder of single
results, or a report of several runs, can mix machines, GPU models, drivers and versions of torch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from benchsuite.records import Machine, Result
from benchsuite.report.read.load import Row

# Fact -> its values, in the order in which they occur.
Facts = dict[str, tuple[str, ...]]
HOST, PROCESSOR, GPU, DRIVER, TORCH = "host", "processor", "GPU", "driver", "torch"
# Facts that make two machines unlike. Two hosts may be alike, and software is no part of a machine.
_HARDWARE = (PROCESSOR, GPU)


def facts_of(results: Iterable[Result]) -> Facts:
    """The machines and the software of results. A fact that no result records is left out."""
    return joined(_facts(result) for result in results)


def facts_of_machine(machine: Machine) -> Facts:
    """The same facts of a machine's record."""
    torch = machine.packages.get(TORCH)
    return _known(
        {
            HOST: (machine.host,),
            PROCESSOR: (machine.cpu,),
            GPU: tuple(dict.fromkeys(gpu.name for gpu in machine.gpus)),
            DRIVER: (machine.driver,),
            TORCH: (torch,),
        }
    )


def joined(parts: Iterable[Mapping[str, tuple[str, ...]]]) -> Facts:
    """All values of each fact, each once."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for facts in parts:
        for what, values in facts.items():
            found[what].update(dict.fromkeys(values))
    return {what: tuple(values) for what, values in found.items()}


def unlike_machines(rows: Iterable[Row]) -> tuple[str, ...]:
    """The processors and GPU models of a job's tasks if their machines differ in them; empty for like machines.

    Tasks on unlike GPUs of one machine are of that one machine.
    """
    machines: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for row in rows:
        if row.result:
            machines[row.result.identity.host, row.result.machine.facts_sha256].append(row.result)
    return differing(facts_of(results) for results in machines.values())


def differing(machines: Iterable[Mapping[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """How machines differ in processor or GPU model: "GPU: A; B". A fact that a machine does not record is no proof."""
    every, found = list(machines), []
    for what in _HARDWARE:
        kinds = dict.fromkeys(" and ".join(sorted(facts[what])) for facts in every if what in facts)
        if len(kinds) > 1:
            found.append(f"{what}: {'; '.join(kinds)}")
    return tuple(found)


def _facts(result: Result) -> Facts:
    machine = result.machine
    return _known(
        {
            HOST: (result.identity.host,),
            PROCESSOR: (machine.cpu,),
            GPU: tuple(dict.fromkeys(gpu.name for gpu in machine.gpus)),
            DRIVER: (machine.driver,),
            TORCH: (machine.software.get(TORCH),),
        }
    )


def _known(facts: Mapping[str, tuple[str | None, ...]]) -> Facts:
    known = {what: tuple(value for value in values if value) for what, values in facts.items()}
    return {what: values for what, values in known.items() if values}
