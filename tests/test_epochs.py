"""Training by epochs: an epoch's checkpoint continues exactly, targets end a training, and no slice holds a pause."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from conftest import make_run
from support import benchsuite, in_process, read_results

from benchsuite.describe.goal import Target
from benchsuite.describe.jobs import resolve
from benchsuite.describe.plan import plan_of
from benchsuite.describe.tasks import DataFolder, Task
from benchsuite.errors import ModelError
from benchsuite.events import Assignment, End, EpochClosed, Event, EventReader, EventWriter, Ready, SliceClosed
from benchsuite.models import on_tensors
from benchsuite.rundir import RunDir
from benchsuite.worker import saved
from benchsuite.worker.__main__ import _run

pytestmark = pytest.mark.torch

SMALL_WLM = {"batch_size": 3, "bptt": 5, "vocabulary": 50, "emsize": 8, "nhid": 8, "dropout": 0.3}
WLM: dict[str, Any] = {"model": "wlm", "params": SMALL_WLM}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tensors this small are slower on more threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run_folder(path: Path, found: DataFolder | None = None, **fields: Any) -> tuple[RunDir, Assignment]:
    """The folder of a run of one task on the CPU, as the parent makes it before the start."""
    common = {"placement": "cpu", "warm_up_s": 0.0, "max_time_s": 280.0}
    job = resolve("job", {**common, **fields}, "p.yaml")
    task = Task(
        id="job.J0", profile="p", repeat=0, job=job, cell="job", row="job", wave="w", data_root=str(path.parent)
    )
    rundir = RunDir.create(path, make_run(gpus=0), plan_of([task]))
    assignment = Assignment(
        task=task,
        events=str(rundir.log(task, 1, "events.jsonl")),
        data=found,
        checkpoints=None if job.checkpoints == "none" else str(rundir.checkpoints(task, 1)),
    )
    rundir.log(task, 1, "task.json").touch()
    return rundir, assignment


def events(assignment: Assignment) -> list[Event]:
    """All events of a worker that ran in this process."""
    _run(assignment, EventWriter(assignment.events), rank=0)
    return EventReader(Path(assignment.events)).new()


def epochs_in(found: list[Event]) -> list[EpochClosed]:
    return [event for event in found if isinstance(event, EpochClosed)]


def flat(tree: Any) -> list[torch.Tensor]:
    kept: list[torch.Tensor] = []
    on_tensors(lambda tensor: (kept.append(tensor), tensor)[1], tree)
    return kept


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        {**WLM, "lr_schedule": {"policy": "polynomial", "epoch_steps": 3, "epochs": 5}},
        {"model": "dcgan", "params": {"batch_size": 2, "nz": 4, "ngf": 2, "ndf": 2}},
    ],
    ids=["carry-dropout-and-schedule", "two-optimisers"],
)
def test_a_training_that_continues_equals_one_that_was_never_interrupted(tmp_path: Path, model: dict[str, Any]) -> None:
    by_epochs = {**model, "epoch_items": 40, "max_epochs": 3}
    _, whole = run_folder(tmp_path / "whole", **by_epochs)
    first, second = epochs_in(events(whole)), None
    _, half = run_folder(tmp_path / "half", **{**by_epochs, "max_epochs": 2})
    events(half)
    _, rest = run_folder(tmp_path / "rest", **by_epochs, resume_from=half.checkpoints)
    found = events(rest)
    second = epochs_in(found)
    assert [one.epoch.epoch for one in first] == [1, 2, 3]
    assert [one.epoch.epoch for one in second] == [3]
    assert second[0].epoch.loss == first[2].epoch.loss
    a, b = (saved.read(str(one.checkpoints)) for one in (whole, rest))
    assert a.epoch == b.epoch == 3
    assert flat(a.content) and all(map(torch.equal, flat(a.content), flat(b.content)))
    (ready,) = [event for event in found if isinstance(event, Ready)]
    assert any("continued from" in note and "after 2 epochs" in note for note in ready.notes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, Assignment, list[Event]]:
    """Two epochs of a language model."""
    rundir, assignment = run_folder(tmp_path_factory.mktemp("trained") / "run", **WLM, epoch_items=40, max_epochs=2)
    return rundir, assignment, events(assignment)


def test_an_epoch_counts_its_items_and_its_pause_is_in_no_slice(
    trained: tuple[RunDir, Assignment, list[Event]],
) -> None:
    rundir, _, found = trained
    slices = [event for event in found if isinstance(event, SliceClosed)]
    first, second = (event.epoch for event in epochs_in(found))
    assert first.items >= 40
    assert first.items + second.items == sum(one.slice.items for one in slices)
    assert first.steps + second.steps == sum(one.slice.steps for one in slices)
    after = [one.slice for one in slices if one.slice.start_s >= first.end_s]
    assert first.pause_s > 0
    assert after[0].start_s >= first.end_s + first.pause_s
    assert sum(one.steps for one in after) == second.steps
    assert not any(one.last for one in slices)
    assert first.checkpoint and (rundir.path / f"{first.checkpoint}.stage0.pt").is_file()
    (end,) = [event for event in found if isinstance(event, End)]
    assert end.stopped_by == "epochs"


def test_stages_join_by_the_names_of_the_parameters(
    trained: tuple[RunDir, Assignment, list[Event]], tmp_path: Path
) -> None:
    _, assignment, _ = trained
    whole = saved.read(str(assignment.checkpoints))
    content = torch.load(saved.file_of(str(assignment.checkpoints), 2, 0), weights_only=True)
    for stage in (0, 1):
        part = {**content, "stage": stage, "stages": 2}
        for kind in ("modules", "optimisers"):
            part[kind] = {
                name: {key: value for place, (key, value) in enumerate(of.items()) if place % 2 == stage}
                for name, of in content[kind].items()
            }
        saved.write(saved.file_of(str(tmp_path / "split"), 2, stage), part)
    joined = saved.read(str(tmp_path / "split"))
    names = whole.content["modules"]["net"].keys()
    assert joined.content["modules"]["net"].keys() == names
    assert all(torch.equal(joined.content["modules"]["net"][n], whole.content["modules"]["net"][n]) for n in names)
    saved.file_of(str(tmp_path / "split"), 2, 1).unlink()
    with pytest.raises(ModelError, match=r"split.epoch2: of 2 stages, 1 is missing; continue from an earlier epoch"):
        saved.read(str(tmp_path / "split"))


@pytest.mark.parametrize("damage", ["cut", "text", "code", "flipped"])
def test_a_damaged_checkpoint_is_one_clear_line(
    trained: tuple[RunDir, Assignment, list[Event]], tmp_path: Path, damage: str
) -> None:
    _, assignment, _ = trained
    path = saved.file_of(str(tmp_path / "x"), 2, 0)
    content = saved.file_of(str(assignment.checkpoints), 2, 0).read_bytes()
    if damage == "code":
        torch.save({"format": 1, "epoch": Path("/")}, path)  # a class would be built when it is loaded
    elif damage == "flipped":
        place = len(content) // 2
        path.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"no checkpoint")
    with pytest.raises(ModelError, match=r"x\.epoch2\.stage0\.pt: damaged, or no checkpoint \(") as raised:
        saved.read(str(tmp_path / "x"))
    assert "\n" not in str(raised.value)


def test_a_full_disk_is_one_clear_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(ModelError, match=r"x\.pt: the checkpoint cannot be written: ") as raised:
            saved.write(tmp_path / "x.pt", {"weights": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert "file too large" in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"max_epochs": 2}, "2 epochs are trained; give a larger max_epochs"),
        ({"params": {**SMALL_WLM, "nhid": 16}}, "has shape"),
        ({"model": "polynome", "params": {}}, "a checkpoint of 'wlm'; continue with that model"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    trained: tuple[RunDir, Assignment, list[Event]], tmp_path: Path, changed: dict[str, Any], says: str
) -> None:
    fields = {**WLM, "epoch_items": 40, "max_epochs": 3, "resume_from": trained[1].checkpoints, **changed}
    _, assignment = run_folder(tmp_path / "run", **fields)
    with pytest.raises(ModelError, match=says):
        events(assignment)


# --- stop rules -------------------------------------------------------------------------------------------------------


def test_a_target_loss_ends_the_training_and_only_the_last_checkpoint_is_kept(tmp_path: Path) -> None:
    fields = {"model": "polynome", "epoch_items": 640, "max_epochs": 50, "checkpoints": "last"}
    rundir, assignment = run_folder(tmp_path / "run", **fields, target={"loss": 5.0})
    found = events(assignment)
    losses = [event.epoch.loss or 0.0 for event in epochs_in(found)]
    assert len(losses) > 1
    assert losses[-1] <= 5.0 < min(losses[:-1])
    assert Target(loss=5.0).met(losses[-1], None)
    assert [event.stopped_by for event in found if isinstance(event, End)] == ["target"]
    (kept,) = (rundir.path / "checkpoints").iterdir()
    assert kept.name == f"job.J0.a1.epoch{len(losses)}.stage0.pt"


def test_the_time_limit_ends_an_epoch_without_a_checkpoint(tmp_path: Path) -> None:
    fields = {"model": "polynome", "epoch_items": 10**12, "max_epochs": 1, "max_time_s": 0.1}
    rundir, assignment = run_folder(tmp_path / "run", **fields)
    found = events(assignment)
    assert [event.stopped_by for event in found if isinstance(event, End)] == ["max_time"]
    assert not epochs_in(found)
    assert not (rundir.path / "checkpoints").exists()


def test_a_model_that_steps_by_itself_trains_no_epochs(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    _, assignment = run_folder(tmp_path / "run", model="cart_pole", epoch_items=5, max_epochs=1)
    with pytest.raises(ModelError, match="need a model whose weights benchsuite trains"):
        events(assignment)


def test_run_needs_a_folder_for_checkpoints(tmp_path: Path) -> None:
    done = in_process("run", "polynome", "--", "--max-epochs", "1", "--epoch-items", "9", cwd=tmp_path)
    assert done.returncode == 2
    assert "its checkpoints need a run folder; name a folder with 'benchsuite run -o'" in done.stderr


def test_a_run_keeps_epochs_and_checkpoints_and_its_report_has_no_score(tmp_path: Path) -> None:
    job = {"model": "polynome", "placement": "cpu", "warm_up_s": 0, "max_epochs": 3, "epoch_items": 640}
    (tmp_path / "p.json").write_text(json.dumps({"fit": {**job, "target": "loss=1e-9"}}), encoding="utf-8")
    done = benchsuite("jobs", "p.json", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "cannot get a number" not in done.stderr
    result = read_results(tmp_path / "out")["fit"]
    (stream,) = result.measurement.streams
    assert [one.epoch for one in stream.epochs] == [1, 2, 3]
    assert all((tmp_path / "out" / f"{one.checkpoint}.stage0.pt").is_file() for one in stream.epochs)
    assert stream.stopped_by == "epochs"
    shown = in_process("report", "out", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("1 of 1 training by epochs ended; 0 of 1 target met. Trainings have no score.")
    assert "fit.J0 target not met loss of at most 1e-09 3" in " ".join(shown.stdout.split())
    assert "fit.J0, loss by epoch: 1: " in shown.stdout
    checked = in_process("verify", "out", cwd=tmp_path)
    assert "1 training by epochs, which have no score" in checked.stdout
    assert "no task has ended" not in checked.stdout
