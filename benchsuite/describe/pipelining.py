"""Pipelines in a profile: a plan of stages becomes fields of `parallel`, and what cannot run is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from benchsuite.describe.entries import Declared
from benchsuite.describe.tasks import Job
from benchsuite.describe.training import GRAPHED, INTERLEAVED, Parallel, Schedule
from benchsuite.errors import ProfileError, nearest
from benchsuite.files import read_mapping
from benchsuite.pipeline.stages import StagePlan
from benchsuite.schema import convert

# Fields that mean nothing without a pipeline.
_OF_PIPELINES = ("schedule", "microbatches", "stages", "replicas")


def with_plan(parallel: Any, where: str, at: str) -> Any:
    """The field `parallel` with a plan's stages in place of the name of its file.

    Args:
        where: the profile's file. A plan lies relative to its folder.
        at: the profile and the job, for messages.

    Raises:
        ProfileError: there is no such plan or schedule, or the schedule cannot run the plan.
    """
    if not isinstance(parallel, dict):
        return parallel
    schedule, known = parallel.get("schedule"), get_args(Schedule)
    if schedule is not None and schedule not in known:
        unknown = f"unknown '{schedule}'{nearest(str(schedule), known)}"
        raise ProfileError(f"{at}: field 'parallel.schedule': {unknown}")
    if parallel.get("plan") is None:
        return {name: value for name, value in parallel.items() if name != "plan"}
    if both := [name for name in ("pp", "stages", "replicas") if parallel.get(name) is not None]:
        raise ProfileError(f"{at}: field 'parallel': the plan gives {both[0]}; remove one of them")
    plan = _plan(parallel["plan"], where, at)
    if schedule in (None, "pipedream") and parallel.get("dp") is not None:
        raise ProfileError(f"{at}: field 'parallel.dp': the plan gives the ranks of each stage; remove it")
    if not all(stage.units and stage.ranks for stage in plan.stages):
        raise ProfileError(f"{at}: field 'parallel.plan': {parallel['plan']} has a stage without units or ranks")
    if len(plan.stages) < 2:
        why = f"the plan {parallel['plan']} has one stage, which is data parallelism"
        raise ProfileError(f"{at}: field 'parallel.plan': {why}; give {{dp: {plan.gpus}}} instead")
    fields = {name: value for name, value in parallel.items() if name != "plan"}
    replicas = tuple(len(stage.ranks) for stage in plan.stages)
    fields |= {"pp": len(plan.stages), "stages": tuple(len(stage.units) for stage in plan.stages)}
    if schedule in (None, "pipedream"):
        return {**fields, "schedule": "pipedream", "replicas": replicas}
    if len(set(replicas)) > 1:
        raise ProfileError(
            f"{at}: field 'parallel.plan': its stages have {plan.replicas} replicas, and {schedule} needs "
            "equally many; give schedule pipedream"
        )
    return {"dp": replicas[0], **fields}


def _plan(file: Any, where: str, at: str) -> StagePlan:
    if not isinstance(file, str):
        raise ProfileError(f"{at}: field 'parallel.plan': expected the name of a file, found {file!r}")
    folder = Path(where).parent if Path(where).is_file() else Path()
    content = read_mapping(folder / file)
    try:
        return convert(content, StagePlan)
    except ValueError as error:
        made = "make one with benchsuite plan-stages -o plan.json"
        raise ProfileError(f"{at}: field 'parallel.plan': {file} is no plan of stages ({error}); {made}") from None


def check_pipeline(job: Job, model: Declared, at: str) -> None:
    """Raises ProfileError: the job asks for a pipeline that cannot run."""
    parallel = job.training.parallel
    if parallel.pp is None:
        if given := [name for name in _OF_PIPELINES if getattr(parallel, name) is not None]:
            raise ProfileError(f"{at}: field 'parallel.{given[0]}': there is no pipeline; give parallel.pp as well")
        return
    for field, why in (*_of_shape(parallel), *_of_training(job), *_of_batch(job, model)):
        raise ProfileError(f"{at}: field '{field}': {why}")


def _of_shape(parallel: Parallel) -> list[tuple[str, str]]:
    """What is wrong with the stages and ranks, each as field and reason."""
    pp, schedule = parallel.pp or 0, parallel.schedule or "1f1b"
    stages = pp * (INTERLEAVED if schedule == "interleaved-1f1b" else 1)
    found = []
    if pp < 2:
        found.append(("parallel.pp", "a pipeline has 2 ranks or more; raise it, or leave it out"))
    if parallel.fsdp is not None:
        found.append(("parallel.fsdp", "the weights of stages are not split; remove fsdp or pp"))
    if parallel.stages and len(parallel.stages) != stages:
        why = f"it has {len(parallel.stages)} stages, and {schedule} on {pp} ranks has {stages}"
        found.append(("parallel.stages", why))
    if schedule == "pipedream":
        if (parallel.dp or 1) > 1:
            found.append(("parallel.dp", "give the ranks of each stage as parallel.replicas instead"))
        if parallel.replicas and len(parallel.replicas) != pp:
            found.append(("parallel.replicas", f"it has {len(parallel.replicas)} numbers for {pp} stages"))
    elif parallel.replicas:
        found.append(("parallel.replicas", f"{schedule} has equally many replicas of each stage; give parallel.dp"))
    return found


def _of_training(job: Job) -> list[tuple[str, str]]:
    training = job.training
    schedule = training.parallel.schedule or "1f1b"
    found = []
    if training.precision == "amp-fp16":
        found.append(("precision", "amp-fp16 cannot scale the losses of stages together; give bf16"))
    if training.channels_last:
        found.append(("channels_last", "stages pass on contiguous tensors; leave it out"))
    if training.accumulate > 1:
        found.append(("accumulate", "a pipeline splits batches by parallel.microbatches; leave it out"))
    if training.compile in GRAPHED:
        found.append(("compile", f"the CUDA graphs of {training.compile} hold one micro-batch at a time; give default"))
    if training.compile != "none" and schedule in ("zero-bubble", "pipedream"):
        found.append(("compile", f"{schedule} cannot run compiled stages; leave it out, or give another schedule"))
    if training.checkpoint and schedule in ("zero-bubble", "pipedream"):
        # zero-bubble divides backward passes; pipedream's weights are by then of another version.
        found.append(("checkpoint", f"{schedule} cannot compute activations again; leave it out"))
    return found


def _of_batch(job: Job, model: Declared) -> list[tuple[str, str]]:
    parallel = job.training.parallel
    pp, schedule = parallel.pp or 0, parallel.schedule or "1f1b"
    if schedule == "pipedream":
        if parallel.microbatches is None:
            return []
        return [("parallel.microbatches", "pipedream passes on whole batches; leave it out")]
    count = parallel.microbatches or 4 * pp
    field = "parallel.microbatches"
    if schedule != "gpipe" and count < pp:
        return [(field, f"{schedule} on {pp} ranks needs at least {pp}, found {count}")]
    rounds = max(1, count // pp)
    if schedule in ("interleaved-1f1b", "zero-bubble") and count % rounds:
        return [(field, f"{schedule} on {pp} ranks needs a multiple of {rounds}, such as {pp * rounds}, found {count}")]
    batch = job.params.get("batch_size")
    if batch == "auto":
        return [("params.batch_size", "the search for auto does not know micro-batches; give a number")]
    if isinstance(batch, int) and not model.varies and batch % count:
        return [(field, f"{count} micro-batches do not divide a batch_size of {batch}; change one of them")]
    return []
