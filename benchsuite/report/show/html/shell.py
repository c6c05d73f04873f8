"""The shell of every page: one file with its style and script, which loads nothing. All text is escaped and cleaned."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

from benchsuite.report.show.document import Part, Sentence, Table

# The parts of the style sheet and of the script, in order.
# Nearly all characters of a page are others, and need no look of their own.
_UNUSUAL = re.compile(r"[^\x20-\x7e\n\t]")
_OPTION = re.compile(r"(?<!\S)(--[a-z][a-z-]*(?: \d+)?)")
_STYLES = ("base.css", "charts.css", "narrow.css")
_SCRIPTS = ("page.js",)


def render(template: str, styles: Sequence[str] = (), **values: Any) -> str:
    """A page from a template that extends `shell.html`.

    Args:
        styles: the page's own style sheets, beside those of every page.
        values: of the template; `title` at least.
    """
    style, script = _joined((*_STYLES, *styles)), _joined(_SCRIPTS)
    return (
        _environment()
        .get_template(template)
        .render(style=style, script=script, style_hash=_hash(style), script_hash=_hash(script), **values)
    )


def macro(template: str, name: str, *arguments: Any) -> Markup:
    """The markup that a macro of a template gives, such as `section` or `table` of `parts.html`."""
    return Markup(getattr(_environment().get_template(template).module, name)(*arguments))  # noqa: S704 - is escaped


def clean(value: Any) -> Any:
    """A value for a template; in text (or markup) each control character but line ends and tabs is replaced."""
    if not isinstance(value, str) or value.isprintable():
        return value
    found = _UNUSUAL.sub(lambda c: c[0] if c[0].isprintable() else "\N{REPLACEMENT CHARACTER}", value)
    return type(value)(found)


def unbroken(text: str) -> Markup:
    """Text in which no line ends inside an option or between an option and its number."""
    return Markup(_OPTION.sub(r'<span class="option">\1</span>', str(escape(clean(text)))))  # noqa: S704 - is escaped


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _shipped(f"templates/{name}")),
        autoescape=True,
        finalize=clean,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["table"] = lambda part: isinstance(part, Table)
    environment.tests["sentence"] = lambda part: isinstance(part, Sentence)
    environment.tests["number"] = lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    environment.filters["plain"] = _plain
    environment.filters["unbroken"] = unbroken
    return environment


def _plain(part: Part) -> str:
    """The text of a part that is a sentence; empty for a table or facts."""
    return part.text if isinstance(part, Sentence) else ""


def _joined(names: Sequence[str]) -> Markup:
    return Markup("\n".join(map(_shipped, names)))  # noqa: S704 - our own files


def _shipped(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    """The hash by which a Content-Security-Policy permits an inline style or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"
