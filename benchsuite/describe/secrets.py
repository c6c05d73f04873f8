"""Find what looks like a secret in text that the records of a run would keep."""

from __future__ import annotations

import re

from benchsuite.describe.variables import looks_secret

# What a value cannot begin with: `$` stands for a variable of the shell, which is no secret.
_VALUE = r"[\\'\"]*([^\s$'\"\\,;&|(){}\[\]]+)"
_ASSIGNED = re.compile(r"(?<![\w$-])((?:--?)?[A-Za-z_][\w-]*)=" + _VALUE)
_OPTION = re.compile(r"(?<![\w-])(--[A-Za-z][\w-]*)\s+(?!-)" + _VALUE)
_URL = re.compile(r"[a-z]://(?:[^\s/@:$]*:[^\s/@$]+|[^\s/@:$]{20,})@", re.IGNORECASE)
_HEADER = re.compile(r"authorization:\s*\w+\s+[^\s$'\"\\]", re.IGNORECASE)
REMEDY = (
    "looks like a secret, and the records of a run would keep it; remove it here and set it in the shell, which hands "
    "it on unrecorded"
)


def secret_in(text: str) -> str | None:
    """What looks like a secret in a command or an address, without its value; None if nothing does.

    It is a value beside a name such as HF_TOKEN or --password, a password in a URL, or an authorization header.
    """
    for pattern in (_ASSIGNED, _OPTION):
        for found in pattern.finditer(text):
            if is_secret(found[1], found[2]):
                return found[1]
    if _URL.search(text):
        return "a password in a URL"
    return "an authorization header" if _HEADER.search(text) else None


def is_secret(name: str, value: str) -> bool:
    """Whether a name hints at a secret that the value may be. A number or a truth value is none: `--tokens 128`."""
    plain = value.lower() in ("true", "false", "null", "none") or re.fullmatch(r"[-+.\d_e]*", value)
    return not plain and looks_secret(name.lstrip("-").replace("-", "_"))
