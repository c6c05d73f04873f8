"""Where the tasks of a job run: on which GPUs, and over how many nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from benchsuite.schema import Record

# The value of `nodes` for a round-robin tournament of all nodes of a run.
PAIRS: Literal["pairs"] = "pairs"


class Placement(Record, frozen=True, kw_only=True):
    """The placement of a job's tasks on the machine. Older files have two more fields, which had a single value."""

    devices: Annotated[
        Literal["each", "progression", "all", "none"],
        Meta(description="a task on each GPU, groups of 1 to N GPUs in turn, one group on all GPUs, or no GPU"),
    ] = "each"
    at_least: Annotated[int, Meta(gt=0, description="with fewer visible GPUs the job is skipped")] = 1
    nodes: Annotated[
        int | Literal["pairs"], Meta(description="nodes that a task spans; pairs: a task on each pair of nodes")
    ] = 1
    cpu_allowed: Annotated[bool, Meta(description="without any GPU, the job runs on the CPU")] = False

    @property
    def spanned(self) -> int:
        """The nodes that a task spans."""
        return 2 if self.nodes == PAIRS else self.nodes
