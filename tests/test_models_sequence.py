"""wlm, translator and recommendation beyond the contract: sizes, data, losses, attention, and ways of running.

transformer and bert are here in the tests of all models; test_models_papers_sequence.py has the others.
"""

from __future__ import annotations

import copy
from itertools import islice, pairwise
from types import ModuleType
from typing import Any

import pytest
import support

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchsuite.describe.training import Training
from benchsuite.errors import ModelError
from benchsuite.models import Share, Workload, bert, recommendation, transformer, translator, wlm
from benchsuite.worker.compiling import read_compiled
from benchsuite.worker.ways import make_step

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

MODELS: dict[str, tuple[ModuleType, dict[str, Any]]] = {
    "wlm-lstm": (wlm, {**wlm.SMALL, "lr": 1.0}),
    "wlm-gru": (wlm, {**wlm.SMALL, "cell": "GRU", "lr": 1.0}),
    "wlm-tied": (wlm, {**wlm.SMALL, "tied": True, "lr": 1.0}),
    "translator": (translator, {**translator.SMALL, "lr": 1e-2, "dropout": 0.0}),
    "recommendation": (recommendation, {**recommendation.SMALL, "lr": 1e-2}),
    "transformer": (transformer, {**transformer.SMALL, "lr": 1e-2, "dropout": 0.0}),
    "bert": (bert, {**bert.SMALL, "lr": 1e-2, "dropout": 0.0}),
}


def build(name: str, **changed: Any) -> Workload:
    model, small = MODELS[name]
    return support.build(model, **{**small, **changed})


def size(workload: Workload) -> int:
    return sum(value.numel() for net in workload.modules.values() for value in net.parameters())


def test_sizes_are_those_of_the_papers_and_of_milarun() -> None:
    with torch.device("meta"):
        assert size(wlm.build(wlm.Params())) == 13_987_678
        assert size(wlm.build(wlm.Params(cell="GRU", emsize=656, nhid=656))) == 48_865_918
        assert size(wlm.build(wlm.Params(cell="GRU", emsize=656, nhid=656, tied=True))) == 48_865_918 - 33_278 * 656
        assert size(translator.build(translator.Params())) == 160_671_297
        assert size(recommendation.build(recommendation.Params())) == 31_832_577


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_loss_of_one_batch_falls(name: str) -> None:
    workload = build(name)
    step = make_step(workload)
    batch = next(workload.batches(Share()))
    losses = []
    for _ in range(40):
        step.run(batch)
        losses.append(float(step.losses[0]))
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def has_bf16_lstm() -> bool:
    """Whether oneDNN has an LSTM in bf16 for this CPU; it has none for one without AVX-512."""
    try:
        with torch.autocast("cpu", torch.bfloat16):
            torch.nn.LSTM(8, 8)(torch.zeros(1, 1, 8))
    except RuntimeError as error:
        assert "could not create a primitive descriptor" in str(error)
        return False
    return True


@pytest.mark.parametrize("name", sorted(MODELS))
def test_bf16_stays_near_full_precision(name: str) -> None:
    if name in ("translator", "wlm-lstm", "wlm-tied") and not has_bf16_lstm():
        pytest.skip("oneDNN has no bf16 LSTM for this CPU")
    losses = []
    for precision in ("fp32", "bf16"):
        workload = build(name, **({} if name == "recommendation" else {"dropout": 0.0}))
        step = make_step(workload, Training(precision=precision))
        for batch in islice(workload.batches(Share()), 3):
            step.run(batch)
        losses.append(float(step.losses[0]))
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert losses[1] != losses[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute")
@pytest.mark.parametrize("name", ["wlm-lstm", "wlm-gru", "translator", "recommendation", "bert"])
def test_compiled_models_have_the_same_losses(name: str) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    losses = []
    for way in (Training(), Training(compile="aot_eager")):
        workload = build(name, **({} if name == "recommendation" else {"dropout": 0.0}))
        step = make_step(workload, way)
        for batch in islice(workload.batches(Share()), 2):
            step.run(batch)
        losses.append(float(step.losses[0]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert read_compiled().graphs > 0
    assert (read_compiled().breaks > 0) is (name not in ("recommendation", "bert")), (
        "Dynamo leaves torch's LSTM and GRU alone"
    )


# --- wlm --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wlm-lstm", "wlm-gru"])
def test_the_state_passes_on_without_its_history(name: str) -> None:
    """Two windows with the carry are one long window; the second step's gradient ends where its window begins."""
    workload = build(name, dropout=0.0)
    loss_of, (first, second) = workload.updates[0].loss, list(islice(workload.batches(Share()), 2))
    whole = tuple(torch.cat(parts, dim=1) for parts in zip(first, second, strict=True))
    one, carry = loss_of(workload.modules, first, None)
    two, _ = loss_of(workload.modules, second, carry)
    expected = loss_of(workload.modules, whole, None)[0].item()
    assert ((one + two) / 2).item() == pytest.approx(expected, rel=1e-5)
    states = carry if isinstance(carry, tuple) else (carry,)
    assert len(states) == (2 if name == "wlm-lstm" else 1)
    assert all(state.shape == (3, 2, 8) for state in states), "samples first"

    seen: list[Any] = []
    net = workload.modules["net"]
    net.register_forward_pre_hook(lambda net, args: seen.append(args[1]))
    step = make_step(workload)
    step.run(first)
    step.run(second)
    assert seen[0] is None
    given = seen[1] if isinstance(seen[1], tuple) else (seen[1],)
    assert all(not state.requires_grad and state.abs().sum() > 0 for state in given)


def test_text_goes_on_from_batch_to_batch() -> None:
    workload = build("wlm-lstm")
    batches = list(islice(workload.batches(Share()), wlm.WINDOWS + 1))
    for (words, following), (words_after, _) in pairwise(batches[: wlm.WINDOWS]):
        assert torch.equal(words[:, 1:], following[:, :-1])
        assert torch.equal(following[:, -1], words_after[:, 0])
        assert words.shape == following.shape == (3, 5) and words.is_contiguous()
    assert torch.equal(batches[0][0], batches[wlm.WINDOWS][0]), "the text begins anew"
    assert workload.items(batches[0]) == 3


def test_words_are_as_frequent_as_zipf_has_it() -> None:
    drawn = wlm.zipf((200_000,), 1000, torch.Generator().manual_seed(1))
    counts = torch.bincount(drawn, minlength=1000).double()
    weights = 1 / (torch.arange(1, 1001).double() + 2.7)
    expected = weights / weights.sum() * 200_000
    assert counts.sum() == 200_000 and int(drawn.min()) == 0 and int(drawn.max()) <= 999
    assert ((counts - expected)[:50].abs() / expected[:50].sqrt()).max() < 5


def test_only_equal_widths_can_be_tied() -> None:
    workload = build("wlm-tied")
    assert workload.modules["net"].decode.weight is workload.modules["net"].embed.weight
    with pytest.raises(ModelError, match="tied needs emsize and nhid to be equal, found 4 and 8"):
        build("wlm-tied", emsize=4)


# --- translator -------------------------------------------------------------------------------------------------------


def test_attention_gives_padding_no_weight() -> None:
    torch.manual_seed(0)
    attention = translator.Attention(8)
    nn.init.uniform_(attention.score)
    queries, keys, lengths = torch.randn(3, 4, 8), torch.randn(3, 6, 8), torch.tensor([6, 2, 1])
    contexts, weights = attention(queries, keys, lengths)
    assert torch.allclose(weights.sum(dim=2), torch.ones(3, 4))
    assert torch.all(weights[1, :, 2:] == 0) and torch.all(weights[2, :, 1:] == 0) and torch.all(weights[0] > 0)
    for row, length in enumerate(lengths.tolist()):
        alone, _ = attention(queries[row : row + 1], keys[row : row + 1, :length], torch.tensor([length]))
        assert torch.allclose(contexts[row], alone[0], atol=1e-6)
    keys[1, 2:] = 1e3
    assert torch.equal(attention(queries, keys, lengths)[0][1], contexts[1])


def test_attention_is_that_of_bahdanau_normalised() -> None:
    torch.manual_seed(0)
    attention = translator.Attention(5)
    nn.init.uniform_(attention.score)
    query, keys = torch.randn(5), torch.randn(3, 5)
    direction = attention.score / attention.score.pow(2).sum().sqrt()
    scores = [
        attention.scale * direction @ torch.tanh(attention.query.weight @ query + attention.key.weight @ key + b)
        for key, b in ((key, attention.key.bias) for key in keys)
    ]
    expected = torch.stack(scores).softmax(dim=0) @ keys
    assert torch.allclose(attention(query[None, None], keys[None], torch.tensor([3]))[0][0, 0], expected, atol=1e-6)


def test_the_first_layer_reads_both_ways_as_packed_sequences_do() -> None:
    torch.manual_seed(0)
    layer, packed = translator.BothWays(4), nn.LSTM(4, 4, batch_first=True, bidirectional=True)
    own = {**dict(layer.forwards.named_parameters())}
    own.update({f"{key}_reverse": value for key, value in layer.backwards.named_parameters()})
    packed.load_state_dict(own)
    x, lengths = torch.randn(3, 5, 4), torch.tensor([5, 3, 1])
    expected, _ = pad_packed_sequence(packed(pack_padded_sequence(x, lengths, batch_first=True))[0], batch_first=True)
    out, _, _ = layer(x, lengths, x)
    for row, length in enumerate(lengths.tolist()):
        assert torch.allclose(out[row, :length], expected[row, :length], atol=1e-6)


def test_padding_changes_neither_loss_nor_gradients() -> None:
    workload = build("translator")
    net, loss_of = workload.modules["net"], workload.updates[0].loss
    batch = next(workload.batches(Share()))
    wider = {
        "source": F.pad(batch["source"], (0, 4), value=translator.PAD),
        "lengths": batch["lengths"],
        "target": F.pad(batch["target"], (0, 3), value=translator.PAD),
    }
    found = []
    for one in (batch, wider):
        net.zero_grad()
        loss, _ = loss_of(workload.modules, one, None)
        loss.backward()
        found.append((loss.detach(), [value.grad.clone() for value in net.parameters()]))
    assert torch.allclose(found[0][0], found[1][0], rtol=1e-5)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(found[0][1], found[1][1], strict=True))


def test_smoothed_losses_add_up_to_torchs_own() -> None:
    """A pair's loss is the sum over its words, so the batch's is torch's mean over words times the words of a pair."""
    workload = build("translator")
    net, batch = workload.modules["net"], next(workload.batches(Share()))
    logits = net(batch["source"], batch["lengths"], batch["target"][:, :-1])
    labels = batch["target"][:, 1:]
    mean = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=0, label_smoothing=0.1)
    words = int((labels != 0).sum())
    loss, _ = workload.updates[0].loss(workload.modules, batch, None)
    assert loss.item() == pytest.approx(mean.item() * words / 3, rel=1e-5)
    logs = logits.log_softmax(dim=2)[labels != 0]
    by_hand = -0.9 * logs.gather(1, labels[labels != 0][:, None]).sum() - 0.1 * logs.mean(dim=1).sum()
    assert loss.item() == pytest.approx(by_hand.item() / 3, rel=1e-5)


def test_pairs_are_as_long_as_those_of_wmt() -> None:
    params = translator.Params()
    sources, targets = translator.sentences(params, torch.Generator().manual_seed(1))
    assert len(sources) == len(targets) == translator.BATCHES * 64
    words = torch.tensor([len(source) - 1 for source in sources]).double()
    others = torch.tensor([len(target) - 2 for target in targets]).double()
    assert words.min() >= 1 and max(words.max(), others.max()) == 50
    assert 20 < words.mean() < 27 and 20 < others.mean() < 28
    assert float(torch.corrcoef(torch.stack((words, others)))[0, 1]) > 0.9
    assert all(s[-1] == translator.END and t[0] == translator.BEGIN and t[-1] == translator.END
               for s, t in zip(sources, targets, strict=True))  # fmt: skip
    assert all(int(source[:-1].min()) >= translator.SPECIALS and int(source.max()) < 32_320 for source in sources)


def padding_of(batches: list[dict[str, Tensor]]) -> float:
    words = sum(int((batch[side] != translator.PAD).sum()) for batch in batches for side in ("source", "target"))
    return 1 - words / sum(batch[side].numel() for batch in batches for side in ("source", "target"))


def test_buckets_bound_the_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    params = translator.Params(batch_size=32, vocabulary=1000)
    batches = list(islice(translator.batches_of(params, Share()), 50))
    for batch in batches:
        ends = (batch["target"] != translator.PAD).sum(dim=1) - 1
        longest = torch.maximum(batch["lengths"], ends)
        assert int(longest.max() - longest.min()) < 51 / translator.BUCKETS + 1
        assert torch.equal((batch["source"] != translator.PAD).sum(dim=1), batch["lengths"])
    assert padding_of(batches) < 0.28
    monkeypatch.setattr(translator, "BUCKETS", 1)
    assert padding_of(list(islice(translator.batches_of(params, Share()), 50))) > 1.5 * padding_of(batches)


def test_a_pass_over_the_buckets_uses_a_pair_once() -> None:
    lengths = torch.randint(1, 51, (1000,), generator=torch.Generator().manual_seed(2))
    passes = [translator.bucketed(lengths, 16, torch.Generator().manual_seed(seed)) for seed in (3, 4)]
    for batches in passes:
        rows = torch.cat(batches)
        assert len(rows.unique()) == len(rows) > 1000 - translator.BUCKETS * 16
        assert all(len(batch) == 16 for batch in batches)
    assert not torch.equal(torch.cat(passes[0])[:100], torch.cat(passes[1])[:100])


def test_a_translator_has_two_layers_and_some_words() -> None:
    for wrong in ({"nlayers": 1}, {"vocabulary": 3}):
        with pytest.raises(ModelError, match="nlayers is at least 2 and vocabulary over 3"):
            build("translator", **wrong)


# --- recommendation ---------------------------------------------------------------------------------------------------


def test_every_positive_has_its_negatives() -> None:
    params = recommendation.Params(batch_size=64)
    batches = list(islice(recommendation.batches_of(params, Share()), 40))
    users, items, labels = (torch.cat([batch[i] for batch in batches]) for i in range(3))
    known = recommendation.interactions(params, Share())
    assert labels.view(-1, 5).tolist() == [[1, 0, 0, 0, 0]] * (40 * 64 // 5)
    assert torch.all(users.view(-1, 5) == users.view(-1, 5)[:, :1])
    assert torch.equal(users[::5], known[0][: len(users) // 5])
    assert torch.equal(items[::5], known[1][: len(users) // 5])
    assert len(items[labels == 0].unique()) > 0.9 * 26_744 * (1 - 2.718 ** (-2048 / 26_744))


def test_popularity_is_as_skewed_as_movielens() -> None:
    users, items = recommendation.interactions(recommendation.Params(), Share())
    for drawn, count, top in ((users, 138_493, 9_254), (items, 26_744, 67_310)):
        counts = torch.bincount(drawn, minlength=count).sort(descending=True).values / len(drawn) * 20_000_263
        assert len(counts) == count
        assert 0.6 * top < float(counts[:10].mean()) < 1.6 * top
        assert float(counts[: count // 10].sum() / counts.sum()) > 0.3
    other = recommendation.interactions(recommendation.Params(), Share(rank=1, ranks=2))[1]
    assert not torch.equal(other, items)
    popular = [set(torch.bincount(drawn).topk(100).indices.tolist()) for drawn in (items, other)]
    assert len(popular[0] & popular[1]) > 50, "what is popular is the same for all ranks"


def test_a_batch_larger_than_the_data_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommendation, "POSITIVES", 7)
    params = recommendation.Params(batch_size=100, users=9, items=9)
    users, _, labels = next(recommendation.batches_of(params, Share()))
    assert int(labels.sum()) == 20
    assert torch.equal(users[:35], users[35:70])


@pytest.mark.parametrize("layers", [[], [7, 4], [8, 0]])
def test_layers_that_cannot_be_built_are_refused(layers: list[int]) -> None:
    with pytest.raises(ModelError, match="layers are widths over 0"):
        build("recommendation", layers=layers)


def test_neumf_is_its_two_halves() -> None:
    net = build("recommendation").modules["net"]
    users, items = torch.tensor([1, 2]), torch.tensor([3, 4])
    product = net.mf_users(users) * net.mf_items(items)
    hidden = F.relu(net.mlp[0](torch.cat((net.mlp_users(users), net.mlp_items(items)), dim=1)))
    assert torch.allclose(net(users, items), net.output(torch.cat((product, hidden), dim=1))[:, 0])
    twin = copy.deepcopy(net)
    assert torch.equal(twin(users, items), net(users, items))
