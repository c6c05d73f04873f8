"""Find and read the files that people edit: JSON, and YAML with YAML 1.2 scalars. No other module uses PyYAML."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NoReturn

import yaml

from benchsuite.errors import ProfileError, nearest, reason

try:
    from yaml import CSafeLoader as SafeLoader  # by libyaml, about ten times as fast
except ImportError:  # a PyYAML that was built without libyaml
    from yaml import SafeLoader  # type: ignore[assignment]

Kind = Literal["profiles", "weights", "baselines", "datasets", "cards", "health"]
# Far more than anyone writes by hand.
_MOST_VALUES = 1_000_000
_SUFFIXES = (".json", ".yaml", ".yml")


def shipped_folder(kind: Kind) -> Path:
    """The folder of the shipped files of a kind: inside the installed package, or next to it in a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / "share" / kind
    return inside if inside.is_dir() else package.parent / kind


@cache
def shipped(kind: Kind) -> Mapping[str, Path]:
    """The shipped files of a kind, by their names without ending. The folder is read once."""
    folder = shipped_folder(kind)
    return MappingProxyType({p.stem: p for p in in_folder(folder)})


def in_folder(folder: Path) -> list[Path]:
    """The JSON and YAML files of a folder, in order of their names; none if there is no such folder."""
    return sorted(p for p in folder.iterdir() if p.suffix in _SUFFIXES) if folder.is_dir() else []


def find(kind: Kind, name: str) -> Path:
    """The file that a user means: a path, or the name of a shipped file.

    `profiles/standard.json` and `standard` name the shipped file from any folder, unless the path exists there.

    Raises:
        ProfileError: there is no such file; the message names the most similar shipped file.
    """
    path = Path(name)
    known = shipped(kind)
    there = look(path)
    if there == "file" or (there and name not in known):
        return path
    if name in known:
        return known[name]
    if len(path.parts) == 2 and path.parts[0] == kind:
        for file in known.values():
            if file.name == path.name:
                return file
    known_near = nearest(path.stem, known)
    words = {"datasets": "data set", "weights": "weights file"}
    what = words.get(kind, kind.removesuffix("s"))
    raise ProfileError(f"{name}: no such file, and no shipped {what} has that name{known_near}")


def look(path: Path) -> Literal["file", "folder"] | None:
    """What is at a path; None if it does not exist or cannot be reached. Anything but a folder is a "file"."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return None
    return "folder" if stat.S_ISDIR(mode) else "file"


def of_data_set(folder: Path, *, follow_links: bool = True) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The files of a data set: its readers, its list of hashes and `prepare --verify` all take these and no others.

    Hidden files and folders are left out. A folder without files counts for nothing. A link is as its target.

    Args:
        folder: the data set's folder, or one below it.
        follow_links: enter folders through links.

    Yields:
        The path of each file below `folder`, with "/", and its entry; in no order.

    Raises:
        OSError: a folder cannot be read, or a link leads back to a folder around it.
    """
    rows = [("", os.fspath(folder), frozenset([_identity(folder)]))]
    while rows:
        below, path, around = rows.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if not entry.is_dir():
                    yield below + entry.name, entry
                elif follow_links or not entry.is_symlink():
                    own = _identity(entry)
                    if own in around:
                        raise OSError(errno.ELOOP, "the link leads back to a folder around it", entry.path)
                    rows.append((f"{below}{entry.name}/", entry.path, around | {own}))


def _identity(folder: Path | os.DirEntry[str]) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def read_text(path: Path) -> str:
    """A file's text, without the byte order mark that editors on Windows write.

    Raises:
        ProfileError: the file is missing, a folder, unreadable, not UTF-8, or empty.
    """
    try:
        content = path.read_bytes()
        text = content.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise ProfileError(
            f"{path}: not UTF-8 text (byte {error.start + len(content) - len(error.object)}); save it as UTF-8"
        ) from None
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {reason(error)}") from None
    if not text.strip():
        raise ProfileError(f"{path}: the file is empty")
    return text


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping that a JSON or YAML file holds.

    Raises:
        ProfileError: the file is unreadable or malformed, repeats a key, or holds no mapping of names.
    """
    return parse_mapping(read_text(path), path)


def parse_mapping(text: str, path: Path) -> dict[str, Any]:
    """As `read_mapping`, for a text.

    Args:
        path: its file; the ending says whether it is JSON or YAML.
    """
    if path.suffix not in _SUFFIXES:
        raise ProfileError(f"{path}: unknown ending '{path.suffix}'; name it .json, .yaml or .yml")
    content = _parse_json(text, path) if path.suffix == ".json" else parse_yaml(text, str(path))
    if not isinstance(content, dict):
        raise ProfileError(f"{path}: expected a mapping of names at the top, found {_kind_of(content)}")
    try:
        if _size(content, path, {}) > _MOST_VALUES:
            raise ProfileError(f"{path}: its aliases expand to over {_MOST_VALUES:,} values; use fewer")
        json.dumps(content, ensure_ascii=False).encode()
    except RecursionError:
        raise ProfileError(f"{path}: nested too deeply, or an alias within itself") from None
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise ProfileError(f"{path}: half a character (\\u{half:04x}); write it whole") from None
    return content


def _size(value: Any, path: Path, known: dict[int, int]) -> int:
    """The number of values, with the aliases of YAML expanded.

    Args:
        known: the sizes found so far, by the id of a list or mapping.

    Raises:
        ProfileError: a value has a type that JSON does not have, as after an explicit tag of YAML.
    """
    if isinstance(value, dict | list):
        if id(value) not in known:
            parts = value.values() if isinstance(value, dict) else value
            known[id(value)] = 1 + sum(_size(part, path, known) for part in parts)
        return known[id(value)]
    if value is not None and not isinstance(value, str | int | float):
        raise ProfileError(f"{path}: a value of type {type(value).__name__} cannot be used here; leave out its tag")
    return 1


def _kind_of(value: Any) -> str:
    names = {list: "a list", str: "text", int: "a number", float: "a number", bool: "a truth value"}
    return names.get(type(value), "nothing")


def _parse_json(text: str, path: Path) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            repeated = next(key for i, (key, _) in enumerate(pairs) if key in {k for k, _ in pairs[:i]})
            raise ProfileError(f"{path}: key '{repeated}' is given twice; keep one")
        return mapping

    def constant(name: str) -> NoReturn:
        raise ProfileError(f"{path}: {name} is not a JSON number")

    def number(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            raise ProfileError(f"{path}: {digits} is too large for a number")
        return value

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=constant, parse_float=number)
    except json.JSONDecodeError as error:
        raise ProfileError(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ProfileError(f"{path}: nested too deeply") from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise ProfileError(f"{path}: {error}") from None


class _Yaml12(SafeLoader):
    """PyYAML's safe loader, with the scalars of the YAML 1.2 core schema. It refuses repeated keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key must be a name", problem_mark=key.start_mark)
            if key.value in seen:
                problem = f"key '{key.value}' is given twice; keep one"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
        return {str(key.value): self.construct_object(value, deep=True) for key, value in node.value}


def _integer(loader: SafeLoader, node: yaml.ScalarNode) -> int:
    text = node.value
    if re.fullmatch(r"[-+]?0[0-9]+", text):
        problem = f"{text}: an integer may not start with 0; quote it to mean text"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    return int(text, 0 if text[:2] in ("0x", "0o") else 10)


def _number(loader: SafeLoader, node: yaml.ScalarNode) -> float:
    value = float(node.value.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if not math.isfinite(value):
        raise yaml.MarkedYAMLError(problem=f"{node.value} is not a finite number", problem_mark=node.start_mark)
    return value


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
):
    _Yaml12.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)
_Yaml12.add_constructor("tag:yaml.org,2002:int", _integer)
_Yaml12.add_constructor("tag:yaml.org,2002:float", _number)
_Yaml12.add_constructor(
    "tag:yaml.org,2002:bool", lambda loader, node: {"true": True, "false": False}[node.value.lower()]
)


def parse_yaml(text: str, where: str) -> Any:
    """One YAML document with YAML 1.2 scalars: `1e-4` is a number; `off`, `no` and `12:30:45` are text.

    Args:
        where: the source of the text, for messages.

    Raises:
        ProfileError: the text is malformed, repeats a key, or has an integer with a leading zero; names the line.
    """
    try:
        return yaml.load(text, Loader=_Yaml12)  # noqa: S506 - a subclass of SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise ProfileError(f"{where}: {line}{error.problem or error}") from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:  # PyYAML raises these for an explicit tag
        raise ProfileError(f"{where}: a value does not fit its tag, or is out of range: {error}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ProfileError(f"{where}: {str(error).splitlines()[0] if str(error) else 'nested too deeply'}") from None
