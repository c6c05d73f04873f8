"""What CUDA_VISIBLE_DEVICES leaves to a run: what torch would use, or a refusal; never the CPU without a word."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest
from conftest import make_gpu

from benchsuite.describe.plan import make_plan
from benchsuite.describe.tasks import Gpu, Job, Placement
from benchsuite.errors import UsageError
from benchsuite.host.visible import chosen, visible

FOUR = [make_gpu(i) for i in range(4)]
# The second card is divided.
DIVIDED = [
    make_gpu(0),
    *(
        msgspec.structs.replace(make_gpu(1), uuid=f"MIG-{name}", visible_index=1 + place, parent="GPU-0001")
        for place, name in enumerate(("aa-1", "ab-2"))
    ),
]


def look(wanted: str | None, present: list[Gpu] | None = None) -> tuple[list[Gpu], str | None]:
    return visible(FOUR if present is None else present, {} if wanted is None else {"CUDA_VISIBLE_DEVICES": wanted})


TAKEN: dict[str | None, tuple[list[int], str | None]] = {
    None: ([0, 1, 2, 3], None),
    "2": ([2], None),
    "3,1": ([3, 1], None),
    " 1 , 0 ": ([1, 0], None),
    "01,+2,3gpu": ([1, 2, 3], None),
    "1,0,": ([1, 0], None),
    "GPU-0002": ([2], None),
    "GPU-0003,GPU-0001": ([3, 1], None),
    "": ([], "hides all GPUs"),
    " ": ([], "hides all GPUs"),
    "-1": ([], "hides all GPUs"),
    "-1,0": ([], "hides all GPUs"),
    "none": ([], "hides all GPUs"),
    "NoDevFiles": ([], "hides all GPUs"),
    "1,9,2": ([1], "names no GPU of this machine at '9', where the list ends, as in CUDA; not used: 2"),
    "0,1,-1,3": ([0, 1], "at '-1', where the list ends, as in CUDA; not used: 3"),
    "0,,2": ([0], "at '', where the list ends, as in CUDA; not used: 2"),
    "0,all": ([0], "at 'all'"),
    "GPU-0001,GPU-7,GPU-0002": ([1], "at 'GPU-7'"),
}
REFUSED = {
    "0,0": "names 0 twice",
    "1,7,7": "names 7 twice",
    "0,GPU-0000": "names GPU-0000 twice",
    "GPU-0000,0": "names GPU-0000 twice",
    "GPU-0001,GPU-0001": "names GPU-0001 twice",
    "GPU-0003,0": "mixes numbers and UUIDs",
    "0,GPU-0003": "mixes numbers and UUIDs",
    "GPU-0001, GPU-0002": "has a blank beside a UUID",
    "GPU-": "is ambiguous at 'GPU-': name one of GPU-0000, GPU-0001",
    "9": "names no GPU of this machine at '9'",
    "all": "names no GPU of this machine at 'all'",
    "99999999999999999999": "names no GPU",
    "MIG-1": "names no GPU of this machine at 'MIG-1'",
    "\x80": "names no GPU",
}


@pytest.mark.parametrize("wanted", TAKEN)
def test_visible_gpus_are_those_that_cuda_would_see(wanted: str | None) -> None:
    physical, reason = TAKEN[wanted]
    found, why = look(wanted)
    assert [g.nvml_index for g in found] == physical
    assert [g.visible_index for g in found] == list(range(len(physical)))
    assert (reason is None and why is None) or (reason or "?") in (why or "")


@pytest.mark.parametrize("wanted", REFUSED)
def test_a_list_that_only_a_guess_could_follow_is_refused(wanted: str) -> None:
    found, why = look(wanted)
    assert found == []
    assert REFUSED[wanted] in (why or "")
    with pytest.raises(UsageError) as refused:
        chosen(FOUR, {"CUDA_VISIBLE_DEVICES": wanted}, f"NVML: GPU 9 does not answer; {why}")
    assert str(refused.value) == f"NVML: GPU 9 does not answer; {why}"
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES"):
        chosen(FOUR, {"CUDA_VISIBLE_DEVICES": wanted})


def test_a_machine_without_gpus_refuses_no_list() -> None:
    assert look("0,0", present=[]) == ([], None)


@pytest.mark.torch
@pytest.mark.parametrize("wanted", [wanted for wanted in TAKEN if wanted is not None])
def test_torch_takes_the_same(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.cuda

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", wanted)
    parsed: list[Any] = torch.cuda._parse_visible_devices()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == wanted
    if parsed and isinstance(parsed[0], str):
        parsed = torch.cuda._transform_uuid_to_ordinals(parsed, [gpu.uuid for gpu in FOUR])
    within = next((place for place, number in enumerate(parsed) if number >= len(FOUR)), len(parsed))
    assert [gpu.nvml_index for gpu in look(wanted)[0]] == parsed[:within]


@pytest.mark.parametrize(
    ("wanted", "uuids"),
    [
        (None, ["GPU-0000", "MIG-aa-1", "MIG-ab-2"]),
        ("MIG-ab-2,MIG-aa-1", ["MIG-ab-2", "MIG-aa-1"]),
        ("MIG-aa-1", ["MIG-aa-1"]),
        ("GPU-0000,MIG-ab-2", ["GPU-0000", "MIG-ab-2"]),
        ("0", ["GPU-0000"]),
    ],
)
def test_each_instance_of_a_divided_card_has_a_task_of_its_own(wanted: str | None, uuids: list[str]) -> None:
    found, why = look(wanted, DIVIDED)
    assert ([gpu.uuid for gpu in found], why) == (uuids, None)
    each = Job(name="vae", model="vae", placement=Placement(devices="each"))
    tasks = make_plan("p", [each], found, environ={}).tasks
    assert [task.environ["CUDA_VISIBLE_DEVICES"] for task in tasks] == uuids


@pytest.mark.parametrize("wanted", ["1", "GPU-0001", "MIG-a"])
def test_a_divided_card_is_ambiguous(wanted: str) -> None:
    found, why = look(wanted, DIVIDED)
    assert found == []
    assert why is not None
    assert "is ambiguous" in why
    assert "name one of MIG-aa-1, MIG-ab-2" in why


def test_instances_train_no_model_together() -> None:
    every = Job(name="vae", model="vae", placement=Placement(devices="all"))
    steps = Job(name="vae", model="vae", placement=Placement(devices="progression"))
    (task,) = make_plan("p", [every], DIVIDED, environ={}).tasks
    assert "MIG" in (task.skip or "")
    assert [bool(task.skip) for task in make_plan("p", [steps], DIVIDED[1:], environ={}).tasks] == [False, True]
