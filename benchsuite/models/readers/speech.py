"""Recordings of speech and their texts, as LibriSpeech lays them out, in batches of equally long recordings.

WAV files are read with the standard library, FLAC files with soundfile. All have one channel and 16,000 samples a
second. A recording is cut, or filled with silence, to the nearest whole second.
"""

from __future__ import annotations

import wave
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from benchsuite.errors import ModelError, one_line, reason
from benchsuite.models import Share, seeded
from benchsuite.models.readers import images, malformed

LETTERS = " 'ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # the first has number 1: 0 is CTC's blank
RATE = 16_000
WINDOW, HOP = 320, 160  # samples: 20 and 10 milliseconds
BINS = WINDOW // 2 + 1
FRAMES = RATE // HOP  # a second
OUTPUTS = FRAMES // 2  # a second: a model's letters, blanks included
HEADERS = 16  # files whose headers are read at a time
TEXTS, SOUNDS = ".trans.txt", (".wav", ".flac")


@dataclass(frozen=True)
class Recording:
    """A file, its whole seconds, and the numbers of its letters."""

    file: str
    seconds: int
    letters: tuple[int, ...]


def spectrogram(sound: Tensor) -> Tensor:
    """Samples [..., n] -> logarithms of magnitudes [..., BINS, n / HOP], of mean 0 and deviation 1 as a whole."""
    window = torch.hamming_window(WINDOW, device=sound.device)
    found = torch.stft(sound, WINDOW, HOP, WINDOW, window, return_complex=True)[..., :-1].abs().log1p()
    mean, deviation = found.mean((-2, -1), keepdim=True), found.std((-2, -1), keepdim=True)
    return (found - mean) / deviation.clamp(min=1e-5)


def fitted(sound: Tensor, seconds: int) -> Tensor:
    """Samples [n], cut or filled with silence at the end to `seconds`."""
    return F.pad(sound[: seconds * RATE], (0, max(0, seconds * RATE - len(sound))))


def can_align(letters: tuple[int, ...], seconds: int) -> bool:
    """Whether the outputs have room for the letters, with a blank between two equal ones."""
    return 0 < len(letters) + sum(a == b for a, b in pairwise(letters)) <= seconds * OUTPUTS


class Recordings(Dataset):
    """Spectrograms [BINS, frames], letters [width] and their number. A key is the index of the recording and the width.

    A file that cannot be read becomes an `images.Broken`.
    """

    def __init__(self, recordings: list[Recording], share: Share) -> None:
        self.recordings = recordings
        self.remedy = images.remedy(share)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, Tensor, int] | images.Broken:
        index, width = key
        one = self.recordings[index]
        try:
            sound = fitted(decoded(one.file), one.seconds)
        except ModelError as error:
            return images.Broken(one_line(f"{one.file}: {error}; {self.remedy}"))
        letters = torch.zeros(width, dtype=torch.long)
        letters[: len(one.letters)] = torch.tensor(one.letters)
        return spectrogram(sound), letters, len(one.letters)


def batches(share: Share, batch_size: int, max_seconds: int, workers: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Spectrograms [batch_size, BINS, frames], letters filled with 0 [batch_size, n], and their numbers [batch_size].

    The recordings of a batch have the same number of whole seconds, for all ranks. Each pass has a new order; what
    fills no batch of its length is left out of it.

    Raises:
        ModelError: at the call: the data set cannot be read, or no length fills a batch; later: a file is damaged.
    """
    assert share.data
    every = index(share)
    if every[0].file.endswith(".flac") and find_spec("soundfile") is None:
        raise ModelError(f"data set '{share.data.name}': FLAC files need a library: pip install soundfile")
    known = [one for one in every if one.seconds <= max_seconds and can_align(one.letters, one.seconds)]
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for number, one in enumerate(known):
        groups[one.seconds].append(number)
    most = max((len(group) for group in groups.values()), default=0) // share.ranks
    if most < batch_size:
        few = f"has up to {most:,} recordings of one length, in whole seconds, for each of {share.ranks} ranks"
        remedy = f"give batch_size of at most {most}" if most else "give a larger max_seconds"
        raise ModelError(f"data set '{share.data.name}' {few}; {remedy}, or bring a larger data set")
    order = (_keys(known, row) for row in _rows(groups, batch_size, share))
    return images.load(Recordings(known, share), order, workers)


def _rows(groups: dict[int, list[int]], batch_size: int, share: Share) -> Iterator[list[int]]:
    """Endless: the recordings of each batch of this rank. All ranks draw the same order and take turns."""
    generator = seeded(share.seed)
    together = batch_size * share.ranks
    while True:
        found: list[list[int]] = []
        for group in groups.values():
            shuffled = [group[i] for i in torch.randperm(len(group), generator=generator).tolist()]
            found += [shuffled[first : first + together] for first in range(0, len(group) - together + 1, together)]
        for place in torch.randperm(len(found), generator=generator).tolist():
            yield found[place][share.rank :: share.ranks]


def _keys(known: list[Recording], row: list[int]) -> list[tuple[int, int]]:
    width = max(len(known[number].letters) for number in row)
    return [(number, width) for number in row]


# --- the files --------------------------------------------------------------------------------------------------------


def index(share: Share) -> list[Recording]:
    """The recordings of the training part, in the order of their names.

    Raises:
        ModelError: there are none, or a text or a header cannot be read.
    """
    assert share.data
    folder = images.split(share, "train")
    files = set(images.files_of(folder, share, (TEXTS, *SOUNDS)))
    named = {name.rpartition(".")[0]: f"{folder}/{name}" for name in files if not name.endswith(TEXTS)}
    found: list[tuple[str, tuple[int, ...]]] = []
    for text in sorted(name for name in files if name.endswith(TEXTS)):
        for name, letters in _texts(share, folder, text):
            if name not in named:
                raise malformed(share.data, folder / text, f"there is no recording {name}")
            found.append((named[name], letters))
    if not found:
        raise ModelError(f"{folder}: there are no recordings with texts; {images.remedy(share)}")

    def measured(one: tuple[str, tuple[int, ...]]) -> Recording:
        try:
            return Recording(one[0], max(1, round(length(one[0]) / RATE)), one[1])
        except ModelError as error:
            raise ModelError(one_line(f"{one[0]}: {error}; {images.remedy(share)}")) from None

    with ThreadPoolExecutor(HEADERS) as threads:
        return list(threads.map(measured, found))


def _texts(share: Share, folder: Path, name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Path of a recording without its ending, and its letters, of each line of a file of texts."""
    assert share.data
    path = folder / name
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise malformed(share.data, path, f"cannot be read: {error}") from None
    below = name.rpartition("/")[0]
    for number, line in enumerate(lines, 1):
        recording, _, text = line.partition(" ")
        strange = set(text) - set(LETTERS)
        if strange:
            raise malformed(
                share.data, path, f"line {number:,} has {min(strange)!r}, which is not one of A-Z, ' and blank"
            )
        yield f"{below}/{recording}" if below else recording, tuple(LETTERS.index(letter) + 1 for letter in text)


def length(file: str) -> int:
    """The samples of a file, from its header.

    Raises:
        ModelError: it is of another format; the file is not named.
    """
    try:
        if file.endswith(".flac"):
            return _flac_length(Path(file))
        with wave.open(file) as sound:
            _check(sound.getnchannels(), sound.getframerate(), 8 * sound.getsampwidth())
            return int(sound.getnframes())
    except (wave.Error, EOFError) as error:
        raise ModelError(f"is not a WAV file that can be read: {error}") from None
    except OSError as error:
        raise ModelError(f"cannot be read: {reason(error)}") from None


def _flac_length(path: Path) -> int:
    """From the block STREAMINFO, which comes first (RFC 9639, section 8.2)."""
    with path.open("rb") as file:
        head = file.read(26)
    if len(head) < 26 or head[:4] != b"fLaC" or head[4] & 0x7F:
        raise ModelError("is not a FLAC file")
    packed = int.from_bytes(head[18:26], "big")  # 20 bits rate, 3 channels - 1, 5 bits of a sample - 1, 36 samples
    _check((packed >> 41 & 7) + 1, packed >> 44, (packed >> 36 & 31) + 1)
    return packed & (1 << 36) - 1


def _check(channels: int, rate: int, bits: int) -> None:
    if (channels, rate, bits) != (1, RATE, 16):
        found = f"has {channels} channels of {rate:,} samples a second with {bits} bits"
        raise ModelError(f"{found}, not 1 of {RATE:,} with 16")


def decoded(file: str) -> Tensor:
    """The samples of a file, float32 [n] between -1 and 1.

    Raises:
        ModelError: it is damaged; the file is not named.
    """
    if file.endswith(".flac"):
        return _flac(file)
    try:
        with wave.open(file) as sound:
            content = sound.readframes(sound.getnframes())
    except (wave.Error, EOFError) as error:
        raise ModelError(f"is not a WAV file that can be read: {error}") from None
    except OSError as error:
        raise ModelError(f"cannot be read: {reason(error)}") from None
    return torch.frombuffer(bytearray(content[: len(content) // 2 * 2]), dtype=torch.int16) / 32_768


def _flac(file: str) -> Tensor:
    import soundfile

    try:
        return torch.from_numpy(soundfile.read(file, dtype="float32")[0])
    except (OSError, RuntimeError) as error:
        raise ModelError(f"cannot be read as FLAC: {error}") from None
