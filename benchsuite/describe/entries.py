"""What a model's file declares (parameters, title, imports), read from its source without importing it.

A profile is thus checked completely, with the types of its models, before anything starts and without importing torch.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from benchsuite.describe.packages import EXTRAS
from benchsuite.errors import ModelError, nearest
from benchsuite.files import look

_MODELS = Path(__file__).resolve().parents[1] / "models"
# The value `auto` of this parameter stands for the largest batch that fits.
BATCH_SIZE, AUTO = "batch_size", "auto"
Positive = Annotated[int, msgspec.Meta(gt=0)]
_NAMES = {
    "int": int,
    "Positive": Positive,
    "float": float,
    "str": str,
    "bool": bool,
    "tuple": tuple,
    "Literal": Literal,
    "None": None,
}


@dataclass(frozen=True)
class Parameter:
    """A field of a model's `Params`.

    Attributes:
        fusible: models of one fused array may differ in it.
    """

    type: Any
    default: Any
    fusible: bool = False

    @property
    def takes_each(self) -> bool:
        """Is a list no value of its type, so that it can stand for a value for each model of an array?"""
        return "tuple" not in _words(self.type)

    @property
    def words(self) -> str:
        """The type as a help text shows it."""
        return _words(self.type)


def _words(kind: Any) -> str:
    if kind == Positive:
        return "int over 0"
    if get_origin(kind) is Literal:
        return " or ".join(str(choice) for choice in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_words(one) for one in get_args(kind))
    if kind is type(None):
        return "null"
    return kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")


@dataclass(frozen=True)
class Declared:
    """A model as its source declares it.

    Attributes:
        name: the model's name, or `module:function`.
        path: its file.
        sha256: the hash of that file.
        doc: the module's docstring.
        modules: the top-level modules that it imports.
        reads: the kinds of data set that it can read, from its constant READS.
        parallel: several ranks can train it, from its constant PARALLEL.
        varies: its batches differ in their number of samples, from its constant VARIES.
        not_fused: why its copies cannot be a fused array, from its constant NOT_FUSED; empty if they can.
    """

    name: str
    path: Path
    doc: str
    parameters: dict[str, Parameter]
    modules: tuple[str, ...]
    reads: tuple[str, ...] = ()
    parallel: bool = True
    varies: bool = False
    sha256: str = ""
    not_fused: str = ""

    @property
    def title(self) -> str:
        """The first line of the docstring."""
        return self.doc.strip().splitlines()[0] if self.doc.strip() else ""

    def missing(self) -> list[str]:
        """The arguments of `pip install` that bring the imported modules which are missing here."""
        return sorted({EXTRAS[m] for m in self.modules if m in EXTRAS and not _found(m)})


@cache  # asked for each task of a plan
def _found(module: str) -> bool:
    return module in sys.modules or importlib.util.find_spec(module) is not None


@cache
def names() -> tuple[str, ...]:
    """The names of all shipped models: those of their files. The folder is read once."""
    return tuple(sorted(p.stem for p in _MODELS.glob("*.py") if p.stem != "__init__"))


def declared(model: str | None, entry: str | None) -> Declared:
    """What a model declares.

    Args:
        model: the name of a shipped model, or None.
        entry: `module:function` of a model of the user's own; read if `model` is None.

    Raises:
        ModelError: no such model, module or function exists, or its `Params` cannot be read.
    """
    if model is not None:
        if model not in names():
            raise ModelError(f"no model '{model}'{nearest(model, names())}")
        return read(_MODELS / f"{model}.py", model, "build")
    assert entry is not None
    module, colon, function = entry.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module.split("."), function]):
        raise ModelError(f"entry '{entry}' is not of the form module:function")
    return read(_source(module, entry), entry, function)


def _source(module: str, entry: str) -> Path:
    """The file of a module. The current folder comes first, as in the worker."""
    first, *rest = module.split(".")
    places = [Path.cwd() / first]
    spec = importlib.util.find_spec(first)  # for a top-level name, this imports nothing
    if spec and spec.submodule_search_locations:
        places += [Path(place) for place in spec.submodule_search_locations]
    elif spec and spec.origin and spec.origin.endswith(".py"):
        places.append(Path(spec.origin).with_suffix(""))
    for place in places:
        path = place.joinpath(*rest)
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if look(file) == "file":
                return file
    raise ModelError(f"entry '{entry}': no Python module '{module}' in the current folder or on PYTHONPATH")


@cache
def read(path: Path, name: str, function: str) -> Declared:
    """Read a model's file.

    Args:
        name: the model's name, for messages.
        function: the function that builds the model.

    Raises:
        ModelError: the file is not valid Python, lacks the function, or has no `Params` that can be read.
    """
    try:
        source = path.read_bytes()
        tree = ast.parse(source, str(path))  # bytes: Python heeds a byte order mark and the declared encoding
    except (OSError, SyntaxError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from None
    if not any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body):
        raise ModelError(f"{path}: no function '{function}'")
    params = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Params"), None)
    if params is None:
        raise ModelError(f"{path}: no class Params; a model declares its parameters there")
    fields = [n for n in params.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    parameters = {n.target.id: _parameter(n, path) for n in fields if isinstance(n.target, ast.Name)}
    return Declared(
        name=name,
        path=path,
        sha256=hashlib.sha256(source).hexdigest(),
        doc=ast.get_docstring(tree) or "",
        parameters=parameters,
        modules=_imports(tree),
        reads=_constant(tree, path, "READS", tuple[str, ...], (), "a literal tuple of names"),
        parallel=_constant(tree, path, "PARALLEL", bool, True, "True or False"),
        varies=_constant(tree, path, "VARIES", bool, False, "True or False"),
        not_fused=_constant(tree, path, "NOT_FUSED", str, "", "a literal text"),
    )


def _constant(tree: ast.Module, path: Path, name: str, kind: Any, default: Any, what: str) -> Any:
    """The value of a module's constant.

    Args:
        kind: its type.
        default: the value if the module does not set it.
        what: what it must be, for messages.
    """
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            try:
                return msgspec.convert(ast.literal_eval(node.value), kind)
            except ValueError:  # msgspec.ValidationError is a ValueError
                raise ModelError(f"{path}: line {node.lineno}: {name} must be {what}") from None
    return default


def _imports(tree: ast.Module) -> tuple[str, ...]:
    found: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            found += [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append(node.module.split(".")[0])
    return tuple(dict.fromkeys(found))


def _parameter(node: ast.AnnAssign, path: Path) -> Parameter:
    assert isinstance(node.target, ast.Name)
    value, fusible = node.value, False
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "fusible" and value.args:
        value, fusible = value.args[0], True
    try:
        if value is None:
            raise ValueError
        return Parameter(_type(node.annotation), ast.literal_eval(value), fusible)
    except (ValueError, KeyError, TypeError):
        remedy = "give a literal default and a type of int, Positive, float, str, bool, None, tuple or Literal"
        raise ModelError(f"{path}: line {node.lineno}: parameter '{node.target.id}' cannot be read; {remedy}") from None


def _type(node: ast.expr) -> Any:
    """The type that an annotation names.

    Raises:
        KeyError: it is not one of the allowed types.
    """
    if isinstance(node, ast.Name):
        return _NAMES[node.id]
    if isinstance(node, ast.Constant):
        return _type(ast.parse(node.value, mode="eval").body) if isinstance(node.value, str) else node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _type(node.left) | _type(node.right)
    if isinstance(node, ast.Subscript):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        origin = _type(node.value)
        if origin is Literal:
            return Literal[tuple(ast.literal_eval(e) for e in inner)]
        return origin[tuple(_type(e) for e in inner)]
    raise KeyError(ast.dump(node))


def complete(model: Declared, given: dict[str, Any]) -> dict[str, Any]:
    """Every parameter of a model with its value. A null means "not given", unless the parameter's type allows null.

    Args:
        given: the parameters that a profile or a command line sets.

    Raises:
        ModelError: a parameter is unknown, or its value has the wrong type.
    """
    for name in given:
        if name not in model.parameters:
            raise ModelError(f"model '{model.name}' has no parameter '{name}'{nearest(name, model.parameters)}")
    return {name: _checked(model, name, p, given.get(name, p.default)) for name, p in model.parameters.items()}


def _checked(model: Declared, name: str, parameter: Parameter, value: Any) -> Any:
    if name == BATCH_SIZE and value == AUTO:
        return value
    if isinstance(value, list) and parameter.takes_each:
        if not parameter.fusible:
            fusible = ", ".join(key for key, one in model.parameters.items() if one.fusible) or "none"
            of_each = f"only fusible ones have a value for each model of an array ({fusible})"
            raise ModelError(f"parameter '{name}' of model '{model.name}' has one value, found {value!r}; {of_each}")
        return [_checked(model, name, replace(parameter, fusible=False), one) for one in value]
    try:
        return plain(msgspec.convert(value, parameter.type))
    except msgspec.ValidationError as error:
        if value is None:
            return plain(parameter.default)
        reason = str(error).partition(" - at ")[0].replace("`", "").lower()
        raise ModelError(f"parameter '{name}' of model '{model.name}': {reason}, found {value!r}") from None


def plain(value: Any) -> Any:
    """A value as JSON returns it: tuples become lists."""
    return msgspec.json.decode(msgspec.json.encode(value))
