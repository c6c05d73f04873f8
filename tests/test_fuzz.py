"""Whatever a file, an answer or a command line holds: an error of ours or a value; nothing runs and nothing is lost.

The examples are the same at each run. `FUZZ=1000 pytest tests/test_fuzz.py` draws that many new ones for each test.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import make_result
from fake_nvml import card, play
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchsuite import cli
from benchsuite.describe import profile
from benchsuite.describe.overrides import Overrides
from benchsuite.doctor import gpus as doctor
from benchsuite.errors import BenchError
from benchsuite.host import cgroups, counters, cpus, machine, mounts, nvml, own_groups, steal
from benchsuite.host.visible import visible
from benchsuite.launch.outcome import classify
from benchsuite.launch.supervise import Exit
from benchsuite.launch.worker_events import EventFiles
from benchsuite.report.read.load import load
from benchsuite.report.read.summary_file import read_summary
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.stats.weights import read_weights, weigh, weights_for
from benchsuite.rundir import results, write_result
from benchsuite.schema import to_json

ROOT = Path(__file__).resolve().parents[1]
DRAWN = int(os.environ.get("FUZZ", "0"))
fuzz = settings(
    max_examples=DRAWN or 25,
    derandomize=not DRAWN,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

# --- what is drawn ----------------------------------------------------------------------------------------------------

ODD_TEXTS = st.sampled_from(
    [
        *(
            "",
            " ",
            "\0",
            "-1",
            "1e999",
            "nan",
            "null",
            "~",
            "0x1f",
            "1_000",
            "\ufeff",
            "\u2028",
            "../../etc/passwd",
            "$(touch ran)",
        ),
        *("!!python/object/apply:os.system ['touch ran']", "&a [*a, *a]", "a: {b: ", "[" * 200, "{" * 200, "9" * 5000),
    ]
)
TEXTS = st.text(max_size=12) | ODD_TEXTS
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, -1, 2**63, -(2**63), 10**400, 1e308, float("inf")])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
Draw = Callable[[st.SearchStrategy[Any]], Any]


def places(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Each place in a document below its top, as the keys that lead to it."""
    below = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in below:
        yield (*at, key)
        yield from places(value, (*at, key))


@st.composite
def changed(draw: Draw, document: Any) -> bytes:
    """A document of JSON in which up to three values are replaced, removed or renamed, or some bytes are."""
    content = copy.deepcopy(document)
    for _ in range(draw(st.integers(0, 3))):
        found = list(places(content))
        *path, last = found[draw(st.integers(0, len(found) - 1))]
        around = content
        for key in path:
            around = around[key]
        how = draw(st.integers(0, 4))
        if how == 0 and isinstance(around, dict):
            around[draw(TEXTS)] = around.pop(last)
        elif how == 1:
            del around[last]
        else:
            around[last] = draw(VALUES)
        if not isinstance(content, dict) or not content:
            break
    text = json.dumps(content, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")
    if draw(st.integers(0, 3)) == 0:
        start = draw(st.integers(0, len(text)))
        text = text[:start] + draw(st.binary(max_size=6)) + text[start + draw(st.integers(0, 6)) :]
    return text


@pytest.fixture(name="folder", scope="module")
def folder_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def one_line(error: BaseException) -> None:
    assert "\n" not in str(error)
    assert str(error).strip()


def refused_or(read: Callable[[], Any]) -> Any:
    """What `read` returns; None if it refuses in one line."""
    try:
        return read()
    except BenchError as error:
        one_line(error)
        return None


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


# --- files that a user edits ------------------------------------------------------------------------------------------

PROFILE = {
    "*": {"placement": "per_gpu_or_cpu", "min_time_s": 3},
    "a": {"model": "vae", "params": {"batch_size": 8, "lr": 0.1}, "matrix": {"batch_size": [1, 2]}, "tags": ["x"]},
    "b": {"model": "dcgan", "precision": "bf16", "env": {"A": "1"}, "prepare": [["true"]], "loss_band": [0, 1]},
}


@fuzz
@given(changed(PROFILE) | TEXTS.map(lambda text: text.encode(errors="surrogatepass")) | st.binary(max_size=60))
def test_a_profile_is_read_or_refused(folder: Path, content: bytes) -> None:
    for name in ("p.json", "p.yaml"):
        path = written(folder, name, content)
        found = refused_or(lambda path=path: profile.load(str(path)))
        if found is not None:
            refused_or(lambda path=path, found=found: profile.of_text(path.read_text(encoding="utf-8-sig"), path))
            assert all(job.name for job in found.jobs)
    assert not Path("ran").exists()


@fuzz
@given(changed({"a": 1.5, "b": 0, "c": 2}) | st.binary(max_size=40))
def test_weights_are_read_or_refused(folder: Path, content: bytes) -> None:
    found = refused_or(lambda: read_weights(written(folder, "w.json", content)))
    assert found is None or all(0 <= weight < float("inf") for weight in found.values())


@fuzz
@given(
    st.lists(
        TEXTS | st.sampled_from(["--lr", "--params", "--min-time-s=", "--", "--no-compile", "--batch-size"]), max_size=6
    )
)
def test_changes_are_read_or_refused(words: list[str]) -> None:
    changes = refused_or(lambda: Overrides.parse(words))
    if changes is not None:
        refused_or(lambda: profile.single("vae", None, changes))


# --- records ----------------------------------------------------------------------------------------------------------

RESULT = json.loads(to_json(make_result(rates=[100.0, 101.0, 99.0])))
SUMMARY = json.loads((ROOT / "baselines/v100.json").read_text(encoding="utf-8"))
SUMMARY["jobs"] = SUMMARY["jobs"][:2]


@fuzz
@given(changed(RESULT))
def test_a_damaged_result_is_named_and_costs_no_other(folder: Path, content: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        good = make_result(rates=[100.0], repeat=7)
        write_result(place, good, datetime(2026, 1, 2, tzinfo=timezone.utc))
        written(place, "suite.vae.J0.0.20260101-000000-000000.json", content)
        found = dict(results(place))
        assert good in found.values()
        loaded = refused_or(lambda: load(place))
        if loaded is not None:
            assert 7 in {row.task.repeat for row in loaded.rows}
            to_json(summarise(loaded))


@fuzz
@given(changed(SUMMARY))
def test_a_summary_is_read_and_weighed_or_refused(folder: Path, content: bytes) -> None:
    summary = refused_or(lambda: read_summary(written(folder, "s.json", content)))
    if summary is not None:
        weigh(weights_for(summary.profile), summary)
        to_json(summary)


EVENTS = [
    {"event": "slice", "n": 1, "origin_s": 1.0, "slice": [0.0, 0.5, 3, 9, "measure"], "loss": 0.1, "last": True},
    {"event": "error", "n": 2, "at_s": 3.0, "kind": "ValueError", "message": "m", "traceback": ""},
    {"event": "exit", "n": 0, "at_s": 2.0, "rank": 1, "code": 0},
    {"event": "end", "n": 2, "at_s": 2.0, "stopped_by": "count", "peak_memory": {}},
]


@fuzz
@given(st.lists(st.sampled_from(EVENTS).flatmap(changed) | st.binary(max_size=40), max_size=5), st.sampled_from([1, 2]))
def test_whatever_a_child_writes_its_task_gets_a_status(folder: Path, lines: list[bytes], ranks: int) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        files = EventFiles(Path(name, "e.events.jsonl"), ranks)
        for path in ("e.events.jsonl", "e.events.0.jsonl", "e.events.1.jsonl"):
            written(Path(name), path, b"\n".join([*lines, b""]))
        files.read()
        files.behind()
        status, failure = classify(files.seen, Exit(1), 60.0, "last words")
        assert (status == "ok") == (failure is None)


# --- the machine ------------------------------------------------------------------------------------------------------

ANSWERS = (
    NUMBERS.filter(lambda number: abs(number) < 1e300 if isinstance(number, float) else True)
    | TEXTS
    | st.none()
    | st.lists(st.integers(-1, 300), max_size=4)
    | st.integers(0, 999).map(lambda code: {"error": code})
    | st.binary(max_size=6).map(lambda found: {"bytes": found.hex()})
)
CALLS = (
    *("nvmlInit", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"),
    *("nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetPciInfo", "nvmlDeviceGetMemoryInfo"),
    *("nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetEnforcedPowerLimit"),
    *("nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetEccMode", "nvmlDeviceGetRemappedRows"),
    *("nvmlDeviceGetPowerManagementDefaultLimit", "nvmlDeviceGetComputeRunningProcesses"),
)


@fuzz
@given(st.dictionaries(st.sampled_from(CALLS), ANSWERS, max_size=4), st.lists(TEXTS | st.sampled_from(["0", "GPU-1"])))
def test_whatever_nvml_answers_the_machine_is_described(faults: dict[str, Any], entries: list[str]) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": ",".join(entries)} if entries else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvml, "LIMIT_S", 2.0)
        play(patch, card(0), card(1), faults=faults)
        here = machine.describe(environ)
        used, _ = visible(here.gpus, environ)
        to_json(list(doctor.findings(here, used, set())))
    to_json(here)


KERNEL = {
    "proc/self/cgroup": "0::/a\n4:cpu,cpuacct:/b\n3:memory:/b\n2:cpuset:/\n",
    "proc/self/mountinfo": (
        "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 23 0:27 / /v1 rw - cgroup cgroup rw,memory\n"
    ),
    "proc/meminfo": "MemTotal:  1024 kB\nMemAvailable: 512 kB\n",
    "proc/stat": "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n",
    "sys/fs/cgroup/a/cgroup.controllers": "cpuset cpu memory",
    "sys/fs/cgroup/a/cpuset.cpus.effective": "0-3,8",
    "sys/fs/cgroup/a/cpu.max": "150000 100000",
    "sys/fs/cgroup/a/cpu.stat": "usage_usec 5\nthrottled_usec 7\n",
    "sys/fs/cgroup/a/memory.max": "1048576",
    "sys/fs/cgroup/a/memory.current": "4096",
    "sys/fs/cgroup/a/memory.stat": "inactive_file 5\nslab_unreclaimable 7\n",
    "sys/fs/cgroup/a/memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n",
    "v1/b/memory.limit_in_bytes": "9223372036854771712",
}


@st.composite
def kernel(draw: Draw) -> dict[str, bytes]:
    """The files of a machine, of which some are missing, cut, or hold something else."""
    files = {name: text.encode() for name, text in KERNEL.items()}
    for name in draw(st.lists(st.sampled_from(list(KERNEL)), max_size=5)):
        words = files.get(name, b"").split(b" ")
        place = draw(st.integers(0, len(words)))
        word = draw(TEXTS.map(lambda text: text.encode(errors="surrogatepass")) | st.binary(max_size=8))
        files[name] = b" ".join([*words[:place], word, *words[place + draw(st.integers(0, 2)) :]])
        if draw(st.integers(0, 4)) == 0:
            del files[name]
    return files


@fuzz
@given(kernel())
def test_whatever_the_kernels_files_hold_limits_are_known_or_unknown(folder: Path, files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        root = Path(name)
        for path, content in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        found = own_groups.look(root)
        to_json(list(found.unknown))
        mounts.mounted(root)
        assert all(cpu >= 0 for cpu in cpus.usable_cpus(root, {0, 1}))
        assert cpus.usable_count(root, {0, 1}) >= 1
        cpus.memory(root)
        steal.processor_times(root)
        group = cgroups.Cgroup(found.places)
        to_json(msgspec.to_builtins(counters.count(group)))
        counters.memory_in_use_bytes(group)
        counters.throttled_s(found.places)


# --- command lines ----------------------------------------------------------------------------------------------------

# No word leads out of the working folder: a report may be written there.
WORDS = TEXTS.filter(lambda text: not {"\0", "/"} & {*text}) | st.sampled_from(
    [
        *("--name", "--exclude", "--", "--repeat", "-o", "out", "--resume", "smoke", "standard", "--isolation", "none"),
        *(
            "--compare",
            "h200",
            "v100",
            "--weights",
            "--full",
            "--json",
            "--help",
            "-d",
            ".",
            "/dev/null",
            "--batch-size",
        ),
    ]
)
COMMANDS = (["jobs", "--dry-run"], ["report"], ["verify"], ["list"], ["summary"], ["stop"])


@settings(fuzz, max_examples=DRAWN or 20)
@given(st.sampled_from(COMMANDS), st.lists(WORDS, max_size=4))
def test_whatever_the_command_line_it_ends_with_a_status_and_without_a_traceback(
    folder: Path, command: list[str], words: list[str]
) -> None:
    out, err = io.StringIO(), io.StringIO()
    before = Path.cwd()
    with tempfile.TemporaryDirectory(dir=folder) as name, contextlib.redirect_stdout(out):
        os.chdir(name)
        try:
            with contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
                cli.main([*command, *words])
        finally:
            os.chdir(before)
    assert ended.value.code in (None, 0, 1, 2), err.getvalue()
    assert "Traceback" not in err.getvalue()
