"""Foreign text that does no harm in a CSV file, which a spreadsheet opens, and in JSON on a terminal."""

from __future__ import annotations

import json

import msgspec

# A spreadsheet treats text with this beginning as a formula.
_FORMULA = ("=", "+", "-", "@")


def csv_cell(value: object) -> str:
    """A value on one line; text that a spreadsheet would run as a formula begins with an apostrophe."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    clean = "".join(c if c.isprintable() else " " for c in value)
    return f"'{clean}" if clean.startswith(_FORMULA) else clean


def json_text(content: object) -> str:
    """Indented JSON whose control characters are escaped."""
    text = msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text) + "\n"
