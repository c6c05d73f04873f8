"""The picture files that commands write."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from benchsuite.errors import UsageError, one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ENDINGS = (".png", ".svg", ".pdf")


def check_picture(target: Path, option: str) -> None:
    """Can a picture be written here later?

    Args:
        option: the option that names the file, for messages.

    Raises:
        UsageError: the ending is of no format.
        OutputError: the file exists, or its folder does not.
    """
    from benchsuite.writing import check_place

    if target.suffix.lower() not in _ENDINGS:
        raise UsageError(f"{option} {one_line(str(target))}: name a file that ends in {', '.join(_ENDINGS)}")
    check_place(target, option)


def draw(figure: Figure, target: Path, option: str) -> None:
    """Write a figure in the format of the file's ending.

    Raises:
        OutputError: the file exists or cannot be written.
    """
    from benchsuite.writing import write_for_user

    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=150, format=target.suffix[1:].lower())
    write_for_user(target, drawn.getvalue(), option)
