"""PipeDream's driver configuration: a flat YAML file that describes one training over several machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from benchsuite.errors import PipelineError, nearest, one_line
from benchsuite.files import read_mapping
from benchsuite.schema import Record

Task = Literal["image_classification", "translation"]
Backend = Literal["nccl", "gloo"]
Policy = Literal["step", "polynomial", "exponential_decay"]
_Text = Annotated[str, Meta(min_length=1)]
_Count = Annotated[int, Meta(gt=0)]
_Rate = Annotated[float, Meta(gt=0)]

# Keys that PipeDream's programs read nowhere, or pass on to a program that ignores them.
_READ_NOWHERE = ("compress_activations", "compress_in_gpu", "translation_model", "recompute")


class Place(Record, frozen=True, kw_only=True):
    """One GPU of one host. PipeDream ignores the number: it gives the GPUs of a host to its ranks in order."""

    host: str
    gpu: int

    @property
    def name(self) -> str:
        return f"{self.host}:{self.gpu}"


class DriverConfig(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A checked driver configuration. What is None is not given; the worker's own default then holds.

    Attributes:
        container: the image; None if the file gives null, for a run on the hosts themselves.
        module: the generated model, such as `models.vgg16.gpus=4`.
        config_file: stage configuration; without one a single process trains the whole model.
        machines: the GPU of each rank, in the order of the ranks.
        lr_warmup: raise the learning rate linearly during the first five epochs.
        no_input_pipelining: one minibatch at a time, without weight versions.
        macrobatch: average the gradients of all minibatches in flight before each step.
        without_effect: the given keys that change nothing.
    """

    log_directory: _Text
    module: _Text
    data_dir: _Text
    container: _Text | None
    machines: Annotated[tuple[Place, ...], Meta(min_length=1)]
    model_type: Task
    distributed_backend: Backend
    config_file: _Text | None = None
    batch_size: _Count | None = None
    learning_rate: _Rate | None = None
    learning_rate_policy: Policy | None = None
    lr_warmup: bool = False
    weight_decay: Annotated[float, Meta(ge=0)] | None = None
    epochs: _Count | None = None
    print_frequency: _Count | None = None
    verbose_frequency: Annotated[int, Meta(ge=0)] | None = None
    no_input_pipelining: bool = False
    synthetic_data: bool = False
    macrobatch: bool = False
    without_effect: tuple[str, ...] = ()


_KEYS = (*(field for field in DriverConfig.__struct_fields__ if field != "without_effect"), *_READ_NOWHERE)
_CHOICES = {
    "model_type": get_args(Task),
    "distributed_backend": get_args(Backend),
    "learning_rate_policy": get_args(Policy),
}


def read(path: Path) -> DriverConfig:
    """Read a driver configuration.

    Raises:
        ProfileError: the file is missing, unreadable, or not YAML.
        PipelineError: a key is missing or unknown, or has a wrong value; names the file and the field.
    """
    content, where = read_mapping(path), one_line(str(path))
    for key in content:
        if key not in _KEYS:
            raise PipelineError(f"{where}: unknown field '{one_line(key)}'{nearest(key, _KEYS)}")
    fields = {
        key: value
        for key, value in content.items()
        if key not in _READ_NOWHERE and (value is not None or key == "container")
    }
    if fields.get("model_type") == "speech_to_text":
        raise PipelineError(f"{where}: field 'model_type': PipeDream ships no models for speech_to_text; use another")
    if isinstance(fields.get("machines"), list):
        fields["machines"] = [_place(machine, where) for machine in fields["machines"]]
    config = _converted({**fields, "without_effect": _without_effect(content)}, where)
    _check(config, where)
    return config


def _without_effect(content: dict[str, Any]) -> list[str]:
    found = [key for key in content if key in _READ_NOWHERE]
    if content.get("model_type") == "translation" and "synthetic_data" in content:
        found.append("synthetic_data")  # translation always reads real sentences
    return found


def _place(machine: Any, where: str) -> dict[str, Any]:
    host, _, gpu = machine.rpartition(":") if isinstance(machine, str) else ("", "", "")
    if not host or not (gpu.isascii() and gpu.isdigit()):
        found = one_line(repr(machine))[:60]
        raise PipelineError(f"{where}: field 'machines': {found} is no machine; write HOST:GPU, such as 'localhost:0'")
    return {"host": host, "gpu": int(gpu)}


def _converted(fields: dict[str, Any], where: str) -> DriverConfig:
    try:
        return msgspec.convert(fields, DriverConfig)
    except msgspec.ValidationError as error:
        why, _, place = str(error).partition(" - at `$.")
        if "missing required field" in why:
            field = why.split("`")[1]
            raise PipelineError(f"{where}: field '{field}' is missing; a driver configuration needs it") from None
        field = place.rstrip("`")
        found = one_line(repr(fields.get(field)))[:60]
        reason = why[0].lower() + why[1:].replace(" | null", "").replace("`", "'")
        if field in _CHOICES:
            reason = f"unknown value; known: {', '.join(_CHOICES[field])}"
        raise PipelineError(f"{where}: field '{field}': {reason}, found {found}") from None


def _check(config: DriverConfig, where: str) -> None:
    names = [place.name for place in config.machines]
    for name in names:
        if names.count(name) > 1:
            raise PipelineError(f"{where}: field 'machines': {one_line(name)} is given twice; a GPU runs one rank")
    if config.lr_warmup and config.model_type == "translation":
        raise PipelineError(f"{where}: field 'lr_warmup': translation has no warm-up; remove the field")
