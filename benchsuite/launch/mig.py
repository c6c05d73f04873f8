"""Divide a GPU into MIG instances for one wave, by nvidia-smi, and make it whole again at the end.

MIG is switched on for the wave and off after it. A GPU whose mode changes only with a reset is left as it is, and so is
one that is divided already.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchsuite.describe.tasks import Gpu, Task
from benchsuite.errors import one_line, reason
from benchsuite.launch.context import RunContext, WaveError
from benchsuite.records import Failure

SMI = "nvidia-smi"
LIMIT_S = 120.0
# Slices of a GPU -> number of copies -> slices of each instance. Seven slices: the plan of HFTA (Wang et al. 2021).
PLANS: Mapping[int, Mapping[int, tuple[int, ...]]] = {
    7: {
        1: (7,),
        2: (3, 3),
        3: (2, 2, 2),
        4: (2, 2, 2, 1),
        5: (2, 2, 1, 1, 1),
        6: (2, 1, 1, 1, 1, 1),
        7: (1,) * 7,
    },
    4: {1: (4,), 2: (2, 2), 3: (2, 1, 1), 4: (1,) * 4},
}
# "|   0  MIG 1g.5gb        19     7/7        4.75  ...": slices, the rest of the name, id, total, GiB.
_PROFILE = re.compile(r"\|\s+\d+\s+MIG\s+(\d+)g\.(\S+)\s+(\d+)\s+\d+/(\d+)\s+([\d.]+)")
_GPU_LINE = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)")
_INSTANCE_LINE = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")


@dataclass(frozen=True)
class Profile:
    """A kind of instance that a GPU offers: how many of its slices, its id for nvidia-smi, and its memory."""

    slices: int
    id: str
    memory_gib: float


def profiles(listed: str) -> dict[int, Profile]:
    """The plain profile of each number of slices in the output of `nvidia-smi mig -lgip`.

    Variants with media engines ("1g.5gb+me") are left out. Of two sizes of memory the smaller counts, of which there
    are more.
    """
    found: dict[int, Profile] = {}
    for slices, rest, number, _, memory in _PROFILE.findall(listed):
        profile = Profile(int(slices), number, float(memory))
        known = found.get(profile.slices)
        if "+" not in rest and "-" not in rest and (known is None or profile.memory_gib < known.memory_gib):
            found[profile.slices] = profile
    return found


def chosen(offered: Mapping[int, Profile], copies: int) -> tuple[Profile, ...]:
    """The profile of the instance of each copy.

    Raises:
        WaveError: the GPU cannot be divided into so many instances.
    """
    whole = max(offered, default=0)
    plan = PLANS.get(whole, {}).get(copies)
    if plan is None or not set(plan) <= set(offered):
        have = ", ".join(f"{slices}g" for slices in sorted(offered)) or "none"
        raise _refused(f"the GPU cannot be divided among {copies} copies; its profiles: {have}")
    return tuple(offered[slices] for slices in plan)


@contextmanager
def divided(run: RunContext, tasks: Sequence[Task]) -> Iterator[list[Gpu]]:
    """An instance for each task on its GPU, in order; at the end every GPU is whole again.

    Raises:
        WaveError: a GPU cannot be divided, or it would need a reset.
    """
    if not run.allow_mig:
        raise _refused("--allow-mig is not given")
    of_gpu: dict[str, list[int]] = {}
    for at, task in enumerate(tasks):
        of_gpu.setdefault(task.gpus[0].uuid, []).append(at)
    with ExitStack() as restored:
        found: dict[int, Gpu] = {}
        for places in of_gpu.values():
            gpu = tasks[places[0]].gpus[0]
            found.update(zip(places, restored.enter_context(_divided(run, gpu, len(places))), strict=True))
        yield [found[at] for at in range(len(tasks))]


@contextmanager
def _divided(run: RunContext, gpu: Gpu, copies: int) -> Iterator[list[Gpu]]:
    if _mode(gpu) != "Disabled":
        raise _refused(f"GPU {gpu.visible_index} has MIG on, or no MIG: {_mode(gpu)}; it is left as it is")
    try:
        _smi("-i", gpu.uuid, "-mig", "1")
        if _mode(gpu) != "Enabled":
            raise _refused(f"GPU {gpu.visible_index} switches MIG on only with a reset, which is left to you")
        plan = chosen(profiles(_smi("mig", "-i", gpu.uuid, "-lgip")), copies)
        _smi("mig", "-i", gpu.uuid, "-cgi", ",".join(profile.id for profile in plan), "-C")
        made = instances(_smi("-L"), gpu)
        if len(made) != copies:
            raise _refused(f"GPU {gpu.visible_index} has {len(made)} instances after {copies} were made")
        yield made
    finally:
        _restore(run, gpu)


def instances(listed: str, gpu: Gpu) -> list[Gpu]:
    """The instances of a GPU in the output of `nvidia-smi -L`."""
    found: list[Gpu] = []
    inside = False
    for line in listed.splitlines():
        if card := _GPU_LINE.match(line):
            inside = card[1] == gpu.uuid
        elif inside and (part := _INSTANCE_LINE.match(line)):
            found.append(
                Gpu(
                    visible_index=gpu.visible_index,
                    nvml_index=gpu.nvml_index,
                    uuid=part[2],
                    name=f"{gpu.name} MIG {part[1]}",
                    pci=gpu.pci,
                    parent=gpu.uuid,
                )
            )
    return found


def _restore(run: RunContext, gpu: Gpu) -> None:
    """Remove all instances and switch MIG off. What does not succeed is said with its remedy."""
    if _mode(gpu) == "Disabled":
        return
    problems = []
    for words in (("mig", "-i", gpu.uuid, "-dci"), ("mig", "-i", gpu.uuid, "-dgi"), ("-i", gpu.uuid, "-mig", "0")):
        try:
            _smi(*words, nothing_to_do=6)
        except WaveError as error:
            problems.append(error.failure.message)
    if problems or _mode(gpu) != "Disabled":
        remedy = f"make it whole with: {SMI} mig -i {gpu.uuid} -dci; {SMI} mig -i {gpu.uuid} -dgi; "
        remedy += f"{SMI} -i {gpu.uuid} -mig 0"
        run.say(f"GPU {gpu.visible_index} is still divided by MIG ({'; '.join(problems)}); {remedy}")


def _mode(gpu: Gpu) -> str:
    """ "Enabled", "Disabled", or "[N/A]" for a GPU without MIG."""
    try:
        return _smi("-i", gpu.uuid, "--query-gpu=mig.mode.current", "--format=csv,noheader").strip()
    except WaveError as error:
        return error.failure.message


def _smi(*words: str, nothing_to_do: int = 0) -> str:
    """The output of nvidia-smi. It runs in a session of its own, so that Ctrl-C does not interrupt it half-way.

    Args:
        nothing_to_do: an exit status that is no failure, either.

    Raises:
        WaveError: it fails.
    """
    command = [SMI, *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, start_new_session=True)
    except subprocess.TimeoutExpired:
        raise _refused(f"'{' '.join(command)}' did not end within {LIMIT_S:g} s") from None
    except OSError as error:
        raise _refused(f"'{' '.join(command)}': {reason(error)}") from None
    if done.returncode not in (0, nothing_to_do):
        said = one_line((done.stdout + done.stderr).strip())[:300]
        raise _refused(f"'{' '.join(command)}' exited with status {done.returncode}: {said}")
    return done.stdout


def _refused(message: str) -> WaveError:
    return WaveError(Failure(kind="mig", message=message))
