"""The commands that README.md and docs/ show are run, planned or parsed; links lead somewhere; examples are valid."""

from __future__ import annotations

import functools
import gzip
import os
import re
import shlex
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
import pytest
from conftest import Call, keep_run, make_gpu, make_result, make_run
from made_telemetry import make_device, make_telemetry
from support import benchsuite, in_process

from benchsuite import cli, files
from benchsuite.describe import jobs, profile
from benchsuite.describe.overrides import Overrides
from benchsuite.describe.plan import make_plan
from benchsuite.errors import BenchError
from benchsuite.records import Result
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.rate import alone
from benchsuite.schema import from_json, to_json

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("*/README.md")),
]
PAGES = list(dict.fromkeys(page for page in PAGES if "tests" not in page.parts))

# Commands that are not run here, by the beginning of the line, and why. They are parsed, and their names must exist.
ONLY_PARSED = {
    "bleu ": "decodes checkpoints with torch",
    "doctor ": "imports torch; tests/test_doctor.py runs it",
    "drive ": "needs the repository of PipeDream; tests/test_drive.py plans it",
    "health ": "runs probes, or judges runs of probes; tests/test_health.py judges some",
    "jobs --resume ": "trains for minutes; tests/test_resume.py does",
    "overhead ": "trains",
    "plan-stages gnmt ": "measures a model with torch",
    "plot --kind batch ": "needs a sweep; tests/test_plots.py draws one",
    "plot --kind speedup ": "needs models that share a GPU; tests/test_report_sharing.py draws some",
    "plot --kind telemetry ": "needs samples; tests/test_plots.py draws some",
    "plot out --kind partially_fused ": "needs arrays; tests/test_plots.py draws some",
    "plot out --kind speedup ": "needs models that share a GPU",
    "plot results/tbd --kind batch ": "needs a sweep",
    "prepare ": "generates or downloads data; tests/test_data_prepare.py does",
    "report results/pairs ": "needs a run on pairs of nodes; tests/test_pairs.py reports some",
    "report results/run --traces ": "needs a recording; tests/test_report_traces.py reads one",
    "report OUT ": "needs a training by epochs; tests/test_epochs.py reports one",
    "rerun ": "trains",
    "run ": "trains; the README's model is trained below",
    "share ": "trains",
    "stop ": "ends a run in progress; tests/test_stops.py does",
    "trace --read gpu-details.csv ": "needs a table of nvprof; tests/test_trace_read.py reads one",
    "trace convnet ": "trains",
    "trace translator ": "trains",
}
# Lines of other programs, by their first word, and why they are not run.
OTHER_PROGRAMS = {
    "scripts/": "may install, or run for minutes; the file must exist",
    "source": "of a virtual environment",
    "jq": "run if jq is there",
    "ncu": "Nsight Compute",
    "nvidia-smi": "needs root and a GPU",
    "srun": "needs Slurm",
    "exec": "a script of Slurm",
    "(cd": "sha256sum; tests/test_report_verify.py runs it",
    "docker": "needs an engine; a file of docker/ must exist",
    "apptainer": "needs an engine",
    "sudo": "needs root",
    "#!/bin/bash": "a script of Slurm",
    "#SBATCH": "a script of Slurm",
    "export": "a variable of a script",
    "WRITE_DATA=": "launch.sh, which needs an engine",
    "OPTIONS=": "launch.sh, which needs an engine",
}
_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`(benchsuite [^`]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_OUTPUTS = {"-o", "--output", "--html", "--md", "--csv", "--json", "--plot"}
_NAMES = {"$OUT": "results/mine", "$DATA": "data", "$HOSTNAME": "hostA", "$SLURM_JOB_ID": "7", "$SLURMD_NODENAME": "n1"}


@dataclass(frozen=True)
class Shown:
    """One line of a page's shell blocks."""

    page: str
    line: str

    def __str__(self) -> str:
        return f"{self.page}: {self.line}"


@functools.cache
def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each fenced block."""
    return _FENCE.findall(page.read_text(encoding="utf-8"))


def shown() -> Iterator[Shown]:
    for page in PAGES:
        for language, text in blocks(page):
            if language == "bash":
                for line in text.replace("\\\n", "").splitlines():
                    if line.strip() and not line.startswith("# "):
                        yield Shown(str(page.relative_to(ROOT)), line.strip())


def commands_of(line: str) -> list[list[str]]:
    """The command lines of benchsuite in a shell's line: its words, without redirections and what pipes lead to."""
    for name, value in _NAMES.items():
        line = line.replace(name, value)
    if within := re.search(r"\$\((benchsuite [^)]*)\)|bash -c '(benchsuite [^']*)'", line):
        return commands_of(within[1] or within[2])
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>")
    lexer.whitespace_split = True
    found: list[list[str]] = []
    words = list(lexer)
    while "benchsuite" in words:
        words = words[words.index("benchsuite") + 1 :]
        end = next((place for place, word in enumerate(words) if set(word) <= set("|>")), len(words))
        found.append(words[:end])
        words = words[end:]
    return found


COMMANDS = list(dict.fromkeys(tuple(words) for of in shown() for words in commands_of(of.line)))


def unrun(words: tuple[str, ...]) -> str | None:
    """The entry of ONLY_PARSED for a command that is not run; None if it is run."""
    line = f"{' '.join(words)} "
    if "--help" in words:
        return None
    for option in ("--slurm", "--join", "--hosts"):
        if option in words:
            return option
    return next((begin for begin in ONLY_PARSED if line.startswith(begin)), None)


# --- the place where commands run -------------------------------------------------------------------------------------


def keep_suite(folder: Path, day: int, host: str = "hostA", changes: tuple[str, ...] = ()) -> None:
    """A run of two jobs of `standard` on two GPUs with three repeats. A later day is a little faster."""
    chosen = profile.load("standard", only=("vae", "scaling"), overrides=Overrides.parse(changes))
    plan = make_plan("standard", chosen.jobs, [make_gpu(0), make_gpu(1)], environ={}, repeats=3)
    results = []
    for task in plan.tasks:
        use = make_telemetry(*(make_device(gpu.visible_index) for gpu in task.gpus))
        rate = (1000 + day + task.repeat) * task.ranks
        results.append(make_result(rates=[rate] * 30, task=task, telemetry=use, host=host))
    run = make_run(2, repeats=3, profile=chosen.used())
    machine = msgspec.structs.replace(run.machine, host=host)
    run = msgspec.structs.replace(run, machines=(machine,), created=f"2026-01-{day + 1:02}T16:00:00+00:00")
    keep_run(folder, results, run=run)


@pytest.fixture(autouse=True)
def usual_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BENCHSUITE_OUT", "BENCHSUITE_DATA", "BENCHSUITE_CARDS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(name="stage", scope="module")
def stage_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs, summaries and files that the pages name."""
    stage = tmp_path_factory.mktemp("stage")
    for day, name in enumerate(("a", "b", "c", "mon", "tue", "wed", "old", "other", "fp32", "new", "mine")):
        keep_suite(stage / "results" / name, day)
    keep_suite(stage / "results/bf16", 20, changes=("--precision", "bf16"))
    for node in ("n1", "n2", "n3"):
        keep_suite(stage / "results/fleet" / node, 1, node)
    (stage / "nodes.txt").write_text("n1\nn2\nn3\n")
    shutil.copytree(stage / "results/fleet", stage / "results/october")
    for name in ("health-hostA", "health-good", "out"):
        shutil.copytree(stage / "results/mine", stage / name)
    summary = in_process("summary", "results/other", cwd=stage).stdout
    for name in ("base", "mine", "good", "a"):
        (stage / f"{name}.json").write_text(summary)
    for name in ("r", "other", "RESULT"):
        (stage / f"{name}.json").write_bytes(to_json(alone(make_result(), make_run(1).machine)))
    (stage / "data").mkdir()
    (stage / "OUT/checkpoints").mkdir(parents=True)
    zipfile.ZipFile(stage / "OUT/checkpoints/gnmt.J0.a1.epoch4.stage0.pt", "w").close()
    traces = ROOT / "tests/data/traces"
    shutil.copy(traces / "kineto_amp.json.gz", stage / "trace.json.gz")
    (stage / "ncu.csv").write_bytes(gzip.decompress((traces / "ncu60_amp.csv.gz").read_bytes()))
    (stage / "graph.txt").write_text(chain(20))
    for name in ("llm.yaml", "profile.yaml"):
        (stage / name).write_text(example("docs/cluster.md", "yaml"))
    (stage / "gnmt.yaml").write_text(example("docs/training.md", "yaml"))
    (stage / "mypackage").mkdir()
    for name in ("mymodel.py", "mypackage/mymodel.py"):
        (stage / name).write_text(example("README.md", "python"))
    return stage


def chain(units: int) -> str:
    """The graph of a model without branches."""
    costs = "forward_compute_time=2.0, backward_compute_time=4.0, activation_size=8.0, parameter_size=16.0"
    lines = [f"node{number} -- Linear -- {costs}" for number in range(1, units + 1)]
    return "\n".join([*lines, *(f"\tnode{number} -- node{number + 1}" for number in range(1, units))])


def example(page: str, language: str) -> str:
    """The first block of a page in a language."""
    return next(text for found, text in blocks(ROOT / page) if found == language)


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", [pytest.param(of, id=str(of)[:90]) for of in dict.fromkeys(shown())])
def test_each_line_is_a_command_of_benchsuite_or_of_a_known_program(of: Shown) -> None:
    if commands_of(of.line):
        return
    known = [begin for begin in OTHER_PROGRAMS if of.line.startswith(begin) or f'"$({begin}' in of.line]
    assert known, f"{of}: add the program to OTHER_PROGRAMS, with the reason why it is not run"
    for file in re.findall(r"(?:scripts|docker)/[\w./-]+", of.line):
        assert (ROOT / file).is_file(), f"{of}: no such file"
        assert not of.line.startswith(file) or os.access(ROOT / file, os.X_OK), f"{of}: no program"


@pytest.mark.parametrize("words", [words for words in COMMANDS if not unrun(words)], ids=" ".join)
def test_a_shown_command_runs(words: tuple[str, ...], stage: Path, tmp_path: Path) -> None:
    done = in_process(*runnable(words, stage, tmp_path), cwd=stage)
    fine = {0, 3} if "--fail-on" in words else {0, 1} if "--strict" in words else {0}
    assert done.returncode in fine, done.stderr
    assert done.stdout or done.stderr


def runnable(words: tuple[str, ...], stage: Path, tmp_path: Path) -> list[str]:
    """The words with files of their own for what they write, globs expanded, and jobs as a dry run."""
    found: list[str] = []
    for before, word in zip(("", *words), words, strict=False):
        if before in _OUTPUTS and word != "-" and words[0] != "jobs":
            found.append(str(tmp_path / Path(word).name))
        else:
            runs = sorted(path for path in stage.glob(word) if (path / "run.json").is_file()) if "*" in word else []
            found += [str(path.relative_to(stage)) for path in runs] or [word]
    if words[0] == "jobs" and "--dry-run" not in words:
        found.insert(found.index("--") if "--" in found else len(found), "--dry-run")
    return found


@pytest.mark.parametrize("words", [words for words in COMMANDS if unrun(words)], ids=" ".join)
def test_a_command_that_is_not_run_is_parsed_and_its_names_exist(
    words: tuple[str, ...], stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stage)
    parse(words)


def parse(words: tuple[str, ...]) -> None:
    """Parse a command line, and look up the profile, the jobs, the model and the changes that it names."""
    name, *arguments = words
    command = cli.benchsuite.get_command(click.Context(cli.benchsuite), name)
    assert command, f"no command {name}"
    params = command.make_context(name, arguments).params
    changes = Overrides.parse(params.get("changes") or ())
    if name == "jobs" and params["profile"] and not params["resume"]:
        profile.load(params["profile"], only=params["only"], exclude=params["exclude"], overrides=changes)
    if (entry := params.get("entry") or params.get("model") or params.get("source")) and not params.get("read"):
        raw = {"entry" if ":" in entry else "model": entry, "placement": "per_gpu_or_cpu"}
        ways = {"sharing": "concurrent"} if name == "share" else {}
        jobs.resolve("shown", {**raw, **ways}, "shown", changes)


def test_blocks_of_commands_are_marked_as_bash() -> None:
    unmarked = [
        f"{page.name}: {line}"
        for page in PAGES
        for language, text in blocks(page)
        for line in text.splitlines()
        if language != "bash" and line.startswith("benchsuite ")
    ]
    assert unmarked == []


def test_the_list_of_commands_that_are_only_parsed_is_up_to_date() -> None:
    assert set(ONLY_PARSED) - {unrun(words) for words in COMMANDS} == set()
    named = {name for why in ONLY_PARSED.values() for name in re.findall(r"tests/\w+\.py", why)}
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize(
    "of", [pytest.param(of, id=of.line[:80]) for of in shown() if re.search(r"(^|\| )jq ", of.line)]
)
def test_what_jq_is_shown_to_read_is_there(of: Shown, stage: Path, tmp_path: Path) -> None:
    bash, jq = shutil.which("bash"), shutil.which("jq")
    if not (bash and jq):
        pytest.skip("bash or jq is not here")
    head, _, tail = of.line.partition("| jq") if "| jq" in of.line else ("", "", of.line.removeprefix("jq"))
    printed = in_process(*runnable(tuple(commands_of(head)[0]), stage, tmp_path), cwd=stage).stdout if head else ""
    done = subprocess.run([bash, "-c", f"jq -e {tail}"], cwd=stage, input=printed, capture_output=True, text=True)
    assert (done.returncode, bool(done.stdout.strip()), done.stderr) == (0, True, "")


def test_commands_within_a_sentence_are_parsed_and_their_names_exist(
    stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stage)
    wrong = {}
    for page in PAGES:
        for span in _SPAN.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
            for words in commands_of(span):
                if words == ["--version"] or any(word.isupper() or "..." in word for word in words):
                    continue  # OUT or PROFILE stand for what the reader names
                try:
                    parse(tuple(words))
                except (click.MissingParameter, click.BadOptionUsage):
                    pass  # `benchsuite report --compare` names a command without all of its words
                except (click.ClickException, BenchError) as error:
                    wrong[f"{page.name}: {span}"] = str(error)
                except click.exceptions.Exit:
                    pass  # --help
    assert wrong == {}


def test_the_page_of_systems_is_what_its_command_prints(call: Call) -> None:
    text = (ROOT / "docs/systems.md").read_text(encoding="utf-8")
    (words,) = (words for span in _SPAN.findall(text) for words in commands_of(span) if "--systems" in words)
    status, out, _ = call(*words)
    assert (status, text.partition("<!-- printed -->")[2].strip()) == (0, out.partition("\n")[2].strip())
    measured = {name for name, path in files.shipped("baselines").items() if summary_of(path).code}
    assert measured <= set(words), "every baseline that benchsuite has measured is on the page"


# --- examples and links -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_profiles_that_a_page_shows_are_valid(page: Path, stage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stage)
    for language, text in blocks(page):
        content = files.parse_yaml(text, page.name) if language == "yaml" else {}
        if any("model" in job or "entry" in job for job in content.values() if isinstance(job, dict)):
            assert profile.of_text(text, Path("mine.yaml")).jobs


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for target in _LINK.findall(text):
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if target.startswith(("https://", "http://")):
            continue
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(target)
    assert broken == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.torch
def test_the_model_of_the_readme_trains(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "mymodel.py").write_text(example("README.md", "python"), encoding="utf-8")
    short = ("--placement", "cpu", "--warm-up-s", "0", "--min-time-s", "5", "--intra-op-threads", "1")
    done = benchsuite("run", "mymodel:build", "-o", "r.json", "--", *short, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = from_json((tmp_path / "r.json").read_bytes(), Result)
    assert result.rate and result.rate.value and result.rate.unit == "sample"
