"""Translate a test set with the weights of a checkpoint, and score it."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor

from benchsuite.errors import ModelError, UsageError
from benchsuite.models.translation.beam import Search, search
from benchsuite.models.translation.corpus import TestSet, text_of
from benchsuite.models.translation.decoders import Decoder, of_lstm, of_transformer
from benchsuite.models.translator import BEGIN, END, PAD, SPECIALS

if TYPE_CHECKING:
    from collections.abc import Iterable

BATCH = 128
MISSING = "BLEU is computed by the package sacrebleu, which is not installed: pip install 'benchsuite[bleu]'"
_DECODERS: dict[str, Callable[[Iterable[Any]], Decoder]] = {
    "gnmt": of_lstm,
    "translator": of_lstm,
    "transformer": of_transformer,
}


@dataclass(frozen=True)
class Scored:
    """The BLEU of the translations, the signature that makes it comparable, and the translations."""

    bleu: float
    signature: str
    translations: tuple[str, ...]
    elapsed_s: float


def check_installed() -> None:
    """Raises ModelError: sacrebleu is missing."""
    if importlib.util.find_spec("sacrebleu") is None:
        raise ModelError(MISSING)


def evaluated(
    model: str,
    params: Mapping[str, Any],
    weights: Mapping[str, Mapping[str, Tensor]],
    test: TestSet,
    device: str,
    how: Search | None = None,
    batch_size: int = BATCH,
) -> Scored:
    """Translate and score.

    Args:
        model: gnmt, transformer or translator.
        params: the parameters with which it was trained.
        weights: those of module `net`, by name.
        device: torch's name.
        batch_size: sentences that are translated at once.

    Raises:
        ModelError: sacrebleu is missing, the model is no translator, or the weights do not fit it.
    """
    check_installed()
    from sacrebleu.metrics import BLEU  # type: ignore[import-not-found,attr-defined,unused-ignore]

    how = how or Search()
    began = time.monotonic()
    decoder = loaded(model, params, weights, test, device, how)
    translations = translated(decoder, test, device, how, batch_size)
    metric = BLEU(lowercase=True, tokenize="intl")
    score = metric.corpus_score(list(translations), [list(test.references)])
    return Scored(float(score.score), str(metric.get_signature()), translations, time.monotonic() - began)


def loaded(
    model: str,
    params: Mapping[str, Any],
    weights: Mapping[str, Mapping[str, Tensor]],
    test: TestSet,
    device: str,
    how: Search,
) -> Decoder:
    """The decoder of a model with trained weights. Positions of a transformer reach as far as the test set needs.

    Raises:
        ModelError: the model is no translator, or the weights do not fit it.
    """
    if model not in _DECODERS:
        raise ModelError(f"'{model}' is no translator; those are {', '.join(_DECODERS)}")
    module = importlib.import_module(f"benchsuite.models.{model}")
    own = msgspec.convert(params, module.Params)
    longest = max((len(row) for row in test.sources), default=0)
    net = module.build(replace(own, max_length=max(own.max_length, longest, how.max_length))).modules["net"]
    try:
        net.load_state_dict(dict(weights.get("net", {})))
    except RuntimeError as error:
        why = " ".join(str(error).split())[:200]
        raise ModelError(f"the weights of the checkpoint do not fit '{model}': {why}") from None
    net.to(device).eval()
    return _DECODERS[model](net.units)


def translated(decoder: Decoder, test: TestSet, device: str, how: Search, batch_size: int = BATCH) -> tuple[str, ...]:
    """The translation of each sentence, in order. A batch holds sentences of similar length."""
    order = sorted(range(len(test.sources)), key=lambda row: len(test.sources[row]))
    texts: dict[int, str] = {}
    with torch.inference_mode():
        for rows in _batches(order, batch_size):
            source = _padded([test.sources[row] for row in rows]).to(device)
            found = search(decoder.step, decoder.encode(source), source != PAD, BEGIN, END, how)
            units, lengths = found.units.tolist(), found.lengths.tolist()
            for row, of, length in zip(rows, units, lengths, strict=True):
                texts[row] = text_of(of[:length], test.vocabulary)
    return tuple(texts[row] for row in range(len(test.sources)))


def _batches(order: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for first in range(0, len(order), size):
        yield order[first : first + size]


def _padded(rows: Sequence[tuple[int, ...]]) -> Tensor:
    """Sources with their end, as the models are trained on them: special units become SPECIALS."""
    width = max(map(len, rows)) + 1
    padded = torch.full((len(rows), width), PAD)
    for line, row in enumerate(rows):
        # The first four numbers of a data set are special. In training they are an ordinary unit.
        units = [unit if unit > SPECIALS else SPECIALS for unit in row]
        padded[line, : len(row) + 1] = torch.tensor([*units, END])
    return padded


def device_of(asked: str | None) -> str:
    """Torch's name of the device.

    Raises:
        UsageError: there is no such device.
    """
    import torch

    if asked is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = asked.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else 0
    if asked != "cpu" and not (kind == "cuda" and count and (not number or (number.isdigit() and int(number) < count))):
        raise UsageError(f"--device {asked}: no such device; {count} GPUs are visible, and cpu is always there")
    return asked
