"""What a worker measures: its slices, its memory, precision and compilation, and the clock of its times."""

from __future__ import annotations

import socket
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from benchsuite.costs import MeasuringCost
from benchsuite.errors import encodable
from benchsuite.schema import Record

Phase = Literal["measure", "hold"]


class Clock(Record, frozen=True, kw_only=True):
    """The clock that times called `*_s` count on: CLOCK_MONOTONIC of one boot of one host."""

    host: Annotated[str, Meta(description="name of the host")]
    boot_id: Annotated[str, Meta(description="boot that CLOCK_MONOTONIC counts from; `unknown` if it was not recorded")]
    wall: Annotated[str, Meta(description="an instant of the wall clock, ISO 8601, UTC")]
    monotonic_s: Annotated[float, Meta(description="the same instant on CLOCK_MONOTONIC")]


def read_boot_id() -> str:
    """The id of the boot from which CLOCK_MONOTONIC counts; `unknown` if the kernel does not report it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip() or "unknown"
    except (OSError, ValueError):
        return "unknown"


def read_host() -> str:
    """The name of this host. Bytes that are not UTF-8, which Linux allows, are replaced."""
    return encodable(socket.gethostname())


def read_clock() -> Clock:
    """This host's clock, anchored at this instant."""
    wall = datetime.now(timezone.utc).isoformat()
    return Clock(host=read_host(), boot_id=read_boot_id(), wall=wall, monotonic_s=time.monotonic())


class Slice(Record, frozen=True, kw_only=True, array_like=True, gc=False):
    """Whole steps from one device sync to the next.

    A large report holds millions of them: without references they need no garbage collector.
    """

    start_s: Annotated[float, Meta(description="seconds since the stream's `origin_s`")]
    end_s: Annotated[float, Meta(description="seconds since the stream's `origin_s`")]
    steps: Annotated[int, Meta(description="whole steps")]
    items: Annotated[int, Meta(description="items of these steps")]
    phase: Annotated[
        Phase, Meta(description="`hold`: trained on for its neighbours after its own measurement; never counted")
    ] = "measure"

    @property
    def elapsed_s(self) -> float:
        """The length of the slice."""
        return self.end_s - self.start_s


class WarmUp(Record, frozen=True, kw_only=True):
    """Untimed steps before `ready`, compilation and allocation included."""

    steps: Annotated[int, Meta(description="untimed steps")]
    elapsed_s: Annotated[float, Meta(description="time that they took")]
    first_step_s: Annotated[
        float | None, Meta(description="time of the first step, compilation included; null: not recorded")
    ] = None


class Compiled(Record, frozen=True, kw_only=True):
    """What Dynamo made of the model. It can fall back to eager execution without an error: it then has no graph."""

    graphs: Annotated[int, Meta(description="graphs that were compiled")]
    breaks: Annotated[int, Meta(description="graph breaks")]


class Traced(Record, frozen=True, kw_only=True):
    """What a profiler has recorded after the measurement."""

    file: Annotated[str, Meta(description="path of the recording in the run folder")]
    steps: Annotated[int, Meta(description="steps that were recorded")]
    start_s: Annotated[float | None, Meta(description="when the recording began, on the stream's `clock`")] = None
    elapsed_s: Annotated[float, Meta(description="time of the recorded steps, the profiler's own work included")]
    step_s: Annotated[float | None, Meta(description="time of a step just before, unrecorded; null: none was taken")]


MemoryKind = Literal["weights", "optimiser state", "gradients", "activations", "temporary", "other"]
# From the most lasting kind to the least; `other` was allocated before the recording and is of no kind that is known.
MEMORY_KINDS: tuple[MemoryKind, ...] = (
    "weights",
    "optimiser state",
    "gradients",
    "activations",
    "temporary",
    "other",
)


class MemoryCurve(Record, frozen=True, kw_only=True):
    """What a GPU's memory holds during recorded steps, by kind; the kinds are `MEMORY_KINDS`, in this order."""

    schema: int = 1
    kind: Literal["memory"] = "memory"
    points: Annotated[
        tuple[tuple[float, ...], ...], Meta(description="seconds since the recording began, then bytes of each kind")
    ]
    at_peak: Annotated[dict[str, int], Meta(description="kind -> bytes at the moment with the most memory")]
    peak_at_s: float
    peak_bytes: Annotated[int, Meta(description="torch's own peak of what its allocator has handed out")]
    reserved_bytes: Annotated[int, Meta(description="torch's own peak of what its allocator holds")]
    device_used_bytes: Annotated[int, Meta(description="what the driver counts as used, other processes included")]


class PrecisionCheck(Record, frozen=True, kw_only=True):
    """One matrix product and one convolution against fp64, and the precision that their errors show."""

    asked: Annotated[str, Meta(description="the job's `precision`")]
    in_force: Annotated[str, Meta(description="the precision that the errors show")]
    dtype: Annotated[str | None, Meta(description="torch's dtype of both probes; null: the default dtype")] = None
    parameters: Annotated[
        dict[str, int] | None,
        Meta(description="torch's dtype -> elements of the model's parameters after warm-up; null: not recorded"),
    ] = None
    products: Annotated[
        dict[str, int] | None,
        Meta(
            description="torch's dtype -> matrix products and convolutions of one step of warm-up; null: not recorded, "
            "as in a compiled step"
        ),
    ] = None
    declared: Annotated[
        str | None, Meta(description="number format to which the model's file says that it converts; null: none")
    ] = None
    matmul_error: Annotated[float, Meta(description="||result - reference|| / ||reference||")]
    conv_error: Annotated[float, Meta(description="||result - reference|| / ||reference||")]


class GroupUsed(Record, frozen=True, kw_only=True):
    """How the ranks of a task met and communicate."""

    ranks: Annotated[int, Meta(description="number of ranks")]
    backend: Annotated[str, Meta(description="nccl or gloo")]
    nccl: Annotated[str | None, Meta(description="version of NCCL")] = None
    port: Annotated[int | None, Meta(description="TCP port of the rendezvous")] = None


class ModelFlops(Record, frozen=True, kw_only=True):
    """The floating-point operations that a model needs for one item: its losses and their backward passes.

    Matrix products and convolutions are counted, and a multiply-add is 2. Every attention counts its whole square.
    Neither the optimiser nor what activation checkpointing computes again is counted.
    """

    per_item: Annotated[float | None, Meta(description="FLOPs of an item; null: see `reason`")] = None
    causal_per_item: Annotated[
        float, Meta(description="the part of `per_item` that causal attention masks out: half of its squares")
    ] = 0.0
    batches: Annotated[
        int, Meta(description="batches of the warm-up behind the figure, of those with distinct shapes")
    ] = 0
    spread: Annotated[
        float, Meta(description="largest minus smallest figure of these batches over `per_item`; 0: they are alike")
    ] = 0.0
    products: Annotated[
        str | None,
        Meta(
            description="number format of the matrix products if the model chooses it, such as fp8; null: the job does"
        ),
    ] = None
    reason: Annotated[str | None, Meta(description="why there is no figure")] = None


class StageUsed(Record, frozen=True, kw_only=True):
    """One stage of a pipeline."""

    units: Annotated[int, Meta(description="units of the model's chain")]
    parameters: Annotated[int, Meta(description="elements of its parameters")]
    ranks: Annotated[tuple[int, ...], Meta(description="several ranks are replicas")]


class PipelineUsed(Record, frozen=True, kw_only=True):
    """The stages of a pipeline, and the share of its time in which its ranks wait."""

    schedule: Annotated[str, Meta(description="order in which the pipeline computes")]
    microbatches: Annotated[int | None, Meta(description="of each batch; null: `pipedream` passes on whole batches")]
    cut_by: Annotated[str, Meta(description="`given` by the job, or balanced by `flops` or by `parameters`")]
    stages: Annotated[tuple[StageUsed, ...], Meta(description="the stages in order")]
    bubble: Annotated[float, Meta(description="mean of `idle`")]
    ideal_bubble: Annotated[float, Meta(description="of the schedule with equal stages and transfers of no time")]
    idle: Annotated[
        tuple[float, ...],
        Meta(description="share of the time in which each rank neither computes a stage nor updates its weights"),
    ]
    watched_steps: Annotated[int, Meta(description="steps after the measurement over which `idle` was taken")]


class PeakMemory(Record, frozen=True, kw_only=True):
    """Peaks over the whole process."""

    device_allocated_bytes: Annotated[int | None, Meta(description="of torch's allocator, in use")] = None
    device_reserved_bytes: Annotated[int | None, Meta(description="of torch's allocator, with its cache")] = None
    host_rss_bytes: Annotated[int | None, Meta(description="resident set")] = None


class Reading(Record, frozen=True, kw_only=True):
    """A further figure that a model leaves beside its rate: one value, or several that have labels."""

    unit: Annotated[str, Meta(description="unit of the values, such as GB/s, us or ratio")]
    value: Annotated[float | str | None, Meta(description="the only value; null: see `values`")] = None
    values: Annotated[tuple[float | None, ...], Meta(description="a value for each label; null: not measured")] = ()
    labels: Annotated[
        tuple[str, ...],
        Meta(description="what each value is of: a size, a GPU's place in the task (0), a link between two GPUs (0>1)"),
    ] = ()


class Epoch(Record, frozen=True, kw_only=True):
    """One epoch of a training by epochs. The time between two epochs is in no slice."""

    epoch: Annotated[int, Meta(description="number of the epoch, from 1")]
    end_s: Annotated[float, Meta(description="end of its last slice, seconds since the stream's `origin_s`")]
    trained_s: Annotated[float, Meta(description="length of its slices together")]
    steps: Annotated[int, Meta(description="steps of this epoch")]
    items: Annotated[int, Meta(description="of this rank")]
    loss: Annotated[float | None, Meta(description="mean loss of its steps; null: the model has no loss")] = None
    bleu: Annotated[float | None, Meta(description="BLEU of the test set after it; null: not measured")] = None
    pause_s: Annotated[float, Meta(description="seconds after it for the checkpoint and BLEU")] = 0.0
    checkpoint: Annotated[
        str | None, Meta(description="its checkpoint in the run folder, up to `.epochN`; null: not kept")
    ] = None


class Stream(Record, frozen=True, kw_only=True):
    """The series of one rank, and where it was measured."""

    clock: Annotated[Clock, Meta(description="host and clock of this stream's times")]
    device: Annotated[str, Meta(description="torch's name: cpu, cuda:0")]
    role: Annotated[str, Meta(description="what the rank does")] = "train"
    rank: Annotated[int, Meta(description="number of the rank")] = 0
    counts_items: Annotated[bool, Meta(description="its items count towards the task's rate")] = True
    models: Annotated[int, Meta(description="models that one step trains")] = 1
    unit: Annotated[str, Meta(description="what an item is")]
    origin_s: Annotated[float, Meta(description="the instant on `clock` that slices count from")]
    slices: Annotated[tuple[Slice, ...], Meta(description="measured slices, then hold as one")] = ()
    losses: Annotated[
        tuple[float | None, ...], Meta(description="last step's loss at the end of each measured slice; null: no loss")
    ] = ()
    model_losses: Annotated[
        tuple[tuple[float, ...], ...],
        Meta(description="the same for each model of an array, of which `losses` are the means; empty: no array"),
    ] = ()
    input_s: Annotated[
        float | None,
        Meta(description="seconds of the measured slices in which the host waited for a batch; null: not recorded"),
    ] = None
    warm_up: Annotated[WarmUp | None, Meta(description="untimed steps before the measurement")] = None
    stopped_by: Annotated[str | None, Meta(description="stop rule that ended the measurement")] = None
    peak_memory: Annotated[PeakMemory | None, Meta(description="peaks of the memory")] = None
    model_flops: Annotated[ModelFlops | None, Meta(description="only of rank 0; null: not recorded")] = None
    pipeline: Annotated[PipelineUsed | None, Meta(description="only of rank 0; null: no pipeline")] = None
    compiled: Annotated[Compiled | None, Meta(description="what torch.compile made; null: not compiled")] = None
    epochs: Annotated[tuple[Epoch, ...], Meta(description="epochs that ended; empty: no training by epochs")] = ()
    traced: Annotated[Traced | None, Meta(description="what a profiler recorded; null: nothing")] = None
    precision: Annotated[PrecisionCheck | None, Meta(description="check of the precision in force")] = None
    intra_op_threads: Annotated[
        int | None, Meta(description="intra-op threads of torch in force; null: no torch, or not recorded")
    ] = None
    notes: Annotated[tuple[str, ...], Meta(description="remarks for the reader, in words")] = ()
    readings: Annotated[
        dict[str, Reading], Meta(description="name -> a further figure that the model leaves; of a probe, for example")
    ] = {}
    cost: Annotated[MeasuringCost | None, Meta(description="what measuring costs; null: it was not measured")] = None


class Measurement(Record, frozen=True, kw_only=True):
    """All streams of a task, one for each rank that became ready."""

    streams: Annotated[tuple[Stream, ...], Meta(description="one for each rank that became ready")] = ()
