"""The rules that keep the layout readable, read from the imports with `ast`."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "benchsuite"
MODULES = {
    ".".join(("benchsuite", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
    if "share" not in path.parts
}

# What both sides stand on.
GROUND = {
    "describe",
    "schema",
    "upgrade",
    "provisions",
    "records",
    "searches",
    "default_out",
    "measurement",
    "costs",
    "bleu_scores",
    "telemetry",
    "events",
    "rundir",
    "manifest",
    "writing",
    "findings",
    "files",
    "tfrecord",
    "errors",
}
READ_SIDE = {"report"}
CHILD_SIDE = {"worker", "models", "arrays"}
FRONT_DOOR = {"cli", "__main__", "commands"}

# Each heavy package comes in by its own door.
DOORS = {
    "click": {"cli", "commands"},
    "yaml": {"files"},
    "pynvml": {"host.nvml"},
    "psutil": {"host", "launch", "isolation"},
    "torch": {"worker", "models", "arrays"},
    "torchvision": {"worker", "models"},
    "gymnasium": {"models"},
    "ale_py": {"models"},
    "minigrid": {"models"},
    "soundfile": {"models"},
    "pandas": {"report.stats.frame", "report.show.export"},
    "matplotlib": {"report", "trace", "commands._picture"},
    "jinja2": {"report"},
    "scipy": {"report", "health.deviation"},
    "numpy": {"report", "health.deviation", "worker", "models", "data", "trace", "pipeline.cuts", "pipeline.partition"},
    "PIL": {"data", "worker", "models"},
    "rich": {"report", "commands", "launch.progress"},
}


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All statements and clauses, inner ones too. No expression is visited: there are ten times as many."""
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, field, ()))


@functools.cache
def read(path: Path) -> tuple[frozenset[str], frozenset[str], int]:
    """The full names that a module imports, those at its top, and the number of its broad excepts."""
    tree = ast.parse(path.read_bytes())
    found = tuple(statements(tree.body))
    return imported(found), imported(tree.body), sum(isinstance(n, ast.ExceptHandler) and broad(n) for n in found)


def broad(handler: ast.ExceptHandler) -> bool:
    names = (
        {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else {"Exception"}
    )
    return bool(names & {"Exception", "BaseException"})


def imported(nodes: Iterable[ast.AST]) -> frozenset[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return frozenset(found)


def imports(path: Path) -> frozenset[str]:
    """The full names that a module imports, anywhere."""
    return read(path)[0]


def rooms(names: frozenset[str]) -> set[str]:
    """The rooms of benchsuite that are imported: "benchsuite.report.read.load" is in room "report"."""
    return {name.split(".")[1] for name in names if name.startswith("benchsuite.") and name != "benchsuite.__version__"}


def forbidden(room: str, used: set[str]) -> set[str]:
    """The rooms among those used that a room must not know."""
    if room == "describe":
        return used - GROUND - {"data", "pipeline"}  # a job's data set is one that its model reads; a plan has stages
    if room in GROUND or room in READ_SIDE:
        return used - GROUND
    if room in ("trace", "health"):
        return used - GROUND - READ_SIDE
    if room in CHILD_SIDE:
        return used - GROUND - CHILD_SIDE - {"pipeline"}  # whose arithmetic cuts a chain
    if room == "pipeline":
        return used - {"schema", "files", "errors"}  # a plan of stages is arithmetic on files
    return set() if room in FRONT_DOOR else used & (READ_SIDE | CHILD_SIDE | FRONT_DOOR)


def test_run_side_and_read_side_share_the_ground_only() -> None:
    found = {}
    for module, path in MODULES.items():
        room = module.split(".")[1] if "." in module else ""
        found[module] = forbidden(room, rooms(imports(path)) - {room})
    assert {module: rooms for module, rooms in found.items() if rooms} == {}


# From slices to words: a package of the report imports those before it, never those behind it.
REPORT = ("measure", "read", "stats", "fleet", "show", "verify")


def test_the_report_is_built_in_layers() -> None:
    found = []
    for module, path in MODULES.items():
        _, _, layer, *_ = (*module.split("."), "", "")
        if module.startswith("benchsuite.report.") and layer in REPORT:
            behind = REPORT[REPORT.index(layer) + 1 :]
            used = {name.split(".")[2] for name in imports(path) if name.startswith("benchsuite.report.")}
            found += [f"{module} imports {other}" for other in sorted(used & set(behind))]
    assert found == []


@pytest.mark.parametrize(
    "module", [module for module in MODULES if module.split(".")[1:2] in (["host"], ["isolation"])]
)
def test_what_tasks_are_launched_with_knows_nothing_of_launching(module: str) -> None:
    assert rooms(imports(MODULES[module])) <= GROUND | {"host"} | ({"isolation"} if ".isolation" in module else set())


def test_heavy_packages_come_in_by_their_doors() -> None:
    found = []
    for module, path in MODULES.items():
        place = module.removeprefix("benchsuite").lstrip(".")
        for package in {name.split(".")[0] for name in imports(path)} & set(DOORS):
            if not any(place == door or place.startswith(door + ".") for door in DOORS[package]):
                found.append(f"{module} imports {package}")
    assert found == []


def test_there_is_no_import_ring() -> None:
    graph = {
        module: {name for name in read(path)[1] if name in MODULES and name != module}
        for module, path in MODULES.items()
    }
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in done:
            for other in graph[module] - {"benchsuite"}:
                visit(other, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_a_module_fits_in_one_reading() -> None:
    lines = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in MODULES.items()}
    assert {module: count for module, count in lines.items() if count > 300} == {}


def test_broad_excepts_are_where_they_may_be() -> None:
    found = {module: read(path)[2] for module, path in MODULES.items()}
    assert {module: count for module, count in found.items() if count} == {"benchsuite.worker.__main__": 1}


VAGUE = {"utils", "util", "common", "base", "manager", "helpers", "helper", "misc", "core", "stuff", "tools", "shared"}
ENDINGS = ("", "s", "es", "d", "ed", "r", "er", "ing", "ion", "e")


def rooms_of(package: Path) -> list[str]:
    """The names of a package's modules and packages, in order."""
    inner = (path for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())
    return sorted({path.stem for path in inner if not path.stem.startswith("__")})


def a_letter_apart(one: str, other: str) -> bool:
    """Whether a letter added, taken away or replaced makes one name the other."""
    short, long = sorted((one, other), key=len)
    if len(short) == len(long):
        return sum(a != b for a, b in zip(short, long, strict=True)) == 1
    return any(long[:place] + long[place + 1 :] == short for place in range(len(long)))


def differ_by_an_ending(one: str, other: str) -> bool:
    """Whether both names are one stem of three letters or more with two endings: prepare and prepared."""
    stems = ({name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)} for name in (one, other))
    return any(len(stem) > 2 for stem in set.intersection(*stems))


def test_no_room_has_a_name_that_says_nothing() -> None:
    assert [module for module in MODULES if VAGUE & set(module.rpartition(".")[2].split("_"))] == []


@pytest.mark.parametrize("package", sorted({path.parent for path in MODULES.values()}), ids=lambda path: path.name)
def test_rooms_of_one_package_have_distinct_names(package: Path) -> None:
    pairs = set(combinations(rooms_of(package), 2))
    assert not [pair for pair in pairs if a_letter_apart(*pair) or differ_by_an_ending(*pair)]


def test_the_rule_for_names_finds_what_it_forbids() -> None:
    for one, other in (("tenant", "tenants"), ("prepare", "prepared"), ("fence", "fencing")):
        assert differ_by_an_ending(one, other)
    for one, other in (("load", "loads"), ("step", "stop"), ("fence", "fences")):
        assert a_letter_apart(one, other)
    for one, other in (("plan", "profile"), ("run", "rate")):
        assert not differ_by_an_ending(one, other) and not a_letter_apart(one, other)
