"""The job that a driver configuration of PipeDream means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from benchsuite.errors import PipelineError
from benchsuite.pipeline.layout import Layout

# Items in an epoch: the images that PipeDream generates, those of ImageNet, and the pairs of sentences of WMT16.
SYNTHETIC, IMAGES, PAIRS = 1_000_000, 1_281_167, 4_500_000
WARM_UP_EPOCHS = 5
DATA = {"image_classification": "imagenet", "translation": "wmt16"}
# Keys of PipeDream that say how often it prints. A run folder keeps the times of all steps in slices of half a second.
_FREQUENCIES = ("print_frequency", "verbose_frequency")


def job_fields(
    layout: Layout,
    batch_size: int,
    *,
    mounts: Sequence[str] = (),
    contained: bool = True,
    resume: str | None = None,
) -> dict[str, Any]:
    """The fields of the job, as a profile holds them.

    Args:
        batch_size: of each rank of the first stage.
        mounts: folders that the container has at the same path.
        contained: run in the container of the configuration, if it names one.
        resume: the beginning of the paths of the checkpoints from which the training continues.

    Raises:
        PipelineError: the configuration asks for what no job can be; names the field.
    """
    config = layout.config
    items = epoch_items(layout)
    fields: dict[str, Any] = {
        "model": layout.model,
        "params": layout.params,
        "placement": "all_gpus" if config.distributed_backend == "nccl" else "all_gpus_or_cpu",
        "parallel": _parallel(layout),
        "warm_up_s": 0.0,
        "lr_schedule": _lr_schedule(layout, epoch_steps(layout, batch_size, items), config.epochs),
        "data": data_set(layout),
    }
    if config.epochs:
        fields |= {"max_epochs": config.epochs, "epoch_items": items}
    if contained and config.container:
        fields["container"] = {"image": config.container, "mounts": list(mounts)}
    if resume is not None:
        fields["resume_from"] = resume
    return {name: value for name, value in fields.items() if value is not None}


def data_set(layout: Layout) -> str | None:
    """The name of the data set; None for generated input, which PipeDream has for images only."""
    config = layout.config
    generated = config.synthetic_data and config.model_type == "image_classification"
    return None if generated else DATA[config.model_type]


def epoch_items(layout: Layout) -> int:
    """The items of an epoch."""
    if data_set(layout) is None:
        return SYNTHETIC
    return IMAGES if layout.config.model_type == "image_classification" else PAIRS


def epoch_steps(layout: Layout, batch_size: int, items: int) -> int:
    """The minibatches of an epoch that each rank of the first stage takes; each is a step of its optimiser."""
    return max(1, math.ceil(items / (batch_size * layout.replicas[0])))


def lr_schedule_of(layout: Layout, batch_size: int, items: int | None, epochs: int | None) -> dict[str, Any]:
    """The schedule of the learning rate for a changed batch, number of items in an epoch, and number of epochs."""
    return _lr_schedule(layout, epoch_steps(layout, batch_size, items or epoch_items(layout)), epochs)


def _parallel(layout: Layout) -> dict[str, Any]:
    config, replicas = layout.config, list(layout.replicas)
    if len(replicas) == 1:
        backend = {"backend": config.distributed_backend} if replicas[0] > 1 else {}
        return {"dp": replicas[0], **backend}
    if config.macrobatch:
        raise PipelineError("field 'macrobatch': no schedule averages the gradients in flight; remove it")
    units = {"stages": list(layout.units)} if layout.units else {}
    if not config.no_input_pipelining:
        return {"pp": len(replicas), "schedule": "pipedream", "replicas": replicas, **units}
    if len(set(replicas)) > 1:
        raise PipelineError("field 'no_input_pipelining': it needs as many ranks in each stage; remove it")
    return {"pp": len(replicas), "dp": replicas[0], "schedule": "gpipe", "microbatches": 1, **units}


def _lr_schedule(layout: Layout, steps: int, epochs: int | None) -> dict[str, Any]:
    """The schedule of the learning rate. PipeDream's programs take `step` if no policy is given."""
    config = layout.config
    policy = config.learning_rate_policy or "step"
    if epochs is None and policy != "step":
        raise PipelineError(f"field 'epochs' is missing; the learning_rate_policy {policy} needs it")
    found: dict[str, Any] = {"policy": policy, "epoch_steps": steps}
    if epochs:
        found["epochs"] = epochs
    if config.lr_warmup:
        found["warm_up_epochs"] = WARM_UP_EPOCHS
    return found


def without_effect(layout: Layout) -> tuple[str, ...]:
    """The given keys that change nothing, here or in PipeDream."""
    config = layout.config
    found = [*config.without_effect, *(key for key in _FREQUENCIES if getattr(config, key) is not None)]
    if layout.num_ranks == 1 or len(layout.stages) > 1:
        found.append("distributed_backend")
    if len(layout.stages) == 1:
        found += [key for key in ("no_input_pipelining", "macrobatch") if getattr(config, key)]
    return tuple(found)


def in_words(layout: Layout) -> list[str]:
    """The layout, line by line."""
    if len(layout.stages) == 1:
        (stage,) = layout.stages
        how = f"data parallel on {len(stage.ranks)} ranks" if len(stage.ranks) > 1 else "one process"
        return [f"{layout.model}, {how}: {', '.join(place.name for place in stage.places)}"]
    lines = [f"{layout.model}, a pipeline of {len(layout.stages)} stages with {_joined(layout.replicas)} ranks"]
    for number, stage in enumerate(layout.stages):
        units = f"{layout.units[number]} units, " if layout.units else ""
        rate = "" if stage.learning_rate is None else f", learning rate {stage.learning_rate:g}"
        places = ", ".join(place.name for place in stage.places)
        lines.append(f"stage {number}: {units}{stage.warm_up} minibatches ahead{rate}; {places}")
    if layout.units is None:
        lines.append("The stage configuration does not say where the model is cut; a plan of plan-stages does.")
    return lines


def _joined(replicas: Sequence[int]) -> str:
    return "-".join(map(str, replicas))
