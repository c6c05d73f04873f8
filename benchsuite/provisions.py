"""Records of what a task gets: its share of the machine, its container, its data set, and the way it shares a GPU."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from benchsuite.describe.tasks import PageCache, Sharing
from benchsuite.schema import Record


class Pressure(Record, frozen=True, kw_only=True):
    """How long some, or all, of a tenant's processes waited for CPU or memory (PSI)."""

    cpu_some_s: Annotated[float | None, Meta(description="seconds in which at least one process waited for a CPU")] = (
        None
    )
    cpu_full_s: Annotated[float | None, Meta(description="seconds in which all of them waited for a CPU")] = None
    memory_some_s: Annotated[float | None, Meta(description="seconds in which at least one waited for memory")] = None
    memory_full_s: Annotated[float | None, Meta(description="seconds in which all of them waited for memory")] = None


class Tenant(Record, frozen=True, kw_only=True):
    """The share of the machine that a task had. Null: the kernel does not count it."""

    asked: Annotated[str, Meta(description="the job's `tenant`")]
    isolation: Annotated[str | None, Meta(description="the option --isolation")] = None
    cpu: Annotated[str, Meta(description="in force: cpuset-v2, cpuset-v1, affinity or none")] = "none"
    memory: Annotated[str, Meta(description="in force: v2, v1 or none")] = "none"
    reason: Annotated[str, Meta(description="why this fence is in force")]
    crowded: Annotated[
        bool, Meta(description="another run of benchsuite was on the machine, whose share may overlap")
    ] = False
    group: Annotated[str | None, Meta(description="name of the control group")] = None
    cpus: Annotated[tuple[int, ...], Meta(description="logical processors of the task")] = ()
    memory_bytes: Annotated[int | None, Meta(description="limit")] = None
    oom_kills: Annotated[int | None, Meta(description="processes that the kernel killed for memory")] = None
    peak_memory_bytes: Annotated[int | None, Meta(description="peak of the memory of all its processes")] = None
    peak_pids: Annotated[int | None, Meta(description="peak of the number of processes and threads")] = None
    throttled_s: Annotated[
        float | None, Meta(description="how long the CPU quota around the run held processes back")
    ] = None
    pressure: Annotated[Pressure | None, Meta(description="waits for CPU and memory")] = None


class ContainerUsed(Record, frozen=True, kw_only=True):
    """The container in which a task's worker ran."""

    engine: Annotated[str, Meta(description="docker, podman or apptainer")]
    image: Annotated[str, Meta(description="name or file of the image")]


class DataUsed(Record, frozen=True, kw_only=True):
    """The source of the batches. Input made in memory has no version, hash or size."""

    name: Annotated[str, Meta(description="name of the data set, or of the generated input")]
    real: Annotated[bool, Meta(description="false: synthetic, or made in memory")]
    version: Annotated[str | None, Meta(description="version of the data set")] = None
    sha256: Annotated[str | None, Meta(description="SHA-256 of the list of its files")] = None
    size_bytes: Annotated[int | None, Meta(description="size of its files")] = None
    file_system: Annotated[str | None, Meta(description="type of the file system that holds it")] = None
    size: Annotated[str | None, Meta(description="size class of synthetic data")] = None
    page_cache: Annotated[PageCache | None, Meta(description="what the job asked for")] = None
    cached: Annotated[
        float | None, Meta(description="share of the files' bytes in the page cache at the start; null: not known")
    ] = None


class SharingUsed(Record, frozen=True, kw_only=True):
    """How the models of a wave shared a GPU."""

    way: Annotated[Sharing, Meta(description="the job's `sharing`")]
    copies: Annotated[int, Meta(gt=0, description="models that shared the GPU")]
    in_use: Annotated[
        bool | None, Meta(description="whether the way was seen at work; null: it needs no proof, or was not looked at")
    ] = None
    seen: Annotated[str | None, Meta(description="what showed it, in words")] = None
