"""Foreign text that does no harm in a CSV file, which a spreadsheet opens, and in JSON on a terminal."""

from __future__ import annotations

import json
import re

import msgspec

# A spreadsheet treats text with this beginning as a formula.
_FORMULA = ("=", "+", "-", "@")
# Nearly all characters of a report are others, and need no look of their own.
_UNUSUAL = re.compile(r"[^\x20-\x7e\n]")


def csv_cell(value: object) -> str:
    """A value on one line; text that a spreadsheet would run as a formula begins with an apostrophe."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    clean = value if value.isprintable() else "".join(c if c.isprintable() else " " for c in value)
    return f"'{clean}" if clean.startswith(_FORMULA) else clean


def json_text(content: object) -> str:
    """Indented JSON whose control characters are escaped."""
    text = msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
    return _UNUSUAL.sub(lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text) + "\n"
