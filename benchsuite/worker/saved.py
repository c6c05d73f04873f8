"""The files of checkpoints: one for each epoch and stage of the model, `PREFIX.epochN.stageS.pt`.

A file is written aside and renamed, so that it is whole or absent. It holds plain dicts, tensors and numbers, and is
loaded without running any code in it (`weights_only`).
"""

from __future__ import annotations

import os
import pickle
import re
import secrets
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchsuite.describe.goal import EPOCH, STAGE
from benchsuite.errors import ModelError, one_line, reason
from benchsuite.worker.state import Content
from benchsuite.writing import sync

FORMAT = 1
KINDS = ("modules", "optimisers", "scalers", "schedules")
_FILE = re.compile(rf"(?P<prefix>.*)\{EPOCH}(?P<epoch>\d+)\{STAGE}(?P<stage>\d+)\.pt")


@dataclass(frozen=True)
class Checkpoint:
    """The state of a whole model after an epoch, joined from the files of all stages.

    Attributes:
        prefix: the path of the files up to `.epochN`.
        model: name of the model, or `module:function`.
        params: every parameter of the model with its value.
        content: modules, optimisers, scalers and schedules, see `State.read`.
    """

    prefix: str
    epoch: int
    model: str
    params: dict[str, Any]
    content: Content


def file_of(prefix: str, epoch: int, stage: int) -> Path:
    """The file of one stage. `prefix` has no `.epochN`."""
    return Path(f"{prefix}{EPOCH}{epoch}{STAGE}{stage}.pt")


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file whole or not at all; it replaces an older one.

    Raises:
        ModelError: the disk is full, or the folder cannot be written; nothing is left behind.
    """
    aside = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("xb") as file:
            torch.save(dict(content), file)
            file.flush()
            sync(file.fileno())
        aside.replace(path)
    except (OSError, RuntimeError) as error:  # torch reports a failed write of its own as a RuntimeError
        aside.unlink(missing_ok=True)
        raise ModelError(f"{path}: the checkpoint cannot be written: {_why(error, path.parent)}") from None


def _why(error: OSError | RuntimeError, folder: Path) -> str:
    if isinstance(error, OSError):
        return reason(error)
    cause = error.__cause__ or error.__context__
    if isinstance(cause, OSError):
        return reason(cause)
    left = os.statvfs(folder)
    full = f"; {left.f_bavail * left.f_frsize / 2**20:.0f} MiB are free there"
    return f"{one_line(str(error))[:200]}{full}"


def epochs_of(prefix: str) -> dict[int, list[Path]]:
    """The files of each epoch, in order, whose path begins with a prefix; the prefix may name an epoch itself."""
    folder, found = Path(prefix).parent, dict[int, list[Path]]()
    if not folder.is_dir():
        return found
    for path in sorted(folder.iterdir()):
        match = _FILE.fullmatch(str(path))
        if match and prefix in (match["prefix"], f"{match['prefix']}{EPOCH}{match['epoch']}"):
            found.setdefault(int(match["epoch"]), []).append(path)
    return dict(sorted(found.items()))


def read(prefix: str) -> Checkpoint:
    """Read the checkpoint of the last epoch whose files begin with a prefix, and join its stages.

    Raises:
        ModelError: there is none, a file is damaged, or a stage is missing; names the file and the remedy.
    """
    found = epochs_of(prefix)
    if not found:
        raise ModelError(f"no checkpoint {prefix}{EPOCH}N{STAGE}0.pt; name one that a training by epochs has written")
    epoch, files = max(found.items())
    parts = [_read(file) for file in files]
    head = parts[0]
    stages = {part["stage"] for part in parts}
    missing = sorted(set(range(head["stages"])) - stages)
    whole = f"{files[0].parent}/{files[0].name.rpartition(STAGE)[0]}"
    if missing:
        raise ModelError(
            f"{whole}: of {head['stages']} stages, {missing[0]} is missing; continue from an earlier epoch"
        )
    joined: Content = {kind: _joined([part.get(kind, {}) for part in parts]) for kind in KINDS}
    return Checkpoint(whole, epoch, head["model"], head["params"], joined)


def _joined(parts: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Name of a module or update -> the names of all parts."""
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        for name, of in part.items():
            found.setdefault(name, {}).update(of)
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as packed:  # torch itself does not compare the checksums
            if broken := packed.testzip():
                raise ValueError(f"the checksum of {broken} is wrong")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        why = one_line(str(error)).partition(". ")[0][:160]
        raise ModelError(f"{path}: damaged, or no checkpoint ({why}); continue from an earlier epoch") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ModelError(f"{path}: no checkpoint of this version of benchsuite; continue from another")
    return content
