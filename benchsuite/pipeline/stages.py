"""A plan of stages, as the partitioner makes it and a file keeps it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from benchsuite.pipeline.graph import Graph
from benchsuite.schema import SCHEMA, Record

Count = Annotated[int, Meta(gt=0)]


class Level(Record, frozen=True, kw_only=True):
    """Equal parts of a machine that one kind of link joins: the GPUs of a host, or the hosts of a cluster."""

    parts: Count
    bandwidth: Annotated[float, Meta(gt=0, description="of each link, in bytes per second")]


class Stage(Record, frozen=True, kw_only=True):
    """Units that run together on one GPU, or as replicas on several GPUs, which take the minibatches in turn."""

    units: Annotated[tuple[str, ...], Meta(description="names, in order")]
    ranks: Annotated[tuple[int, ...], Meta(description="the GPUs; those of a machine have consecutive numbers")]
    compute_s: Annotated[float, Meta(description="forward and backward pass of one minibatch on one GPU")]
    seconds: Annotated[
        float, Meta(description="predicted time between two minibatches, with synchronisation and transfers")
    ]
    parameter_bytes: float
    activation_bytes: Annotated[float, Meta(description="outputs of all units, for one minibatch")]
    passed_bytes: Annotated[float, Meta(description="outputs that later stages read, for one minibatch")]


class StagePlan(Record, frozen=True, kw_only=True):
    """The division of a model into stages, with the predicted time between two minibatches.

    `module_to_stage_map` and `stage_to_rank_map` are those of PipeDream's stage configuration: each stage is one
    module, and the criterion is the last module, in the last stage.
    """

    schema: int = SCHEMA
    kind: Literal["stageplan"] = "stageplan"
    levels: Annotated[tuple[Level, ...], Meta(description="the machine, the innermost level first")]
    straight: Annotated[bool, Meta(description="each stage has one GPU")] = False
    transfers: Annotated[bool, Meta(description="the time of transfers between stages counts")] = True
    seconds: Annotated[float, Meta(description="predicted time between two minibatches")]
    one_gpu_s: Annotated[float, Meta(description="the same on one GPU")]
    data_parallel_s: Annotated[float, Meta(description="the same with the whole model on each GPU")]
    stages: tuple[Stage, ...]
    module_to_stage_map: tuple[int, ...]
    stage_to_rank_map: dict[str, tuple[int, ...]]

    @property
    def gpus(self) -> int:
        return sum(len(stage.ranks) for stage in self.stages)

    @property
    def replicas(self) -> str:
        """The number of GPUs of each stage, as PipeDream writes it: 3-1."""
        return "-".join(str(len(stage.ranks)) for stage in self.stages)


def with_stages(graph: Graph, plan: StagePlan) -> Graph:
    """The graph with the stage of each unit, as PipeDream's code generator reads it.

    Inputs are in the first stage. A part of an output that no unit reads is in the stage of that output.
    """
    stage_of = {name: number for number, stage in enumerate(plan.stages) for name in stage.units}
    source_of = {reader: source for source, reader in graph.edges}
    for unit in graph.units:
        if unit.name not in stage_of:
            stage_of[unit.name] = stage_of.get(source_of.get(unit.name, ""), 0)
    units = (msgspec.structs.replace(unit, stage=stage_of[unit.name]) for unit in graph.units)
    return Graph(units=tuple(units), edges=graph.edges)
