"""The folder of runs whose place the user does not name: `results`, or `$BENCHSUITE_OUT`."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from benchsuite.errors import OutputError, ResultError, reason
from benchsuite.rundir import RunDir, make_folder, slug


def new_default_out(profile: str, environ: Mapping[str, str], now: datetime) -> Path:
    """Make `results/<profile>-<YYYYMMDD-HHMMSS>`, local time, under the current folder or `$BENCHSUITE_OUT`.

    If that folder exists, the new one ends in `-2`, and so on.

    Args:
        profile: the profile's name.

    Raises:
        OutputError: the folder cannot be made.
    """
    parent = Path(environ.get("BENCHSUITE_OUT") or "results")
    name = f"{slug(profile)}-{now:%Y%m%d-%H%M%S}"
    make_folder(parent)
    for number in itertools.count(1):
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise OutputError(f"{path}: cannot be made: {reason(error)}") from None
        return path
    raise AssertionError


def newest_run(environ: Mapping[str, str]) -> Path:
    """The newest run folder below `$BENCHSUITE_OUT` or `results`.

    Raises:
        ResultError: there is no run folder.
    """
    parent = Path(environ.get("BENCHSUITE_OUT") or "results")
    found: list[tuple[str, Path]] = []
    for file in parent.glob("*/run.json"):
        with contextlib.suppress(ResultError):
            found.append((RunDir(file.parent).run().created, file.parent))
    if not found:
        raise ResultError(f"{parent}: no run here yet; name a results folder, or start with 'benchsuite jobs smoke'")
    return max(found)[1]
