"""Recordings and their texts as LibriSpeech lays them out: `LibriSpeech/train-clean-100/1/1/1-1-0000.wav`.

Each chapter has a file of texts, `1-1.trans.txt`, with one line for each recording. Recordings are 16-bit WAV files of
16,000 samples a second, not FLAC files as the real ones.
"""

from __future__ import annotations

import functools
import io
import wave
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from benchsuite.data import pictures, words, writers

if TYPE_CHECKING:
    import numpy as np

UNIT = 40
RATE = 16_000
SHORTEST_S = 1.5
_VOCABULARY = 30_000
_SYLLABLE = RATE // 5  # samples: five syllables a second
_STEPS = 16  # phases between two samples at 1 Hz


class Settings(writers.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Recordings by split; `letters` a second.

    Most recordings last about `usual_s` with a deviation of `spread_s`. The share `shorter` of them lasts from 1.5
    seconds to `usual_s`.
    """

    train: Annotated[int, Meta(gt=0)]
    val: Annotated[int, Meta(gt=0)]
    test: Annotated[int, Meta(gt=0)]
    letters: Annotated[float, Meta(gt=0, le=20)]
    usual_s: Annotated[float, Meta(gt=1.5)]
    spread_s: Annotated[float, Meta(gt=0)]
    longest_s: Annotated[float, Meta(gt=1.5)]
    shorter: Annotated[float, Meta(ge=0, le=1)]


def _chapters(settings: Settings) -> list[tuple[str, int]]:
    """Split and number of recordings of each chapter."""
    splits = (("train-clean-100", settings.train), ("dev-clean", settings.val), ("test-clean", settings.test))
    return [(split, min(UNIT, count - first)) for split, count in splits for first in range(0, count, UNIT)]


def units(settings: Settings) -> int:
    """A unit is a chapter of up to 40 recordings."""
    return len(_chapters(settings))


def write(settings: Settings, unit: int) -> Iterator[tuple[str, bytes]]:
    """The recordings of one chapter and their texts."""
    split, count = _chapters(settings)[unit]
    rng = pictures.random(settings.seed, unit)
    speaker, chapter = 1 + unit // 2, 1 + unit
    folder = f"LibriSpeech/{split}/{speaker}/{chapter}"
    pitch_hz = int(rng.integers(85, 221))
    lines = []
    for number in range(count):
        seconds = _seconds(settings, rng)
        name = f"{speaker}-{chapter}-{number:04d}"
        yield f"{folder}/{name}.wav", _wav(_voice(rng, round(seconds * RATE), pitch_hz))
        lines.append(f"{name} {_text(rng, round(seconds * settings.letters))}\n")
    yield f"{folder}/{speaker}-{chapter}.trans.txt", "".join(lines).encode()


def _seconds(settings: Settings, rng: np.random.Generator) -> float:
    if rng.random() < settings.shorter:
        return float(rng.uniform(SHORTEST_S, settings.usual_s))
    return min(settings.longest_s, max(SHORTEST_S, float(rng.normal(settings.usual_s, settings.spread_s))))


def _text(rng: np.random.Generator, letters: int) -> str:
    """Words in capitals, as frequent as in a language, together about `letters` long with the blanks between them."""
    drawn = words.ranks(rng, letters // 2 + 1, _VOCABULARY, 1.0, 2.7)
    text = " ".join(words.spelling(rank).upper() for rank in drawn.tolist())
    return text[: max(1, letters)].strip()


def _voice(rng: np.random.Generator, samples: int, pitch_hz: int) -> np.ndarray:
    """Harmonics of a pitch that wanders, and noise, both as loud as the syllables; int16 [samples].

    The phase is an integer and the harmonics are a table of integers, so that every CPU computes the same samples.
    """
    import numpy as np

    knots = samples // _SYLLABLE + 2
    at, places = np.arange(samples) / _SYLLABLE, np.arange(knots)
    loud = np.interp(at, places, rng.random(knots) ** 2)
    pitch = np.interp(at, places, rng.integers(_STEPS * pitch_hz * 4 // 5, _STEPS * pitch_hz * 6 // 5, knots))
    tone = _harmonics()[np.cumsum(pitch.astype(np.int64)) % (_STEPS * RATE)]
    noise = rng.standard_normal((2, samples), np.float32)
    sound: np.ndarray = np.clip(loud * (tone + 1600 * noise[0]) + 32 * noise[1], -32_768, 32_767).astype("<i2")
    return sound


@functools.lru_cache(maxsize=1)
def _harmonics() -> np.ndarray:
    """One period, int32 [_STEPS * RATE]."""
    import numpy as np

    phase = np.arange(_STEPS * RATE) * (2 * np.pi / (_STEPS * RATE))
    total: np.ndarray = np.sum([np.sin(k * phase) / k for k in range(1, 13)], axis=0)
    return (4800 * total).round().astype(np.int32)


def _wav(sound: np.ndarray) -> bytes:
    kept = io.BytesIO()
    with wave.open(kept, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(sound.tobytes())
    return kept.getvalue()
