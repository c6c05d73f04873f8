"""Print the packages that pyproject.toml asks for, one a line, with those of the extras that are named."""

import sys
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

file, *extras = sys.argv[1:]
project = tomllib.loads(Path(file).read_text(encoding="utf-8"))["project"]
optional = project["optional-dependencies"]
for extra in extras:
    if extra not in optional:
        sys.exit(f"{file} has no extra '{extra}'; it has {', '.join(optional)}")
print(*project["dependencies"], *(package for extra in extras for package in optional[extra]), sep="\n")
