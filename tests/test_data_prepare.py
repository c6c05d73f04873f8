"""`benchsuite prepare` as a user has it: killed half way, cut by hand, called twice at once, on a full disk."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import random
import shutil
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from file_server import Files, serving
from support import benchsuite, environ, one_line_error, start

from benchsuite.data import DataError, descriptor, store

TEXT = random.Random(2).randbytes(400_000)
SETTINGS = {"points": 10, "period": 20}


@pytest.fixture(name="files")
def files_fixture() -> Iterator[Files]:
    with serving() as files:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("sub/waves.npy", TEXT)
            archive.writestr("other.txt", "x")
        files.content["a.zip"] = packed.getvalue()
        yield files


def describe(folder: Path, url: str, **fields: object) -> Path:
    """A descriptor of a data set called `tiny`, with one source."""
    path = folder / "tiny.yaml"
    about = {
        "schema": 1,
        "version": "1",
        "title": "waves",
        "item": "sequence",
        "licence": "none",
        "expected_bytes": {"real": 400_000, "small": 1000, "full": 2000},
        "sources": [{"url": f"{url}/a.zip", "unpack": "zip"}],
        "reader": "series",
        "layout": {"waves": "sub/waves.npy"},
        "generator": {
            "writer": "series",
            "common": SETTINGS,
            "small": {"waves": 2},
            "full": {"waves": 4},
        },
    }
    path.write_text(yaml.safe_dump({**about, **fields}))
    return path


def prepare(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return benchsuite("prepare", *arguments, "-d", "data", cwd=cwd, env=environ(no_proxy="127.0.0.1"))


def begin(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    pipe, env = subprocess.PIPE, environ(no_proxy="127.0.0.1")
    return start("prepare", *arguments, "-d", "data", cwd=cwd, env=env, stdout=pipe, stderr=pipe, encoding="utf-8")


def until(true: Callable[[], object], limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def whole(folder: Path) -> bool:
    return (folder / "data/tiny/sub/waves.npy").read_bytes() == TEXT


def test_a_download_is_ready_recorded_and_left_alone(files: Files, tmp_path: Path) -> None:
    path = str(describe(tmp_path, files.url))
    done = prepare(path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tiny: ready: real, 2 files, 390.6 KiB, sha256 ")
    assert whole(tmp_path)
    assert [p.name for p in (tmp_path / "data/.prepare").iterdir()] == ["tiny.lock"]
    marker = json.loads((tmp_path / "data/tiny" / store.MARKER).read_text())
    assert marker["sources"][0]["size_bytes"] == len(files.content["a.zip"])
    found = store.find(tmp_path / "data", path, every_byte=True)
    assert (found.real, found.size, found.sha256) == (True, None, marker["manifest_sha256"])
    assert found.size_bytes == len(TEXT) + 1
    used = store.used(found)
    assert (used.name, used.real, used.version, used.sha256) == ("tiny", True, "1", found.sha256)
    assert used.file_system
    again = prepare(path, cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, done.stdout)
    assert len(files.asked) == 1


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_ended_half_way_it_goes_on(signum: int, files: Files, tmp_path: Path) -> None:
    path = str(describe(tmp_path, files.url))
    files.pause_s = 0.02
    first = begin(path, cwd=tmp_path)
    until(lambda: files.sent > 150_000)
    first.send_signal(signum)
    _, said = first.communicate(timeout=120)
    if signum != signal.SIGKILL:
        assert first.returncode == 128 + signum
        assert "tiny: interrupted; run the same command again to continue" in said
    assert not (tmp_path / "data/tiny").exists()
    standing = store.look(tmp_path / "data", descriptor.load(path))
    assert standing.state == "incomplete"
    with pytest.raises(DataError, match=r"data set '.*tiny.yaml' is incomplete: .*; bring it with 'benchsuite prepare"):
        store.find(tmp_path / "data", path)
    files.pause_s = 0
    assert prepare(path, cwd=tmp_path).returncode == 0
    assert whole(tmp_path)
    assert files.asked[1][1] is not None, "it went on from what was there"


@pytest.mark.parametrize("gap_s", [0.0, 0.02, 0.3])
def test_generating_ends_at_the_first_ctrl_c_and_a_second_does_no_harm(gap_s: float, tmp_path: Path) -> None:
    making = begin("fake_imagenet", "--synthetic", "--size", "full", "--workers", "2", cwd=tmp_path)
    until(lambda: next((tmp_path / "data").rglob("*.jpeg"), None))
    for _ in range(2):
        making.send_signal(signal.SIGINT)
        time.sleep(gap_s)
    _, said = making.communicate(timeout=120)
    assert making.returncode in (130, -signal.SIGINT)  # the latter where the second one comes while Python winds up
    assert "interrupted; run the same command again to continue" in said


def test_two_callers_fetch_once(files: Files, tmp_path: Path) -> None:
    path = str(describe(tmp_path, files.url))
    files.pause_s = 0.01
    callers = [begin(path, cwd=tmp_path) for _ in range(3)]
    said = [caller.communicate(timeout=120) for caller in callers]
    assert [caller.returncode for caller in callers] == [0, 0, 0]
    assert len({out for out, _ in said}) == 1
    assert sum("is bringing it: waiting" in err for _, err in said) == 2
    assert len(files.asked) == 1
    assert whole(tmp_path)


def damage_cut(place: Path) -> None:
    os.truncate(place / "sub/waves.npy", 1000)


def damage_gone(place: Path) -> None:
    (place / "other.txt").unlink()


def damage_more(place: Path) -> None:
    (place / "sub/more.npy").write_bytes(b"1")


def damage_manifest(place: Path) -> None:
    (place / store.MANIFEST).write_bytes(b"")


def damage_marker(place: Path) -> None:
    (place / store.MARKER).write_bytes(b'{"kind": "mark')


@pytest.mark.parametrize("damage", [damage_cut, damage_gone, damage_more, damage_manifest, damage_marker])
def test_damage_is_found_and_mended(damage: Callable[[Path], None], files: Files, tmp_path: Path) -> None:
    path = str(describe(tmp_path, files.url))
    assert prepare(path, cwd=tmp_path).returncode == 0
    damage(tmp_path / "data/tiny")
    with pytest.raises(DataError, match=r"is damaged: .*bring it with 'benchsuite prepare .*tiny"):
        store.find(tmp_path / "data", path)
    done = prepare(path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "it is made again" in done.stderr
    assert whole(tmp_path)
    assert store.find(tmp_path / "data", path)


def test_a_changed_byte_is_found_by_verify_and_remembered(files: Files, tmp_path: Path) -> None:
    path = str(describe(tmp_path, files.url))
    assert prepare(path, cwd=tmp_path).returncode == 0
    verified = prepare(path, "--verify", cwd=tmp_path)
    assert verified.returncode == 0, verified.stderr
    assert "no byte has changed" in verified.stdout
    (tmp_path / "data/tiny/sub/waves.npy").write_bytes(TEXT[:-1] + bytes([TEXT[-1] ^ 1]))
    assert store.find(tmp_path / "data", path)
    verified = prepare(path, "--verify", cwd=tmp_path)
    assert verified.returncode == 1
    assert "the content of sub/waves.npy has changed; bring it with" in verified.stderr
    with pytest.raises(DataError, match=r"the content of sub/waves\.npy has changed"):
        store.find(tmp_path / "data", path)
    assert prepare(path, cwd=tmp_path).returncode == 0
    assert whole(tmp_path)


def test_verify_without_names_is_of_what_is_there(tmp_path: Path) -> None:
    one_line_error(prepare("--verify", cwd=tmp_path), "data", "holds no data set to verify", "-d")
    assert prepare("time_series", "--synthetic", "--size", "small", cwd=tmp_path).returncode == 0
    done = prepare("--verify", cwd=tmp_path)
    assert (done.returncode, done.stdout.count("no byte has changed"), "mnist" in done.stderr) == (0, 1, False)


def test_verify_brings_nothing(files: Files, tmp_path: Path) -> None:
    done = prepare(str(describe(tmp_path, files.url)), "--verify", cwd=tmp_path)
    assert done.returncode == 1
    assert "tiny: missing: nothing at" in done.stderr
    assert files.asked == []


def test_a_bad_archive_is_not_taken_the_next_time(files: Files, tmp_path: Path) -> None:
    path = str(describe(tmp_path, files.url))
    good = files.content["a.zip"]
    files.content["a.zip"] = good[: len(good) // 2]
    done = prepare(path, cwd=tmp_path)
    assert done.returncode == 1
    assert "tiny: not ready: a.zip: the archive is damaged" in done.stderr
    assert not (tmp_path / "data/tiny").exists()
    files.content["a.zip"] = good
    assert prepare(path, cwd=tmp_path).returncode == 0
    assert whole(tmp_path)


def test_an_archive_without_what_is_needed(files: Files, tmp_path: Path) -> None:
    path = str(describe(tmp_path, files.url, layout={"waves": "elsewhere"}))
    done = prepare(path, cwd=tmp_path)
    assert done.returncode == 1
    assert "tiny: its waves is missing: there is no elsewhere" in done.stderr


def test_other_data_are_never_replaced(files: Files, tmp_path: Path) -> None:
    path = str(describe(tmp_path, files.url, layout={"waves": "waves.npy"}))
    done = prepare(path, "--synthetic", "--size", "small", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ready: synthetic, small" in done.stdout
    for arguments in (["--synthetic"], []):
        done = prepare(path, *arguments, cwd=tmp_path)
        assert done.returncode == 1
        assert "holds other data (synthetic, small) than asked for" in done.stderr
    shutil.rmtree(tmp_path / "data/tiny")
    (tmp_path / "data/tiny").mkdir()
    (tmp_path / "data/tiny/mine.txt").write_text("a user's own")
    done = prepare(path, "--synthetic", cwd=tmp_path)
    assert done.returncode == 1
    assert "has no marker" in done.stderr
    assert (tmp_path / "data/tiny/mine.txt").exists()


def test_an_older_version_is_made_again(files: Files, tmp_path: Path) -> None:
    path = str(describe(tmp_path, files.url))
    assert prepare(path, cwd=tmp_path).returncode == 0
    describe(tmp_path, files.url, version="2")
    with pytest.raises(DataError, match="version 1 is there, not 2"):
        store.find(tmp_path / "data", path)
    assert prepare(path, cwd=tmp_path).returncode == 0
    assert store.find(tmp_path / "data", path).version == "2"


def test_killed_while_generating_it_goes_on_and_nobody_is_left(tmp_path: Path) -> None:
    arguments = ["bsds500", "--synthetic", "--size", "small", "--workers", "2"]
    first = begin(*arguments, cwd=tmp_path)
    work = tmp_path / "data/.prepare/bsds500"
    until(lambda: work.exists() and any((work / "units").glob("[0-9]*")))
    children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    first.kill()
    first.communicate(timeout=120)
    assert children
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() and alive(pid) for pid in children))
    assert not (tmp_path / "data/bsds500").exists()
    kept = {p: p.stat().st_mtime_ns for p in (work / "units").glob("[0-9]*")}
    assert kept
    done = prepare(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ready: synthetic, small, 90 files" in done.stdout


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a small file system")
@pytest.mark.parametrize("what", ["download", "unpack", "generate", "write"])
def test_a_full_disk_is_one_line_and_can_be_gone_on_with(what: str, files: Files, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    size_kib = {"download": 200, "unpack": 600, "generate": 100, "write": 200}[what]
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(tmp_path / "data")]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no mounting here")
    try:
        large = {"writer": "series", "common": SETTINGS, "small": {"waves": 20_000}, "full": {"waves": 20_000}}
        more = {"generator": large, "layout": {"waves": "waves.npy"}} if what == "write" else {}
        path = str(describe(tmp_path, files.url, **more))
        arguments = {"generate": ["mnist", "--synthetic", "--size", "small"], "write": [path, "--synthetic"]}.get(
            what, [path]
        )
        done = prepare(*arguments, cwd=tmp_path)
        assert done.returncode == 1
        assert "make room" in done.stderr
        assert {p.name for p in (tmp_path / "data").iterdir()} == {".prepare"}
        grow = ["mount", "-o", "remount,size=20m", str(tmp_path / "data")]
        subprocess.run(grow, check=True)
        assert prepare(*arguments, cwd=tmp_path).returncode == 0
        assert what != "unpack" or len(files.asked) == 1, "what was downloaded is kept"
    finally:
        subprocess.run(["umount", str(tmp_path / "data")], check=True)


def test_the_data_of_a_profile(tmp_path: Path) -> None:
    profile = tmp_path / "p.yaml"
    jobs = {name: {"model": "sine_wave", "data": "time_series"} for name in ("a", "b")}
    profile.write_text(yaml.safe_dump(jobs))
    done = prepare("--profile", str(profile), "--size", "small", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("time_series: ready: synthetic, small") == 1
    profile.write_text(yaml.safe_dump({"a": {"model": "sine_wave"}}))
    done = prepare("--profile", str(profile), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "no job needs a data set" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["mnits"], ["no data set 'mnits'", "did you mean 'mnist'?"]),
        (["./gone.yaml"], ["gone.yaml"]),
        (["mnist", "--profile", "smoke"], ["not both"]),
        (["mnist", "time_series", "--size", "small"], ["real data have one size (mnist)", "--synthetic"]),
        (["mnist", "--size", "tiny"], ["--size", "'tiny'"]),
        (["mnist", "--workers", "0"], ["--workers"]),
    ],
)
def test_bad_calls_are_one_line(arguments: list[str], parts: list[str], tmp_path: Path) -> None:
    one_line_error(prepare(*arguments, cwd=tmp_path), *parts)
    assert not (tmp_path / "data").exists()


def test_text_becomes_units(files: Files, tmp_path: Path) -> None:
    conversion = {"source": ".en", "target": ".de", "vocabulary": 60, "longest_words": 5, "validation": 2}
    conversion |= {"test_source": "t.src.sgm", "test_target": "t.ref.sgm"}
    layout = {"train_source": "train.en", "val_target": "val.de", "vocabulary": "vocab.txt"}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("text/a.en", "the house\n\none two three four five six\nthe mouse!\nthe blouse\na house\n" * 9)
        archive.writestr(
            "text/t.src.sgm", '<doc>\n<seg id="1">the &amp; house</seg>\n<seg id="2">a mouse</seg>\n</doc>'
        )
        archive.writestr(
            "text/t.ref.sgm", '<doc>\n<seg id="1">das &amp; Haus</seg>\n<seg id="2">eine Maus</seg>\n</doc>'
        )
        archive.writestr("text/a.de", "das Haus\nleer\neins\ndie Maus!\ndie Bluse\nein Haus\n" * 9)
    files.content["a.zip"] = packed.getvalue()
    path = str(describe(tmp_path, files.url, reader="bpe_ids", layout=layout, conversion=conversion))
    done = prepare(path, cwd=tmp_path)
    if importlib.util.find_spec("tokenizers") is None:
        assert done.returncode == 1
        assert "tiny: not ready: turning text into BPE units needs a library: pip install tokenizers" in done.stderr
        assert files.asked == []
        return
    assert done.returncode == 0, done.stderr
    place = tmp_path / "data/tiny"
    vocabulary = (place / "vocab.txt").read_text().splitlines()
    assert vocabulary[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    sentences = (place / "train.en").read_text().splitlines()
    first = [vocabulary[int(number)] for number in sentences[0].split()]
    assert "".join(first).replace("</w>", " ") == "the house "
    kept = sum(len((place / f"{split}.de").read_text().splitlines()) for split in ("train", "val"))
    assert kept == 36, "empty and long ones are left out, on both sides"
    assert len((place / "val.en").read_text().splitlines()) == 2
    assert not (place / "text").exists()
    assert (place / "test.reference").read_text() == "das & Haus\neine Maus\n"
    source = [
        [vocabulary[int(number)] for number in line.split()] for line in (place / "test.en").read_text().splitlines()
    ]
    assert "".join(source[1]).replace("</w>", " ") == "a mouse "


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    done = prepare("time_series", cwd=tmp_path)
    assert done.returncode == 1
    assert "name another folder with -d" in done.stderr


def test_the_default_folder_is_the_environments(tmp_path: Path) -> None:
    done = benchsuite("prepare", "time_series", cwd=tmp_path, env=environ(BENCHSUITE_DATA=str(tmp_path / "there")))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "there/time_series/waves.npy").exists()


def test_without_a_data_folder_there_is_no_data_set() -> None:
    with pytest.raises(DataError, match=r"data set 'mnist' is missing: .*'benchsuite prepare mnist'"):
        store.find(None, "mnist")


def test_the_file_system_is_named(tmp_path: Path) -> None:
    assert store.file_system(Path("/proc")) == "proc"
    assert store.file_system(tmp_path)
    assert store.file_system(tmp_path / "gone") is None
