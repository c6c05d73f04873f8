"""The setting in which a job differs from the same job of a baseline, and whether one machine measured both.

A ratio of unlike work is a ratio of settings. It means something if all else is equal: the machine, the model, the unit
of an item and the GPUs of a task. Two runs are of one machine if they agree in host name, processors, memory, and the
UUIDs of the GPUs that their tasks used. Drivers and packages may differ; the report lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchsuite.describe.work import ENTRY_FILE
from benchsuite.records import Machine
from benchsuite.report.read.summary import JobSummary, Summary
from benchsuite.report.stats.differences import trained_differences

# Parameters of models that leave the number of parameters and the content of an item as they are.
_SAME_MODEL = frozenset(
    {
        *("batch_size", "workers", "prefetch", "seed", "dropout", "smoothing", "content_weight", "style_weight"),
        *("lr", "momentum", "weight_decay", "betas", "beta1", "beta2", "eps", "optimiser", "optimizer"),
        *("clip", "clip_norm", "gamma", "gae_lambda", "entropy_weight", "reward_scale", "environments", "steps"),
        *("epochs", "minibatches", "episode_length", "samples", "bptt", "negatives"),
    }
)
_PARAMS = "params."


@dataclass(frozen=True)
class SettingDifference:
    """A setting with its values on both sides; several settings of a job count as one difference.

    Attributes:
        settings: the number of settings. If it is above 1, `here` and `base` are whole phrases.
    """

    name: str
    here: str
    base: str
    settings: int = 1

    @property
    def here_words(self) -> str:
        """ "bf16", "batch size 64", "no compile"."""
        return self.here if self.settings > 1 else _phrase(self.name, self.here)

    @property
    def base_words(self) -> str:
        return self.base if self.settings > 1 else _phrase(self.name, self.base)

    @property
    def words(self) -> str:
        """ "bf16 against fp32"."""
        return f"{self.here_words} against {self.base_words}"


def _phrase(name: str, value: str) -> str:
    if name == "precision":
        return value
    if value in ("none", "false"):
        return f"no {name}"
    return name if value == "true" else f"{name} {value}"


def named_difference(job: JobSummary, base: JobSummary) -> SettingDifference | str:
    """The difference between two jobs of unlike work, or the reason why their rates have no common meaning.

    Args:
        job, base: of one machine.
    """
    if job.unlike or base.unlike:
        return "the tasks of one side differ among themselves"
    if not (job.settings and base.settings):
        return "a side keeps no settings"
    found = list(trained_differences(job.settings, base.settings))
    if reason := _another_model(job, [name for name, _, _ in found]):
        return reason
    if job.unit != base.unit:
        return f"another unit: {job.unit or 'unknown'} here, {base.unit or 'unknown'} in the baseline"
    if (job.devices, job.per, job.ranks) != (base.devices, base.per, base.ranks):
        return "other GPUs of a task"
    if not found:
        return "the differing setting is not kept"
    plain = [(_plain(name), base_value, value) for name, base_value, value in found]
    if len(plain) == 1:
        name, base_value, value = plain[0]
        return SettingDifference(name, value, base_value)
    return SettingDifference(
        " and ".join(name for name, _, _ in plain),
        " with ".join(_phrase(name, value) for name, _, value in plain),
        " with ".join(_phrase(name, base_value) for name, base_value, _ in plain),
        len(plain),
    )


def _another_model(job: JobSummary, names: list[str]) -> str | None:
    """Why the settings of these names make another model, as far as is known."""
    if changed := [name for name in names if name in ("model", "entry")]:
        return f"another {changed[0]}"
    if ENTRY_FILE in names:
        return "another file of the model"
    own = [name.removeprefix(_PARAMS) for name in names if name.startswith(_PARAMS)]
    unknown = [_plain(name) for name in own if name not in _SAME_MODEL]
    return f"{', '.join(unknown)} can change the model or an item of {job.name}" if unknown else None


def _plain(name: str) -> str:
    """The name of a setting as it is read: without "params." and underscores."""
    return name.removeprefix(_PARAMS).replace("_", " ")


def other_machine(summary: Summary, base: Summary) -> str | None:
    """Why two runs are not known to be of one machine; None if they are."""
    for side, which in ((summary, "this run"), (base, "the baseline")):
        if not side.machines:
            return f"{which} does not record its machine"
    facts = zip(_identity(summary), _identity(base), strict=True)
    return next((f"another {what}" for (what, here), (_, there) in facts if here != there), None)


def _identity(summary: Summary) -> Iterator[tuple[str, object]]:
    machines = sorted(summary.machines, key=lambda machine: machine.host)
    tasks = [task for job in summary.jobs for task in job.tasks]
    yield "host", ({machine.host for machine in machines}, {task.host for task in tasks if task.host})
    yield "processor", [(machine.cpu, machine.cpus) for machine in machines]
    yield "memory", [machine.memory_bytes and round(machine.memory_bytes / 2**30) for machine in machines]
    yield "GPU", {gpu.uuid for task in tasks for gpu in task.gpus} or _visible(machines)


def _visible(machines: list[Machine]) -> set[str]:
    return {uuid for machine in machines for uuid in machine.visible}
