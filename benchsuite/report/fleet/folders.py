"""The folders of a fleet: `OUT/<node>/` for each node, and the names of the nodes that were to run."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchsuite.errors import ResultError, UsageError, one_line, reason
from benchsuite.files import look
from benchsuite.rundir import RunDir

# Lists of nodes in OUT: one name a line, or the record of `benchsuite jobs --slurm`, with the field `nodes`.
NODES_FILE, SUBMITTED = "nodes.txt", ".cluster/fleet.json"
# Folders in OUT that are no nodes. The last one holds the results of jobs over nodes.
ACROSS = "across-nodes"
_NO_NODES = frozenset({"logs", "telemetry", ACROSS})


@dataclass(frozen=True)
class FleetFolders:
    """The nodes of a fleet.

    Attributes:
        folders: node -> its folder, in the order of names.
        missing: nodes of the list that have no folder.
        unlisted: nodes that have a folder and are not in the list.
        listed_in: the file with the list of nodes; None without a list.
    """

    out: Path
    folders: dict[str, Path]
    missing: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    listed_in: Path | None = None


def find_fleet(out: Path, nodes_file: Path | None = None) -> FleetFolders | None:
    """The nodes in a folder; None if the folder is no fleet.

    A fleet is a folder without run.json. It holds run folders of several hosts, or a list of nodes is in it or given.

    Args:
        nodes_file: a list of the nodes that were to run; by default `OUT/nodes.txt` or `OUT/.cluster/fleet.json`.

    Raises:
        ResultError: the list cannot be read.
        UsageError: a list is given, and the folder is no fleet.
    """
    if look(out) != "folder" or (out / "run.json").exists():
        if nodes_file:
            raise UsageError(f"--nodes: {one_line(str(out))} is no folder with a results folder for each node")
        return None
    try:
        inner = [path for path in sorted(out.iterdir()) if _may_be_a_node(path)]
    except OSError as error:
        raise ResultError(f"{out}: cannot be read: {reason(error)}") from None
    listed_in = nodes_file or next((file for name in (NODES_FILE, SUBMITTED) if (file := out / name).is_file()), None)
    listed = _listed(listed_in) if listed_in else None
    if listed is not None and not inner and (out / ACROSS / "run.json").exists():
        return None  # all its jobs are over nodes
    if listed is None:
        runs = [path for path in inner if (path / "run.json").exists()]
        return FleetFolders(out, {path.name: path for path in inner}) if _several_hosts(runs) else None
    folders = {path.name: path for path in inner if path.name in listed or (path / "run.json").exists()}
    missing = tuple(name for name in listed if name not in folders)
    return FleetFolders(out, folders, missing, tuple(name for name in folders if name not in listed), listed_in)


def only_run(out: Path) -> Path:
    """The one run folder within a folder that has no run.json itself; else the folder."""
    if look(out) != "folder" or (out / "run.json").exists():
        return out
    runs = [path.parent for path in out.glob("*/run.json") if not path.parent.name.startswith(".")]
    alone = len(runs) == 1 and not any(out.glob("*.json"))
    return runs[0] if alone else out


def _may_be_a_node(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".") and path.name not in _NO_NODES


def _several_hosts(runs: list[Path]) -> bool:
    """Whether the runs are of two hosts or more; runs that cannot be read do not count."""
    first: str | None = None
    for path in runs:
        with contextlib.suppress(ResultError):
            host = RunDir(path).run().machine.host
            if first is not None and host != first:
                return True
            first = host
    return False


def _listed(file: Path) -> list[str]:
    """The names in a list of nodes, each once."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = reason(error) if isinstance(error, OSError) else "it is no text"
        raise ResultError(f"{file}: the list of nodes cannot be read: {why}") from None
    names = _submitted(file, text) if file.suffix == ".json" else _lines(text)
    ranges = [name for name in names if "[" in name]
    if ranges:
        shown = one_line(ranges[0])[:60]
        remedy = f'write one name a line, as scontrol show hostnames "{shown}" does'
        raise ResultError(f"{file}: '{shown}' is a range of names; {remedy}")
    if not names:
        raise ResultError(f"{file}: the list holds no node; write one name a line")
    return list(dict.fromkeys(names))


def _lines(text: str) -> list[str]:
    """The first word of each line; `#` starts a comment."""
    words = (line.partition("#")[0].split() for line in text.splitlines())
    return [line[0] for line in words if line]


def _submitted(file: Path, text: str) -> list[str]:
    """The names in the field `nodes` of a JSON object: names, or objects with a field `name`."""
    try:
        content: Any = json.loads(text)
    except ValueError:
        raise ResultError(f"{file}: the list of nodes is not valid JSON") from None
    nodes = content.get("nodes") if isinstance(content, dict) else content
    if isinstance(nodes, dict):
        nodes = list(nodes)
    found = [node.get("name") if isinstance(node, dict) else node for node in nodes or () if node]
    if not isinstance(nodes, list) or not all(isinstance(name, str) for name in found):
        raise ResultError(f"{file}: the field 'nodes' must be a list of names")
    return [str(name) for name in found]
