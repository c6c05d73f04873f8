"""transformer, bert, gnmt and deepspeech2 beyond the contract: sizes, masks, losses, items, and their data.

test_models_sequence.py trains, compiles and runs transformer and bert in bf16, beside the other models.
"""

from __future__ import annotations

import io
import math
import wave
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest
import support

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from benchsuite.data import descriptor
from benchsuite.data.synthetic import generate
from benchsuite.data.units import Site
from benchsuite.describe.tasks import DataFolder
from benchsuite.errors import ModelError
from benchsuite.models import Share, Workload, bert, deepspeech2, gnmt, transformer, translator
from benchsuite.models.readers import bpe_ids, speech
from benchsuite.worker.ways import make_step

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

MODELS: dict[str, tuple[ModuleType, dict[str, Any]]] = {
    "transformer": (transformer, {"lr": 1e-2, "dropout": 0.0}),
    "bert": (bert, {"lr": 1e-2, "dropout": 0.0, "masked": 0.3}),
    "gnmt": (gnmt, {"lr": 1e-2, "dropout": 0.0}),
    "deepspeech2": (deepspeech2, {"lr": 1e-3, "max_seconds": 1, "channels": 1}),
}
# Data set -> settings of its generator.
FEW: dict[str, dict[str, Any]] = {
    "wmt16": {"train": 400, "val": 5, "vocabulary": 60, "median_length": 7.0},
    "wikitext2": {"train": 700, "valid": 50, "test": 50, "vocabulary": 40},
    "librispeech": {"train": 24, "val": 1, "test": 1, "usual_s": 2.0, "spread_s": 0.4, "longest_s": 3.4},
}


def build(name: str, **changed: Any) -> Workload:
    model, settings = MODELS[name]
    return support.build(model, **{**settings, **changed})


@pytest.fixture(scope="module", name="folders")
def folders_fixture(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFolder]:
    """Data sets as `prepare --synthetic` makes them, with few items."""
    found = {}
    for name, few in FEW.items():
        data, site = descriptor.load(name), Site(tmp_path_factory.mktemp(name))
        site.open_for(name)
        settings = msgspec.structs.replace(data.settings("small"), **few)
        generate(data.about.generator.writer, settings, site, 1, lambda done, total: None)
        found[name] = folder(name, site.tree)
    return found


def folder(name: str, path: Path) -> DataFolder:
    about = descriptor.load(name).about
    return DataFolder(name=name, path=str(path), reader=about.reader, layout=dict(about.layout))


# --- every model ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "changed", "parameters"),
    [
        (transformer, {}, 63_082_496),  # the paper: 65 million
        (transformer, {"size": "big"}, 214_245_376),  # the paper: 213 million
        (bert, {}, 109_512_762),  # the paper: 110 million
        (bert, {"size": "large"}, 335_172_410),  # the paper: 340 million
        (gnmt, {}, 193_766_977),  # PipeDream's profile of gnmt: 775 MB
        (gnmt, {"layers": 16}, 277_718_593),  # PipeDream's profile of gnmt_large: 1110.9 MB
        (deepspeech2, {}, 46_299_104),
        (deepspeech2, {"cell": "GRU", "layers": 5, "hidden": 800}, 41_187_904),
    ],
)
def test_sizes_are_those_of_the_papers(model: ModuleType, changed: dict[str, Any], parameters: int) -> None:
    with torch.device("meta"):
        workload: Workload = model.build(model.Params(**changed))
    assert sum(value.numel() for value in workload.modules["net"].parameters()) == parameters


@pytest.mark.parametrize("name", ["gnmt", "deepspeech2"])
def test_the_loss_of_one_batch_falls(name: str) -> None:
    workload = build(name)
    step = make_step(workload)
    batch = next(workload.batches(Share()))
    losses = []
    for _ in range(20):
        step.run(batch)
        losses.append(float(step.losses[0]))
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])


# --- transformer ------------------------------------------------------------------------------------------------------


def pairs(seed: int = 1) -> tuple[nn.Module, Tensor, Tensor]:
    """A transformer, and a source and a target; the second source ends earlier."""
    net = build("transformer").modules["net"]
    generator = torch.Generator().manual_seed(seed)
    source, target = (torch.randint(3, 60, (2, 7), generator=generator) for _ in range(2))
    source[1, 4:] = transformer.PAD
    return net, source, target


def test_a_later_unit_of_the_target_changes_nothing_before_it() -> None:
    net, source, target = pairs()
    before, other = net(source, target), target.clone()
    other[:, 4] = 3 + (other[:, 4] - 2) % 57
    after = net(source, other)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.isclose(before[:, 4:], after[:, 4:]).all(dim=2).any()


def test_padding_of_the_source_changes_nothing_and_each_of_its_units_something() -> None:
    net, source, target = pairs()
    before = net(source, target)
    assert torch.allclose(net(F.pad(source, (0, 3), value=transformer.PAD), target), before, atol=1e-5)
    assert torch.allclose(net(source[1:, :4], target[1:]), before[1:], atol=1e-5)
    with torch.no_grad():
        net.units[0].embed.weight[transformer.PAD] += 7
    assert torch.allclose(net(source, target)[..., 3:], before[..., 3:], atol=1e-5)
    for place in range(4):
        other = source.clone()
        other[1, place] = 3 + (other[1, place] - 2) % 57
        assert not torch.allclose(net(other, target)[1, 0], before[1, 0], atol=1e-5)


def test_attention_is_that_of_the_paper() -> None:
    torch.manual_seed(0)
    attention, x = transformer.Attention(6, 2), torch.randn(1, 3, 6)
    found = []
    weight, bias = attention.memory.weight.split(6), attention.memory.bias.split(6)
    for head in (slice(0, 3), slice(3, 6)):
        query = attention.query(x)[0, :, head]
        key, value = ((x[0] @ w.T + b)[:, head] for w, b in zip(weight, bias, strict=True))
        found.append((query @ key.T / math.sqrt(3)).softmax(dim=1) @ value)
    assert torch.allclose(attention(x, x)[0], attention.output(torch.cat(found, dim=1)), atol=1e-6)


def test_positions_are_sines_and_cosines() -> None:
    places = transformer.sinusoids(30, 8)
    for place, pair in ((0, 0), (1, 0), (29, 1), (17, 3)):
        angle = place / 10_000 ** (2 * pair / 8)
        assert places[place, 2 * pair : 2 * pair + 2].tolist() == pytest.approx(
            [math.sin(angle), math.cos(angle)], abs=1e-5
        )


def test_labels_are_smoothed_over_all_units() -> None:
    workload = build("transformer")
    batch = next(workload.batches(Share()))
    logs = workload.modules["net"](batch["source"], batch["target"][:, :-1]).log_softmax(dim=2)
    labels = batch["target"][:, 1:, None]
    by_hand = -0.9 * logs.gather(2, labels).mean() - 0.1 * logs.mean()
    assert workload.updates[0].loss(workload.modules, batch, None)[0].item() == pytest.approx(by_hand.item(), rel=1e-5)


@pytest.mark.parametrize("data", ["wmt16", None])
def test_a_token_is_a_unit_of_the_target_and_none_is_padding(data: str | None, folders: dict[str, DataFolder]) -> None:
    workload = build("transformer")
    batches = list(islice(workload.batches(Share(data=folders[data] if data else None)), 40))
    for batch in batches:
        source, target = batch["source"], batch["target"]
        assert torch.all(target[:, 0] == transformer.BEGIN) and torch.all(target[:, -1] == transformer.END)
        assert torch.all(target[:, 1:-1] >= transformer.SPECIALS)
        assert workload.items(batch) == target[:, 1:].numel()
        assert 30 - target.shape[1] < workload.items(batch) <= 30
        ends = (source == transformer.END).int().argmax(dim=1, keepdim=True)
        place = torch.arange(source.shape[1])
        assert torch.equal(source == transformer.PAD, place > ends), "all behind the end of the sentence is padding"
        assert int(ends.max()) == source.shape[1] - 1
    assert len({batch["target"].shape for batch in batches}) > 3


def test_a_pass_over_the_data_set_uses_a_pair_once(folders: dict[str, DataFolder]) -> None:
    params = transformer.Params(**{**transformer.SMALL, "batch_size": 60})
    share = Share(data=folders["wmt16"])
    lengths = bpe_ids.pairs(share, 12, 60, unknown=3)[1].lengths
    counts = {
        length: (count, transformer.pairs_of(params, length)) for length, count in Counter(lengths.tolist()).items()
    }
    steps = sum(count // size for count, size in counts.values())
    used = [len(batch["target"]) for batch in islice(transformer.batches_of(params, share), steps)]
    assert sum(used) == sum(count // size * size for count, size in counts.values())
    rows = bpe_ids.equally_long(lengths, lambda length: counts[length][1], torch.Generator())
    taken = np.concatenate(list(islice(rows, steps)))
    assert len(set(taken.tolist())) == len(taken) == sum(used)


def test_padded_sentences_are_those_that_are_read_one_by_one(folders: dict[str, DataFolder]) -> None:
    found, _ = bpe_ids.pairs(Share(data=folders["wmt16"]), 12, 60, unknown=3)
    for before, after in (((), ()), ((1,), (2, 7))):
        sentences = replace(found, before=before, after=after)
        rows = [0, 7, len(found) - 1, 3]
        one_by_one = pad_sequence([sentences[row] for row in rows], batch_first=True, padding_value=0)
        assert torch.equal(sentences.padded(np.array(rows), 0), one_by_one)


def test_too_few_pairs_of_one_length_name_the_largest_batch(folders: dict[str, DataFolder]) -> None:
    workload = build("transformer", batch_size=100_000)
    with pytest.raises(ModelError, match=r"give batch_size of at most (\d+)") as caught:
        workload.batches(Share(data=folders["wmt16"]))
    most = int(str(caught.value).split("at most ")[1].split(",")[0])
    assert next(build("transformer", batch_size=most).batches(Share(data=folders["wmt16"])))


def test_the_output_is_the_embedding_unless_it_is_untied() -> None:
    for tied in (True, False):
        units = build("transformer", tied=tied).modules["net"].units
        assert (units[-1].output.weight is units[0].embed.weight) is tied


# --- bert -------------------------------------------------------------------------------------------------------------


def test_masks_are_as_many_as_the_paper_has_them() -> None:
    params = bert.Params(length=128, vocabulary=1000)
    text = torch.randint(3, 1000, (400, 126), generator=torch.Generator().manual_seed(1))
    batch = bert.masked(text, params, torch.Generator().manual_seed(2))
    places, own, words = batch["places"], batch["own"], batch["words"]
    assert places.shape == own.shape == (400, 19)
    assert int(places.min()) >= 1 and int(places.max()) <= 126 and all(len(row.unique()) == 19 for row in places)
    assert torch.equal(own, text.gather(1, places - 1))
    assert torch.equal(words.scatter(1, places, own)[:, 1:-1], text), "only the chosen places are changed"
    assert torch.all(words[:, 0] == bert.CLS) and torch.all(words[:, -1] == bert.SEP)
    shown = words.gather(1, places)
    masks, kept = (shown == bert.MASK).double().mean().item(), (shown == own).double().mean().item()
    assert masks == pytest.approx(0.8, abs=0.02) and kept == pytest.approx(0.1, abs=0.015)


def test_logits_are_those_of_the_predicted_places() -> None:
    workload = build("bert")
    batch, net = next(workload.batches(Share())), workload.modules["net"]
    everywhere = torch.arange(12).expand(3, 12)
    whole = net(batch["words"], everywhere)
    expected = torch.stack([row[places] for row, places in zip(whole, batch["places"], strict=True)])
    assert torch.allclose(net(batch["words"], batch["places"]), expected, atol=1e-6)
    other = batch["words"].clone()
    other[:, 6] = 3 + (other[:, 6] + 1) % 57
    assert not torch.isclose(net(other, everywhere), whole).all(dim=2).any(), "a place sees those before and after it"


def test_text_of_the_data_set_gets_other_masks_in_each_pass(folders: dict[str, DataFolder]) -> None:
    workload = build("bert", vocabulary=43)
    count = 700 // 10 // 3
    batches = list(islice(workload.batches(Share(data=folders["wikitext2"])), 2 * count))
    assert all(workload.items(batch) == 3 for batch in batches)
    texts = [batch["words"].scatter(1, batch["places"], batch["own"]) for batch in batches]
    passes = [torch.cat(texts[:count]), torch.cat(texts[count:])]
    assert [len(text.unique(dim=0)) for text in passes] == [3 * count, 3 * count]
    places = [{tuple(t): p.sort().values.tolist() for t, p in zip(text.tolist(), torch.cat(part), strict=True)}
              for text, part in zip(passes, ([b["places"] for b in batches[:count]],
                                             [b["places"] for b in batches[count:]]), strict=True)]  # fmt: skip
    both = places[0].keys() & places[1].keys()
    assert sum(places[0][text] != places[1][text] for text in both) > len(both) / 2
    with pytest.raises(ModelError, match="43 different words and special ones, over vocabulary 42"):
        build("bert", vocabulary=42).batches(Share(data=folders["wikitext2"]))


# --- gnmt -------------------------------------------------------------------------------------------------------------


def test_a_gnmt_can_be_cut_between_any_two_layers() -> None:
    workload = build("gnmt", layers=8)
    assert workload.chain is not None
    units = workload.chain.units()
    assert sum(isinstance(module, nn.LSTM) for unit in units for module in unit.modules()) == 8 + 1, (
        "one in two directions"
    )
    held = [id(value) for unit in units for value in unit.parameters()]
    assert len(held) == len(set(held)), "no two units share a weight"
    batch = next(workload.batches(Share()))
    flow: Any = workload.chain.inputs(batch)
    for unit in units[:-1]:
        flow = unit(*flow)
        assert isinstance(flow, tuple) and all(isinstance(part, Tensor) and len(part) == 3 for part in flow)
    assert torch.is_floating_point(flow[0])


def test_padding_of_pairs_changes_no_loss_of_gnmt() -> None:
    workload = build("gnmt")
    batch = next(workload.batches(Share()))
    wider = {
        "source": F.pad(batch["source"], (0, 4), value=translator.PAD),
        "lengths": batch["lengths"],
        "target": F.pad(batch["target"], (0, 3), value=translator.PAD),
    }
    losses = [workload.updates[0].loss(workload.modules, one, None)[0].item() for one in (batch, wider)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_half_of_the_layers_of_a_gnmt_encode() -> None:
    for wrong in ({"layers": 7}, {"layers": 2}, {"vocabulary": 3}):
        with pytest.raises(ModelError, match="layers is an even number of at least 4, and vocabulary over 3"):
            build("gnmt", **wrong)


# --- deepspeech2 ------------------------------------------------------------------------------------------------------


def test_the_loss_is_that_of_each_recording_with_its_own_letters() -> None:
    workload = build("deepspeech2", batch_size=3)
    batch = next(workload.batches(Share()))
    logits = workload.modules["net"](batch["sound"])
    assert logits.shape == (3, 50, 29)
    logits = logits.detach()
    alone = [
        F.ctc_loss(one.log_softmax(1)[:, None], letters[None, :count], torch.tensor([50]), count[None], reduction="sum")
        for one, letters, count in zip(logits, batch["letters"], batch["lengths"], strict=True)
    ]
    assert deepspeech2.loss(logits, batch).item() == pytest.approx(float(sum(alone)) / 3, rel=1e-5)
    filled = torch.where(batch["letters"] == 0, 5, batch["letters"])
    assert torch.equal(deepspeech2.loss(logits, {**batch, "letters": filled}), deepspeech2.loss(logits, batch))
    assert torch.all((batch["letters"] > 0).sum(dim=1) == batch["lengths"])


def test_batch_norm_is_over_recordings_and_places() -> None:
    layer, x = deepspeech2.Normalise(4), 3 + 2 * torch.randn(5, 7, 4, generator=torch.Generator().manual_seed(1))
    mean, deviation = x.mean((0, 1)), x.std((0, 1), correction=0)
    assert torch.allclose(layer(x), (x - mean) / deviation, atol=1e-4)


def test_a_tone_is_a_line_of_its_spectrogram() -> None:
    tone = torch.sin(torch.arange(2 * speech.RATE) * (2 * math.pi * 1000 / speech.RATE))
    found = speech.spectrogram(tone)
    assert found.shape == (speech.BINS, 2 * speech.FRAMES)
    assert torch.all(found[:, 1:-1].argmax(dim=0) == 1000 * speech.WINDOW // speech.RATE)
    assert float(found.mean()) == pytest.approx(0, abs=1e-4) and float(found.std()) == pytest.approx(1, abs=1e-3)


def test_an_item_is_a_second_of_audio() -> None:
    workload = build("deepspeech2", max_seconds=3)
    for batch in islice(workload.batches(Share()), 4):
        assert workload.items(batch) == 2 * batch["sound"].shape[2] // 100 == 2 * 3
    drawn = deepspeech2.seconds_of(20_000, 24, torch.Generator().manual_seed(1)).double()
    assert float(drawn.mean()) == pytest.approx(12.7, abs=0.3), "100.6 hours in 28,539 recordings"


def test_what_is_read_is_what_was_written(folders: dict[str, DataFolder]) -> None:
    share = Share(data=folders["librispeech"])
    known = speech.index(share)
    assert len(known) == 24
    for one in known:
        with wave.open(one.file) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        assert one.seconds == max(1, round(len(samples) / 16_000))
        chapter = Path(one.file).parent
        lines = next(chapter.glob("*.trans.txt")).read_text("utf-8").splitlines()
        text = dict(line.split(" ", 1) for line in lines)[Path(one.file).stem]
        assert "".join(speech.LETTERS[number - 1] for number in one.letters) == text
        sound = speech.decoded(one.file)
        assert torch.equal(sound, torch.from_numpy(samples.astype(np.float32)) / 32_768)
        assert 0.01 < float(sound.std()) < 0.5


def test_ranks_read_recordings_of_the_same_length_and_none_twice(folders: dict[str, DataFolder]) -> None:
    known = speech.index(Share(data=folders["librispeech"]))
    of_length = Counter(one.seconds for one in known)
    steps = sum(count // 4 for count in of_length.values())
    seen: list[Tensor] = []
    workload, data = build("deepspeech2", max_seconds=4), folders["librispeech"]
    sides = [list(islice(workload.batches(Share(rank, 2, data=data)), steps)) for rank in (0, 1)]
    for one, other in zip(*sides, strict=True):
        assert one["sound"].shape == other["sound"].shape
        assert one["letters"].shape[1] == int(one["lengths"].max())
        seen += [row for batch in (one, other) for row in batch["sound"]]
    assert len({row.numpy().tobytes() for row in seen}) == len(seen) == 4 * steps > 0


def test_a_recording_is_fitted_to_whole_seconds() -> None:
    sound = torch.ones(24_000)
    assert len(speech.fitted(sound, 1)) == 16_000
    longer = speech.fitted(sound, 2)
    assert len(longer) == 32_000 and float(longer[:24_000].min()) == 1 and not longer[24_000:].any()


def test_letters_without_room_are_left_out() -> None:
    assert speech.can_align(tuple(range(1, 29)) + tuple(range(1, 23)), 1)
    assert not speech.can_align((1,) * 26, 1), "a blank is between two equal letters"
    assert not speech.can_align((), 1)


def recording(rate: int = 16_000, channels: int = 1, samples: int = 16_000) -> bytes:
    kept = io.BytesIO()
    with wave.open(kept, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(bytes(2 * channels * samples))
    return kept.getvalue()


def handmade(path: Path, text: str = "1-1-0000 A", **sounds: bytes) -> Share:
    chapter = path / "LibriSpeech/train-clean-100/1/1"
    chapter.mkdir(parents=True)
    (chapter / "1-1.trans.txt").write_text(text + "\n")
    for ending, content in sounds.items():
        (chapter / f"1-1-0000.{ending}").write_bytes(content)
    return Share(data=folder("librispeech", path))


@pytest.mark.parametrize(
    ("text", "sound", "message"),
    [
        ("1-1-0000 Ä", recording(), "1-1.trans.txt: line 1 has 'Ä', which is not one of A-Z, ' and blank"),
        ("1-1-0001 A", recording(), "there is no recording 1/1/1-1-0001"),
        ("1-1-0000 A", recording(rate=8000), "1-1-0000.wav: has 1 channels of 8,000 samples a second with 16 bits"),
        ("1-1-0000 A", b"", "1-1-0000.wav: is not a WAV file that can be read"),
        ("1-1-0000 A", recording(), "has up to 1 recordings of one length, in whole seconds, for each of 1 ranks"),
    ],
)
def test_a_bad_data_set_is_named(tmp_path: Path, text: str, sound: bytes, message: str) -> None:
    share = handmade(tmp_path, text, wav=sound)
    with pytest.raises(ModelError) as caught:
        build("deepspeech2").batches(share)
    assert message in str(caught.value) and "librispeech" in str(caught.value) and "\n" not in str(caught.value)


def test_the_header_of_a_flac_file_gives_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = 16_000 << 44 | 0 << 41 | 15 << 36 | 40_123
    flac = b"fLaC" + b"\x00\x00\x00\x22" + bytes(10) + packed.to_bytes(8, "big") + bytes(16)
    share = handmade(tmp_path, flac=flac)
    assert speech.length(str(tmp_path / "LibriSpeech/train-clean-100/1/1/1-1-0000.flac")) == 40_123
    assert [one.seconds for one in speech.index(share)] == [3]
    monkeypatch.setattr(speech, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="FLAC files need a library: pip install soundfile"):
        build("deepspeech2").batches(share)


def test_a_flac_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile", reason="FLAC needs soundfile")
    sound = torch.rand(20_000, generator=torch.Generator().manual_seed(1)) - 0.5
    soundfile.write(tmp_path / "a.flac", sound.numpy(), 16_000, subtype="PCM_16")
    assert speech.length(str(tmp_path / "a.flac")) == 20_000
    assert torch.allclose(speech.decoded(str(tmp_path / "a.flac")), sound, atol=1e-4)
    (tmp_path / "b.flac").write_bytes((tmp_path / "a.flac").read_bytes()[:60])
    with pytest.raises(ModelError, match="cannot be read as FLAC"):
        speech.decoded(str(tmp_path / "b.flac"))
