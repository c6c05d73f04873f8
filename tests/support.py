"""The command line as a user has it: a process of its own, in a folder of the test's."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import preloaded
import psutil
import pytest

from benchsuite import cli
from benchsuite.describe.plan import plan_of
from benchsuite.describe.tasks import Job, Placement, ProfileUsed, Task
from benchsuite.host import machine as host
from benchsuite.host.monitor import Monitor
from benchsuite.isolation.fencing import Fencing
from benchsuite.launch.interrupt import Interrupt
from benchsuite.launch.ledger import Ledger
from benchsuite.launch.outcome import Setting
from benchsuite.launch.process import MARK
from benchsuite.launch.waves import RunMeans, Runner
from benchsuite.models import Workload, on_tensors
from benchsuite.records import Code, Result, Run
from benchsuite.rundir import RunDir, make_folder, results

if TYPE_CHECKING:
    from torch import Tensor

# The shortest measurement that tests need. A test that starts a worker leaves out the warm-up by time.
QUICK = {"warm_up_s": 0.0, "min_time_s": 0.7}
PROGRAMS = Path(__file__).parent / "programs"


def environ(**more: str) -> dict[str, str]:
    """An environment in which the test programs are found and no GPU is."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("BENCHSUITE")}
    paths = [str(PROGRAMS), str(PROGRAMS.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "CUDA_VISIBLE_DEVICES": "", **more}


def without(*packages: str) -> dict[str, str]:
    """An environment in which Python does not find these packages, in child processes neither."""
    given = environ(ABSENT_PACKAGES=" ".join(packages))
    return {**given, "PYTHONPATH": os.pathsep.join([str(PROGRAMS / "absent"), given["PYTHONPATH"]])}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "benchsuite", *arguments]


def start(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None, **streams: Any) -> subprocess.Popen[Any]:
    """Start the command line; `streams` are those of `Popen`."""
    usual = environ()
    env = usual if env is None else env
    if preloaded.fits(env, usual):
        return preloaded.Forked(arguments, cwd=cwd, env=env, **streams)
    return subprocess.Popen(command(*arguments), cwd=cwd, env=env, **streams)


def benchsuite(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    pipe = subprocess.PIPE
    with start(*arguments, cwd=cwd, env=env, stdin=-3, stdout=pipe, stderr=pipe, encoding="utf-8") as running:
        try:
            out, err = running.communicate(timeout=timeout)
        except BaseException:
            running.kill()
            raise
    return subprocess.CompletedProcess(arguments, running.returncode, out, err)


def in_process(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The same without a process of its own: for what only reads and starts nothing."""
    out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
    os.chdir(cwd)
    try:
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            cli.main(arguments)
    finally:
        os.chdir(before)
    return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), out.getvalue(), err.getvalue())


def write_profile(path: Path, **jobs: dict[str, Any]) -> Path:
    """A profile of quick jobs of the fault program, on the CPU; a job gives its `params` and other fields."""
    common = {"entry": "faults:build", "placement": "cpu", **QUICK, "max_time_s": 30, "timeout_s": 60}
    path.write_text(json.dumps({"*": common, **jobs}), encoding="utf-8")
    return path


def read_results(folder: Path) -> dict[str, Result]:
    """Job name -> its only result; every file of the folder must be a good one."""
    found: dict[str, Result] = {}
    for path, result in results(folder):
        assert isinstance(result, Result), f"{path}: {result}"
        assert result.task.job.name not in found, f"two results of {result.task.job.name}"
        found[result.task.job.name] = result
    return found


def one_line_error(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """Exit status 2 and one line on stderr that holds all parts, with nothing on stdout and no traceback."""
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("benchsuite: ")
    for part in parts:
        assert part in lines[0], f"{part!r} not in {lines[0]!r}"
    assert done.stdout == ""


class Watching:
    """An observer that keeps all calls."""

    def __init__(self) -> None:
        self.results: dict[str, Result] = {}

    def say(self, line: str) -> None:
        pass

    def begin(self, tasks: Any) -> None:
        pass

    def added(self, tasks: Any) -> None:
        pass

    def wave(self, tasks: Any) -> None:
        pass

    def look(self, children: Any) -> None:
        pass

    def ended(self, result: Result, path: Path | None, problem: str | None) -> None:
        assert path is not None, problem
        self.results[result.task.id] = result


def side_by_side(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fencing: Fencing | None = None, **fields: dict[str, Any]
) -> dict[str, Result]:
    """Run one wave of CPU tasks, unfenced by default; each name gives its "params" and other job fields."""
    monkeypatch.setenv("PYTHONPATH", environ()["PYTHONPATH"])
    tasks = []
    for name, given in fields.items():
        job = Job(
            name="job",
            placement=Placement(devices="none"),
            **{"entry": "faults:build", **QUICK, "max_time_s": 20.0, "timeout_s": 40.0, **given},
        )
        variables = {key: environ()[key] for key in ("PYTHONPATH", "CUDA_VISIBLE_DEVICES")}
        tasks.append(Task(id=name, profile="p", repeat=0, job=job, cell="job", row="job", wave="w", environ=variables))
    machine = host.describe({})
    used = ProfileUsed(name="p", path="p", sha256="", text="", official=False)
    code = Code(version="0")
    run = Run(created="now", command=(), profile=used, repeats=1, machines=(machine,), code=code)
    watching = Watching()
    make_folder(folder / "out")
    rundir = RunDir.create(folder / "out", run, plan_of(tasks))
    fencing = fencing or Fencing.choose("none", require=False, largest=len(tasks))
    with Monitor([]) as monitor:
        means = RunMeans(Setting(machine, "", code, time.monotonic()), fencing, monitor)
        with Interrupt() as interrupt:
            Runner(Ledger(rundir), means, dict(os.environ), watching, interrupt).run(plan_of(tasks).waves)
    fencing.close()
    return watching.results


def build(model: ModuleType, **changed: Any) -> Workload:
    """A model's workload with its SMALL parameters, some of them changed; weights are a function of the seed."""
    import torch

    params = model.Params(**{**model.SMALL, **changed})
    torch.manual_seed(params.seed)
    workload = model.build(params)
    assert isinstance(workload, Workload)
    if workload.fill:
        from benchsuite.describe.training import Training
        from benchsuite.worker.step import place

        place(workload, Training(), "cpu")
    return workload


def tensors(tree: Any) -> list[Tensor]:
    """All tensors of a batch, in order."""
    found: list[Tensor] = []
    on_tensors(lambda tensor: (found.append(tensor), tensor)[1], tree)
    return found


def same(a: Any, b: Any) -> bool:
    """Whether all tensors of two trees of one form are equal."""
    import torch

    return all(torch.equal(x, y) for x, y in zip(tensors(a), tensors(b), strict=True))


def statuses(out: Path) -> dict[str, list[str]]:
    """Task -> status of each attempt in turn, from the result files."""
    found: dict[str, dict[int, str]] = {}
    for file in out.glob("*.json"):
        if file.name not in ("run.json", "plan.json"):
            result = json.loads(file.read_text())
            attempts = found.setdefault(result["task"]["id"], {})
            attempt = result["identity"]["attempt"]
            assert attempt not in attempts, f"two results of {result['task']['id']}, attempt {attempt}"
            attempts[attempt] = result["status"]
    return {task: [of[n] for n in sorted(of)] for task, of in found.items()}


def marked(mark: str) -> list[int]:
    """Living processes whose inherited mark contains this text."""
    found = []
    for process in psutil.process_iter():
        try:
            if mark in process.environ().get(MARK, "") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, OSError):
            pass
    return found


def wait_for(condition: Callable[[], Any], limit_s: float = 120) -> None:
    """Until the condition holds; fails after the limit."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def _marks(out: Path) -> list[str]:
    lines = map(json.loads, (out / "attempts.jsonl").read_text().splitlines())
    return [line["mark"] for line in lines if line.get("mark")]


def _environ_of(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return dict(pair.split("=", 1) for pair in text.split("\0") if "=" in pair)


def kill_rank(out: Path, task: str, rank: int) -> int:
    """Kill one rank of a run's only task, as a bystander would, once it has closed some slices; its pid."""
    events = out / "logs" / f"{task}.a1.events.{rank}.jsonl"
    wait_for(lambda: events.exists() and len(events.read_text().splitlines()) > 3)
    (mark,) = _marks(out)
    victim = next(pid for pid in marked(mark) if _environ_of(pid).get("RANK") == str(rank))
    os.kill(victim, signal.SIGKILL)
    return victim


def nothing_left(out: Path) -> None:
    """Assert that no process of any task of a run is alive, or not for long."""
    marks = _marks(out)
    assert marks
    for mark in marks:
        wait_for(lambda mark=mark: not marked(mark))
