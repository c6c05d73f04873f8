"""Keep the commit in the wheel and in the source distribution, so that an installed benchsuite records it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KEPT = "benchsuite/share/code.json"


class KeepCommit(BuildHookInterface[Any]):
    """Write the commit to a file of the package. Without git and without `BENCHSUITE_COMMIT` there is none."""

    _folder: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file, except to an editable installation, which asks git itself."""
        root = Path(self.root)
        if version == "editable" or (root / KEPT).exists():  # the second: a source distribution
            return
        commit, dirty = _given() or _found(root)
        if commit:
            self._folder = mkdtemp()
            file = Path(self._folder) / "code.json"
            file.write_text(json.dumps({"commit": commit, "dirty": dirty}), encoding="utf-8")
            build_data["force_include"][str(file)] = KEPT

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file of which the package holds a copy."""
        if self._folder:
            shutil.rmtree(self._folder)


def _given() -> tuple[str, bool] | None:
    """What BENCHSUITE_COMMIT says, as "1a2b3c4" or "1a2b3c4+dirty"; None without it."""
    given = os.environ.get("BENCHSUITE_COMMIT")
    if not given:
        return None
    if not re.fullmatch(r"[0-9a-f]{7,64}(\+dirty)?", given):
        raise ValueError(f"BENCHSUITE_COMMIT={given!r} is not a commit, such as 1a2b3c4 or 1a2b3c4+dirty")
    return given.removesuffix("+dirty"), given.endswith("+dirty")


def _found(root: Path) -> tuple[str | None, bool | None]:
    """What git says of the checkout."""
    spec = importlib.util.spec_from_file_location("repository", root / "benchsuite" / "host" / "repository.py")
    assert spec and spec.loader
    repository = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(repository)
    found: tuple[str | None, bool | None] = repository.commit_and_dirty(root)
    return found
