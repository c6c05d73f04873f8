"""What was really computed and learnt: checked in the worker, recorded in the result, a failure if it is not so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import benchsuite

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from benchsuite.errors import ModelError  # noqa: E402
from benchsuite.models import Optimiser, Workload, supervised  # noqa: E402
from benchsuite.worker import checks  # noqa: E402
from benchsuite.worker.device import Cpu  # noqa: E402
from benchsuite.worker.products import Products, check_products  # noqa: E402
from benchsuite.worker.warmup import warm_up  # noqa: E402
from benchsuite.worker.ways import make_step  # noqa: E402


@pytest.mark.parametrize(
    ("precision", "in_force"), [("fp32", "fp32"), ("bf16", "bf16"), ("amp-fp16", "tf32 or fp16"), ("tf32", "fp32")]
)
def test_the_precision_in_force_is_measured(precision: Any, in_force: str) -> None:
    """On a CPU tf32 is fp32."""
    found = checks.check_precision(precision, "cpu")
    assert (found.asked, found.in_force) == (precision, in_force)
    assert 0 < found.matmul_error < 1e-2
    assert 0 < found.conv_error < 1e-2


def test_fp32_with_the_errors_of_tf32_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded(precision: Any, operation: Any, left: Any, right: Any) -> float:
        """As tensor cores do: inputs cut to 11 bits, products and sums in fp32."""

        def cut(x: Any) -> Any:
            bits = x.view(torch.int32)
            return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)

        reference = operation(left.double(), right.double())
        result = operation(cut(left), cut(right)).double()
        return float((result - reference).norm() / reference.norm())

    monkeypatch.setattr(checks, "_error", rounded)
    with pytest.raises(ModelError, match="fp32 was asked for, but errors are those of tf32 or fp16"):
        checks.check_precision("fp32", "cpu")
    assert checks.check_precision("tf32", "cpu").in_force == "tf32 or fp16"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_probes_are_float32_whatever_the_default_dtype_is(dtype: Any) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        found = checks.check_precision("fp32", "cpu")
    finally:
        torch.set_default_dtype(before)
    assert (found.in_force, found.dtype) == ("fp32", "float32")
    assert found.matmul_error > 0, "a probe in float64 has no error"


@pytest.mark.parametrize(
    ("precision", "dtype", "refused"),
    [
        ("fp32", torch.bfloat16, True),
        ("tf32", torch.float16, True),
        ("fp32", torch.float64, False),
        ("fp32", torch.float32, False),
        ("bf16", torch.bfloat16, False),
    ],
)
def test_the_dtype_of_the_parameters_is_recorded_and_refused_if_it_has_too_few_bits(
    precision: Any, dtype: Any, refused: bool
) -> None:
    modules = {"net": torch.nn.Linear(4, 2), "head": torch.nn.Linear(2, 1).to(dtype)}
    found = checks.check_precision(precision, "cpu")
    if refused:
        with pytest.raises(
            ModelError, match=rf"{precision} was asked for, but parameter 'head.weight' is {str(dtype)[6:]}"
        ):
            checks.check_parameters(found, modules)
    else:
        kept = checks.check_parameters(found, modules).parameters
        assert kept == ({"float32": 13} if dtype == torch.float32 else {"float32": 10, str(dtype)[6:]: 3})


def workload(lr: float) -> Workload:
    net = torch.nn.Linear(4, 2)
    batch = torch.randn(8, 4)
    return supervised(
        unit="x",
        batches=lambda share: iter([batch] * 9),
        items=len,
        net=net,
        inputs=lambda b: (b,),
        loss=lambda outputs, b: outputs.square().mean(),
        optimiser=Optimiser(torch.optim.SGD, {"lr": lr}),
    )


@pytest.mark.parametrize(("lr", "learns"), [(1e-3, True), (0.0, False)])
def test_a_model_that_learns_nothing_is_found_out(lr: float, learns: bool) -> None:
    model = workload(lr)
    step = make_step(model)
    learning = checks.Learning(model)
    step.run(torch.randn(8, 4))
    if learns:
        learning.check()
    else:
        with pytest.raises(ModelError, match="no parameter of 'net' has changed"):
            learning.check()


def test_the_band_of_the_loss(tmp_path: Path) -> None:
    checks.check_band(1.0, (0.5, 1.5))
    checks.check_band(None, None)
    for loss, text in ((2.0, "outside the profile's band"), (None, "has no loss")):
        with pytest.raises(ModelError, match=text):
            checks.check_band(loss, (0.5, 1.5))
    words = ["--max-steps", "3", "--warm-up-s", "0", "--placement", "cpu", "--loss-band"]
    done = benchsuite("run", "vae", "-o", "r.json", "--", *words, "[0, 1]", cwd=tmp_path)
    result = json.loads((tmp_path / "r.json").read_text())
    assert (done.returncode, result["status"]) == (1, "failed")
    assert "outside the profile's band of 0 to 1" in result["error"]["message"]
    assert result["measurement"]["streams"][0]["precision"]["in_force"] == "fp32"
    assert set(result["measurement"]["streams"][0]["precision"]["parameters"]) == {"float32"}
    assert set(result["measurement"]["streams"][0]["precision"]["products"]) == {"float32"}
    assert result["measurement"]["streams"][0]["intra_op_threads"] >= 1
    assert result["measurement"]["streams"][0]["slices"], "what was measured is kept"
    wrong = benchsuite("run", "vae", "--", *words, "[3, 1]", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "lower bound first" in wrong.stderr


def test_a_model_that_steps_by_itself_is_not_checked_in_a_precision_that_it_does_not_run_in() -> None:
    found = checks.check_precision("bf16", "cpu", steps_itself=True)
    assert (found.asked, found.in_force) == ("bf16", "fp32")
    assert checks.check_precision("bf16", "cpu").in_force == "bf16"


@pytest.mark.parametrize(
    ("precision", "cast", "refused"), [("fp32", True, True), ("bf16", True, False), ("fp32", False, False)]
)
def test_products_of_a_model_that_autocasts_by_itself_are_found(precision: Any, cast: bool, refused: bool) -> None:
    def loss(outputs: Any, batch: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=cast):
            return (outputs @ outputs.T).float().square().mean()

    model = workload(0.1)
    update = model.updates[0]
    update = replace(update, loss=lambda nets, batch, carry: (loss(nets["net"](batch), batch), None))
    step = make_step(replace(model, updates=(update,)))
    products = Products()
    warm_up(step, iter([torch.randn(8, 4)] * 6), Cpu(), watch=products)
    check = checks.check_precision(precision, "cpu")
    if refused:
        with pytest.raises(ModelError, match=r"fp32 was asked for, but a step computes mm in bfloat16; remove"):
            check_products(check, products)
        declared = check_products(check, products, "bf16")
        assert (declared.declared, "bfloat16" in (declared.products or {})) == ("bf16", True)
    else:
        found = check_products(check, products).products or {}
        assert found.get("bfloat16", 0) == (3 if cast else 0), "the product, and two in its backward pass"
        assert found["float32"] >= 2, "the layer"


def test_threads_that_the_model_sets_are_named() -> None:
    before = torch.get_num_threads()
    other = checks.other_threads({"OMP_NUM_THREADS": str(before + 1), "MKL_NUM_THREADS": f"{before + 1},2"}) or ""
    assert other.startswith(f"torch computes with {before} intra-op threads, not with OMP_NUM_THREADS={before + 1} and")
    assert checks.other_threads({"OMP_NUM_THREADS": str(before)}) is None
    assert checks.other_threads({"OMP_NUM_THREADS": "many"}) is None
