"""How a job's model is trained.

Overrides, the printed command line, comparisons and the worker all read the fields of this one record, so an option
that is added here reaches all of them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from benchsuite.describe.lr_schedule import LrSchedule
from benchsuite.schema import Record

Precision = Literal["fp32", "tf32", "amp-fp16", "bf16"]
Backend = Literal["nccl", "gloo"]
Compile = Literal["none", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "aot_eager"]
Schedule = Literal["gpipe", "1f1b", "interleaved-1f1b", "zero-bubble", "pipedream"]
# Stages of each rank in the schedule interleaved-1f1b. In all others a rank has one.
INTERLEAVED = 2
_Count = Annotated[int, Meta(gt=0)]

# Modes of torch.compile whose code runs as CUDA graphs.
GRAPHED: frozenset[Compile] = frozenset({"reduce-overhead", "max-autotune"})


class Parallel(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many ranks train one model together, and where they meet.

    The model has `dp` replicas. The weights of each replica are split among `fsdp` ranks, or its units are cut into
    stages of a pipeline on `pp` ranks.
    """

    dp: Annotated[
        Annotated[int, Meta(gt=0)] | None,
        Meta(description="data-parallel replicas; null: as many as the GPUs of the placement hold"),
    ] = None
    fsdp: Annotated[
        Annotated[int, Meta(gt=0)] | Literal["all"] | None,
        Meta(
            description="ranks among which FSDP splits the weights of a replica; `all`: all ranks of the task, divided "
            "by dp; null: each rank holds all weights"
        ),
    ] = None
    pp: Annotated[_Count | None, Meta(description="ranks of a pipeline; null: the model is not cut into stages")] = None
    schedule: Annotated[
        Schedule | None, Meta(description="order in which a pipeline computes; null: 1f1b if there is a pipeline")
    ] = None
    microbatches: Annotated[
        _Count | None, Meta(description="micro-batches of a batch in a pipeline; null: 4 for each rank of it")
    ] = None
    stages: Annotated[
        tuple[_Count, ...] | None, Meta(description="units of each stage; null: balanced by their FLOPs")
    ] = None
    replicas: Annotated[
        tuple[_Count, ...] | None, Meta(description="ranks of each stage of `pipedream`; null: one each")
    ] = None
    port: Annotated[
        Annotated[int, Meta(gt=0, lt=65536)] | None,
        Meta(description="TCP port at which the ranks meet; null: one that the system gives"),
    ] = None
    backend: Annotated[
        Backend | None, Meta(description="library that carries tensors; null: NCCL on GPUs, gloo on the CPU")
    ] = None

    @property
    def ranks(self) -> int | None:
        """The number of ranks, if these fields give it; None if the placement gives it."""
        if self.pp is not None:
            if self.schedule == "pipedream":
                return self.multiple
            return None if self.dp is None else self.dp * self.multiple
        if self.fsdp is None:
            return self.dp
        return None if self.fsdp == "all" or self.dp is None else self.dp * self.fsdp

    @property
    def multiple(self) -> int:
        """The number of ranks is a multiple of this."""
        if self.pp is not None:
            return sum(self.replicas) if self.replicas else self.pp
        if self.fsdp is None:
            return 1
        return (self.dp or 1) if self.fsdp == "all" else self.fsdp

    def share(self, rank: int, ranks: int) -> tuple[int, int]:
        """The part of the data that a rank of a task of `ranks` ranks reads, and the number of parts.

        All ranks of a pipeline read the same part. With `pipedream` there is a single part.
        """
        if self.pp is None:
            return rank, ranks
        parts = 1 if self.schedule == "pipedream" else ranks // self.pp
        return rank % parts, parts

    def shards(self, ranks: int) -> int:
        """The parts into which a task of `ranks` ranks splits the weights; 1 if it does not split them."""
        if self.fsdp is None:
            return 1
        return ranks // (self.dp or 1) if self.fsdp == "all" else self.fsdp


class Training(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model is trained. Throughputs of jobs that differ in any of these fields are not comparable."""

    precision: Annotated[
        Precision, Meta(description="number format of the computation; fp32 is computed without TF32")
    ] = "fp32"
    compile: Annotated[Compile, Meta(description="mode of torch.compile for the modules and the loss")] = "none"
    channels_last: Annotated[
        bool, Meta(description="images and convolution weights are in the memory format channels last (NHWC)")
    ] = False
    accumulate: Annotated[
        int, Meta(gt=0, description="micro-batches into which each batch is split; their gradients are averaged")
    ] = 1
    checkpoint: Annotated[
        bool, Meta(description="activations within a block of the model are computed again in the backward pass")
    ] = False
    prefetch: Annotated[
        bool,
        Meta(description="a GPU copies the next batch (of 1 MiB or more) on a CUDA stream of its own during a step"),
    ] = True
    intra_op_threads: Annotated[
        str,
        Meta(
            pattern=r"^(auto|cpus|[1-9]\d{0,3})$",
            description="CPU threads of torch in each process: `auto` is 1 on a GPU, else `cpus`: as many as its CPUs; "
            "OMP_NUM_THREADS and MKL_NUM_THREADS take precedence over both words",
        ),
    ] = "auto"
    parallel: Annotated[Parallel, Meta(description="ranks that train one model together")] = Parallel()
    lr_schedule: Annotated[
        LrSchedule | None, Meta(description="how the learning rate changes; null: as the model's file says")
    ] = None
    array: Annotated[
        int, Meta(gt=0, description="copies of the model that one process trains together, as one with stacked weights")
    ] = 1
    unfused_units: Annotated[
        int, Meta(ge=0, description="units of the model that an array computes model by model; 0: all are fused")
    ] = 0
