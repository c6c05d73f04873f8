"""A small model learns to translate, its checkpoints are decoded with beam search, and BLEU rises."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")
pytest.importorskip("sacrebleu")

import torch
from support import build, in_process, one_line_error
from test_epochs import epochs_in, events, run_folder
from torch import Tensor

from benchsuite.bleu_scores import Bleu, path_in
from benchsuite.data import store
from benchsuite.describe.tasks import DataFolder
from benchsuite.errors import ModelError
from benchsuite.events import End
from benchsuite.launch.datasets import folder_of
from benchsuite.models.translation.beam import Memory, Search, search
from benchsuite.models.translation.corpus import test_set, text_of
from benchsuite.models.translation.decoders import of_lstm, of_transformer
from benchsuite.rundir import RunDir, read_record
from benchsuite.worker import saved

pytestmark = pytest.mark.torch

TOY = {
    "model": "transformer",
    "data": "mapped_pairs",
    "params": {
        **{"nlayers": 1, "width": 32, "heads": 2, "inner": 64, "batch_size": 256, "vocabulary": 28, "max_length": 8},
        **{"dropout": 0.0, "smoothing": 0.0, "lr": 0.01},
    },
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# --- the search -------------------------------------------------------------------------------------------------------

UNITS, LONGEST, BEGIN, END = 4, 4, 1, 2
SEEN = torch.tensor([[True, True, True], [True, True, False]])


def random_decoder(seed: int) -> tuple[Any, Memory]:
    """Log-probabilities and attention that depend on the sentence and on all units so far, written as one number."""
    drawn = torch.Generator().manual_seed(seed)
    many = sum(UNITS**n for n in range(LONGEST + 1))
    logs = (3 * torch.randn(len(SEEN), many, UNITS, generator=drawn)).log_softmax(2)
    attention = torch.randn(len(SEEN), many, 3, generator=drawn).masked_fill(~SEEN[:, None], -math.inf).softmax(2)

    def step(last: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Memory]:
        prefix = memory.target * UNITS + 1 + last if bool((memory.target >= 0).all()) else torch.zeros_like(last)
        return logs[memory.source, prefix], attention[memory.source, prefix], Memory(memory.source, prefix)

    return step, Memory(torch.arange(len(SEEN)), torch.full((len(SEEN),), -1))


def exhaustive(seed: int, sentence: int, how: Search) -> tuple[float, list[int]]:
    """The best of all translations that end, or that reach the largest length."""
    step, _ = random_decoder(seed)
    best: tuple[float, list[int]] = (-math.inf, [])
    for length in range(1, how.max_length + 1):
        for units in itertools.product(range(UNITS), repeat=length):
            if END in units[:-1] or (units[-1] != END and length < how.max_length):
                continue
            memory, last, total, covered = Memory(torch.tensor([sentence]), torch.tensor([-1])), BEGIN, 0.0, 0.0
            for unit in units:
                logs, weights, memory = step(torch.tensor([last]), memory)
                total, covered, last = total + float(logs[0, unit]), covered + weights[0], unit
            assert isinstance(covered, Tensor)
            score = total / ((how.constant + length) / (how.constant + 1)) ** how.alpha
            score += how.beta * float(covered[SEEN[sentence]].clamp(max=1).log().sum())
            best = max(best, (score, list(units)))
    return best


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("beta", [0.0, 0.7])
def test_a_beam_that_holds_every_hypothesis_finds_the_best_of_all(seed: int, beta: float) -> None:
    how = Search(beam=UNITS**LONGEST, max_length=LONGEST, alpha=0.9, constant=2.0, beta=beta)
    step, memory = random_decoder(seed)
    found = search(step, memory, SEEN, BEGIN, END, how)
    for sentence in range(len(SEEN)):
        score, units = exhaustive(seed, sentence, how)
        assert float(found.scores[sentence]) == pytest.approx(score, abs=1e-5)
        length = int(found.lengths[sentence])
        assert found.units[sentence, :length].tolist() == [unit for unit in units if unit != END]


def test_a_beam_of_one_takes_the_likeliest_unit_each_time() -> None:
    step, memory = random_decoder(11)
    found = search(step, memory, SEEN, BEGIN, END, Search(beam=1, max_length=LONGEST, beta=0.0))
    for sentence in range(len(SEEN)):
        units: list[int] = []
        one, last = Memory(memory.source[sentence, None], memory.target[sentence, None]), BEGIN
        while len(units) < LONGEST and last != END:
            logs, _, one = step(torch.tensor([last]), one)
            last = int(logs.argmax())
            units.append(last)
        assert found.units[sentence, : int(found.lengths[sentence])].tolist() == [u for u in units if u != END]


# --- the decoders -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gnmt", "translator", "transformer"])
def test_a_decoder_computes_one_unit_at_a_time_what_the_model_computes_at_once(name: str) -> None:
    workload = build(import_module(f"benchsuite.models.{name}"))
    net: Any = workload.modules["net"].eval()
    source = torch.tensor([[5, 6, 7, 2], [9, 8, 2, 0]])
    target = torch.tensor([[1, 10, 11, 12, 13], [1, 14, 15, 16, 17]])
    decoder = (of_transformer if name == "transformer" else of_lstm)(net.units)
    with torch.inference_mode():
        inputs = (source, target) if name == "transformer" else (source, (source != 0).sum(1), target)
        whole = net(*inputs).log_softmax(2)
        memory = decoder.encode(source)
        for place in range(target.shape[1]):
            logs, attention, memory = decoder.step(target[:, place], memory)
            assert torch.allclose(logs, whole[:, place], atol=1e-5)
            if attention is not None:
                assert torch.allclose(attention.sum(1), torch.ones(2))
                assert attention[1, 3] == 0


# --- the test set -----------------------------------------------------------------------------------------------------


def test_units_become_words_and_numbers() -> None:
    vocabulary = ["<pad>", "<unk>", "<s>", "</s>", "Hal", "lo</w>", ",</w>", "10</w>", ".</w>", "5</w>"]
    assert text_of([4, 5, 6, 7, 8, 9], vocabulary) == "Hallo , 10.5"
    assert text_of([4, 2, 5, 99], ["", "", "", "", "ka", "ke"]) == "ka <unk> ke <unk>"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    root = tmp_path_factory.mktemp("data")
    done = in_process("prepare", "mapped_pairs", "-d", str(root), "--synthetic", "--size", "small", cwd=root)
    assert done.returncode == 0, done.stderr
    return folder_of(store.find(root, "mapped_pairs"))


def test_each_word_has_one_translation_and_neighbours_swap(data: DataFolder) -> None:
    test = test_set(data)
    assert len(test.sources) == len(test.references) == 100
    known: dict[int, str] = {}
    for source, reference in zip(test.sources, test.references, strict=True):
        words, order = reference.split(), list(source)
        for place in range(0, len(order) - 1, 2):
            order[place], order[place + 1] = order[place + 1], order[place]
        assert [known.setdefault(unit, word) for unit, word in zip(order, words, strict=True)] == words
    assert len(set(known.values())) == len(known) == 12


# --- from the training to the score -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, data: DataFolder) -> tuple[RunDir, list[Any]]:
    """A training by the worker's own loop that ends at 60 BLEU."""
    folder = Path(data.path).parent / "run"
    rundir, assignment = run_folder(folder, data, **TOY, epoch_items=25_600, max_epochs=9, target={"bleu": 60})
    return rundir, events(assignment)


def test_bleu_rises_until_the_target_is_met(learned: tuple[RunDir, list[Any]]) -> None:
    _, found = learned
    scores = [event.epoch.bleu for event in epochs_in(found)]
    assert scores[0] < 30
    assert scores[-1] >= 60 > max(scores[:-1])
    assert [event.stopped_by for event in found if isinstance(event, End)] == ["target"]


def test_bleu_scores_every_checkpoint_of_a_run(learned: tuple[RunDir, list[Any]], tmp_path: Path) -> None:
    rundir, found = learned
    picture = tmp_path / "bleu.png"
    done = in_process("bleu", str(rundir.path), "--device", "cpu", "-o", str(picture), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    scores = read_record(path_in(rundir.path), Bleu)
    assert scores.signature.startswith("nrefs:1|case:lc|eff:no|tok:intl|smooth:exp|version:")
    (task,) = scores.tasks
    assert [one.bleu for one in task.epochs] == pytest.approx(
        [event.epoch.bleu for event in epochs_in(found)], abs=1e-3
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "job.J0: mapped_pairs test, 100 sentences, beam 5, on cpu"
    assert len([line for line in lines if line.split()[0].isdigit()]) == len(task.epochs)
    translations = (rundir.path / task.epochs[-1].translations).read_text(encoding="utf-8").splitlines()
    assert len(translations) == task.sentences == 100
    assert picture.read_bytes().startswith(b"\x89PNG")
    again = in_process("plot", str(rundir.path), "--kind", "bleu", "-o", "again.svg", cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_a_partition_into_stages_is_scored_as_the_whole(learned: tuple[RunDir, list[Any]], tmp_path: Path) -> None:
    """Stages as a pipeline writes them: each holds the units of its own, by the names of the whole model."""
    rundir, found = learned
    last = len(epochs_in(found))
    prefix = str(rundir.checkpoints(rundir.plan().tasks[0], 1))
    content = torch.load(saved.file_of(prefix, last, 0), weights_only=True)
    plan = rundir.plan()
    other = RunDir.create(tmp_path / "pipeline", rundir.run(), plan)
    other.log(plan.tasks[0], 1, "task.json").touch()
    for stage in (0, 1):
        net = {n: t for n, t in content["modules"]["net"].items() if (int(n.split(".")[1]) > 1) == bool(stage)}
        part = {**content, "stage": stage, "stages": 2, "modules": {"net": net}, "optimisers": {}}
        saved.write(saved.file_of(str(other.checkpoints(plan.tasks[0], 1)), last, stage), part)
    done = in_process("bleu", str(other.path), "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (task,) = read_record(path_in(other.path), Bleu).tasks
    assert task.epochs[0].bleu == pytest.approx(epochs_in(found)[-1].epoch.bleu, abs=1e-3)


def test_bleu_refuses_what_it_cannot_score(learned: tuple[RunDir, list[Any]], tmp_path: Path) -> None:
    rundir, _ = learned
    empty, _ = run_folder(tmp_path / "empty", model="gnmt", max_epochs=1, epoch_items=9)
    one_line_error(in_process("bleu", "empty", cwd=tmp_path), "no checkpoints of gnmt, transformer, translator here")
    one_line_error(in_process("bleu", str(rundir.path), "--task", "x", cwd=tmp_path), "no task 'x'")
    one_line_error(in_process("bleu", str(rundir.path), "-d", "/nowhere", cwd=tmp_path), "or name its folder with -d")
    one_line_error(
        in_process("bleu", str(rundir.path), "--device", "tpu", cwd=tmp_path), "--device tpu: no such device"
    )
    one_line_error(in_process("bleu", str(rundir.path), "-o", "x.txt", cwd=tmp_path), "name a file that ends in .png")
    file = saved.file_of(str(empty.checkpoints(empty.plan().tasks[0], 1)), 1, 0)
    file.parent.mkdir()
    file.write_bytes(b"PK")
    one_line_error(in_process("bleu", "empty", cwd=tmp_path), "it was trained on generated pairs")


def test_weights_of_another_model_are_refused(data: DataFolder) -> None:
    from benchsuite.models.translation.evaluation import evaluated, loaded

    with pytest.raises(ModelError, match="'vae' is no translator; those are gnmt"):
        evaluated("vae", {}, {}, test_set(data), "cpu")
    params = msgspec.to_builtins(import_module("benchsuite.models.transformer").Params(**TOY["params"]))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="the weights of the checkpoint do not fit 'transformer': "):
        loaded("transformer", params, {"net": {}}, test_set(data), "cpu", Search())
