"""What every model's file must obey, for each file of benchsuite/models, on the CPU."""

from __future__ import annotations

import ast
import copy
import json
import subprocess
import sys
from dataclasses import asdict, fields
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

import torch
from support import build, same, tensors

import benchsuite.models
from benchsuite.describe.tasks import Job
from benchsuite.errors import ModelError
from benchsuite.models import Share, Workload, forever, on_tensors
from benchsuite.worker.ways import make_step

pytestmark = pytest.mark.torch

MODELS = "benchsuite.models"
FOLDER = Path(benchsuite.models.__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
# The models that need more than torch and torchvision: they alone are skipped where these packages are absent.
EXTRAS = {"atari": ("ale_py",), "cart_pole": ("gymnasium",), "minigrid": ("gymnasium", "minigrid")}
# The losses of these models, differences of two means, begin near 0: their absolute tolerance.
NEAR_ZERO = {"wgan": 1e-3}
# tests/test_probes.py runs these: they need a group of ranks, or several devices.
RUN_APART = {"probe_collective", "probe_corruption", "probe_overlap", "probe_peer_links"}
PARAMETERS = {"polynome": 5, "sine_wave": 32_284, "vae": 652_824, "cart_pole": 898, "convnet": 11_689_512}


def load(name: str) -> ModuleType:
    """A model's module; the test is skipped where one of its extra packages is absent."""
    for package in EXTRAS.get(name, ()):
        pytest.importorskip(package, reason=f"{name} needs {package}")
    return import_module(f"{MODELS}.{name}")


@pytest.fixture(scope="module", name="model", params=NAMES)
def model_fixture(request: pytest.FixtureRequest) -> ModuleType:
    return load(request.param)


@pytest.fixture(scope="module", name="as_built")
def as_built_fixture(model: ModuleType) -> Workload:
    """A workload that several tests share: they leave its weights and gradients as they are."""
    return build(model)


def batches_of(workload: Workload, share: Share | None = None) -> list[Any]:
    return list(islice(workload.batches(share or Share()), 2))


def first_batch(workload: Workload) -> Any:
    return next(iter(workload.batches(Share())), None)


def weights(workload: Workload) -> list[Any]:
    return [copy.deepcopy(net.state_dict()) for net in workload.modules.values()]


def test_two_steps_train_every_parameter(model: ModuleType) -> None:
    workload = build(model)
    if model.__name__.rpartition(".")[2] in RUN_APART:
        pytest.skip("runs in tests/test_probes.py")
    step = make_step(workload)
    before = weights(workload)
    for batch in batches_of(workload):
        assert step.run(batch) > 0 or workload.readings  # a small step of a probe may complete no item
        assert len(step.losses) == (len(workload.updates) or bool(workload.modules))  # one that steps by itself has one
        assert all(torch.isfinite(loss) and loss.dim() == 0 for loss in step.losses)
    for name, net in workload.modules.items():
        idle = [key for key, value in net.named_parameters() if value.requires_grad and value.grad is None]
        assert idle == [], f"{name}: these get no gradient"
        assert all(torch.isfinite(value).all() for value in net.parameters())
    assert not workload.modules or not all(same(a, b) for a, b in zip(before, weights(workload), strict=True))


def test_weights_are_a_function_of_the_seed(model: ModuleType) -> None:
    one = weights(build(model, seed=5))
    if not one:
        pytest.skip("has no modules")
    again, other = (weights(build(model, seed=seed)) for seed in (5, 6))
    assert all(same(a, b) for a, b in zip(one, again, strict=True))
    assert not all(same(a, b) for a, b in zip(one, other, strict=True))


def test_batches_are_a_function_of_the_share(model: ModuleType) -> None:
    workload = build(model)
    if workload.step:
        pytest.skip("steps by itself: its batches are empty")
    share = Share(rank=1, ranks=2, seed=7)
    one, again = batches_of(workload, share), batches_of(build(model), share)
    assert same(one, again)
    for other in (Share(rank=0, ranks=2, seed=7), Share(rank=1, ranks=2, seed=8)):
        assert not same(one, batches_of(workload, other))
    assert all(t.device.type == "cpu" for t in tensors(one))


def test_items_grow_with_the_batch(as_built: Workload) -> None:
    workload = as_built
    if workload.step:
        pytest.skip("steps by itself: counts its own items")
    batch = first_batch(workload)
    twice = on_tensors(lambda tensor: torch.cat([tensor, tensor]), batch)
    assert type(workload.items(batch)) is int
    assert workload.items(twice) == 2 * workload.items(batch) > 0
    assert len({len(tensor) for tensor in tensors(batch)}) == 1, "samples are the first dimension of every tensor"


def test_a_loss_calls_the_nets_it_is_given_and_is_a_mean(model: ModuleType, as_built: Workload) -> None:
    workload = as_built
    if not workload.updates:
        pytest.skip("has no loss")
    torch.manual_seed(1)
    batch = first_batch(workload)
    copies = {name: copy.deepcopy(net).eval() for name, net in workload.modules.items()}
    twice = on_tensors(lambda tensor: torch.cat([tensor, tensor]), batch)
    carry: Any = None
    carry_twice: Any = None
    name = model.__name__.rpartition(".")[2]
    for update in workload.updates:
        loss, carry = update.loss(copies, batch, carry)
        loss.backward()
        trained = copies[update.trains]
        assert all(value.grad is not None for value in trained.parameters() if value.requires_grad)
        loss_twice, carry_twice = update.loss(copies, twice, carry_twice)
        # A loss that draws noise differs a little.
        assert loss_twice.item() == pytest.approx(loss.item(), rel=0.05, abs=NEAR_ZERO.get(name, 0.0))
        carry, carry_twice = (on_tensors(torch.Tensor.detach, one) for one in (carry, carry_twice))
    for name, net in workload.modules.items():
        assert all(value.grad is None for value in net.parameters()), f"a loss captured {name}"


def test_a_chain_is_the_forward_pass(as_built: Workload) -> None:
    workload = as_built
    if not workload.chain:
        pytest.skip("has no chain")
    net, chain = workload.modules["net"].eval(), workload.chain
    batch = first_batch(workload)
    output: Any = chain.inputs(batch)
    for unit in chain.units():
        output = unit(*output) if isinstance(output, tuple) else unit(output)
    assert torch.equal(chain.loss(output, batch), chain.loss(net(*chain.inputs(batch)), batch))
    held = {id(value) for unit in chain.units() for value in unit.parameters()}
    assert held == {id(value) for value in net.parameters()}


def test_parameters_are_plain_and_recordable(model: ModuleType) -> None:
    params = model.Params(**model.SMALL)
    assert type(params).__dataclass_params__.frozen
    assert msgspec.convert(json.loads(json.dumps(asdict(params))), model.Params) == params
    seed = next(one for one in fields(params) if one.name == "seed")
    assert seed.metadata == {"fusible": True} and seed.default == 1234
    reserved = {*Job.__struct_fields__, "placement", "matrix", "parallel", "arrays", "out"}
    assert reserved.isdisjoint(one.name for one in fields(params))


def test_the_file_says_what_it_measures(model: ModuleType) -> None:
    tree = ast.parse(Path(str(model.__file__)).read_text())
    title, blank, *rest = (ast.get_docstring(tree) or "").splitlines()
    assert len(title) < 80 and blank == ""
    text = " ".join(rest)
    for part in ("Application:", "Paper:", "Data set:", "n item is"):
        assert part in text
    small = next(n for n in tree.body if isinstance(n, ast.AnnAssign) and getattr(n.target, "id", "") == "SMALL")
    assert ast.literal_eval(small.value or ast.Constant(None)) == model.SMALL


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_default_size(name: str) -> None:
    model = load(name)
    with torch.device("meta" if name == "convnet" else "cpu"):
        workload = model.build(model.Params())
    assert sum(value.numel() for net in workload.modules.values() for value in net.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("arch", ["googlenet", "vit_b_16", "maxvit_t"])
def test_other_classifiers_are_trained_whole(arch: str) -> None:
    """On the meta device: shapes and gradients without the arithmetic."""
    convnet = load("convnet")
    size = 224 if arch == "maxvit_t" else 64
    with torch.device("meta"):
        workload = convnet.build(convnet.Params(arch=arch, image_size=size, classes=10, batch_size=2))
        batch = (torch.empty(2, 3, size, size), torch.empty(2, dtype=torch.long))
        loss, _ = workload.updates[0].loss(workload.modules, batch, None)
        loss.backward()
    idle = [key for key, value in workload.modules["net"].named_parameters() if value.grad is None]
    assert idle == []


def test_the_example_of_the_documentation_trains_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (FOLDER.parents[1] / "README.md").read_text(encoding="utf-8")
    (tmp_path / "model_of_the_page.py").write_text(page.split("```python\n")[1].split("```")[0], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    own = import_module("model_of_the_page")
    workload = own.build(own.Params())
    before = weights(workload)
    assert [make_step(workload).run(batch) for batch in batches_of(workload)] == [64, 64]
    assert not same(before[0], weights(workload)[0])


def test_an_unknown_classifier_names_the_nearest() -> None:
    convnet = load("convnet")
    with pytest.raises(ModelError, match=r"'resnet81'; did you mean 'resnet18'\?"):
        convnet.build(convnet.Params(arch="resnet81"))


def test_an_episode_counts_the_steps_really_made() -> None:
    model = load("cart_pole")
    workload = build(model, episode_length=7)
    assert workload.step is not None
    assert workload.step(None) == 7
    long = build(model, episode_length=500)
    assert long.step is not None
    counts = [long.step(None) for _ in range(5)]
    assert len(set(counts)) > 1 and all(8 <= count < 500 for count in counts)


def test_returns_are_discounted_and_standardised() -> None:
    returns = load("cart_pole").returns
    sums = torch.tensor([1 + 0.5 * (1 + 0.5), 1 + 0.5, 1.0])
    expected = (sums - sums.mean()) / sums.std(correction=0)
    assert torch.allclose(returns([1.0, 1.0, 1.0], 0.5), expected, atol=1e-4)
    assert returns([1.0], 0.5).tolist() == [0.0]


def test_generated_batches_are_made_once() -> None:
    made: list[int] = []

    def make(generator: torch.Generator) -> torch.Tensor:
        made.append(1)
        return torch.rand(2, generator=generator)

    first = list(islice(forever(make, Share(), distinct=3), 7))
    assert len(made) == 3
    assert first[0] is first[3] is first[6]
    assert len({float(batch[0]) for batch in first}) == 3


def test_without_the_extras_only_the_models_that_need_them_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models are imported anew in this process, in which these packages cannot be imported."""
    hidden = {package for needed in EXTRAS.values() for package in needed}
    for known in [name for name in sys.modules if name.split(".")[0] in hidden or name.startswith(f"{MODELS}.")]:
        monkeypatch.delitem(sys.modules, known)
        if known.startswith(f"{MODELS}.") and known.count(".") == 2:
            monkeypatch.delattr(benchsuite.models, known.rpartition(".")[2])
    for package in hidden:
        monkeypatch.setitem(sys.modules, package, None)
    skipped = {}
    for name in NAMES:
        try:
            load(name)
        except pytest.skip.Exception as skip:
            skipped[name] = skip.msg
    assert skipped == {name: f"{name} needs {needed[0]}" for name, needed in EXTRAS.items()}


def test_the_contract_imports_no_torch() -> None:
    code = (
        "import sys, benchsuite.models, benchsuite.worker.loop, benchsuite.worker.ways as s\n"
        "from benchsuite.models import Workload\n"
        "from benchsuite.worker.device import open_device\n"
        "w = Workload(unit='x', batches=lambda share: iter([1]), items=int, step=lambda batch: 3)\n"
        "assert s.make_step(w).run(1) == 3\n"
        "assert open_device('cpu').software() == {}\n"
        "assert open_device('cpu').peak_memory().host_rss_bytes > 1_000_000\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
