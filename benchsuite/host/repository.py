"""The git repository in which a folder lies: its commit, and how the files differ from it.

The build of the wheel loads this file alone, so that it imports nothing of benchsuite.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

LIMIT_S = 20.0
# The folders whose changes make a number another one.
_CODE = ("benchsuite", "profiles", "weights")


def commit_and_dirty(root: Path) -> tuple[str | None, bool | None]:
    """The commit of a checkout of benchsuite, and whether its code has uncommitted changes.

    Args:
        root: the folder of the checkout.

    Returns:
        None for what git does not say.
    """
    if not (root / ".git").exists():  # a folder around `root` may be another repository
        return None, None
    commit = _git(root, "rev-parse", "HEAD")
    changes = _git(root, "status", "--porcelain", "--", *_CODE)
    return commit.decode().strip() if commit else None, None if changes is None else bool(changes.strip())


def commit_and_changes(folder: Path) -> tuple[bytes, bytes] | None:
    """The hash of the commit, and `git diff` of the working tree against it; None if git finds no commit."""
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "diff", "--no-ext-diff", "--no-textconv", "HEAD") if commit else None
    return (commit, changes) if commit and changes is not None else None


def _git(folder: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, timeout=LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
