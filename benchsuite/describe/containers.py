"""A container in which a job's workers run, and the engine that starts it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Literal, get_args

from msgspec import Meta

from benchsuite.schema import Record

Engine = Literal["docker", "podman", "apptainer"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


class Container(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The container of each worker of a job. Its image holds Python 3.10 or newer, torch and benchsuite's packages."""

    image: Annotated[str, Meta(min_length=1, description="name of the image; for apptainer also a file")]
    engine: Annotated[Engine | None, Meta(description="null: the first of docker, podman and apptainer on PATH")] = None
    mounts: Annotated[
        tuple[str, ...], Meta(description="folders that the container has at the same path, to read and to write")
    ] = ()

    def __post_init__(self) -> None:
        if self.image.startswith("-") or not self.image.isprintable():
            raise ValueError("the image has no valid name")
        for folder in self.mounts:
            if not folder.startswith("/") or set(folder) & set(',:"') or not folder.isprintable():
                raise ValueError(
                    f"{folder!r} cannot be mounted; give an absolute path without commas, colons or quotes"
                )


def engine_of(container: Container) -> tuple[Engine, str] | None:
    """The name and the path of the engine; None if none is on PATH."""
    for name in (container.engine,) if container.engine else ENGINES:
        if path := shutil.which(name):
            return name, str(Path(path).absolute())
    return None


def missing_engine(container: Container) -> str | None:
    """Why no container can be started here; None if one can."""
    if engine_of(container):
        return None
    wanted = container.engine or f"none of {', '.join(ENGINES)}"
    absent = f"{wanted} is {'not ' if container.engine else ''}on PATH"
    return f"the job runs in the container {container.image}, and {absent}; install it, or leave out the container"
