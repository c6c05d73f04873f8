"""What a driver configuration of PipeDream means: a model, and its stages on ranks and machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchsuite.errors import PipelineError, ProfileError, nearest, one_line
from benchsuite.pipeline import driver, stage_map
from benchsuite.pipeline.driver import DriverConfig, Place
from benchsuite.pipeline.stage_map import StageMap
from benchsuite.schema import Record

# The models of PipeDream's runtime, by its task and their module: our model, and the parameters that make it the same.
_MODELS: dict[driver.Task, dict[str, tuple[str, dict[str, Any]]]] = {
    "image_classification": {name: ("convnet", {"arch": name}) for name in ("alexnet", "resnet50", "vgg16")},
    "translation": {"gnmt": ("gnmt", {"layers": 8}), "gnmt_large": ("gnmt", {"layers": 16})},
}


class RankedStage(Record, frozen=True, kw_only=True):
    """A stage on its ranks.

    Attributes:
        modules: the numbers of its modules.
        ranks: its replicas.
        places: the GPU of each rank.
        warm_up: minibatches that it takes forward before its first backward pass.
        learning_rate: that of the configuration times the replicas of this stage and divided by those of the first one,
            as PipeDream scales it; None if the configuration gives none.
    """

    modules: tuple[int, ...]
    ranks: tuple[int, ...]
    places: tuple[Place, ...]
    warm_up: int
    learning_rate: float | None


class Layout(Record, frozen=True, kw_only=True):
    """The training that a driver configuration means.

    Attributes:
        model: the name of our model.
        params: parameters of the model; the others have its defaults.
        stages: one for data parallelism.
        units: of a plan of `plan-stages` the number of units of each stage; None if the files do not say where the
            model is cut. PipeDream's stage configuration does not: its generated code does.
        stage_file: the stage configuration; None if there is none.
        config: epochs, policy, data, container and folders.
    """

    model: str
    params: dict[str, Any]
    stages: tuple[RankedStage, ...]
    config: DriverConfig
    units: tuple[int, ...] | None = None
    stage_file: str | None = None

    @property
    def num_ranks(self) -> int:
        return sum(len(stage.ranks) for stage in self.stages)

    @property
    def replicas(self) -> tuple[int, ...]:
        """The degree of data parallelism of each stage."""
        return tuple(len(stage.ranks) for stage in self.stages)


def of_file(path: Path) -> Layout:
    """Read a driver configuration and its stage configuration. Nothing is started.

    The path of the stage configuration is relative to the folder of the task, which is the one above the folder of the
    driver configuration. If there is no such file, it is relative to the latter.

    Raises:
        ProfileError: a file is missing, unreadable, or not YAML or JSON.
        PipelineError: a field is wrong, or the files do not fit each other; names the file, the field and the remedy.
    """
    config, where = driver.read(path), one_line(str(path))
    model, params = _model(config, where)
    if config.config_file is None:
        if len(config.machines) > 1:
            raise PipelineError(
                f"{where}: field 'config_file' is missing; {len(config.machines)} machines need a stage configuration"
            )
        file, found = None, StageMap(stage_of=(0,), ranks=((0,),))
    else:
        file = _stage_file(path, config.config_file)
        found = stage_map.read(file)
        if found.num_ranks != len(config.machines):
            raise PipelineError(
                f"{where}: field 'machines': {len(config.machines)} machines, but {one_line(str(file))} has "
                f"{found.num_ranks} ranks; {_remedy(file, found, len(config.machines))}"
            )
    stages = tuple(_stage(config, found, stage) for stage in range(len(found.ranks)))
    return Layout(
        model=model,
        params=params,
        stages=stages,
        config=config,
        units=found.units,
        stage_file=None if file is None else str(file),
    )


def _model(config: DriverConfig, where: str) -> tuple[str, dict[str, Any]]:
    known = _MODELS[config.model_type]
    parts = config.module.split(".")
    name = parts[1] if len(parts) > 1 and parts[0] == "models" else ""
    if name not in known:
        raise PipelineError(
            f"{where}: field 'module': '{one_line(config.module)}' names no model of {config.model_type}; write "
            f"models.NAME.VERSION{nearest(name, known)}"
        )
    model, own = known[name]
    given: dict[str, Any] = {"batch_size": config.batch_size, "lr": config.learning_rate}
    if model == "convnet":
        given["weight_decay"] = config.weight_decay
    elif config.weight_decay:
        raise PipelineError(f"{where}: field 'weight_decay': the model {model} has none; set it to 0")
    return model, {**own, **{key: value for key, value in given.items() if value is not None}}


def _stage_file(path: Path, name: str) -> Path:
    beside = path.absolute().parent
    for folder in (beside.parent, beside):
        if (folder / name).is_file():
            return folder / name
    raise PipelineError(
        f"{one_line(str(path))}: field 'config_file': no file '{one_line(name)}' in {one_line(str(beside.parent))} nor "
        f"in {one_line(str(beside))}; name a stage configuration"
    )


def _remedy(file: Path, unfit: StageMap, machines: int) -> str:
    """What makes machines and ranks agree. It may be another configuration of the same stages in the same folder."""
    for other in sorted(file.parent.glob("*.json")):
        try:
            found = stage_map.read(other)
        except (PipelineError, ProfileError):
            continue
        if found.num_ranks == machines and found.stage_of == unfit.stage_of:
            return (
                f"name as many machines as ranks, or name {one_line(other.name)} in 'config_file', which has {machines}"
            )
    return "name as many machines as ranks"


def _stage(config: DriverConfig, found: StageMap, stage: int) -> RankedStage:
    ranks = found.ranks[stage]
    rate = config.learning_rate
    return RankedStage(
        modules=tuple(module for module, of in enumerate(found.stage_of) if of == stage),
        ranks=ranks,
        places=tuple(config.machines[rank] for rank in ranks),
        warm_up=_warm_up(config, found, stage),
        learning_rate=None if rate is None else rate * len(ranks) / len(found.ranks[0]),
    )


def _warm_up(config: DriverConfig, found: StageMap, stage: int) -> int:
    """As given, or the number that keeps all ranks from this stage on busy."""
    if config.no_input_pipelining:
        return 0
    if found.warm_up is not None:
        return found.warm_up[stage]
    here_and_later = sum(len(ranks) for ranks in found.ranks[stage:])
    return (here_and_later - 1) // len(found.ranks[stage])
