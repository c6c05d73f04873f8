"""A profile becomes typed jobs, or is refused with file, job, field and remedy."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import make_run

from benchsuite import files
from benchsuite.describe import profile
from benchsuite.describe.jobs import START_ALLOWANCE_S
from benchsuite.describe.overrides import Overrides
from benchsuite.describe.secrets import secret_in
from benchsuite.describe.tasks import Job, Plan, profile_fields
from benchsuite.describe.training import Training
from benchsuite.errors import BenchError, ProfileError, UsageError
from benchsuite.launch import recordable


def write(path: Path, content: Any) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def test_json_and_yaml_of_one_content_mean_the_same(tmp_path: Path) -> None:
    content = {"*": {"placement": "per_gpu"}, "a": {"model": "vae", "params": {"lr": 1e-4}, "min_time_s": 3}}
    text = "'*': {placement: per_gpu}\na:\n  model: vae\n  params: {lr: 1e-4}\n  min_time_s: 3\n"
    one, two = profile.load(write(tmp_path / "p.json", content)), profile.load(write(tmp_path / "p.yaml", text))
    assert one.jobs == two.jobs
    assert one.sha256 == two.sha256
    assert one.jobs[0].params["lr"] == 0.0001
    assert type(one.jobs[0].params["lr"]) is float


def test_defaults_merge_field_by_field_and_params_key_by_key(tmp_path: Path) -> None:
    content = {
        "*": {"model": "vae", "params": {"batch_size": 32, "seed": 7}, "env": {"A": "1"}, "precision": "bf16"},
        "a": {"params": {"batch_size": 64}, "env": {"OMP_NUM_THREADS": 2}},
        "b": {"entry": "faults:build", "params": None, "precision": "fp32"},
    }
    del content["*"]["params"]["seed"]  # type: ignore[attr-defined]
    a, b = profile.load(write(tmp_path / "p.json", {**content, "b": {"model": "vae", "precision": "fp32"}})).jobs
    assert a.params["batch_size"] == 64
    assert a.env == {"A": "1", "OMP_NUM_THREADS": "2"}
    assert a.training.precision == "bf16"
    assert b.params["batch_size"] == 32
    assert b.training.precision == "fp32"


def test_a_name_that_only_holds_the_letters_of_a_secret_is_an_ordinary_variable(tmp_path: Path) -> None:
    names = ("TOKENIZERS_PARALLELISM", "KEYBOARD", "AUTHOR", "COMPASS", "PASSES")
    (job,) = profile.load(write(tmp_path / "p.json", {"a": {"model": "vae", "env": dict.fromkeys(names, "1")}})).jobs
    assert {*job.env} == {*names}


def test_a_command_may_hand_on_a_secret_of_the_shell(tmp_path: Path) -> None:
    commands = ("TOKEN=$HF_TOKEN fetch", 'TOKEN="$HF_TOKEN" fetch', "sort --key=2 x", "A=1 B=2 make")
    for command in commands:
        (job,) = profile.load(write(tmp_path / "p.json", {"a": {"model": "vae", "prepare": command}})).jobs
        assert job.prepare == command


SECRETS = {
    "TOKEN=abc": "TOKEN",
    "true; export HF_TOKEN='abc'": "HF_TOKEN",
    "fetch --token=abc": "--token",
    "fetch --api-key abc": "--api-key",
    "curl https://user:hush@host/x": "a password in a URL",
    "git clone https://ghp_0123456789abcdefghij@github.com/x": "a password in a URL",
    "curl 'https://host/x?access_token=abc'": "access_token",
    "curl -H 'Authorization: Bearer abc'": "an authorization header",
    r"A=\"1\" HF_TOKEN=\"abc\" fetch": "HF_TOKEN",
}
NO_SECRETS = (
    "TOKEN=$HF_TOKEN fetch --token $T --token=$T https://u:$P@host https://$T@host",
    "--tokens 128 --tokens=1e6 --key=2 --key -r git@host:x ssh://git@host/x",
    "TOKENIZERS_PARALLELISM=no --author Bob x:y@z http://host:80/a@b",
)


@pytest.mark.parametrize("command", SECRETS)
def test_a_secret_is_refused_wherever_it_would_be_kept(command: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=rf"field 'prepare': {SECRETS[command]} looks like a secret") as refused:
        profile.load(write(tmp_path / "p.json", {"a": {"model": "vae", "prepare": command}}))
    assert "abc" not in str(refused.value)
    assert "hush" not in str(refused.value)
    for record, place in (({"command": command.split()}, "the command line"), ({"text": command}, "the profile")):
        run = make_run()
        used = msgspec.structs.replace(run.profile, text=record.get("text", ""))
        run = msgspec.structs.replace(run, command=tuple(record.get("command", ())), profile=used)
        with pytest.raises(UsageError, match=f"{place}: {SECRETS[command]} looks like a secret"):
            recordable.check(run, Plan(waves=()), tmp_path)


@pytest.mark.parametrize("command", NO_SECRETS)
def test_numbers_variables_of_the_shell_and_plain_addresses_are_no_secrets(command: str) -> None:
    assert secret_in(command) is None


def test_every_parameter_is_recorded_with_its_value() -> None:
    job = next(j for j in profile.load("standard").jobs if j.name == "vae")
    assert {"batch_size", "lr", "seed"} <= set(job.params)


def test_shipped_profiles_are_official_and_a_changed_copy_says_how_it_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = files.shipped("profiles")["standard"]
    assert profile.load("standard").official
    assert profile.load("profiles/standard.json").path == path
    same = profile.load(write(tmp_path / "copy.json", path.read_text()))
    assert same.official
    assert same.name == "copy"
    content = json.loads(path.read_text())
    content["vae"]["params"]["batch_size"] = 64
    del content["cart"]
    changed = profile.load(write(tmp_path / "tweaked.json", content))
    assert not changed.official
    assert changed.based_on == "standard"
    assert set(changed.differences) == {"cart: not run", "vae: params.batch_size 128 -> 64"}


def test_a_profile_that_shares_a_few_names_with_a_shipped_one_is_not_based_on_it(tmp_path: Path) -> None:
    jobs = json.loads(files.shipped("profiles")["standard"].read_text("utf-8"))
    names = [name for name in jobs if name != "*"]
    for file, count, based_on in (
        ("own.json", 2, None),
        ("own.json", 12, "standard"),
        ("standard.json", 2, "standard"),
    ):
        (tmp_path / file).write_text(json.dumps({name: jobs[name] for name in ["*", *names[:count]]}))
        assert profile.load(str(tmp_path / file)).based_on == based_on


def test_changes_after_the_dashes_make_a_profile_modified() -> None:
    changed = profile.load("standard", only=["vae"], overrides=Overrides.parse(["--max-count", "3_000"]))
    (job,) = changed.jobs
    assert job.max_count == 3000
    assert job.min_time_s == 0, "an explicit count clears the minimum time"
    assert not changed.official
    assert "vae: max_count 500000 -> 3000" in changed.differences


def test_a_minimum_time_given_beside_the_count_stays() -> None:
    overrides = Overrides.parse(["--max-steps", "5", "--min-time-s=2.5"])
    (job,) = profile.load("smoke", only=["vae"], overrides=overrides).jobs
    assert (job.max_steps, job.min_time_s) == (5, 2.5)


def test_values_reach_the_model_as_written() -> None:
    """The values hold dashes, spaces, quotes, dollars, the empty text, lists and flags."""
    note = "two words 'q' \"d\" $HOME *"
    words = ["--note", note, "--neg", "-5", "--file=a=b=c", "--words", '["x", "y z"]', "--flag", "--limit", "1_000"]
    job = profile.single(None, "faults:build", Overrides.parse(words))
    params = job.params
    assert params["note"] == note
    assert params["neg"] == "-5"
    assert params["file"] == "a=b=c"
    assert params["words"] == ["x", "y z"]
    assert params["flag"] is True
    assert params["limit"] == 1000
    assert profile.single(None, "faults:build", Overrides.parse(["--note", "", "--no-flag"])).params["note"] == ""


def test_a_null_means_not_given_unless_the_parameter_knows_null(tmp_path: Path) -> None:
    content = {"a": {"entry": "faults:build", "params": {"items": None, "limit": None}}}
    (job,) = profile.load(write(tmp_path / "p.json", content)).jobs
    assert job.params["items"] == 1
    assert job.params["limit"] is None


def test_long_runs_get_a_time_limit_to_match(tmp_path: Path) -> None:
    (job,) = profile.load(write(tmp_path / "p.json", {"a": {"model": "vae", "max_time_s": 3600}})).jobs
    assert job.timeout_s == 3600 + START_ALLOWANCE_S


JOB = {"model": "vae"}
BAD: dict[str, tuple[Any, tuple[str, ...]]] = {
    "unknown field": ({"a": {**JOB, "argumets": {}}}, ("job 'a'", "unknown field 'argumets'")),
    "near field": ({"a": {**JOB, "max_cout": 3}}, ("did you mean 'max_count'?",)),
    "array with ranks": ({"a": {**JOB, "array": 2, "placement": "all_gpus"}}, ("one process trains all models",)),
    "a GPU of each node": (
        {"a": {**JOB, "placement": {"devices": "each", "nodes": 2}}},
        ("field 'placement'", "a job over nodes", "give devices all"),
    ),
    "no model": ({"a": {}}, ("give either 'model' or 'entry'",)),
    "two models": ({"a": {**JOB, "entry": "x:y"}}, ("give either 'model' or 'entry'",)),
    "unknown model": ({"a": {"model": "vea"}}, ("job 'a'", "no model 'vea'", "did you mean 'vae'?")),
    "odd entry": ({"a": {"entry": "faults"}}, ("module:function",)),
    "no module": ({"a": {"entry": "no_such_module:build"}}, ("no Python module 'no_such_module'",)),
    "no function": ({"a": {"entry": "faults:biuld"}}, ("no function 'biuld'",)),
    "unknown parameter": ({"a": {**JOB, "params": {"batchsize": 1}}}, ("no parameter 'batchsize'", "'batch_size'?")),
    "wrong parameter type": ({"a": {**JOB, "params": {"batch_size": "64"}}}, ("'batch_size'", "expected int", "'64'")),
    "truth for a number": ({"a": {**JOB, "params": {"batch_size": True}}}, ("'batch_size'", "expected int")),
    "params no mapping": ({"a": {**JOB, "params": [1]}}, ("field 'params'",)),
    "text for a number": ({"a": {**JOB, "max_count": "many"}}, ("field 'max_count'", "expected int", "'many'")),
    "half an item": ({"a": {**JOB, "max_count": 1.5}}, ("field 'max_count'", "expected int")),
    "no items": ({"a": {**JOB, "max_count": 0}}, ("field 'max_count'", ">= 1")),
    "negative time": ({"a": {**JOB, "min_time_s": -1}}, ("field 'min_time_s'",)),
    "a negative warm-up": ({"a": {**JOB, "warm_up_s": -0.1}}, ("field 'warm_up_s'", ">= 0")),
    "a warm-up that is too long": ({"a": {**JOB, "warm_up_s": 900}}, ("warm_up_s 900 is over timeout_s 600",)),
    "times crossed": ({"a": {**JOB, "min_time_s": 9, "max_time_s": 5}}, ("min_time_s 9", "raise max_time_s")),
    "unknown precision": ({"a": {**JOB, "precision": "fp8"}}, ("field 'precision'", "unknown 'fp8'", "bf16")),
    "near precision": ({"a": {**JOB, "precision": "amp_fp16"}}, ("did you mean 'amp-fp16'?",)),
    "unknown compile": ({"a": {**JOB, "compile": "fast"}}, ("field 'compile'", "'fast'", "reduce-overhead")),
    "timeout too short": ({"a": {**JOB, "timeout_s": 5}}, ("min_time_s 15 is over timeout_s 5", "raise timeout_s")),
    "for ever": ({"a": {**JOB, "max_time_s": 1e300}}, ("field 'max_time_s'",)),
    "no batch": ({"a": {**JOB, "params": {"batch_size": 0}}}, ("'batch_size'", ">= 1", "found 0")),
    "an empty command": ({"a": {**JOB, "prepare": [[]]}}, ("field 'prepare'", "a command is empty")),
    "a null in a command": ({"a": {**JOB, "prepare": [["a\0b"]]}}, ("field 'prepare'", "null character")),
    "a name of two lines": ({"a\ntouch x\n": JOB}, ("control characters in the name",)),
    "a long name": ({"a" * 101: JOB}, ("over 100 characters",)),
    "unknown placement": ({"a": {**JOB, "placement": "per_gpus"}}, ("'per_gpus'", "did you mean 'per_gpu'?")),
    "placement field": ({"a": {**JOB, "placement": {"device": "each"}}}, ("placement", "device")),
    "unknown data": ({"a": {**JOB, "data": "mnits"}}, ("field 'data'", "no data set 'mnits'")),
    "threads": ({"a": {**JOB, "intra_op_threads": "cpu"}}, ("field 'intra_op_threads'", "did you mean 'cpus'?")),
    "no threads": ({"a": {**JOB, "intra_op_threads": 0}}, ("field 'intra_op_threads'", "'0'")),
    "threads twice": (
        {"a": {**JOB, "intra_op_threads": 2, "env": {"OMP_NUM_THREADS": "3"}}},
        ("field 'env'", "OMP_NUM_THREADS and intra_op_threads both give a number"),
    ),
    "secret": ({"a": {**JOB, "env": {"HF_TOKEN": "hush"}}}, ("field 'env'", "HF_TOKEN looks like a secret")),
    "secret in a command": (
        {"a": {**JOB, "prepare": "cd /x && HF_TOKEN=hush fetch"}},
        ("field 'prepare'", "HF_TOKEN looks like a secret"),
    ),
    "secret in words": (
        {"a": {**JOB, "prepare": [["env", "API_KEY='hush'", "fetch"]]}},
        ("field 'prepare'", "API_KEY looks like"),
    ),
    "gpu by env": ({"a": {**JOB, "env": {"CUDA_VISIBLE_DEVICES": "1"}}}, ("field 'env'", "decides the GPU")),
    "prepare a list of text": ({"a": {**JOB, "prepare": ["sync"]}}, ("field 'prepare[0]'", "expected array")),
    "job no mapping": ({"a": 3}, ("job 'a'", "expected a mapping")),
    "no jobs": ({"*": JOB}, ("no jobs",)),
    "a list": ([1], ("expected a mapping",)),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_bad_profiles_are_refused_in_one_line(case: str, suffix: str, tmp_path: Path) -> None:
    content, parts = BAD[case]
    path = tmp_path / f"bad.{suffix}"
    with pytest.raises(ProfileError) as caught:
        profile.load(write(path, content))  # JSON is YAML too
    message = str(caught.value)
    assert message.startswith(str(path))
    for part in parts:
        assert part in message
    assert "\n" not in message


TEXTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "repeated job": ("p.yaml", "vae: {model: vae}\nvae: {model: vae}\n", ("line 2", "'vae' is given twice")),
    "repeated job in JSON": ("p.json", '{"vae": {"model": "vae"}, "vae": {}}', ("'vae' is given twice",)),
    "repeated field": ("p.yaml", "a:\n  model: vae\n  model: vae\n", ("line 3", "'model' is given twice")),
    "leading zero": ("p.yaml", "a: {model: vae, max_count: 010}", ("line 1", "010", "may not start with 0")),
    "empty": ("p.yaml", " \n", ("the file is empty",)),
    "cut JSON": ("p.json", '{"a": {"model": ', ("line 1", "column")),
    "bad YAML": ("p.yaml", "a: [1}", ("line 1",)),
    "no number": ("p.json", '{"a": {"model": "vae", "min_time_s": NaN}}', ("NaN is not a JSON number",)),
    "endless": ("p.yaml", "a: {model: vae, min_time_s: .inf}", ("line 1", "not a finite number")),
    "python tag": ("p.yaml", "a: !!python/object/apply:os.system ['true']", ("line 1",)),
    "half a character": ("p.json", '{"a\\ud800": {"model": "vae"}}', ("half a character",)),
    "too large": ("p.json", '{"a": {"model": "vae", "params": {"lr": 1e999}}}', ("1e999 is too large",)),
    "many digits": ("p.json", f'{{"a": {{"model": "vae", "max_count": {"9" * 5000}}}}}', ("digits",)),
    "many digits in YAML": ("p.yaml", f"a: {{model: vae, max_count: {'9' * 5000}}}", ("out of range",)),
    "odd tag": ("p.yaml", "a: {model: vae, max_count: !!int abc}", ("does not fit its tag",)),
    "odd truth": ("p.yaml", "a: {model: vae, max_count: !!bool maybe}", ("does not fit its tag",)),
    "odd date": ("p.yaml", "a: {model: vae, max_count: !!timestamp abc}", ("does not fit its tag",)),
    "ending": ("p.txt", "a: {model: vae}", ("unknown ending '.txt'",)),
}


@pytest.mark.parametrize("case", TEXTS)
def test_bad_texts_are_refused_in_one_line(case: str, tmp_path: Path) -> None:
    name, text, parts = TEXTS[case]
    path = tmp_path / name
    with pytest.raises(ProfileError) as caught:
        profile.load(write(path, text))
    for part in (str(path), *parts):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"a: {model: v\xe4e}")
    (tmp_path / "folder.yaml").mkdir()
    for name, part in (("latin.yaml", "not UTF-8"), ("folder.yaml", "is a directory"), ("none.yaml", "no such file")):
        with pytest.raises(ProfileError, match=part):
            profile.load(str(tmp_path / name))


def test_yaml_scalars_are_those_of_yaml_1_2(tmp_path: Path) -> None:
    """PyYAML reads YAML 1.1: there `1e-4` is text, `off` is false and `12:30:45` is a number."""
    text = "a: 1e-4\nb: off\nc: 12:30:45\nd: no\ne: 2020-01-01\nf: true\ng: null\nh: 1.5e3\ni: 0x1F\nj: '010'\nk: 1_0\n"
    assert files.parse_yaml(text, "x") == {
        "a": 0.0001, "b": "off", "c": "12:30:45", "d": "no", "e": "2020-01-01",
        "f": True, "g": None, "h": 1500.0, "i": 31, "j": "010", "k": "1_0",
    }  # fmt: skip


def test_unknown_jobs_are_named_with_the_nearest(tmp_path: Path) -> None:
    for kind in ("only", "exclude"):
        with pytest.raises(ProfileError, match=r"no job 'vea'; did you mean 'vae'\?"):
            profile.load("standard", **{kind: ["vea"]})  # type: ignore[arg-type]
    with pytest.raises(ProfileError, match="no job is left"):
        profile.load("standard", only=["vae"], exclude=["vae"])


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["batch"], "a profile's job is chosen by '--name batch'"),
        (["--batch-size"], "'--batch-size' needs a value"),
        (["--batch-size", "many"], "expected int"),
        (["--bach-size", "3"], "did you mean 'batch_size'?"),
        (["--max-count", "soon"], "field 'max_count'"),
        (["--name", "x"], "'--name' is neither a job field nor a parameter"),
    ],
)
def test_bad_changes_are_refused_in_one_line(words: list[str], part: str) -> None:
    with pytest.raises(BenchError) as caught:
        profile.load("standard", only=["vae"], overrides=Overrides.parse(words))
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_change_that_not_all_jobs_know_names_the_job() -> None:
    with pytest.raises(ProfileError, match=r"job 'toy_lstm'.*--batch-size"):
        profile.load("standard", overrides=Overrides.parse(["--batch-size", "3"]))


def test_a_longer_run_by_hand_gets_a_longer_limit() -> None:
    (job,) = profile.load("standard", only=["vae"], overrides=Overrides.parse(["--max-time-s", "2000"])).jobs
    assert job.timeout_s == 2000 + START_ALLOWANCE_S


def test_a_modified_run_has_a_hash_of_its_own() -> None:
    whole = profile.load("smoke")
    assert profile.load("smoke", only=["vae"]).sha256 != whole.sha256
    assert profile.load("smoke").sha256 == whole.sha256


def test_a_folder_does_not_hide_a_shipped_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smoke").mkdir()
    assert profile.load("smoke").official


CHANGES = {
    "sharing": "mps",
    "copies": "3",
    "matrix": "{seed: [1, 2]}",
    "accumulate": "2",
    "checkpoint": "true",
    "prefetch": "false",
    "intra_op_threads": "2",
    "lr_schedule": "{policy: step, epoch_steps: 100}",
    "array": "1",
    "unfused_units": "0",
    "placement": "cpu",
    "parallel": "{dp: 1}",
    "max_count": "5",
    "max_steps": "5",
    "max_epochs": "3",
    "target": "loss=2.5",
    "epoch_items": "100",
    "checkpoints": "last",
    "resume_from": "there.epoch2",
    "warm_up_s": "0.5",
    "min_time_s": "1.5",
    "max_time_s": "45",
    "timeout_s": "60",
    "loss_band": "0,5",
    "precision": "bf16",
    "compile": "aot_eager",
    "channels_last": "true",
    "data": "mnist",
    "page_cache": "cold",
    "prepare": "true",
    "env": "{A: b}",
    "container": "image:1",
    "tenant": "machine",
    "gpu_memory_gib": "3.5",
    "tags": "a,b",
}


# The other changes without which a change is refused.
WITH = {
    "copies": ["--sharing", "concurrent"],
    "page_cache": ["--data", "mnist"],
    "max_epochs": ["--epoch-items", "9"],
    "target": ["--epoch-items", "9"],
    "epoch_items": ["--max-epochs", "2"],
    "resume_from": ["--epoch-items", "9", "--max-epochs", "2"],
}


def test_every_field_of_a_job_can_be_changed_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    zipfile.ZipFile("there.epoch2.stage0.pt", "w").close()
    fields = {*Job.__struct_fields__, *Training.__struct_fields__}
    assert set(CHANGES) == fields - {"name", "model", "entry", "params", "training"}
    (plain,) = profile.load("smoke", only=["vae"]).jobs
    for name, text in CHANGES.items():
        changes = Overrides.parse([f"--{name.replace('_', '-')}", text, *WITH.get(name, [])])
        (job,) = profile.load("smoke", only=["vae"], overrides=changes).jobs
        if name not in ("parallel", "array", "unfused_units"):  # of which only the default suits a job on the CPU
            assert profile_fields(job)[name] != profile_fields(plain)[name], name
    assert job.tags == ("a", "b")


@pytest.mark.parametrize("value", [["--channels-last"], ["--channels-last", "true"], ["--channels-last=true"]])
def test_a_boolean_field_is_a_flag_or_has_a_value(value: list[str]) -> None:
    (job,) = profile.load("smoke", only=["convnet"], overrides=Overrides.parse(value)).jobs
    assert job.training.channels_last
    for other in (["--no-channels-last"], ["--channels-last", "false"]):
        (job,) = profile.load("smoke", only=["convnet"], overrides=Overrides.parse([*value, *other])).jobs
        assert not job.training.channels_last
    with pytest.raises(ProfileError, match="field 'channels_last': expected bool"):
        profile.load("smoke", only=["convnet"], overrides=Overrides.parse(["--channels-last", "maybe"]))


@pytest.mark.parametrize("value", [["--compile"], ["--compile", "true"], ["--compile=default"]])
def test_compile_is_a_flag_or_a_mode(value: list[str]) -> None:
    (job,) = profile.load("standard", only=["vae"], overrides=Overrides.parse(value)).jobs
    assert job.training.compile == "default"
    (job,) = profile.load("standard", only=["vae"], overrides=Overrides.parse(["--no-compile"])).jobs
    assert job.training.compile == "none"


BOMB = "\n".join(["a: &a0 [1, 1]", *(f"b{n}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]" for n in range(12))])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: !!binary aGVsbG8=", "a value of type bytes"),
        ("a: !!timestamp 2001-01-01", "a value of type date"),
        ("a: !!set {x, y}", "a value of type set"),
        ("a: &a [*a]", "recursive node"),
        (
            "\n".join(["a: &a0 [1, 1]", *(f"b{n}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]" for n in range(12))]),
            "aliases",
        ),
    ],
)
def test_what_only_yaml_has_is_refused_in_one_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError, match=words) as caught:
        profile.load(str(path))
    assert "\n" not in str(caught.value)
