"""PipeDream's driver and stage configurations: what they mean, and which are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchsuite.errors import BenchError, PipelineError
from benchsuite.pipeline import driver, layout, stage_map

SHIPPED = Path(__file__).resolve().parents[2] / "shared/data/pipedream"
shipped = pytest.mark.skipif(not SHIPPED.is_dir(), reason="the configurations of PipeDream are not here")

CONFIG: dict[str, Any] = {
    "log_directory": "/logs",
    "module": "models.vgg16.gpus=4",
    "data_dir": "/data/imagenet",
    "config_file": "models/vgg16/conf.json",
    "container": "image:1",
    "machines": ["one:0", "one:1", "two:0", "two:1"],
    "batch_size": 64,
    "learning_rate": 0.03,
    "weight_decay": 0.0005,
    "epochs": 60,
    "learning_rate_policy": "polynomial",
    "model_type": "image_classification",
    "distributed_backend": "gloo",
}
THREE_ONE: dict[str, Any] = {"module_to_stage_map": [0, 1, 1], "stage_to_rank_map": {"0": [0, 1, 2], "1": [3]}}


def configured(folder: Path, stages: Any = None, **changes: Any) -> Path:
    """A task folder with a driver and a stage configuration. A change to None leaves the key out."""
    for name in ("driver_configs", "models/vgg16"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "models/vgg16/conf.json").write_text(json.dumps(stages or THREE_ONE))
    kept = {key: value for key, value in {**CONFIG, **changes}.items() if value is not None}
    path = folder / "driver_configs" / "c.yml"
    path.write_text("\n".join(f"'{key}': {json.dumps(value)}" for key, value in kept.items()))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(BenchError) as refused:
        layout.of_file(path)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_driver_configuration_means_a_model_on_ranks(tmp_path: Path) -> None:
    found = layout.of_file(configured(tmp_path))
    assert found.model == "convnet"
    assert found.params == {"arch": "vgg16", "batch_size": 64, "lr": 0.03, "weight_decay": 0.0005}
    assert found.replicas == (3, 1)
    assert found.num_ranks == 4
    assert [stage.modules for stage in found.stages] == [(0,), (1, 2)]
    assert [place.name for place in found.stages[0].places] == ["one:0", "one:1", "two:0"]
    assert found.config.epochs == 60
    assert found.config.learning_rate_policy == "polynomial"
    assert found.config.container == "image:1"


def test_a_stage_takes_as_many_minibatches_forward_as_ranks_wait_behind_it(tmp_path: Path) -> None:
    straight = {"module_to_stage_map": [0, 1, 2, 3, 3], "stage_to_rank_map": {str(i): [i] for i in range(4)}}
    assert [stage.warm_up for stage in layout.of_file(configured(tmp_path)).stages] == [1, 0]
    assert [stage.warm_up for stage in layout.of_file(configured(tmp_path, straight)).stages] == [3, 2, 1, 0]
    given = {**THREE_ONE, "stage_to_depth_map": {"0": 2, "1": 0}}
    assert [stage.warm_up for stage in layout.of_file(configured(tmp_path, given)).stages] == [2, 0]
    alone = layout.of_file(configured(tmp_path, no_input_pipelining=True))
    assert [stage.warm_up for stage in alone.stages] == [0, 0]


def test_the_learning_rate_of_a_stage_follows_its_replicas(tmp_path: Path) -> None:
    rates = [stage.learning_rate for stage in layout.of_file(configured(tmp_path)).stages]
    assert rates == pytest.approx([0.03, 0.01])
    assert layout.of_file(configured(tmp_path, learning_rate=None)).stages[1].learning_rate is None


def test_without_a_stage_configuration_one_machine_trains_the_whole_model(tmp_path: Path) -> None:
    found = layout.of_file(configured(tmp_path, config_file=None, machines=["one:0"]))
    assert found.replicas == (1,)
    assert "4 machines need a stage configuration" in refusal(configured(tmp_path, config_file=None))


def test_keys_without_effect_are_named(tmp_path: Path) -> None:
    assert driver.read(configured(tmp_path)).without_effect == ()
    path = configured(tmp_path, compress_activations=False, recompute=True, synthetic_data=True)
    assert driver.read(path).without_effect == ("compress_activations", "recompute")
    path = configured(tmp_path, model_type="translation", synthetic_data=True)
    assert driver.read(path).without_effect == ("synthetic_data",)


def test_a_plan_of_ours_is_a_stage_configuration(tmp_path: Path) -> None:
    assert layout.of_file(configured(tmp_path, {"schema": 4, "kind": "stageplan", **THREE_ONE})).replicas == (3, 1)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"container": None}, ["field 'container' is missing"]),
        ({"bach_size": 4}, ["unknown field 'bach_size'; did you mean 'batch_size'?"]),
        ({"batch_size": "64"}, ["field 'batch_size'", "expected 'int'", "found '64'"]),
        ({"batch_size": 0}, ["field 'batch_size'", "found 0"]),
        ({"learning_rate": -1}, ["field 'learning_rate'", "found -1"]),
        ({"learning_rate_policy": "cosine"}, ["'learning_rate_policy'", "known: step, polynomial, exponential_decay"]),
        ({"distributed_backend": "mpi"}, ["field 'distributed_backend'", "known: nccl, gloo"]),
        ({"model_type": "speech_to_text"}, ["field 'model_type'", "ships no models for speech_to_text"]),
        ({"model_type": "vision"}, ["field 'model_type'", "known: image_classification, translation"]),
        ({"machines": []}, ["field 'machines'"]),
        ({"machines": "one:0"}, ["field 'machines'", "expected 'array'"]),
        ({"machines": ["one"]}, ["field 'machines'", "'one' is no machine; write HOST:GPU"]),
        ({"machines": ["one:0"] * 4}, ["field 'machines'", "one:0 is given twice"]),
        ({"machines": ["one:0", "one:1"]}, ["2 machines, but", "conf.json has 4 ranks", "as many machines as ranks"]),
        ({"module": "models.vgg19.gpus=4"}, ["field 'module'", "names no model", "did you mean 'vgg16'?"]),
        ({"module": "vgg16"}, ["field 'module'", "models.NAME.VERSION"]),
        ({"config_file": "models/none.json"}, ["field 'config_file'", "no file 'models/none.json'"]),
        ({"model_type": "translation", "lr_warmup": True}, ["field 'lr_warmup'", "translation has no warm-up"]),
        ({"model_type": "translation", "module": "models.gnmt.gpus=4"}, ["'weight_decay'", "set it to 0"]),
    ],
)
def test_a_bad_driver_configuration_is_one_line(tmp_path: Path, changes: dict[str, Any], parts: list[str]) -> None:
    path = configured(tmp_path)
    message = refusal(configured(tmp_path, **changes))
    assert message.startswith(f"{path}: ")
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"stage_to_rank_map": {"0": [0, 1, 2], "1": []}}, ["'stage_to_rank_map'", "a list of numbers"]),
        ({"stage_to_rank_map": {"0": [0, 1, 2], "1": [2]}}, ["the ranks are [0, 1, 2, 2]", "0 to 3", "once"]),
        ({"stage_to_rank_map": {"0": [0, 1, 2, 3]}}, ["its stages are 0; map each of 0, 1"]),
        ({"stage_to_rank_map": [0, 1]}, ["its stages are none"]),
        ({"module_to_stage_map": [0, 2, 2]}, ["'module_to_stage_map'", "stage 2 comes after 0"]),
        ({"module_to_stage_map": [1, 0]}, ["'module_to_stage_map'", "number the stages 0, 1, ... in order"]),
        ({"module_to_stage_map": [0, "1"]}, ["'module_to_stage_map'", "a list of numbers"]),
        ({"stage_to_depth_map": {"0": 1}}, ["'stage_to_depth_map'", "map each of 0, 1"]),
        ({"stage_to_ranks": {}}, ["unknown field 'stage_to_ranks'; did you mean 'stage_to_rank_map'?"]),
    ],
)
def test_a_bad_stage_configuration_is_one_line(tmp_path: Path, changes: dict[str, Any], parts: list[str]) -> None:
    message = refusal(configured(tmp_path, {**THREE_ONE, **changes}))
    assert message.startswith(f"{tmp_path}/models/vgg16/conf.json: ")
    for part in parts:
        assert part in message


def test_a_stage_configuration_that_fits_is_named(tmp_path: Path) -> None:
    path = configured(tmp_path, machines=["one:0", "one:1"])
    fitting = {**THREE_ONE, "stage_to_rank_map": {"0": [0], "1": [1]}}
    (tmp_path / "models/vgg16/straight.json").write_text(json.dumps(fitting))
    assert "or name straight.json in 'config_file', which has 2" in refusal(path)


@shipped
def test_fifteen_of_the_shipped_configurations_have_a_meaning_and_two_are_refused() -> None:
    paths = sorted(SHIPPED.glob("*/driver_configs/*.yml"))
    assert len(paths) == 17
    found: dict[str, layout.Layout] = {}
    refused: dict[str, str] = {}
    for path in paths:
        try:
            found[path.stem] = layout.of_file(path)
        except PipelineError as error:
            refused[path.stem] = str(error)
    assert refused.keys() == {"gnmt_12pipedream", "gnmt_large_16pipedream"}
    assert "12 machines, but" in refused["gnmt_12pipedream"] and "has 10 ranks" in refused["gnmt_12pipedream"]
    assert "16 machines, but" in refused["gnmt_large_16pipedream"] and "14 ranks" in refused["gnmt_large_16pipedream"]
    for message in refused.values():
        assert "name hybrid_conf.json in 'config_file'" in message
    replicas = {name: of.replicas for name, of in found.items()}
    assert all(of == (found[name].num_ranks,) for name, of in replicas.items() if name.endswith("dp"))
    assert {name: of for name, of in replicas.items() if name.endswith("pipedream")} == {
        "alexnet_4pipedream": (3, 1),
        "alexnet_16pipedream": (15, 1),
        "vgg16_4pipedream": (3, 1),
        "vgg16_16pipedream": (15, 1),
        "gnmt_4pipedream": (1, 1, 1, 1),
        "gnmt_large_4pipedream": (1, 1, 1, 1),
    }
    assert found["vgg16_16dp"].params == {"arch": "vgg16", "batch_size": 64, "lr": 0.04, "weight_decay": 0.0005}
    assert found["gnmt_large_4dp"].params == {"layers": 16, "batch_size": 64, "lr": 0.0003}
    assert found["vgg16_4pipedream"].config.without_effect[-1] == "translation_model"


@shipped
def test_one_shipped_stage_configuration_is_no_json() -> None:
    refused: dict[str, str] = {}
    for path in SHIPPED.glob("*/models/*/*/*.json"):
        try:
            stage_map.read(path)
        except BenchError as error:
            refused["/".join(path.parts[-3:])] = str(error)
    assert list(refused) == ["vgg16/gpus=4/mp_conf.json"]
    assert "line 3, column 37: Expecting property name" in refused["vgg16/gpus=4/mp_conf.json"]
