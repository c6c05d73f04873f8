#!/usr/bin/env python
"""Measure the time and memory of the report of a fleet, and check that it names what is planted and nothing else.

It makes a results folder for each of many made-up nodes with eight GPUs. Results are as large as real ones. A child
process makes the report with its page, CSV and JSON. Memory is the sum over the child and the processes that it starts.

    python scripts/bench/fleet_scale.py                             # 1,000 nodes x 8 GPUs x 20 jobs x 1 repeat
    python scripts/bench/fleet_scale.py --nodes 64 --repeats 3 --keep /tmp/fleet
    python scripts/bench/fleet_scale.py --healthy 20 --nodes 64     # 20 fleets without a fault: the alarms
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import msgspec
import psutil

sys.path.insert(0, str(Path(__file__).parent))

from report_scale import CODE, GPUS, MACHINE, STARTED, made_result

from benchsuite.describe.plan import make_plan
from benchsuite.describe.tasks import Gpu, Job, Placement, Plan, ProfileUsed, Task
from benchsuite.measurement import Slice
from benchsuite.records import FAILURES, Failure, Machine, Result, Run, TaskMachine
from benchsuite.rundir import Attempt, RunDir
from benchsuite.schema import to_json
from benchsuite.telemetry import Spread

# Standard deviations of log rates: between healthy nodes, over all jobs and in a job; between the GPUs of a node, over
# all jobs and in a job; and between repeats.
NODE, NODE_JOB, GPU, GPU_JOB, REPEAT = 0.003, 0.004, 0.004, 0.005, 0.005
_RATE = 2000.0
# The repeats of a GPU in a job have Student's t distribution with 5 degrees of freedom.
_TAIL_DF = 5


@dataclass(frozen=True)
class Fault:
    """What is wrong with a node.

    Attributes:
        slow: factor on all its rates.
        slow_gpu: GPU -> factor on its rates, with an SM clock that is lower by the same.
        fails: the place of a job that never succeeds.
        driver: another driver than the others have.
        missing: the node leaves no folder.
    """

    slow: float = 1.0
    slow_gpu: tuple[int, float] | None = None
    fails: int | None = None
    driver: str | None = None
    missing: bool = False


HEALTHY = Fault()


def node_name(place: int) -> str:
    return f"node{place:04d}"


def planted(nodes: int) -> dict[int, Fault]:
    """The faults of a fleet: a slow node, a slow GPU, a failing job, another driver, and a missing node."""
    kinds = (
        Fault(slow=0.88),
        Fault(slow_gpu=(3, 0.85)),
        Fault(fails=1),
        Fault(driver="570.10", slow=0.93),
        Fault(missing=True),
    )
    return {(place + 1) * nodes // (len(kinds) + 2): kind for place, kind in enumerate(kinds)}


def _plan(jobs: int, gpus: Sequence[Gpu], repeats: int) -> Plan:
    made = [Job(name=f"job{place:02d}", model="vae", placement=Placement(devices="each")) for place in range(jobs)]
    return make_plan("fleet", made, gpus, environ={}, repeats=repeats)


def make_node(
    folder: Path, place: int, jobs: int, gpus: int, repeats: int, slices: int, fault: Fault, seed: int
) -> int:
    """Make a node's run folder, not flushed to disk.

    Returns:
        The number of bytes of its results.
    """
    if fault.missing:
        return 0
    chance = random.Random(f"{seed} {place}")
    cards = tuple(
        msgspec.structs.replace(gpu, uuid=f"GPU-{place:08x}-0000-4000-8000-{gpu.visible_index:012d}")
        for gpu in GPUS[:gpus]
    )
    driver = fault.driver or MACHINE.driver
    machine = msgspec.structs.replace(
        MACHINE, host=node_name(place), gpus=cards, visible=tuple(gpu.uuid for gpu in cards), driver=driver
    )
    plan = _plan(jobs, cards, repeats)
    profile = ProfileUsed(name="fleet", path="fleet.yaml", sha256="f" * 64, text="{}", official=False)
    run = Run(
        created=STARTED.isoformat(),
        command=("benchsuite", "jobs", "fleet"),
        profile=profile,
        repeats=repeats,
        machines=(machine,),
        code=CODE,
    )
    RunDir.create(folder, run, plan)
    effects = _effects(chance, jobs, gpus, fault)
    facts = TaskMachine(gpus=(), driver=driver, facts_sha256="0" * 64, software={"torch": "2.11.0"}, cpu=machine.cpu)
    total, lines = 0, []
    for number, task in enumerate(plan.tasks):
        result = _result(task, number, slices, chance, effects, fault, machine, facts)
        fail = ".FAIL" if result.status in FAILURES else ""
        name = f"{task.profile}.{task.id}{fail}.20260106-160000-{number:06d}.json"
        text = to_json(result)
        (folder / name).write_bytes(text)
        total += len(text)
        about = {"task": task.id, "attempt": 1, "at": result.timeline.clock.wall}
        lines += [Attempt(event="start", **about), Attempt(event="end", **about, status=result.status, result=name)]
    (folder / "attempts.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return total


def _effects(chance: random.Random, jobs: int, gpus: int, fault: Fault) -> list[list[float]]:
    """The log rates of a node's GPUs in each job, apart from the repeats."""
    node = chance.gauss(0, NODE) + math.log(fault.slow)
    each = [chance.gauss(0, GPU) for _ in range(gpus)]
    if fault.slow_gpu:
        each[fault.slow_gpu[0]] += math.log(fault.slow_gpu[1])
    found = []
    for job in range(jobs):
        middle = math.log(_RATE * (1 + job)) + node + chance.gauss(0, NODE_JOB)
        found.append([middle + own + chance.gauss(0, GPU_JOB) for own in each])
    return found


def _noise(chance: random.Random) -> float:
    """Student's t, scaled to the standard deviation `REPEAT`."""
    squares = sum(chance.gauss(0, 1) ** 2 for _ in range(_TAIL_DF))
    return REPEAT * chance.gauss(0, 1) / math.sqrt(squares / _TAIL_DF) * math.sqrt((_TAIL_DF - 2) / _TAIL_DF)


def _result(
    task: Task,
    number: int,
    slices: int,
    chance: random.Random,
    effects: list[list[float]],
    fault: Fault,
    machine: Machine,
    facts: TaskMachine,
) -> Result:
    job, gpu = int(task.job.name[3:]), task.gpus[0].visible_index
    rate = math.exp(effects[job][gpu] + _noise(chance))
    fails = fault.fails == job
    found = made_result(task, 100.0 + number, slices, chance)
    stream = found.measurement.streams[0]
    exact = tuple(
        Slice(
            start_s=s.start_s,
            end_s=s.end_s,
            steps=s.steps,
            items=round(rate * (s.end_s - s.start_s) * chance.gauss(1, 0.002)),
        )
        for s in stream.slices
    )
    return msgspec.structs.replace(
        found,
        status="failed" if fails else "ok",
        error=Failure(kind="ValueError", message="made up") if fails else None,
        exit_code=1 if fails else 0,
        identity=msgspec.structs.replace(found.identity, host=machine.host),
        machine=msgspec.structs.replace(facts, gpus=task.gpus),
        measurement=msgspec.structs.replace(
            found.measurement, streams=(msgspec.structs.replace(stream, slices=() if fails else exact),)
        ),
        telemetry=_telemetry(found, gpu, fault, chance),
    )


def _telemetry(found: Result, gpu: int, fault: Fault, chance: random.Random) -> object:
    """Telemetry of a healthy GPU, or of one whose SM clock is reduced."""
    assert found.telemetry
    slow = fault.slow_gpu[1] if fault.slow_gpu and fault.slow_gpu[0] == gpu else 1.0
    usual = {"sm_clock_mhz": 1900.0 * slow, "temperature_c": 60.0, "power_w": 600.0, "gpu_percent": 99.0}
    usual |= {"sm_percent": 90.0, "pcie_rx_mib_s": 500.0, "pcie_tx_mib_s": 300.0}

    def spread(name: str, old: Spread) -> Spread:
        mean = usual[name] * chance.gauss(1, 0.003) if name in usual else old.mean
        return Spread(min=0.97 * mean, mean=mean, max=1.03 * mean, n=old.n)

    device = found.telemetry.devices[0]
    spreads = {name: spread(name, old) for name, old in device.spreads.items()}
    return msgspec.structs.replace(found.telemetry, devices=(msgspec.structs.replace(device, spreads=spreads),))


def make_fleet(
    out: Path, nodes: int, *, jobs: int, gpus: int, repeats: int, slices: int, faults: dict[int, Fault], seed: int
) -> int:
    """Make all nodes and the list of their names, in parallel processes; the number of bytes of all results."""
    out.mkdir(parents=True)
    (out / "nodes.txt").write_text("".join(f"{node_name(place)}\n" for place in range(nodes)))
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        made = [
            pool.submit(
                make_node, out / node_name(place), place, jobs, gpus, repeats, slices, faults.get(place, HEALTHY), seed
            )
            for place in range(nodes)
        ]
        return sum(one.result() for one in made)


@dataclass
class Watch:
    """The sum of the resident memory of a process and its children, at most, and the sum of their processor time."""

    most_mib: float = 0.0
    cpu_s: float = 0.0


def report(out: Path, into: Path) -> tuple[float, Watch, dict[str, object]]:
    """The report of a fleet with all its files: seconds, what the processes took, and the content of the JSON."""
    files = [f"--{kind}={into / f'report.{kind}'}" for kind in ("html", "csv", "json")]
    began = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "benchsuite", "report", str(out), *files], stdout=subprocess.DEVNULL
    )
    watch, ended = Watch(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(child.pid, watch, ended))
    watcher.start()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    elapsed_s = time.perf_counter() - began
    ended.set()
    watcher.join()
    # The usage of a child contains that of the processes which it waited for.
    watch.cpu_s = usage.ru_utime + usage.ru_stime
    if child.returncode:
        raise SystemExit(f"report ended with status {child.returncode}")
    return elapsed_s, watch, json.loads((into / "report.json").read_text())


def _watch(pid: int, watch: Watch, ended: threading.Event) -> None:
    while not ended.wait(0.1):
        try:
            process = psutil.Process(pid)
            tree = [process, *process.children(recursive=True)]
            total = sum(one.memory_info().rss for one in tree if one.is_running())
        except psutil.Error:
            continue
        watch.most_mib = max(watch.most_mib, total / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--gpus", type=int, default=8, choices=range(1, 9), help="of a node (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=20, help="(default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument("--slices", type=int, default=40, help="slices a result (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="make the fleet and the report here, and keep them")
    parser.add_argument("--healthy", type=int, metavar="N", help="N fleets without a fault: count the alarms")
    chosen = parser.parse_args()
    shape = {"jobs": chosen.jobs, "gpus": chosen.gpus, "repeats": chosen.repeats, "slices": chosen.slices}
    if chosen.healthy:
        _healthy(chosen.healthy, chosen.nodes, shape)
        return
    with tempfile.TemporaryDirectory(prefix="benchsuite-fleet-") as place:
        folder = chosen.keep or Path(place)
        faults = planted(chosen.nodes)
        size = make_fleet(folder / "fleet", chosen.nodes, faults=faults, seed=0, **shape)
        tasks = (chosen.nodes - 1) * chosen.gpus * chosen.jobs * chosen.repeats
        print(f"{chosen.nodes:,} nodes, {tasks:,} results, {size / 1e9:.2f} GB", flush=True)
        elapsed_s, watch, content = report(folder / "fleet", folder)
        print(f"{elapsed_s:.1f} s, {watch.cpu_s:.1f} s of processors, {watch.most_mib:,.0f} MiB in all processes")
        page = (folder / "report.html").stat().st_size
        print(f"page: {page / 1e6:.1f} MB\n{content['headline']}")
        for node in content["nodes"]:
            if node["verdict"] != "PASS":
                print(f"  {node['node']} {node['verdict']}: {'; '.join(one['text'] for one in node['reasons'])}")
        print("planted: " + ", ".join(f"{node_name(at)} {_words(fault)}" for at, fault in faults.items()))


def _words(fault: Fault) -> str:
    return str({name: value for name, value in vars(fault).items() if value != getattr(HEALTHY, name)})


def _healthy(fleets: int, nodes: int, shape: dict[str, int]) -> None:
    """Fleets without a fault: an alarm is a node that is not PASS, or an outlier."""
    alarms = 0
    for seed in range(fleets):
        with tempfile.TemporaryDirectory(prefix="benchsuite-fleet-") as place:
            out = Path(place, "fleet")
            make_fleet(out, nodes, faults={}, seed=1 + seed, **shape)
            _, _, content = report(out, Path(place))
        alarm = bool(content["outliers"]) or set(content["verdicts"]) != {"PASS"}
        alarms += alarm
        print(f"{seed + 1}: {'ALARM ' if alarm else ''}{content['headline']}", flush=True)
    print(f"{alarms} of {fleets} fleets of {nodes} healthy nodes raise an alarm")


if __name__ == "__main__":
    main()
