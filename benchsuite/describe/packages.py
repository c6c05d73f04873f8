"""The packages that models import."""

# Top-level module -> the argument of `pip install` that brings it. A job whose module is missing is skipped, and the
# message names this argument. Modules that pyproject.toml does not bring are not here: a module's name is not the name
# of its package.
EXTRAS = {
    "PIL": "benchsuite",
    "ale_py": "benchsuite[rl]",
    "google_crc32c": "benchsuite",
    "gymnasium": "benchsuite[rl]",
    "minigrid": "benchsuite[rl]",
    "numpy": "benchsuite",
    "torch": "benchsuite",
    "torchvision": "benchsuite",
}
