"""Parallel text to numbers of BPE units with Hugging Face's tokenizers, in the layout of the writer `bpe_ids`."""

from __future__ import annotations

import html
import importlib.util
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from benchsuite.data import DataError, manifest
from benchsuite.data.manifest import Entry
from benchsuite.data.writers.bpe_ids import SPECIAL
from benchsuite.schema import Record

if TYPE_CHECKING:
    from typing import TextIO

_BATCH = 10_000
_END = "</w>"
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)
Pair = tuple[str, str]


class Conversion(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How text becomes units, with one vocabulary for both languages.

    `source` and `target` are the ends of the names of the files to train on. `test_source` and `test_target` are those
    of the test set, which is text with a sentence a line, or SGML in files that end in `.sgm`.
    """

    source: str
    target: str
    vocabulary: Annotated[int, Meta(gt=4)]
    longest_words: Annotated[int, Meta(gt=0)]
    validation: Annotated[int, Meta(gt=0)]
    test_source: str | None = None
    test_target: str | None = None


def check() -> None:
    """Raises DataError: the library is not installed."""
    if importlib.util.find_spec("tokenizers") is None:
        raise DataError("turning text into BPE units needs a library: pip install tokenizers; or use --synthetic")


def convert(tree: Path, how: Conversion, report: Callable[[int, int | None], None]) -> list[Entry]:
    """Learn the units from all text below the tree, and write it with them.

    Raises:
        DataError: there is no text, or the library is missing.
        OSError: a file cannot be written.
    """
    check()
    total = sum(1 for _ in _pairs(tree, how))
    if total < 2:
        raise DataError(f"no pairs of sentences in files named *{how.source} and *{how.target}")
    tokenizer = _learn(tree, how)
    every = max(2, total // how.validation)
    names = [f"{split}.{language}" for split in ("train", "val") for language in ("en", "de")]
    with ExitStack() as stack:
        files = {name: stack.enter_context((tree / name).open("w", encoding="utf-8")) for name in names}
        pairs, done = _pairs(tree, how), 0
        while batch := list(itertools.islice(pairs, _BATCH)):
            _write(tokenizer, batch, done, every, files)
            done += len(batch)
            report(done, total)
    if how.test_source and how.test_target:
        names += _write_test(tokenizer, tree, how.test_source, how.test_target)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    (tree / "vocab.txt").write_text("".join(f"{unit}\n" for unit, _ in vocabulary), encoding="utf-8")
    return [_described(tree, name) for name in (*names, "vocab.txt")]


def _pairs(tree: Path, how: Conversion) -> Iterator[Pair]:
    """The pairs of all files, in the order of the files' names. Empty and too long pairs are left out."""
    for source in sorted(tree.rglob(f"*{how.source}")):
        target = source.with_name(source.name.removesuffix(how.source) + how.target)
        if not target.exists():
            continue
        with _text(source) as one, _text(target) as two:
            for left, right in zip(one, two, strict=False):
                if all(1 <= len(side.split()) <= how.longest_words for side in (left, right)):
                    yield left.strip(), right.strip()


def _text(path: Path) -> TextIO:
    return path.open(encoding="utf-8", errors="replace", newline="\n")


def _learn(tree: Path, how: Conversion) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # type: ignore[import-not-found,unused-ignore]

    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[1], end_of_word_suffix=_END))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(
        vocab_size=how.vocabulary, special_tokens=list(SPECIAL), end_of_word_suffix=_END, show_progress=False
    )
    lines = (side for pair in _pairs(tree, how) for side in pair)
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def _write(tokenizer: Any, batch: list[Pair], first: int, every: int, files: Mapping[str, TextIO]) -> None:
    for side, language in enumerate(("en", "de")):
        for number, found in enumerate(tokenizer.encode_batch([pair[side] for pair in batch]), first):
            split = "val" if number % every == every - 1 else "train"
            files[f"{split}.{language}"].write(" ".join(map(str, found.ids)) + "\n")


def _write_test(tokenizer: Any, tree: Path, source: str, target: str) -> list[str]:
    """Write both sides of the test set as units, and the translations as text; the names of the files.

    Raises:
        DataError: a file is missing, or both have different numbers of sentences.
    """
    sides = [_sentences(tree, ending) for ending in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise DataError(f"the test set has {len(sides[0]):,} sentences and {len(sides[1]):,} translations")
    for name, lines in zip(("test.en", "test.de"), sides, strict=True):
        rows = (" ".join(map(str, found.ids)) for found in tokenizer.encode_batch(lines))
        (tree / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    (tree / "test.reference").write_text("".join(f"{line}\n" for line in sides[1]), encoding="utf-8")
    return ["test.en", "test.de", "test.reference"]


def _sentences(tree: Path, ending: str) -> list[str]:
    """The sentences of the one file whose name has this end. Raises DataError: there is no such file."""
    path = next(iter(sorted(tree.rglob(f"*{ending}"))), None)
    if path is None:
        raise DataError(f"no file of the test set named *{ending}")
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".sgm":
        return [" ".join(html.unescape(found).split()) for found in _SEGMENT.findall(text)]
    return [line.strip() for line in text.splitlines()]


def _described(tree: Path, name: str) -> Entry:
    path = tree / name
    return Entry(path=name, size_bytes=path.stat().st_size, sha256=manifest.file_sha256(path))
