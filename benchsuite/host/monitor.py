"""Sample GPUs and tasks from the parent while they run: one thread a GPU, so that one that hangs delays no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from benchsuite.describe.tasks import Gpu
from benchsuite.host import nvml, steal
from benchsuite.host.device import Device
from benchsuite.host.nvml import GpuLost
from benchsuite.host.series import Series
from benchsuite.host.usage import Usage
from benchsuite.telemetry import DeviceSample, TenantSample

STOP_LIMIT_S = 2.0


@dataclass
class _Watched:
    """One GPU. Only its own thread calls NVML for it.

    Attributes:
        reasons: for each field without a value, the last reason for it.
        asked_s: when a call began that is not answered yet, on CLOCK_MONOTONIC; None if there is none.
        stuck: such a call has lasted so long that it is reported.
        silent: no query of the last sample had an answer.
    """

    gpu: Gpu
    series: Series[DeviceSample] = field(default_factory=Series)
    reasons: dict[str, str] = field(default_factory=dict)
    asked_s: float | None = None
    stuck: bool = False
    silent: bool = False

    @property
    def name(self) -> str:
        return f"GPU {self.gpu.visible_index} ({self.gpu.uuid})"


@dataclass
class _Followed:
    usage: Usage
    series: Series[TenantSample] = field(default_factory=Series)


class Monitor:
    """Samples GPUs and tenants every `every_s` seconds. No failure of theirs raises here.

    Its threads are daemons: a call that never returns ends with the process.

    Args:
        stuck_s: after this time without an answer a GPU is reported as stuck.

    Attributes:
        notes: what went wrong so far, in words: no NVML, a GPU lost, a GPU stuck.
    """

    def __init__(self, gpus: Sequence[Gpu], *, every_s: float = 1.0, stuck_s: float = 10.0) -> None:
        self.every_s = every_s
        self.notes: list[str] = []
        self._said = 0
        self._stuck_s = stuck_s
        self._watches = {gpu.uuid: _Watched(gpu) for gpu in gpus}
        self._tenants: dict[str, _Followed] = {}
        self._forgotten: set[int] = set()
        self._lock = threading.Lock()
        self._over, self._paused = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Monitor:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to sample; the first samples come at once."""
        reason = nvml.start()
        if reason or not self._watches:
            self.notes.append(reason or "no GPU to watch")
        for watch in self._watches.values():
            if reason:
                watch.reasons["samples"] = reason
            else:
                self._spawn(self._watch_gpu, watch)
        self._spawn(self._watch_tenants)

    def news(self) -> list[str]:
        """The notes since the last call."""
        found = self.notes[self._said :]
        self._said += len(found)
        return found

    def _spawn(self, run: Callable[..., None], *arguments: _Watched) -> None:
        thread = threading.Thread(target=run, args=arguments, name="monitor", daemon=True)
        thread.start()
        self._threads.append(thread)

    def pause(self) -> None:
        """Take no samples from now on, until `resume`."""
        self._paused.set()

    def resume(self) -> None:
        """Take samples again."""
        self._paused.clear()

    def stop(self) -> None:
        """End sampling, within about `STOP_LIMIT_S` even if a GPU does not answer. The samples stay."""
        self._over.set()
        deadline_s = time.monotonic() + STOP_LIMIT_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        self._look_for_stuck(limit_s=STOP_LIMIT_S)

    # --- tenants

    def follow(
        self,
        key: str,
        pids: Callable[[], Sequence[int]],
        *,
        memory_bytes: Callable[[], int | None] | None = None,
        cpu_s: Callable[[], float | None] | None = None,
        cpus: Collection[int] = (),
    ) -> None:
        """Watch a task's processes from now on.

        Args:
            pids: lists its living processes; called once a sample, in another thread. It may raise OSError and
                psutil.Error, which are noted.
            memory_bytes, cpu_s: what its group is charged with, if it has one; `cpu_s` is then exact.
            cpus: the CPUs that it may use.
        """
        with self._lock:
            self._tenants[key] = _Followed(Usage(pids, memory_bytes, cpu_s, cpus))

    def forget(self, key: str) -> None:
        """Stop watching a task and drop its series; its processes still count as the run's."""
        with self._lock:
            tenant = self._tenants.pop(key, None)
            if tenant:
                self._forgotten |= tenant.usage.seen

    def own_pids(self) -> frozenset[int]:
        """All processes that tasks of this run were seen to have so far."""
        with self._lock:
            return frozenset(self._forgotten).union(*(t.usage.seen for t in self._tenants.values()))

    # --- what was seen

    def device_series(self, uuid: str, start_s: float, end_s: float) -> list[DeviceSample]:
        """A GPU's samples between two times of CLOCK_MONOTONIC, both included; empty if the GPU is not watched."""
        watch = self._watches.get(uuid)
        return watch.series.cut(start_s, end_s) if watch else []

    def tenant_series(self, key: str, start_s: float, end_s: float) -> list[TenantSample]:
        """As `device_series`, for a task that is followed."""
        tenant = self._tenants.get(key)
        return tenant.series.cut(start_s, end_s) if tenant else []

    def device_reasons(self, uuid: str) -> dict[str, str]:
        """For each field of a GPU's samples without a value, the reason; under `samples` why there are no samples."""
        watch = self._watches.get(uuid)
        return dict(watch.reasons) if watch else {"samples": "this GPU is not watched"}

    def tenant_reasons(self, key: str) -> dict[str, str]:
        """For each field of a task's samples without a value, the reason."""
        tenant = self._tenants.get(key)
        return dict(tenant.usage.reasons) if tenant else {"samples": "this task is not followed"}

    def trim(self, before_s: float) -> None:
        """Drop older samples; a series that is not trimmed thins itself out after two hours."""
        for watch in self._watches.values():
            watch.series.trim(before_s)
        with self._lock:
            for tenant in self._tenants.values():
                tenant.series.trim(before_s)

    # --- the threads

    def _ticks(self) -> Iterator[None]:
        """Every `every_s` until the end; missed ticks are not repeated."""
        due_s = time.monotonic()
        while not self._over.is_set():
            if not self._paused.is_set():
                yield
            due_s = max(due_s + self.every_s, time.monotonic())
            self._over.wait(due_s - time.monotonic())

    def _watch_gpu(self, watch: _Watched) -> None:
        watch.asked_s = time.monotonic()
        try:
            device = Device(watch.gpu, watch.reasons)
            for _ in self._ticks():
                watch.asked_s = watch.asked_s or time.monotonic()
                self._keep(watch, device.sample())
                self._answered(watch)
            device.close()
        except GpuLost as lost:
            watch.reasons["samples"] = str(lost)
            self.notes.append(f"{watch.name}: {lost}; it is no longer watched")
        watch.asked_s = None

    def _keep(self, watch: _Watched, sample: DeviceSample) -> None:
        """Add a sample; note once that a GPU gives no value any more, and that it does again."""
        watch.series.add(sample)
        if watch.silent == sample.answered:
            watch.silent = not sample.answered
            if watch.silent:
                watch.reasons["samples"] = "no query has an answer: " + watch.reasons.get("power_w", "not read")
                self.notes.append(f"{watch.name}: {watch.reasons['samples']}")
            else:
                watch.reasons.pop("samples", None)
                self.notes.append(f"{watch.name}: queries have answers again")

    def _answered(self, watch: _Watched) -> None:
        asked_s, watch.asked_s = watch.asked_s, None
        if watch.stuck and asked_s is not None:
            watch.stuck = False
            watch.reasons.pop("samples", None)
            self.notes.append(f"{watch.name} answered again after {time.monotonic() - asked_s:.0f} s")

    def _watch_tenants(self) -> None:
        for _ in self._ticks():
            with self._lock:
                tenants = list(self._tenants.values())
            processors = steal.processor_times() if tenants else {}
            for tenant in tenants:
                tenant.series.add(tenant.usage.sample(processors))
            self._look_for_stuck(limit_s=self._stuck_s)

    def _look_for_stuck(self, limit_s: float) -> None:
        for watch in self._watches.values():
            asked_s = watch.asked_s
            if asked_s is not None and not watch.stuck and time.monotonic() - asked_s >= limit_s:
                watch.stuck = True
                reason = f"stopped answering at {asked_s:.1f} s of CLOCK_MONOTONIC"
                watch.reasons["samples"] = reason
                self.notes.append(f"{watch.name} {reason}")
