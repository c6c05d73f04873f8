"""The git repository in which a folder lies: its commit, and how the files differ from it."""

from __future__ import annotations

import subprocess
from pathlib import Path

LIMIT_S = 20.0


def commit_and_changes(folder: Path) -> tuple[bytes, bytes] | None:
    """The hash of the commit, and `git diff` of the working tree against it; None if git finds no commit."""
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "diff", "HEAD") if commit else None
    return (commit, changes) if commit and changes is not None else None


def _git(folder: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, timeout=LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
