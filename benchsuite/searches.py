"""Records of what is found before a measurement: sizes of batches, numbers of copies, and costs of a chain's units."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from benchsuite.schema import SCHEMA, Record


class BatchProbe(Record, frozen=True, kw_only=True, array_like=True):
    """One try of a batch size, in a process of its own."""

    batch_size: Annotated[int, Meta(description="size that was tried")]
    fits: Annotated[bool, Meta(description="whether the steps fit into the memory")]
    device_bytes: Annotated[int | None, Meta(description="peak of the device's memory, as allocated")]
    host_bytes: Annotated[int | None, Meta(description="peak of the host's memory")]
    elapsed_s: Annotated[float, Meta(description="time of the try")]


class CopiesProbe(Record, frozen=True, kw_only=True, array_like=True):
    """One try of a number of copies, all of which trained a few steps at the same time."""

    copies: int
    fits: bool
    device_bytes: Annotated[int | None, Meta(description="sum of the peaks of what the copies reserved")]
    host_bytes: Annotated[int | None, Meta(description="sum of the peaks of their resident sets")]
    elapsed_s: float


class CopiesSearch(Record, frozen=True, kw_only=True):
    """How the numbers of copies of a job that asks for `fit` were found."""

    most: Annotated[int, Meta(description="the largest number that fits; 0: not even one")]
    limit: Annotated[str, Meta(description="what stopped a larger number")]
    probes: Annotated[tuple[CopiesProbe, ...], Meta(description="every try, in order")]
    numbers: Annotated[
        tuple[int, ...], Meta(description="the numbers to measure: 1, `most`, a draw between them, and one that failed")
    ]

    @property
    def words(self) -> str:
        """The numbers to measure: "1, 3, 8"."""
        return ", ".join(map(str, self.numbers))


class Searches(Record, frozen=True, kw_only=True):
    """`searches.json`: what was found of the jobs whose `copies` is `fit`."""

    schema: int = SCHEMA
    kind: Literal["searches"] = "searches"
    cells: Annotated[dict[str, CopiesSearch], Meta(description="cell of the plan -> its search")] = {}


class BatchSearch(Record, frozen=True, kw_only=True):
    """How the batch size of a job that asks for `auto` was found."""

    found: Annotated[int, Meta(description="the largest size that fits, to within a sixteenth")]
    limit: Annotated[str, Meta(description="what stopped a larger batch")]
    probes: Annotated[tuple[BatchProbe, ...], Meta(description="every try, in order")]


class UnitCost(Record, frozen=True, kw_only=True):
    """The cost of one unit of a model's chain for one batch: the median over repeats, the mean over batches."""

    description: Annotated[str, Meta(description="classes of its modules")]
    forward_s: float
    backward_s: Annotated[float, Meta(description="backward pass, and the unit's share of the optimiser's step")]
    activation_bytes: Annotated[float, Meta(description="what it passes to the next unit")]
    parameter_bytes: float


class ChainCosts(Record, frozen=True, kw_only=True):
    """The costs of all units of a model's chain, in order. The loss belongs to the last unit."""

    device: Annotated[str, Meta(description="name of the GPU, or cpu")]
    batch: Annotated[str, Meta(description="the size of a batch, such as 64 images")]
    batches: Annotated[int, Meta(description="batches that were measured")]
    repeats: Annotated[int, Meta(description="measurements of each batch")]
    input_bytes: Annotated[float, Meta(description="what the first unit receives")]
    units: tuple[UnitCost, ...]
    update_s: Annotated[float, Meta(description="the optimiser's step, which is part of the units' backward_s")]
    link_bytes_per_s: Annotated[
        float | None, Meta(description="rate of a copy from one GPU to another; null: not measured")
    ] = None
