"""decoder and rollout beyond the contract: sizes, attention, packing, cache, experts, adapters, fp8, first weights."""

from __future__ import annotations

import copy
import math
import time
from typing import Any

import pytest
import support

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Share, Workload, decoder, on_tensors, rollout, seeded
from benchsuite.models.language.attention import Attention, rotary_table, rotated
from benchsuite.models.language.experts import Experts
from benchsuite.models.language.fp8 import Fp8Linear, quantised
from benchsuite.models.language.generation import Actor
from benchsuite.models.language.network import Decoder, filling, on_meta
from benchsuite.models.language.shapes import SIZES, Shape, shape_of
from benchsuite.worker import flops
from benchsuite.worker.checks import check_parameters, check_precision
from benchsuite.worker.step import materialise
from benchsuite.worker.ways import make_step

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
GPU = "cuda"
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
# torch 2.11 warns of its own code when it compiles, and of fp32 products, which these tests want in full precision.
WHEN_COMPILED = pytest.mark.filterwarnings(
    "ignore:.*Function.. should not be instantiated:DeprecationWarning",
    "ignore:TensorFloat32 tensor cores:UserWarning",
)

GPT2 = {"size": "gpt_124m", "kv_heads": 4, "tied": True}
EXPERTS = {"experts": 4, "experts_per_token": 2}
EIGHT_BITS = {"fp8": True, "width": 32, "head_width": 8, "hidden": 32, "batch_size": 4}


def build(**changed: Any) -> Workload:
    return support.build(decoder, **changed)


def small(**changed: Any) -> Shape:
    params = decoder.Params(**{**decoder.SMALL, **changed})
    return shape_of(params.size, params)


def filled(shape: Shape, device: str = "cpu", seed: int = 1) -> Decoder:
    net = on_meta(shape)
    materialise("net", net, filling(shape, seed), device)
    return net


def count(net: nn.Module, *, trained: bool = False) -> int:
    return sum(value.numel() for value in net.parameters() if value.requires_grad or not trained)


def expected(shape: Shape, experts: int) -> int:
    """The number of parameters with this number of experts in each layer."""
    width, mixed = shape.width, shape.heads * shape.head_width
    qkv = mixed + 2 * shape.kv_heads * shape.head_width
    matrices = width * qkv + mixed * width
    ends = shape.vocabulary * width * (1 if shape.tied else 2) + width
    if shape.family == "gpt2":
        layer = matrices + qkv + width + 2 * width * shape.hidden + shape.hidden + width + 4 * width
        return ends + width + shape.sequence * width + shape.layers * layer
    mlp = 3 * width * shape.hidden
    layer = matrices + 2 * width + (experts * mlp + shape.experts * width if experts else mlp)
    return ends + shape.layers * (layer + (2 * shape.head_width if shape.qk_norm else 0))


@pytest.mark.parametrize(
    ("size", "total", "active"),
    [
        ("gpt_124m", 124_475_904, 124_475_904),
        ("gpt_1558m", 1_557_686_400, 1_557_686_400),
        ("llama_1b", 1_235_814_400, 1_235_814_400),
        ("llama_8b", 8_030_261_248, 8_030_261_248),
        ("moe_small", 5_607_297_024, 1_077_448_704),
    ],
)
def test_sizes_are_those_published(size: str, total: int, active: int) -> None:
    shape = SIZES[size]
    (net,) = decoder.build(decoder.Params(size=size)).modules.values()  # type: ignore[arg-type]
    assert count(net) == expected(shape, shape.experts) == total
    assert expected(shape, shape.experts_per_token) == active


def test_adapters_of_rank_16_train_half_a_percent_of_8_billion_weights() -> None:
    workload = decoder.build(decoder.Params(size="llama_8b", lora_rank=16, weights="bf16"))
    (net,) = workload.modules.values()
    layer = (4096 + 6144) + (4096 + 4096) + (4096 + 2 * 14_336) + (14_336 + 4096)
    assert count(net, trained=True) == 32 * 16 * layer == 35_651_584
    assert count(net) == 8_030_261_248 + 35_651_584
    dtypes = {value.requires_grad: value.dtype for value in net.parameters()}
    assert dtypes == {True: torch.float32, False: torch.bfloat16}


def test_blocks_are_the_layers_in_order_and_no_tensor_has_two_names() -> None:
    for workload in (build(), build(**GPT2)):
        net = workload.modules["net"]
        assert workload.blocks == tuple(net.blocks) and len(workload.blocks) == 2
        named = [*net.named_parameters(remove_duplicate=False), *net.named_buffers(remove_duplicate=False)]
        assert len({id(tensor) for _, tensor in named}) == len(named)


def test_a_tied_output_or_packed_rows_give_no_chain() -> None:
    assert build().chain and not build(tied=True).chain and not build(documents=2).chain


@pytest.mark.parametrize("changed", [{}, GPT2, {"documents": 3}], ids=["llama", "gpt2", "packed"])
def test_a_later_token_changes_no_earlier_logit(changed: dict[str, Any]) -> None:
    workload = build(**changed)
    net, batch = workload.modules["net"], next(workload.batches(Share()))
    words, place = batch[0], 7
    other = words.clone()
    other[:, place] = (other[:, place] + 1) % 40
    before, after = (net(one, *batch[2:]) for one in (words, other))
    assert torch.equal(before[:, :place], after[:, :place])
    assert not torch.allclose(before[:, place:], after[:, place:])


def test_rotary_products_depend_on_the_distance_only() -> None:
    table = rotary_table(32, 8, 10_000.0)
    query, key = torch.randn(2, 1, 1, 1, 8)

    def at(x: Tensor, place: int) -> Tensor:
        return rotated(x, table[:, place : place + 1]).flatten()

    products = [float(at(query, place + 3) @ at(key, place)) for place in (0, 5, 28)]
    assert products == pytest.approx([products[0]] * 3, rel=1e-4)
    assert float(at(query, 9) @ at(key, 0)) != pytest.approx(products[0], rel=1e-2)
    assert torch.allclose(at(query, 30).norm(), query.norm())


def test_grouped_queries_equal_repeated_keys_and_values() -> None:
    shape = small()
    grouped = filled(shape).blocks[0].attention
    whole = Attention(small(kv_heads=4))
    queries, keys, values = grouped.qkv.weight.unflatten(0, (-1, shape.head_width)).split(grouped.heads)
    repeated = (queries, keys.repeat_interleave(2, dim=0), values.repeat_interleave(2, dim=0))
    whole.load_state_dict({"qkv.weight": torch.cat(repeated).flatten(0, 1), "out.weight": grouped.out.weight})
    whole.rotary = grouped.rotary
    x = torch.randn(2, shape.sequence, shape.width)
    assert torch.allclose(grouped(x), whole(x), atol=1e-6)


def test_rows_hold_as_many_documents_as_asked_for() -> None:
    words, following, starts = next(build(documents=4, batch_size=5).batches(Share()))
    assert words.shape == following.shape == starts.shape == (5, 12)
    assert [len(row.unique()) for row in starts] == [4] * 5
    assert (starts[:, 0] == 0).all() and (starts <= torch.arange(12)).all() and (starts.diff() >= 0).all()


@pytest.mark.parametrize("changed", [{}, GPT2], ids=["llama", "gpt2"])
def test_a_packed_document_sees_only_itself(changed: dict[str, Any]) -> None:
    net = filled(small(documents=2, **changed))
    words = torch.randint(40, (1, 12))
    starts = torch.tensor([[0] * 5 + [5] * 7])
    assert torch.allclose(net(words, starts)[:, :5], net(words[:, :5]), atol=1e-5)
    assert torch.allclose(net(words, starts)[:, 5:], net(words[:, 5:]), atol=1e-5)


# --- sampling ---------------------------------------------------------------------------------------------------------


def test_decoding_with_the_cache_equals_the_full_forward_pass() -> None:
    shape = small()
    net = filled(shape)
    actor = Actor(net, shape, torch.float32, compiled=False)
    words = torch.randint(40, (2, 12))
    full = net(words)
    assert torch.allclose(actor.logits(words[:, :5], torch.arange(5)), full[:, 4], atol=1e-5)
    for place in range(5, 12):
        step = actor.logits(words[:, place : place + 1], torch.tensor([place]))
        assert torch.allclose(step, full[:, place], atol=1e-5)


def peaked(shape: Shape, device: str = "cpu") -> Decoder:
    """A decoder that gives one token nearly all probability."""
    net = filled(shape, device)
    with torch.no_grad():
        net.head.output.weight.mul_(1e5)
    return net


def likeliest(net: Decoder, prompts: Tensor, tokens: int) -> Tensor:
    words = prompts
    while words.shape[1] < tokens:
        words = torch.cat((words, net(words)[:, -1].argmax(dim=1, keepdim=True)), dim=1)
    return words


def test_sampled_tokens_have_the_probabilities_of_the_decoder() -> None:
    shape = small()
    net, prompts = peaked(shape), torch.randint(40, (2, 4))
    actor = Actor(net, shape, torch.float32, compiled=False)
    assert torch.equal(actor.sample(prompts), likeliest(net, prompts, 12))
    flat = Actor(filled(shape), shape, torch.float32, compiled=False)
    drawn = torch.stack([flat.sample(prompts).clone() for _ in range(20)])
    assert (drawn[:, :, :4] == prompts).all() and len(drawn[:, :, 4:].unique()) == 40


def test_the_sampler_follows_the_trained_weights() -> None:
    shape = small()
    net, other = filled(shape, seed=1), filled(shape, seed=2)
    actor = Actor(net, shape, torch.float32, compiled=False)
    words, places = torch.randint(40, (2, 5)), torch.arange(5)
    actor.refresh(other)
    assert torch.allclose(actor.logits(words, places), other(words)[:, -1], atol=1e-5)


def test_the_policy_step_makes_rewarded_rows_likelier() -> None:
    gains = rollout.advantages(torch.tensor([[0, 2, 4], [1, 3, 5], [0, 1, 2]]))
    assert gains[0] > gains[2] > gains[1] and abs(float(gains.mean())) < 1e-6
    workload = support.build(rollout, part="train", lr=1e-2, bf16=False)
    net, words = workload.modules["net"], next(workload.batches(Share()))
    gains = rollout.advantages(words[:, 3:])
    assert workload.step is not None

    def chances() -> Tensor:
        logs = net(words[:, :-1])[:, 2:].log_softmax(dim=2)
        return logs.gather(2, words[:, 3:, None]).squeeze(2).detach()

    before = chances()
    loss = rollout.policy_loss(net, words, gains, 3).detach()
    assert float(loss) == pytest.approx(float(-(before.mean(dim=1) * gains).mean()))
    assert workload.step(words) == 4 * 5
    assert float(((chances() - before).mean(dim=1) * gains).sum()) > 0


@pytest.mark.parametrize("part", ["both", "decode", "train"])
def test_each_part_counts_the_sampled_tokens_and_only_training_changes_weights(part: str) -> None:
    workload = support.build(rollout, part=part)
    step = make_step(workload)
    before = copy.deepcopy(workload.modules["net"].state_dict())
    assert step.run(next(workload.batches(Share()))) == 4 * 5
    assert support.same(before, workload.modules["net"].state_dict()) == (part == "decode")
    assert len(step.losses) == (part != "decode")
    step.check()


# --- experts ----------------------------------------------------------------------------------------------------------


def looped(experts: Experts, x: Tensor, chosen: Tensor) -> Tensor:
    """What `Experts.mixed` computes, token by token."""
    chances = (x @ experts.router.weight.T).softmax(dim=-1)
    rows = []
    for token, numbers, all_of in zip(x.flatten(0, 1), chosen.flatten(0, 1), chances.flatten(0, 1), strict=True):
        shares = all_of[numbers] / all_of[numbers].sum()
        total = torch.zeros_like(token)
        for share, number in zip(shares, numbers, strict=True):
            gate, up = (experts.gate_up[number] @ token).chunk(2)
            total = total + share * (experts.down[number] @ (F.silu(gate) * up))
        rows.append(total)
    return torch.stack(rows).view_as(x)


def test_experts_equal_a_loop_over_them_in_value_and_gradient() -> None:
    experts = filled(small(**EXPERTS)).blocks[0].mlp
    with torch.no_grad():
        for weight in experts.parameters():
            weight.mul_(20)
    x = torch.randn(2, 6, 16, requires_grad=True)
    chosen = torch.rand(2, 6, 4).topk(2).indices
    chosen[0, 0], chosen[0, 1] = torch.tensor([3, 0]), torch.tensor([0, 3])
    direction = torch.randn(2, 6, 16)
    found = []
    for mixed in (experts.mixed, lambda *inputs: looped(experts, *inputs)):
        x.grad = None
        experts.zero_grad()
        out = mixed(x, chosen)
        (out * direction).sum().backward()
        found.append([out.detach(), x.grad, *(weight.grad for weight in experts.parameters())])
    assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in zip(*found, strict=True))


def test_an_expert_without_tokens_is_no_error() -> None:
    experts = filled(small(**EXPERTS)).blocks[0].mlp
    x, chosen = torch.randn(1, 3, 16), torch.tensor([[[3, 1]] * 3])
    assert torch.allclose(experts.mixed(x, chosen), looped(experts, x, chosen), atol=1e-6)


def test_the_load_of_experts_is_balanced(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    monkeypatch.setattr(Experts, "mixed", lambda self, x, chosen: (seen.append(chosen), x)[1])
    torch.manual_seed(0)
    filled(small(sequence=500, **EXPERTS)).blocks[0].mlp(torch.randn(2, 500, 16))
    loads = seen[0].flatten().bincount(minlength=4)
    assert int(loads.sum()) == 2000 and int((loads - 500).abs().max()) < 60
    assert (seen[0][..., 0] != seen[0][..., 1]).all()


@pytest.mark.parametrize("changed", [EXPERTS, GPT2, {"size": "moe_small", **EXPERTS}], ids=["experts", "gpt2", "qwen"])
def test_variants_train_every_parameter_in_bf16(changed: dict[str, Any]) -> None:
    workload = build(**changed)
    step = make_step(workload, Training(precision="bf16", accumulate=2))
    step.run(next(workload.batches(Share())))
    assert [name for name, value in workload.modules["net"].named_parameters() if value.grad is None] == []
    assert float(step.losses[0]) == pytest.approx(math.log(40), rel=0.05)
    step.check()


# --- adapters ---------------------------------------------------------------------------------------------------------


def test_adapters_begin_as_the_base_and_are_all_that_learns() -> None:
    workload = build(lora_rank=2)
    net = workload.modules["net"]
    words = next(workload.batches(Share()))[0]
    assert torch.equal(net(words), build().modules["net"](words))
    before = copy.deepcopy(net.state_dict())
    step = make_step(workload)
    for _ in range(2):  # the first matrix has no gradient while the second is 0
        step.run(next(workload.batches(Share())))
    changed = {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if name.endswith(("lora_a", "lora_b"))}
    assert not torch.equal(net(words), build().modules["net"](words))
    step.check()


def test_weights_in_bf16_need_the_precision_bf16() -> None:
    workload = build(lora_rank=2, weights="bf16")
    batch = next(workload.batches(Share()))
    with pytest.raises(ModelError, match=r"^decoder: weights bf16 needs the precision bf16; give it to the job$"):
        make_step(workload).run(batch)
    make_step(workload, Training(precision="bf16")).run(batch)
    found = check_parameters(check_precision("bf16", "cpu"), workload.modules)
    assert found.parameters is not None and set(found.parameters) == {"float32", "bfloat16"}


# --- fp8 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_quantised_tensors_use_the_whole_range(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 64) * 1e-5
    small_x, scale = quantised(x, dtype)
    assert small_x.float().abs().max() == torch.finfo(dtype).max
    assert scale.dtype == torch.float32 and scale.dim() == 0
    large = x.abs() > x.abs().max() / 100
    error = ((small_x.float() * scale - x).abs() / x.abs())[large].max()
    assert torch.finfo(dtype).eps / 4 < error <= torch.finfo(dtype).eps / 2 * 1.01
    assert (quantised(torch.zeros(4, 4), dtype)[0].float() == 0).all()


def relative(found: Tensor, reference: Tensor) -> float:
    found, reference = found.detach().float(), reference.detach().float()
    return float((found - reference).norm() / reference.norm())


def compared(device: str, dtype: torch.dtype) -> list[float]:
    """Relative errors of the output and of the gradients of x, weight and bias, against a layer in fp32."""
    torch.manual_seed(0)
    layer = Fp8Linear(64, 48, bias=True, device=device)
    plain = nn.Linear(64, 48, device=device)
    plain.load_state_dict(layer.state_dict())
    given = torch.randn(2, 16, 64, device=device)
    direction = torch.randn(2, 16, 48, device=device)
    results: list[list[Any]] = []
    for net, kind in ((layer, dtype), (plain, torch.float32)):
        x = given.to(kind, copy=True).requires_grad_()
        out = net(x)
        (out * direction).sum().backward()
        results.append([out, x.grad, net.weight.grad, net.bias.grad])
    return [relative(a, b) for a, b in zip(*results, strict=True)]


def test_products_in_fp8_are_near_those_in_fp32() -> None:
    out, of_x, of_weight, of_bias = compared("cpu", torch.float32)
    assert 0.005 < out < 0.05 and 0.02 < of_x < 0.12 and 0.02 < of_weight < 0.12 and of_bias < 1e-5


def test_fp8_is_in_the_blocks_only_and_refused_without_a_gpu_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        with pytest.raises(ModelError, match=r"^decoder: fp8 needs a GPU of compute capability 8\.9 or higher; this"):
            build(**EIGHT_BITS)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    with pytest.raises(ModelError, match=r"^decoder: fp8 needs a GPU .* or higher, found 8\.0; leave fp8 out$"):
        build(**EIGHT_BITS)
    net = filled(small(**EIGHT_BITS))
    found = [name for name, module in net.named_modules() if isinstance(module, Fp8Linear)]
    layers = ("attention.qkv", "attention.out", "mlp.gate_up", "mlp.down")
    assert found == [f"blocks.{layer}.{name}" for layer in (0, 1) for name in layers]
    with pytest.raises(ModelError, match=r"^decoder: fp8 needs the precision bf16; give it to the job$"):
        net(torch.zeros(4, 12, dtype=torch.long))


# --- first weights and shapes -----------------------------------------------------------------------------------------


def test_each_tensor_has_values_of_its_own_name_and_seed() -> None:
    shape = small(width=64)
    fill = filling(shape, 1)
    first, again, other_name, other_seed = (torch.empty(64, 64) for _ in range(4))
    fill("net.blocks.0.mlp.gate_up.weight", first)
    fill("net.blocks.1.mlp.gate_up.weight", other_name)
    fill("net.blocks.0.mlp.gate_up.weight", again)
    filling(shape, 2)("net.blocks.0.mlp.gate_up.weight", other_seed)
    assert torch.equal(first, again)
    assert abs(float(torch.corrcoef(torch.stack((first.flatten(), other_name.flatten())))[0, 1])) < 0.1
    assert not torch.equal(first, other_seed)
    assert float(first.std()) == pytest.approx(0.02, rel=0.05)
    fill("net.blocks.0.mlp.down.weight", first)
    assert float(first.std()) == pytest.approx(0.02 / math.sqrt(4), rel=0.05)


def test_first_weights_of_gpt2_are_those_of_its_paper() -> None:
    values = dict(filled(small(**GPT2)).named_parameters())
    assert all((value == 0).all() for name, value in values.items() if name.endswith("bias"))
    assert all((value == 1).all() for name, value in values.items() if name.endswith("norm.weight"))
    assert float(values["embed.words.weight"].detach().std()) == pytest.approx(0.02, rel=0.15)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"kv_heads": 3}, "heads 4 is no multiple of kv_heads 3"),
        ({"head_width": 3}, "rotary positions need an even one"),
        ({"experts": -1}, "experts and lora_rank are 0 or more"),
        ({"experts": 4, "experts_per_token": 5}, "give one from 1 to experts, 4"),
        ({**GPT2, **EXPERTS}, "experts need family llama"),
        ({**EXPERTS, "lora_rank": 2}, "lora_rank: experts have none"),
        ({"fp8": True, "lora_rank": 2}, "an adapter has no fp8 form"),
        ({"documents": 13}, "give one from 1 to sequence, 12"),
        ({"documents": 2, "attention": "flash"}, "no mask for packed documents; give auto"),
        ({"fp8": True}, "multiples of 16"),
    ],
)
def test_a_shape_that_cannot_be_built_is_refused_in_one_line(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        build(**changed)
    assert str(caught.value).startswith("decoder: ") and "\n" not in str(caught.value)


# --- on a GPU ---------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@on_gpu
def test_a_gpu_multiplies_in_fp8() -> None:
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("needs compute capability 8.9")
    out, of_x, of_weight, of_bias = compared(GPU, torch.bfloat16)
    assert 0.005 < out < 0.05 and 0.02 < of_x < 0.12 and 0.02 < of_weight < 0.12 and of_bias < 1e-2


@pytest.mark.gpu
@on_gpu
@WHEN_COMPILED
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "changed",
    [{}, GPT2, {"documents": 3, "sequence": 256}, {"lora_rank": 4, "weights": "bf16"}],
    ids=["llama", "gpt2", "packed", "lora"],
)
def test_a_gpu_finds_the_logits_of_the_cpu(changed: dict[str, Any], compiled: bool) -> None:
    shape = small(**{"width": 64, "head_width": 16, "hidden": 96, "sequence": 128, **changed})
    net = filled(shape)
    words, _, *starts = decoder.drawn(shape, seeded(1))
    with torch.autocast("cpu", torch.bfloat16):
        expected_logits = net(words, *starts).detach()
    net.to(GPU)
    run = torch.compile(net) if compiled else net
    with torch.autocast(GPU, torch.bfloat16):
        found = run(*(tensor.to(GPU) for tensor in (words, *starts)))
    assert relative(found.cpu(), expected_logits) < 0.03
    found.float().square().mean().backward()
    gradients = [value.grad for value in net.parameters() if value.requires_grad]
    assert all(one is not None and torch.isfinite(one).all() for one in gradients)


@pytest.mark.gpu
@on_gpu
def test_a_gpu_finds_what_experts_find_on_the_cpu() -> None:
    experts = filled(small(width=64, hidden=32, **EXPERTS)).blocks[0].mlp
    given, chosen = torch.randn(2, 60, 64), torch.rand(2, 60, 4).topk(2).indices
    found = []
    for device in ("cpu", GPU):
        experts.to(device).zero_grad()
        x = given.to(device, copy=True).requires_grad_()
        with torch.autocast(device, torch.bfloat16, enabled=device != "cpu"):
            out = experts.mixed(x, chosen.to(device))
        (out.float() * given.to(device)).sum().backward()
        found.append([one.detach().cpu() for one in (out, x.grad, *(w.grad for w in experts.parameters()))])
    assert all(relative(ours, theirs) < 0.05 for theirs, ours in zip(*found, strict=True))


@pytest.mark.gpu
@on_gpu
@WHEN_COMPILED
def test_the_compiled_and_graphed_sampler_samples_as_the_plain_one() -> None:
    shape = small(width=64, head_width=16, hidden=96, sequence=64, batch_size=8)
    net = peaked(shape, GPU)
    prompts = torch.randint(40, (8, 16), device=GPU)
    plain, graphed = (Actor(net, shape, torch.float32, compiled=one).sample(prompts) for one in (False, True))
    assert float((plain == graphed).float().mean()) > 0.9  # rounding may change a token, and all that follow it


@pytest.mark.parametrize(
    "changed", [{}, {"lora_rank": 2, "weights": "bf16"}, {"experts": 4, "experts_per_token": 2, "weights": "bf16"}]
)
def test_flops_are_counted_without_the_autocast_that_training_has(changed: dict[str, Any]) -> None:
    workload = build(**changed)
    nets, batch = flops.on_meta(workload.modules), next(iter(workload.batches(Share())))
    late = flops.TooLong("late")
    counted = flops.flops_of(workload, nets, on_tensors(flops.emptied, batch), time.monotonic() + 60, late)
    assert counted.total > 2 * count(nets["net"], trained=True) * workload.items(batch)
