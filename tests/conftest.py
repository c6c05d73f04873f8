"""Records for tests, made as the real code would make them."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchsuite import cli
from benchsuite.describe import plan
from benchsuite.describe.matrix import Cell
from benchsuite.describe.tasks import Gpu, Job, Placement, ProfileUsed, Task
from benchsuite.measurement import Clock, Measurement, Slice, Stream
from benchsuite.provisions import Tenant
from benchsuite.records import Code, Failure, Identity, Machine, Result, Run, TaskMachine, Timeline
from benchsuite.rundir import Attempt, RunDir, write_result

# benchsuite names itself as it was started: by `pytest`, by `python -m pytest` or by xdist is one to the tests.
sys.argv[0] = "pytest"
# What tests keep in their own process need not outlive a power cut. The commands that they start flush their files.
os.fsync = lambda fd: None

# A job in the background of a shell ignores Ctrl-C, one under nohup SIGHUP, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of which no test is asked for are not imported, which takes seconds with torch and in all.

    With `-m torch` these are the files without such a test, and with `-m "not torch"` those of which every test needs
    torch; the same with slurm, and with `not torch and not slurm`.
    """
    if collection_path.suffix != ".py":
        return None
    asked, text = config.option.markexpr, collection_path.read_text("utf-8")
    if asked in ("torch", "slurm"):
        return None if f"pytest.mark.{asked}" in text else True
    if " or " in asked:
        return None
    left_out = [words.removeprefix("not ") for words in asked.split(" and ") if words.startswith("not ")]
    whole = rf"^pytestmark = [^()]*?pytest\.mark\.({'|'.join(map(re.escape, left_out))})\b"
    return True if left_out and re.search(whole, text, re.MULTILINE) else None


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Files of tests that wait for processes begin first, so that others fill their gaps and none is the last alone."""
    waiting = {"start", "side_by_side", "wait_for"}  # of `support`
    items.sort(key=lambda item: waiting.isdisjoint(vars(item.module)))


def make_gpu(index: int = 0, name: str = "NVIDIA Test") -> Gpu:
    return Gpu(visible_index=index, nvml_index=index, uuid=f"GPU-{index:04d}", name=name, pci=f"0000:0{index}:00.0")


def make_task(name: str = "vae", repeat: int = 0, gpu: int | None = 0, profile: str = "suite", **fields: Any) -> Task:
    """`gpu=None` is a task on the CPU."""
    gpus = fields.pop("gpus", () if gpu is None else (make_gpu(gpu),))
    placement = Placement(devices="each" if gpus else "none")
    record = fields.pop("job", Job(name=name, model="vae", placement=placement))
    ranks, cell = fields.pop("ranks", 1), Cell(record.name, fields.pop("axes", {}), record)
    number, axes = (gpus[0].visible_index if gpus else None), {}
    if record.placement.devices == "progression":
        number, axes = ranks - 1, {"gpus" if gpus else "ranks": ranks}
    elif record.placement.devices == "all":
        number = None
    task = plan.make_task(cell, plan.Place(gpus, ranks, number, axes), plan.PlanContext(profile, {}), repeat)
    return msgspec.structs.replace(task, **{"environ": {}, "cwd": None, "skip": None, **fields})


def make_slices(rates: Sequence[float], slice_s: float = 0.5) -> tuple[Slice, ...]:
    """One slice a rate (items/s), back to back."""
    return tuple(
        Slice(start_s=i * slice_s, end_s=(i + 1) * slice_s, steps=1, items=round(rate * slice_s))
        for i, rate in enumerate(rates)
    )


def make_result(
    job: str = "vae",
    rates: Sequence[float] = (100.0,) * 30,
    *,
    repeat: int = 0,
    gpu: int | None = 0,
    status: str = "ok",
    slice_s: float = 0.5,
    origin_s: float = 1000.0,
    host: str = "hostA",
    task: Task | None = None,
    **fields: Any,
) -> Result:
    """A result whose slices have the given rates in items/s."""
    task = task or make_task(job, repeat, gpu)
    slices = make_slices(rates, slice_s)
    clock = Clock(host=host, boot_id="boot", wall="2026-01-06T16:00:00+00:00", monotonic_s=0.0)
    stream = Stream(
        clock=clock,
        device=task.gpus[0].uuid if task.gpus else "cpu",
        unit="image",
        origin_s=origin_s,
        slices=slices,
        losses=(1.0,) * len(slices),
        stopped_by="min_time",
    )
    defaults: dict[str, Any] = {
        "status": status,
        "error": None if status == "ok" else Failure(kind=status, message=f"the task is {status}"),
        "identity": Identity(
            host=host,
            profile=task.profile,
            job=task.job.name,
            cell=task.cell,
            row=task.row,
            axes=task.axes,
            repeat=task.repeat,
            devices=tuple(g.visible_index for g in task.gpus),
            copy=0,
            attempt=1,
        ),
        "task": task,
        "machine": TaskMachine(gpus=task.gpus, driver="580.0", facts_sha256="0" * 64, software={"torch": "2.11.0"}),
        "code": Code(version="0.1.0"),
        "tenant": Tenant(asked="share", reason="not fenced"),
        "timeline": Timeline(
            clock=clock, queued_s=0.0, started_s=1.0, ready_s=2.0, go_s=origin_s, ended_s=origin_s + 20
        ),
        "measurement": Measurement(streams=(stream,) if rates else ()),
    }
    return Result(**{**defaults, **fields})


def make_run(gpus: int = 2, **fields: Any) -> Run:
    """A run of the profile `suite` on a machine with `gpus` GPUs, all visible."""
    cards = tuple(make_gpu(index) for index in range(gpus))
    machine = Machine(
        host="hostA",
        boot_id="boot",
        system="Linux",
        kernel="6.18",
        cpu="Test CPU",
        cpus=8,
        cpus_usable=8,
        memory_bytes=2**34,
        driver="580.0" if cards else None,
        gpus=cards,
        visible=tuple(card.uuid for card in cards),
        python="3.12.0",
        packages={"torch": "2.11.0"},
    )
    profile = ProfileUsed(name="suite", path="suite.yaml", sha256="a" * 64, text="{}", official=False)
    defaults: dict[str, Any] = {"profile": profile, "machines": (machine,), "code": Code(version="0.1.0"), "repeats": 1}
    return Run(created="2026-01-06T16:00:00+00:00", command=("jobs", "suite"), **{**defaults, **fields})


def keep_results(folder: Path, results: Iterable[Result]) -> list[Path]:
    """Write results as a run does, a second apart; nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    start = datetime(2026, 1, 6, 16, tzinfo=timezone.utc)
    return [write_result(folder, result, start + timedelta(seconds=i)) for i, result in enumerate(results)]


def keep_run(
    folder: Path, results: Sequence[Result], tasks: Sequence[Task] | None = None, run: Run | None = None
) -> list[Path]:
    """A whole run folder: run.json, plan.json (by default the results' own tasks), attempts and results."""
    tasks = [result.task for result in results if not result.task.rerun_of] if tasks is None else tasks
    rundir = RunDir.create(folder, run or make_run(), plan.plan_of(tasks))
    files = keep_results(folder, results)
    for result, file in zip(results, files, strict=True):
        if result.task.rerun_of:
            continue
        line = {"task": result.task.id, "attempt": result.identity.attempt, "at": "2026-01-06T16:00:00+00:00"}
        rundir.note_attempt(Attempt(event="start", **line))
        rundir.note_attempt(Attempt(event="end", status=result.status, result=file.name, **line))
    return files


@pytest.fixture(name="make_result")
def make_result_fixture() -> Callable[..., Result]:
    return make_result


@pytest.fixture(name="one_thread")
def one_thread_fixture() -> Iterator[None]:
    """Compute on one thread: small tensors are slower on more, and much slower where other processes want the cores."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="call")
def call_fixture(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line, in this process: exit status, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call
