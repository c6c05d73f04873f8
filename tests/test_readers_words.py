"""vae, sine_wave, wlm, recommendation and translator on prepared data sets: what they read, and what they refuse."""

from __future__ import annotations

import io
import struct
from importlib import import_module
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
from support import tensors
from torch import Tensor

from benchsuite.data import descriptor
from benchsuite.data.synthetic import generate
from benchsuite.data.units import Site
from benchsuite.describe.tasks import DataFolder
from benchsuite.errors import ModelError
from benchsuite.models import Share, Workload, translator
from benchsuite.models.readers import bpe_ids, ratings, tokens
from benchsuite.worker.ways import make_step

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

# Model -> its data set, settings of the generator, and parameters that fit what they make.
SETS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "vae": ("mnist", {"train": 23, "test": 2}, {}),
    "sine_wave": ("time_series", {"waves": 7, "points": 30}, {}),
    "wlm": ("wikitext2", {"train": 700, "valid": 50, "test": 50, "vocabulary": 40}, {}),
    "recommendation": ("ml20m", {"users": 9, "movies": 60, "highest_movie": 300}, {"users": 9, "items": 60}),
    "translator": ("wmt16", {"train": 300, "val": 5, "vocabulary": 60, "median_length": 7.0}, {}),
}


@pytest.fixture(scope="module", name="folders")
def folders_fixture(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFolder]:
    """Model -> a data set as `prepare --synthetic` makes it, with few items."""
    found = {}
    for model, (name, few, _) in SETS.items():
        data, site = descriptor.load(name), Site(tmp_path_factory.mktemp(name))
        site.open_for(name)
        settings = msgspec.structs.replace(data.settings("small"), **few)
        generate(data.about.generator.writer, settings, site, 1, lambda done, total: None)
        found[model] = folder(name, site.tree)
    return found


def folder(name: str, path: Path) -> DataFolder:
    about = descriptor.load(name).about
    return DataFolder(name=name, path=str(path), reader=about.reader, layout=dict(about.layout))


def handmade(path: Path, model: str, **files: bytes) -> Share:
    """A share of a data set whose files are given by their roles."""
    found = folder(SETS[model][0], path)
    for role, content in files.items():
        file = path / found.layout[role]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return Share(data=found)


def module(name: str) -> ModuleType:
    return import_module(f"benchsuite.models.{name}")


def build(name: str, **changed: Any) -> Workload:
    return support.build(module(name), **{**SETS[name][2], **changed})


def taken(name: str, share: Share, count: int, **changed: Any) -> list[list[Tensor]]:
    return [tensors(batch) for batch in islice(build(name, **changed).batches(share), count)]


def share_of(share: Share, rank: int, ranks: int) -> Share:
    return Share(rank=rank, ranks=ranks, data=share.data)


# --- every model ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_a_model_reads_what_it_says(name: str, folders: dict[str, DataFolder]) -> None:
    assert (folders[name].reader,) == module(name).READS
    assert "with `data`" in " ".join((module(name).__doc__ or "").split())


@pytest.mark.parametrize("name", SETS)
def test_batches_are_as_generated_ones_and_train(name: str, folders: dict[str, DataFolder]) -> None:
    workload = build(name)
    prepared, generated = (next(workload.batches(Share(data=data))) for data in (folders[name], None))
    lengths = name == "translator"  # of sentences, which differ from batch to batch
    for one, other in zip(tensors(prepared), tensors(generated), strict=True):
        assert (one.dtype, one.dim(), one.is_contiguous()) == (other.dtype, other.dim(), other.is_contiguous())
        assert one.shape[: 1 if lengths else None] == other.shape[: 1 if lengths else None]
    assert workload.items(prepared) == workload.items(generated)
    step = make_step(workload)
    assert step.run(prepared) == workload.items(prepared)
    assert all(torch.isfinite(loss) for loss in step.losses)


@pytest.mark.parametrize("name", SETS)
def test_batches_are_a_function_of_the_share(name: str, folders: dict[str, DataFolder]) -> None:
    share = Share(rank=1, ranks=2, seed=7, data=folders[name])
    one, again = (taken(name, share, 12, batch_size=2) if name != "sine_wave" else taken(name, share, 12)
                  for _ in range(2))  # fmt: skip
    assert all(torch.equal(a, b) for x, y in zip(one, again, strict=True) for a, b in zip(x, y, strict=True))
    others = [Share(rank=0, ranks=2, seed=7, data=folders[name])]
    others += [Share(rank=1, ranks=2, seed=8, data=folders[name])] if name != "wlm" else []  # which reads in order
    for other in others:
        different = taken(name, other, 12, batch_size=2) if name != "sine_wave" else taken(name, other, 12)
        assert any(x.shape != y.shape or not torch.equal(x, y)
                   for a, b in zip(one, different, strict=True) for x, y in zip(a, b, strict=True))  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_batches_are_pinned_where_a_gpu_will_read_them(
    name: str, folders: dict[str, DataFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Tensor] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: (made.append(tensor), tensor)[1])
    [batch] = taken(name, Share(data=folders[name]), 1)
    assert len(made) == len(batch)


# --- vae and sine_wave ------------------------------------------------------------------------------------------------


def idx_file(count: int, side: int = 28) -> bytes:
    pixels = np.arange(count, dtype=np.uint8).repeat(side * side)
    return struct.pack(">IIII", 0x803, count, side, side) + pixels.tobytes()


def test_images_come_scaled_and_the_last_batch_is_short(tmp_path: Path) -> None:
    share = handmade(tmp_path, "vae", train_images=idx_file(14))
    (one,), (two,), (three,), (last,), (again,) = taken("vae", share, 5)
    assert [len(batch) for batch in (one, two, three, last, again)] == [4, 4, 4, 2, 4]
    whole = torch.cat((one, two, three, last))
    assert whole.shape == (14, 1, 28, 28) and torch.equal(whole.amin((1, 2, 3)), whole.amax((1, 2, 3)))
    numbers = (whole[:, 0, 0, 0] * 255).round().int().tolist()
    assert sorted(numbers) == list(range(14)) != numbers
    ranks = [torch.cat([b[0] for b in taken("vae", share_of(share, rank, 2), 2)])[:, 0, 0, 0] for rank in (0, 1)]
    assert len(set(torch.cat(ranks).tolist())) == 7 + 7


def npy(array: Any) -> bytes:
    kept = io.BytesIO()
    np.save(kept, array)
    return kept.getvalue()


def test_series_are_read_up_to_the_length(tmp_path: Path) -> None:
    share = handmade(tmp_path, "sine_wave", waves=npy(np.arange(50.0).reshape(5, 10)))
    first, last, _ = taken("sine_wave", share, 3)
    assert [part.shape for part in (*first, *last)] == [(3, 7), (3, 7), (2, 7), (2, 7)]
    inputs, targets = (torch.cat(parts) for parts in zip(first, last, strict=True))
    assert torch.equal(inputs + 1, targets)
    assert sorted(inputs[:, 0].tolist()) == [0, 10, 20, 30, 40]


# --- wlm --------------------------------------------------------------------------------------------------------------

TEXT = b" \n = A b = \n \n a b <unk> a b c \n b c d e a b c d \n"


NUMBERS = [0, 1, 2, 3, 1, 0, 0, 4, 3, 5, 4, 3, 6, 0, 3, 6, 7, 8, 4, 3, 6, 7, 0]  # 0 is a line's end


@pytest.mark.parametrize("text", [TEXT, TEXT[:-1], TEXT.replace(b"\n", b"\r\n")])
def test_words_are_numbered_as_they_come(text: bytes, tmp_path: Path) -> None:
    data = handmade(tmp_path, "wlm", train=text).data
    assert data
    words, different = tokens.words(data)
    assert words.tolist() == NUMBERS and different == 9


def test_each_stream_goes_on_from_window_to_window(tmp_path: Path) -> None:
    share = handmade(tmp_path, "wlm", train=TEXT)
    few = {"batch_size": 2, "bptt": 3}
    batches = taken("wlm", share, 4, **few)
    streams = torch.tensor(NUMBERS[:22]).view(2, 11)
    for step, (words, following) in enumerate(batches[:3]):
        assert torch.equal(words, streams[:, step * 3 : step * 3 + 3])
        assert torch.equal(following, streams[:, step * 3 + 1 : step * 3 + 4])
        assert words.is_contiguous() and following.is_contiguous()
    assert torch.equal(batches[3][0], batches[0][0]), "begun anew; the window of one word is left out"


def test_ranks_read_streams_of_their_own(tmp_path: Path) -> None:
    share = handmade(tmp_path, "wlm", train=TEXT)
    few = {"batch_size": 1, "bptt": 3}
    for rank in (0, 1):
        own = torch.tensor(NUMBERS[11 * rank : 11 * rank + 11])
        read = torch.cat([words[0] for words, _ in taken("wlm", share_of(share, rank, 2), 3, **few)])
        assert torch.equal(read, own[:9])


# --- recommendation ---------------------------------------------------------------------------------------------------

RATED = b"7,50,3.5,1112486027\n7,10,1.0,1\n9,50,5.0,2\n1000000,30,0.5,3\n7,30,2.0,4\n"
HEADER = ratings.HEADER.encode()


def test_users_and_movies_are_renumbered_in_order_of_their_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = handmade(tmp_path, "recommendation", ratings=HEADER + RATED).data
    assert data
    for lines in (1, 2, 5, 100):
        monkeypatch.setattr(ratings, "LINES", lines)
        users, items = ratings.interactions(data, 3, 3)
        assert users.tolist() == [0, 0, 1, 2, 0] and items.tolist() == [2, 0, 2, 1, 1]


def test_a_pass_is_every_interaction_with_its_negatives(tmp_path: Path) -> None:
    share = handmade(tmp_path, "recommendation", ratings=HEADER + RATED + b"9,10,4.5,5\n")
    batches = taken("recommendation", share, 10, batch_size=4, negatives=2)
    assert [len(batch[0]) for batch in batches] == [4, 4, 4, 4, 2] * 2
    orders = []
    for batches_of_pass in (batches[:5], batches[5:]):
        users, items, labels = (torch.cat(parts) for parts in zip(*batches_of_pass, strict=True))
        assert labels.view(-1, 3).tolist() == [[1, 0, 0]] * 6
        assert torch.equal(users.view(-1, 3), users.view(-1, 3)[:, :1].expand(-1, 3))
        orders.append(list(zip(users[labels == 1].tolist(), items[labels == 1].tolist(), strict=True)))
        assert sorted(orders[-1]) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 1)]
    assert orders[0] != orders[1]


def test_no_batch_of_examples_is_of_one(tmp_path: Path) -> None:
    share = handmade(tmp_path, "recommendation", ratings=HEADER + RATED)  # 5 interactions
    batches = taken("recommendation", share, 8, batch_size=4, negatives=2)
    assert {len(batch[0]) for batch in batches} == {4}
    batches = taken("recommendation", share, 8, batch_size=3, negatives=4)  # the last 2 interactions give 10 examples
    assert {len(batch[0]) for batch in batches} == {3}


def test_ranks_take_interactions_in_turns(folders: dict[str, DataFolder]) -> None:
    data = folders["recommendation"]
    known = ratings.interactions(data, 9, 60)
    each = len(known[0]) // 2
    seen: list[tuple[int, int]] = []
    for rank in (0, 1):
        batches = taken("recommendation", Share(rank=rank, ranks=2, data=data), each * 5 // 16)
        users, items, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
        seen += zip(users[labels == 1].tolist(), items[labels == 1].tolist(), strict=True)
    assert len(set(seen)) == len(seen) > 2 * each - 16
    assert set(seen) <= set(zip(*(column.tolist() for column in known), strict=True))


# --- translator -------------------------------------------------------------------------------------------------------

SOURCES = b"4 5 6\n\n7\n8 9 10 11\n1 3 59\n12 13\n14 15\n"
TARGETS = b"20 21\n22\n23 24\n25\n26 2\n27 28 29 30 31\n32  33 \n"


def test_units_become_words_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second pair has an empty side, the last but one 5 units; 0 to 3 are special, and unknown in a sentence."""
    share = handmade(tmp_path, "translator", train_source=SOURCES, train_target=TARGETS)
    expected = [
        ([3, 3, 59, 2], [1, 26, 3, 2]),
        ([4, 5, 6, 2], [1, 20, 21, 2]),
        ([7, 2], [1, 23, 24, 2]),
        ([8, 9, 10, 11, 2], [1, 25, 2]),
        ([14, 15, 2], [1, 32, 33, 2]),
    ]
    for lines, block in ((1, 1), (3, 4), (7, 9), (100, 100)):
        monkeypatch.setattr(bpe_ids, "LINES", lines)
        monkeypatch.setattr(bpe_ids, "BLOCK_BYTES", block)
        sides = bpe_ids.pairs(share, 4, 60, unknown=3)
        assert [side.lengths.tolist() for side in sides] == [[3, 1, 4, 3, 2], [2, 2, 1, 2, 2]]
        found = taken("translator", share, 5, batch_size=1, max_length=4)
        assert sorted((s[0].tolist(), t[0].tolist()) for s, _, t in found) == sorted(expected)


def test_ranks_take_pairs_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share = handmade(tmp_path, "translator", train_source=SOURCES, train_target=TARGETS)
    for lines in (1, 2, 100):
        monkeypatch.setattr(bpe_ids, "LINES", lines)
        firsts = [[int(s[0]) for s in bpe_ids.pairs(share_of(share, r, 2), 4, 60, unknown=3)[0]] for r in (0, 1)]
        assert firsts == [[4, 8], [7, 3]]


def test_batches_hold_whole_pairs_of_similar_length(folders: dict[str, DataFolder]) -> None:
    share = Share(data=folders["translator"])
    sides = bpe_ids.pairs(share, 12, 60, unknown=3)
    longest = np.maximum(sides[0].lengths, sides[1].lengths) + 1
    batches = taken("translator", share, len(longest) // 3 - translator.BUCKETS)
    for source, lengths, target in batches:
        assert len(source) == len(lengths) == len(target) == 3
        assert torch.equal((source != translator.PAD).sum(dim=1), lengths)
        ends = torch.maximum(lengths, (target != translator.PAD).sum(dim=1) - 1)
        assert int(ends.max() - ends.min()) <= 13 / translator.BUCKETS
    words = sum(int((source != translator.PAD).sum()) for source, _, _ in batches)
    assert words <= int(sides[0].lengths.sum()) + len(longest), "a pass uses a pair once"


# --- what is refused --------------------------------------------------------------------------------------------------

RATINGS = HEADER + RATED
REFUSED: list[tuple[str, dict[str, bytes], dict[str, Any], str]] = [
    ("vae", {"train_images": b""}, {}, "no IDX file of images"),
    ("vae", {"train_images": b"words"}, {}, "no IDX file of images"),
    ("vae", {"train_images": idx_file(5)[:-1]}, {}, "no IDX file of images"),
    ("vae", {"train_images": idx_file(5, side=8)}, {}, "images are 8 x 8 pixels, not 28 x 28"),
    ("vae", {"train_images": idx_file(5)}, {"batch_size": 6}, "batch_size 6 is over its 5 images; lower batch_size"),
    ("sine_wave", {"waves": b""}, {}, "no .npy file of numbers"),
    ("sine_wave", {"waves": npy(np.zeros((5, 10)))[:-1]}, {}, "no .npy file of numbers"),
    ("sine_wave", {"waves": npy(np.array([[{}]], object))}, {}, "no .npy file of numbers"),
    ("sine_wave", {"waves": npy(np.zeros(5))}, {}, "not one array of real numbers"),
    ("sine_wave", {"waves": npy(np.zeros((5, 7)))}, {}, "has series of 7 points, under length 8; give a length of"),
    ("sine_wave", {"waves": npy(np.zeros((2, 8)))}, {}, "samples 3 is over its 2 waves; lower samples to 2 or less"),
    ("wlm", {"train": b""}, {}, "its 0 words are not over 5 (bptt) in each of 3 streams; give a smaller batch_size"),
    ("wlm", {"train": b"a b\xff\n"}, {}, "no text in UTF-8"),
    ("wlm", {"train": TEXT}, {"batch_size": 4}, "its 23 words are not over 5 (bptt) in each of 4 streams"),
    ("wlm", {"train": TEXT}, {"vocabulary": 8}, "has 9 different words, over vocabulary 8; give vocabulary of at"),
    ("recommendation", {"ratings": b""}, {}, "empty, or its last line is cut"),
    ("recommendation", {"ratings": HEADER}, {}, "holds no interaction; bring a larger data set"),
    ("recommendation", {"ratings": RATED}, {}, "its first line is not userId,movieId,rating,timestamp"),
    ("recommendation", {"ratings": RATINGS[:-1]}, {}, "empty, or its last line is cut"),
    ("recommendation", {"ratings": RATINGS + b"7,5\n"}, {}, "below line 1: the dtype passed requires 4 columns but 2"),
    ("recommendation", {"ratings": RATINGS + b"7,x,1,2\n"}, {}, "could not convert string 'x'"),
    ("recommendation", {"ratings": RATINGS + b"-7,1,1,2\n"}, {}, "could not convert string '-7'"),
    ("recommendation", {"ratings": RATINGS}, {"users": 2}, "has 3 users, over users 2; give users of at least 3"),
    ("recommendation", {"ratings": RATINGS}, {"items": 2}, "has 3 movies, over items 2; give items of at least 3"),
    ("recommendation", {"ratings": RATINGS}, {"batch_size": 6}, "batch_size 6 is over its 5 interactions"),
    ("translator", {"train_source": b"", "train_target": b""}, {}, "holds no pair of 1 to 12 units a side; give a"),
    ("translator", {"train_source": b"4 5\n", "train_target": b"4\n"}, {"max_length": 1}, "holds no pair of 1 to 1"),
    ("translator", {"train_source": b"4\n4\n", "train_target": b"4\n"}, {}, "train.de: 1 lines, not the 2 that train"),
    ("translator", {"train_source": b"4\n", "train_target": b"4\n4\n"}, {}, "train.de: 2 lines, not the 1 that train"),
    ("translator", {"train_source": b"4\n4 x\n", "train_target": b"4\n4\n"}, {}, "train.en: line 2 is not numbers"),
    ("translator", {"train_source": b"4\n4\n", "train_target": b"4\n-4\n"}, {}, "train.de: line 2 is not numbers"),
    ("translator", {"train_source": b"4\n4", "train_target": b"4\n4\n"}, {}, "train.en: its last line, 2, is cut"),
    ("translator", {"train_source": b"4\n60\n", "train_target": b"4\n4\n"}, {}, "has 61 units, over vocabulary 60;"),
    ("translator", {"train_source": b"4\n", "train_target": b"1234567890\n"}, {}, "units, over vocabulary 60;"),
    ("translator", {"train_source": SOURCES, "train_target": TARGETS}, {}, "up to 2 pairs of similar length for a"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "files", "params", "says"), REFUSED, ids=[f"{one[0]}: {one[3]}" for one in REFUSED])
def test_what_cannot_be_used_is_refused_in_one_line(
    name: str, files: dict[str, bytes], params: dict[str, Any], says: str, tmp_path: Path
) -> None:
    """Before the first batch is asked for."""
    roomy = {"batch_size": 1} if name == "recommendation" else {}
    workload = build(name, **{**roomy, **params})
    with pytest.raises(ModelError) as caught:
        workload.batches(handmade(tmp_path, name, **files))
    message = str(caught.value)
    assert says in message and message.isprintable(), message
    assert message.startswith(f"data set '{SETS[name][0]}'")
    assert any(remedy in message for remedy in ("; give ", "; lower ", "; see ", "; bring "))


def test_too_many_ranks_are_refused(folders: dict[str, DataFolder]) -> None:
    for name, says in (("vae", "over its 2 images for each of 9 ranks"), ("translator", "for each of 999 ranks")):
        ranks = 9 if name == "vae" else 999
        with pytest.raises(ModelError, match=says):
            build(name).batches(Share(rank=1, ranks=ranks, data=folders[name]))
