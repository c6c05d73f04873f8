"""Run a worker in a container of docker, podman or apptainer, and end the container with it.

Folders have the same path inside and outside, except that of this package. Processes of docker and podman are no
children of ours, so that the task's control group does not hold them. The container shares the network, the process
numbers and the shared memory of the host.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchsuite.describe.containers import Container, Engine, engine_of, missing_engine
from benchsuite.describe.tasks import Task
from benchsuite.errors import OutputError, one_line
from benchsuite.host.kernel_files import descendants
from benchsuite.launch.process import MARK
from benchsuite.provisions import ContainerUsed, Tenant
from benchsuite.records import Failure

PACKAGE = Path(__file__).resolve().parents[1]
# Where the container has this package, apart from all others: the image has its own torch.
INSIDE = "/opt/benchsuite-host"
# The host's paths of libraries and modules mean other files in the container, if any.
_OF_HOST = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "CUDA_HOME", "CUDA_PATH"})
# Exit codes by which docker and podman report that they did not start the command.
_NOT_STARTED = frozenset({125, 126, 127})
# The engine's own commands, which remove a container or find its process, take less.
LIMIT_S = 20.0


@dataclass(frozen=True)
class Needs:
    """What a worker needs of its host.

    Attributes:
        folder: the folder in which it starts.
        written: folders that it writes.
        read: folders that it reads.
        environ: its environment variables.
        gpus: the UUIDs of its GPUs.
        cpus: the CPUs that it may use; empty for all.
        memory_bytes: the memory that it may use; None for no limit.
    """

    folder: Path
    written: Sequence[Path]
    read: Sequence[Path]
    environ: Mapping[str, str]
    gpus: Sequence[str] = ()
    cpus: Sequence[int] = ()
    memory_bytes: int | None = None


class Contained:
    """The container of one worker.

    Attributes:
        outside: its processes are no children of the process that asks the engine for it.

    Raises:
        OutputError: no engine is on PATH.
    """

    def __init__(self, asked: Container) -> None:
        found = engine_of(asked)
        if found is None:
            raise OutputError(missing_engine(asked) or "no container engine is on PATH")
        self.asked = asked
        self.engine: Engine = found[0]
        self.outside = self.engine != "apptainer"
        self._path = found[1]
        self._name = f"benchsuite-{os.getpid()}-{time.monotonic_ns()}"
        self._root: int | None = None
        self._asked_s = 0.0
        self._over = False
        self._lock = threading.Lock()

    @property
    def used(self) -> ContainerUsed:
        """The record for the result."""
        return ContainerUsed(engine=self.engine, image=self.asked.image)

    def command(self, inner: Sequence[str], needs: Needs) -> list[str]:
        """The command line that starts `inner` in the container."""
        written = [*needs.written, *map(Path, self.asked.mounts)]
        read = {str(path): str(path) for path in needs.read if path not in written}
        read[str(PACKAGE)] = f"{INSIDE}/{PACKAGE.name}"
        if not self.outside:
            binds = [*(f"{path}:{target}:ro" for path, target in read.items()), *(str(path) for path in written)]
            nv = ["--nv"] if needs.gpus else []
            options = [*nv, *(word for bind in binds for word in ("--bind", bind)), "--pwd", str(needs.folder)]
            return [self._path, "exec", *options, _apptainer_image(self.asked.image), *inner]
        mounts = [f"type=bind,source={path},target={path}" for path in written]
        mounts += [f"type=bind,source={path},target={target},readonly" for path, target in read.items()]
        words = [self._path, "run", "--rm", "--name", self._name]
        words += ["--network", "host", "--ipc", "host", "--pid", "host", "--ulimit", "memlock=-1"]
        words += [*_user(self.engine), *_gpus(self.engine, needs.gpus), "--workdir", str(needs.folder)]
        words += ["--cpuset-cpus", ",".join(map(str, needs.cpus))] if needs.cpus else []
        words += ["--memory", str(needs.memory_bytes)] if needs.memory_bytes else []
        words += [word for mount in mounts for word in ("--mount", mount)]
        words += [word for name in sorted({*needs.environ, MARK}) for word in ("--env", name)]
        words += ["--env", "HOME=/tmp"]
        return [*words, "--entrypoint", inner[0], self.asked.image, *inner[1:]]

    def pids(self) -> list[int]:
        """The processes in the container; empty before its start, and for an engine whose containers are children."""
        with self._lock:
            if self._root is None and not self._over and time.monotonic() > self._asked_s + 1.0:
                self._asked_s = time.monotonic()
                printed = self._ask("inspect", "--format", "{{.State.Pid}}", self._name).strip()
                self._root = int(printed) if printed.isascii() and printed.isdigit() and int(printed) else None
        return [self._root, *descendants(self._root)] if self._root else []

    def end(self) -> None:
        """End the container and all its processes, if it is still there."""
        with self._lock:  # no other question to the engine outlives this call
            if self.outside and not self._over:
                self._ask("rm", "--force", self._name)
            self._over = True

    def _ask(self, *words: str) -> str:
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run([self._path, *words], capture_output=True, text=True, timeout=LIMIT_S, check=True)
            return done.stdout
        return ""

    def fenced(self, facts: Tenant) -> Tenant:
        """The record of the share of the machine that holds in the container.

        The counts of the task's group are those of the engine's client, so that they are left out.
        """
        if not self.outside:
            return facts
        asked = [*(["its CPUs"] if facts.cpus else []), *(["its memory limit"] if facts.memory_bytes else [])]
        limits = f"{self.engine} was asked for {' and '.join(asked)}, unchecked" if asked else "nothing limits it"
        return msgspec.structs.replace(
            facts,
            cpu="none",
            memory="none",
            reason=f"the container is outside the task's group, which counts nothing of it; {limits}",
            oom_kills=None,
            peak_memory_bytes=None,
            peak_pids=None,
            pressure=None,
        )

    def problem(self, code: int | None, printed: str) -> Failure | None:
        """Why the engine did not start the worker, if the exit code of its client says so.

        Args:
            printed: the last lines of its stderr.
        """
        if code not in _NOT_STARTED and not (code == 255 and self.engine == "apptainer"):
            return None
        lines = printed.splitlines() or [""]
        errors = [line for line in lines if line.lower().startswith((f"{self.engine}: ", "error", "fatal"))]
        last = one_line((errors or lines)[-1])[:300]
        message = f"{self.engine} could not start the container of {self.asked.image}{f': {last}' if last else ''}"
        return Failure(kind="container", message=message, traceback=printed)


def _user(engine: Engine) -> list[str]:
    """The options by which files that the worker writes belong to the user."""
    if engine == "podman":
        return ["--userns", "keep-id"] if os.getuid() else []
    return ["--user", f"{os.getuid()}:{os.getgid()}"]


def _gpus(engine: Engine, uuids: Sequence[str]) -> list[str]:
    """The options for these GPUs. docker reads the value of --gpus as CSV, so that a list of devices is quoted."""
    if engine == "podman":
        return [word for uuid in uuids for word in ("--device", f"nvidia.com/gpu={uuid}")]
    return ["--gpus", f'"device={",".join(uuids)}"'] if uuids else []


def _apptainer_image(image: str) -> str:
    return image if "://" in image or Path(image).exists() else f"docker://{image}"


def worker_command(program: str, file: Path) -> list[str]:
    """The worker's command line by the Python of the image."""
    return ["python3", "-m", program, str(file)]


def needs_of(
    task: Task, run: Path, environ: Mapping[str, str], data: str | None, tenant: Tenant, worker: Mapping[str, str]
) -> Needs:
    """What the worker of a task needs.

    Args:
        run: the folder of the run.
        environ: the environment of this process.
        data: the folder of the data set.
        tenant: its share of the machine.
        worker: the variables that the task, its wave and its share give the worker.
    """
    modules = [Path(p) for p in environ.get("PYTHONPATH", "").split(os.pathsep) if p] if task.job.entry else []
    own = {name: value for name, value in worker.items() if name not in _OF_HOST or name in task.job.env}
    own["PYTHONPATH"] = os.pathsep.join([INSIDE, *(str(p.absolute()) for p in modules)])
    own |= {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1", "USER": environ.get("USER", "benchsuite")}
    read = [*modules, *([Path(task.cwd)] if task.cwd else []), *([Path(data)] if data else [])]
    return Needs(
        folder=Path.cwd(),  # paths of the assignment may be relative to it
        written=[run.absolute()],
        read=list(dict.fromkeys(path.absolute() for path in read if path.exists())),
        environ=own,
        gpus=[gpu.uuid for gpu in task.gpus],
        cpus=tenant.cpus,
        memory_bytes=tenant.memory_bytes,
    )
