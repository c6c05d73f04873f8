"""The fields of a training by epochs: what they mean, and which of them contradict each other before the start."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from benchsuite.describe.goal import Target
from benchsuite.describe.jobs import resolve
from benchsuite.describe.tasks import LONGEST_S
from benchsuite.errors import ProfileError

EPOCHS = {"model": "vae", "max_epochs": 3, "epoch_items": 100}


def test_a_training_by_epochs_has_no_time_limit_unless_one_is_given() -> None:
    job = resolve("vae", EPOCHS, "p.yaml")
    assert (job.min_time_s, job.max_time_s, job.checkpoints) == (0.0, LONGEST_S, "all")
    assert job.timeout_s > job.max_time_s
    assert resolve("vae", {**EPOCHS, "max_time_s": 60}, "p.yaml").max_time_s == 60


def test_a_target_is_one_figure_in_short_or_in_full() -> None:
    short = resolve("vae", {**EPOCHS, "target": "loss=2.5"}, "p.yaml").target
    assert short == resolve("vae", {**EPOCHS, "target": {"loss": 2.5}}, "p.yaml").target == Target(loss=2.5)
    assert short and short.words == "loss of at most 2.5"


def test_a_target_is_met_from_its_own_side() -> None:
    assert Target(loss=2.0).met(2.0, None)
    assert not Target(loss=2.0).met(2.1, 99.0)
    assert not Target(loss=2.0).met(None, None)
    assert Target(bleu=20.0).met(9.0, 20.0)
    assert not Target(bleu=20.0).met(0.0, 19.9)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"epoch_items": None}, "field 'max_epochs': give 'epoch_items' as well"),
        ({"max_epochs": None}, "field 'epoch_items': the job trains no epochs; give 'max_epochs' or 'target'"),
        ({"max_count": 5}, "field 'max_count': 'max_epochs' decides when the training ends; remove one"),
        ({"max_steps": 5}, "field 'max_steps': 'max_epochs' decides"),
        ({"min_time_s": 5}, "field 'min_time_s': 'max_epochs' decides when the training ends; set it to 0"),
        ({"max_epochs": None, "target": "loss=1"}, "it may never be met; give 'max_epochs' or 'max_time_s'"),
        ({"target": {"loss": 1, "bleu": 9}}, "field 'target': give either a loss or a BLEU"),
        ({"target": "bleu=9"}, "BLEU is a figure of translations; give a loss, or train gnmt"),
        ({"model": "gnmt", "target": "bleu=9"}, "generated pairs have no test set; give 'data'"),
        (
            {"model": "gnmt", "target": "bleu=9", "data": "wmt16", "checkpoints": "none"},
            "BLEU is measured on the checkpoint of each epoch; give last",
        ),
        ({"target": "loss=x"}, "field 'target'"),
        ({"target": "bleu=101"}, "field 'target.bleu'"),
        ({"checkpoints": "al"}, "unknown 'al'; did you mean 'all'?"),
        ({"max_time_s": 60, "timeout_s": 30}, "max_time_s 60 is over timeout_s 30"),
        ({"resume_from": "/nowhere/vae"}, "no checkpoint /nowhere/vae*.stage0.pt; name one up to '.epochN'"),
    ],
)
def test_contradictions_are_refused_before_the_start(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ProfileError, match=r"p.yaml: job 'job': ") as refused:
        resolve("job", {key: value for key, value in {**EPOCHS, **fields}.items() if value is not None}, "p.yaml")
    assert says in str(refused.value)


def test_a_checkpoint_to_continue_from_is_found_from_the_folder_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("vae[1].epoch2.stage0.pt", "w"):
        pass
    for prefix in ("vae[1]", "vae[1].epoch2"):
        assert resolve("vae", {**EPOCHS, "resume_from": prefix}, "p.yaml").resume_from == str(tmp_path / prefix)
    Path("vae[1].epoch3.stage0.pt").write_bytes(b"cut off")
    with pytest.raises(ProfileError, match=r"epoch3.stage0.pt is damaged; continue from an earlier epoch"):
        resolve("vae", {**EPOCHS, "resume_from": "vae[1]"}, "p.yaml")
    with pytest.raises(ProfileError, match=r"no checkpoint"):
        resolve("vae", {**EPOCHS, "resume_from": "va"}, "p.yaml")
