#!/usr/bin/env python
"""Measure how the time and memory of `benchsuite report` grow with the number of results.

It makes run folders of the standard profile on a made-up machine with eight GPUs. A result has the size of a real one:
a minute of slices, and the telemetry of a GPU. A child process makes the report. All numbers are of that child: wall
time, wall time for each result, and the peak of resident memory.

    python scripts/bench/report_scale.py                    # 1,000, 3,000 and 10,000 results
    python scripts/bench/report_scale.py 10000 --profile    # where the time goes, by function
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timedelta, timezone
from multiprocessing import get_context
from pathlib import Path

import msgspec

from benchsuite.describe import profile
from benchsuite.describe.plan import make_plan, plan_of
from benchsuite.describe.tasks import Gpu, Job, Plan, Task
from benchsuite.measurement import Clock, GroupUsed, Measurement, PeakMemory, PrecisionCheck, Slice, Stream, WarmUp
from benchsuite.provisions import DataUsed, Pressure, Tenant
from benchsuite.records import FAILURES, Code, Failure, Identity, Machine, Result, Run, TaskMachine, Timeline
from benchsuite.rundir import Attempt, RunDir
from benchsuite.schema import to_json
from benchsuite.telemetry import GAUGES, GPM_GAUGES, DeviceTelemetry, Spread, Telemetry, TenantTelemetry

GIB = 1 << 30
GPUS = tuple(
    Gpu(
        visible_index=index,
        nvml_index=index,
        uuid=f"GPU-{hashlib.sha256(bytes([index])).hexdigest()[:8]}-0000-4000-8000-{index:012d}",
        name="Made-up GPU 80GB",
        pci=f"00000000:{0x10 + index:02X}:00.0",
        memory_bytes=80 * GIB,
        power_limit_w=700.0,
        max_sm_clock_mhz=1980,
    )
    for index in range(8)
)
BOOT = "11111111-2222-4333-8444-555555555555"
CODE = Code(version="0.1.0", commit="0" * 40, dirty=False)
MACHINE = Machine(
    host="made-up",
    boot_id=BOOT,
    system="Linux",
    kernel="6.18",
    cpu="Made-up CPU",
    cpus=128,
    cpus_usable=128,
    memory_bytes=1024 * GIB,
    driver="580.95.05",
    gpus=GPUS,
    visible=tuple(gpu.uuid for gpu in GPUS),
    python="3.12.0",
    packages={"torch": "2.11.0", "numpy": "2.3.0", "msgspec": "0.20.0"},
)
FACTS = hashlib.sha256(msgspec.json.encode(MACHINE, order="deterministic")).hexdigest()
FAILING = 0.005
STARTED = datetime(2026, 1, 6, 16, tzinfo=timezone.utc)
LONGEST_SLICE_S = 0.52


def planned(number_of: int) -> tuple[Plan, Run]:
    """The first tasks, as many as asked for, of the standard profile with repeats on eight GPUs."""
    chosen = profile.load("standard")
    once = len(make_plan(chosen.name, chosen.jobs, GPUS, environ={}).tasks)
    repeats = -(-number_of // once)
    plan = make_plan(chosen.name, chosen.jobs, GPUS, environ={"OMP_NUM_THREADS": "16"}, repeats=repeats, data_root="/d")
    run = Run(
        created=STARTED.isoformat(),
        command=("benchsuite", "jobs", "standard"),
        profile=chosen.used(),
        repeats=repeats,
        machines=(MACHINE,),
        code=CODE,
    )
    return plan_of(plan.tasks[:number_of]), run


def made_result(task: Task, began_s: float, slices: int, chance: random.Random) -> Result:
    """A result with this number of slices of half a second. A share of `FAILING` has failed."""
    failed = chance.random() < FAILING
    rate = 1000.0 * (1 + 0.1 * chance.random())
    ended_s = began_s + slices * LONGEST_SLICE_S + 3
    streams = tuple(_stream(task, rank, began_s, _slices(slices, rate, chance)) for rank in range(task.ranks))
    job, devices = task.job, tuple(gpu.visible_index for gpu in task.gpus)
    return Result(
        status="failed" if failed else "ok",
        error=Failure(kind="ValueError", message="made up", traceback="Traceback\n" * 20) if failed else None,
        identity=Identity(
            host=MACHINE.host,
            profile=task.profile,
            job=job.name,
            cell=task.cell,
            row=task.row,
            axes=task.axes,
            repeat=task.repeat,
            devices=devices,
            copy=0,
            attempt=1,
        ),
        task=task,
        machine=TaskMachine(
            gpus=task.gpus, driver=MACHINE.driver, facts_sha256=FACTS, software={"torch": "2.11.0", "cuda": "13.0"}
        ),
        code=CODE,
        tenant=Tenant(
            asked=job.tenant,
            isolation="auto",
            cpu="cpuset-v2",
            memory="v2",
            reason="groups were made on the fly",
            group="benchsuite-1/tenant-0",
            cpus=tuple(range(16)),
            memory_bytes=128 * GIB,
            oom_kills=0,
            peak_memory_bytes=4 * GIB,
            peak_pids=20,
            throttled_s=0.0,
            pressure=Pressure(cpu_some_s=0.5, cpu_full_s=0.1, memory_some_s=0.0, memory_full_s=0.0),
        ),
        data=_data(job),
        group=GroupUsed(ranks=task.ranks, backend="nccl", nccl="2.28", port=29500) if task.ranks > 1 else None,
        timeline=Timeline(
            clock=_clock(ended_s),
            queued_s=0.0,
            started_s=began_s - 15,
            ready_s=began_s - 1,
            go_s=began_s,
            ended_s=ended_s,
        ),
        measurement=Measurement(streams=streams),
        telemetry=_telemetry(task, began_s, slices // 2, chance),
        exit_code=1 if failed else 0,
    )


def _clock(at_s: float) -> Clock:
    wall = (STARTED + timedelta(seconds=at_s)).isoformat()
    return Clock(host=MACHINE.host, boot_id=BOOT, wall=wall, monotonic_s=at_s)


def _slices(number_of: int, rate: float, chance: random.Random) -> tuple[Slice, ...]:
    found, end_s = [], 2.1e-05
    for _ in range(number_of):
        start_s, end_s = end_s, round(end_s + 0.5 + (LONGEST_SLICE_S - 0.5) * chance.random(), 6)
        items = round(rate * (end_s - start_s) * (1 + chance.gauss(0, 0.01)) / 64) * 64
        found.append(Slice(start_s=start_s, end_s=end_s, steps=items // 64, items=items))
    return tuple(found)


def _data(job: Job) -> DataUsed:
    if job.data is None:
        return DataUsed(name="random numbers", real=False)
    return DataUsed(
        name=job.data,
        real=True,
        version="1",
        sha256=hashlib.sha256(job.data.encode()).hexdigest(),
        size_bytes=GIB,
        file_system="ext4",
        page_cache=job.page_cache,
        cached=0.0,
    )


def _stream(task: Task, rank: int, origin_s: float, slices: tuple[Slice, ...]) -> Stream:
    precision = task.job.training.precision
    in_force = {"fp32": "fp32", "bf16": "bf16"}.get(precision, "tf32 or fp16")
    return Stream(
        clock=_clock(origin_s),
        device=task.gpus[rank].uuid if task.gpus else "cpu",
        rank=rank,
        unit="image",
        origin_s=origin_s,
        slices=slices,
        losses=tuple(round(7.0 / (1 + place), 6) for place in range(len(slices))),
        warm_up=WarmUp(steps=5, elapsed_s=3.25),
        stopped_by="max_count",
        peak_memory=PeakMemory(device_allocated_bytes=GIB, device_reserved_bytes=GIB, host_rss_bytes=3 * GIB),
        precision=PrecisionCheck(asked=precision, in_force=in_force, matmul_error=2.4e-07, conv_error=2.2e-07),
    )


def _telemetry(task: Task, began_s: float, samples: int, chance: random.Random) -> Telemetry:
    def spread() -> Spread:
        mean = round(1000 * chance.random(), 4)
        return Spread(min=mean * 0.9, mean=mean, max=mean * 1.1, n=samples)

    devices = tuple(
        DeviceTelemetry(
            uuid=gpu.uuid,
            pci=gpu.pci,
            visible_index=gpu.visible_index,
            samples=samples,
            spreads={name: spread() for name in (*GAUGES, *GPM_GAUGES)},
            energy_j=600.0 * samples,
            energy_span_s=samples - 1.0,
            clock_events_s={"sw_power_cap": 3.0},
            clock_events_span_s=samples - 1.0,
            ecc_corrected=0,
            ecc_uncorrected=0,
            foreign=(),
            reasons={},
        )
        for gpu in task.gpus
    )
    tenant = TenantTelemetry(
        samples=samples,
        processes_max=9,
        cpu_s=2.0 * samples,
        cpu_span_s=samples - 1.0,
        cpus=2.0,
        rss_bytes=spread(),
        group_memory_bytes=spread(),
        reasons={},
        cpus_busy_s=2.1 * samples,
        cpus_stolen_s=0.0,
    )
    end_s = began_s + samples
    return Telemetry(start_s=began_s, end_s=end_s, every_s=1.0, devices=devices, tenant=tenant, series="telemetry/x")


def make_folder(folder: Path, number_of: int, slices: int) -> int:
    """Make a run folder with this number of results, not flushed to disk.

    Returns:
        The mean size of a result in bytes.
    """
    chance = random.Random(number_of)
    plan, run = planned(number_of)
    RunDir.create(folder, run, plan)
    total, lines = 0, []
    wave_s = slices * LONGEST_SLICE_S + 30
    placed = [(task, 100.0 + wave_s * nth) for nth, wave in enumerate(plan.waves) for task in wave.tasks]
    for number, (task, began_s) in enumerate(placed):
        result = made_result(task, began_s, slices, chance)
        fail = ".FAIL" if result.status in FAILURES else ""
        name = f"{task.profile}.{task.id}{fail}.20260106-160000-{number:06d}.json"
        text = to_json(result)
        (folder / name).write_bytes(text)
        total += len(text)
        about = {"task": task.id, "attempt": 1, "at": result.timeline.clock.wall}
        lines += [
            Attempt(event="start", **about, boot_id=BOOT, pid=number + 2, ticks=number, parent_pid=1, mark=task.id),
            Attempt(event="end", **about, status=result.status, result=name),
        ]
    (folder / "attempts.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return total // number_of


def report(folder: Path, program: Sequence[str] = ("-m", "benchsuite", "report")) -> tuple[float, float]:
    """A report of a folder in a child: seconds, and MiB of memory at most."""
    began = time.perf_counter()
    child = subprocess.Popen([sys.executable, *program, str(folder)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    elapsed_s = time.perf_counter() - began
    if child.returncode:
        raise SystemExit(f"report ended with status {child.returncode}")
    return elapsed_s, usage.ru_maxrss / 1024


def measured(sizes: Sequence[int], slices: int, rounds: int) -> Iterator[str]:
    """A line for each number of results: the quickest of the rounds, and the most memory of any."""
    yield f"{'results':>8}{'KB each':>9}{'seconds':>9}{'MiB':>7}{'us a result':>13}"
    for number_of in sizes:
        with tempfile.TemporaryDirectory(prefix="benchsuite-scale-") as place:
            folder = Path(place, "run")
            # In a process of its own: a child's peak counts what it was forked from.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                each = pool.submit(make_folder, folder, number_of, slices).result()
            found = [report(folder) for _ in range(rounds)]
        elapsed_s, most = min(s for s, _ in found), max(mib for _, mib in found)
        yield f"{number_of:>8,}{each / 1000:>9.1f}{elapsed_s:>9.2f}{most:>7.0f}{1e6 * elapsed_s / number_of:>13.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", type=int, nargs="*", default=[1000, 3000, 10000], help="(default: %(default)s)")
    parser.add_argument("--slices", type=int, default=120, help="slices a result (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="the quickest counts (default: %(default)s)")
    parser.add_argument("--profile", action="store_true", help="print where the time goes instead")
    chosen = parser.parse_args()
    if chosen.profile:
        with tempfile.TemporaryDirectory(prefix="benchsuite-scale-") as place:
            make_folder(Path(place, "run"), chosen.results[0], chosen.slices)
            arguments = ["-m", "cProfile", "-s", "tottime", "-m", "benchsuite", "report", str(Path(place, "run"))]
            subprocess.run([sys.executable, *arguments], check=False)
        return
    for line in measured(chosen.results, chosen.slices, chosen.rounds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
