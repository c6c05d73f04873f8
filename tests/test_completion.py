"""Tab completes names, without a heavy import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import in_process

from benchsuite import cli
from benchsuite.commands.completion import VARIABLE


@pytest.fixture(name="complete")
def complete_fixture(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """The words that bash is offered for the last word of a line."""

    def complete(line: str) -> list[str]:
        monkeypatch.setenv(VARIABLE, "bash_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        with pytest.raises(SystemExit):
            cli.main([])
        found = [word.partition(",") for word in capsys.readouterr().out.split()]
        return [name for kind, _, name in found if kind == "plain"]

    return complete


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("benchsuite sum", ["summary"]),
        ("benchsuite plan", ["plan-stages"]),
        ("benchsuite jobs st", ["standard"]),
        ("benchsuite jobs --resume st", []),
        ("benchsuite jobs smoke --name va", ["vae", "vae_bf16"]),
        ("benchsuite jobs smoke --exclude *", []),
        ("benchsuite run conv", ["convnet"]),
        ("benchsuite plot --kind th", ["throughput"]),
        ("benchsuite plot --kind compare --base h", ["h200", "h200x2"]),
        ("benchsuite report --compare v", ["v100"]),
        ("benchsuite report rtx", ["rtx8000"]),
        ("benchsuite prepare mn", ["mnist"]),
        ("benchsuite prepare --profile st", ["standard"]),
        ("benchsuite list mod", ["models"]),
    ],
)
def test_a_word_is_completed(complete: object, line: str, words: list[str]) -> None:
    assert complete(line) == words  # type: ignore[operator]


def test_without_a_profile_the_jobs_of_all_profiles_are_offered(complete: object) -> None:
    assert {"vae", "vae_bf16", "lookups"} <= set(complete("benchsuite jobs --name "))  # type: ignore[operator]


def test_a_profile_that_cannot_be_read_offers_nothing(complete: object) -> None:
    assert complete("benchsuite jobs nowhere --name v") == []  # type: ignore[operator]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_asks_benchsuite(shell: str, tmp_path: Path) -> None:
    script = in_process("completion", shell, cwd=tmp_path).stdout
    assert f"{VARIABLE}={shell}_complete" in script
    assert "benchsuite" in script


def test_completion_imports_nothing_heavy() -> None:
    code = (
        "import os, sys; from benchsuite.cli import main\n"
        f"os.environ.update({VARIABLE}='bash_complete', COMP_WORDS='benchsuite plot --kind ', COMP_CWORD='3')\n"
        "try: main([])\nexcept SystemExit: pass\n"
        "print('LOADED', [m for m in ('torch', 'matplotlib', 'pandas', 'numpy', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.endswith("LOADED []\n"), done.stderr


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("benchsuite status res", "file"),
        ("benchsuite rerun res", "file"),
        ("benchsuite report --html res", "file"),
        ("benchsuite jobs smoke -d res", "dir"),
        ("benchsuite report --traces res", "dir"),
    ],
)
def test_the_shell_is_asked_to_complete_a_path(
    line: str, kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit):
        cli.main([])
    assert capsys.readouterr().out == f"{kind},res\n"
