"""The probes of a machine: what they count, what their readings say, and how a wrong result is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import msgspec
import torch
from test_groups import ranks_of, with_pulse

from benchsuite.describe import profile
from benchsuite.errors import ModelError
from benchsuite.measurement import Measurement, Reading
from benchsuite.models import Share, probe_collective, probe_corruption, probe_matmul, probe_peer_links
from benchsuite.models.probes import Amount
from benchsuite.models.probes.collectives import bus_bytes, rounded
from benchsuite.models.probes.fingerprint import fingerprint, flip
from benchsuite.models.probes.host_link import cpus_in
from benchsuite.models.probes.votes import Votes
from benchsuite.records import Result
from benchsuite.report.show.one_line import figure
from benchsuite.report.show.readings import readings_words

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def test_work_that_completes_no_item_counts_in_a_later_step() -> None:
    amount = Amount(1000)
    assert [amount.items(300) for _ in range(10)] == [0, 0, 0, 1, 0, 0, 1, 0, 0, 1]
    assert amount.items(2500) == 2


def test_a_product_of_matrices_counts_two_operations_for_each_multiply_add() -> None:
    workload = probe_matmul.build(probe_matmul.Params(dtype="fp32", size=128, others=(), others_s=0.001))
    batches = workload.batches(Share())
    assert workload.step
    items = [workload.step(next(batches)) for _ in range(300)]
    assert sum(items) == 300 * 2 * 128**3 // 10**9 == 1


def test_fp8_without_a_gpu_that_has_it_is_refused() -> None:
    if torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 9):
        pytest.skip("this GPU multiplies in fp8")
    workload = probe_matmul.build(probe_matmul.Params(dtype="fp8", size=16))
    with pytest.raises(ModelError, match="fp8 needs a GPU"):
        next(workload.batches(Share()))


def test_bus_bandwidth_does_not_depend_on_the_number_of_ranks() -> None:
    """Factors of nccl-tests: 2 (n - 1) / n for an all-reduce, (n - 1) / n for the others."""
    assert [bus_bytes("all_reduce", 800, ranks) for ranks in (2, 4, 8)] == [800, 1200, 1400]
    assert [bus_bytes(one, 800, 8) for one in OPERATIONS[1:]] == [700] * 3
    assert rounded(1 << 20, 3) % 12 == 0 and (1 << 20) - 12 < rounded(1 << 20, 3) <= 1 << 20


@pytest.mark.parametrize(
    ("model", "message"),
    [(probe_peer_links, "at least 2 GPUs"), (probe_collective, "at least 2 ranks")],
)
def test_a_probe_of_links_refuses_a_single_device(model: Any, message: str) -> None:
    workload = model.build(model.Params(**model.SMALL))
    with pytest.raises(ModelError, match=message):
        next(workload.batches(Share()))


def test_the_kernels_list_of_cpus_is_read() -> None:
    assert cpus_in("0-2,8,10-11\n") == {0, 1, 2, 8, 10, 11}
    assert cpus_in("\n") == set()


# --- silent corruption ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.uint8])
@pytest.mark.parametrize("bit", [0, 7, 15, 31])
def test_a_flipped_bit_changes_the_fingerprint_and_flipping_it_again_restores_it(dtype: torch.dtype, bit: int) -> None:
    tensor = torch.arange(1000).to(dtype)
    before, kept = fingerprint(tensor), tensor.clone()
    flip(tensor, bit)
    assert not torch.equal(fingerprint(tensor)[0], before[0])
    assert int((tensor.view(torch.uint8) != kept.view(torch.uint8)).sum()) == 1
    flip(tensor, bit)
    assert torch.equal(fingerprint(tensor), before)


def test_two_values_that_changed_places_change_the_weighted_sum_only() -> None:
    one, other = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0])
    assert fingerprint(one)[0] == fingerprint(other)[0]
    assert fingerprint(one)[1] != fingerprint(other)[1]


def test_a_fingerprint_of_several_chunks_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    whole = fingerprint(tensor)
    monkeypatch.setattr("benchsuite.models.probes.fingerprint._CHUNK", 7)
    assert torch.equal(fingerprint(tensor), whole)


def voted(*devices: str, link: str = "") -> Votes:
    """The votes where each device has these results, one letter a step; `link` are the copies from the first to the
    second, which arrive unchanged if they are `a`."""
    votes = Votes(("work",), len(devices))
    for number, results in enumerate(devices):
        for result in results:
            votes.add("work", number, result)
    for received in link:
        votes.add_copy(0, 1, "a", received)
    return votes


VERDICTS: list[tuple[tuple[str, ...], str, list[int | None], list[int]]] = [
    (("aaa", "aaa", "aaa"), "equal", [0, 0, 0], [0, 0, 0]),
    (("aaa", "aaa", "bbb"), "GPU 2 is wrong (constant): 3 of 3", [0, 0, 3], [0, 0, 0]),
    (("aaa", "aba", "aaa"), "GPU 1 is wrong (flaky): 1 of 3", [0, 1, 0], [0, 1, 0]),
    (("aaa", "aab"), "GPU 1 is wrong (flaky): 1 of 3", [0, 1], [0, 1]),
    (("aaa", "bbb"), "they differ, and no majority says which is right: GPU 0 | 1", [None, None], [0, 0]),
    (("aa", "aa", "bb", "bb"), "GPU 0,1 | 2,3", [None] * 4, [0] * 4),
    (("aba",), "GPU 0 is wrong (flaky): 1 of 3 differ from its usual one", [1], [1]),
]


@pytest.mark.parametrize(("devices", "words", "wrong", "flaky"), VERDICTS)
def test_the_majority_names_the_odd_gpu(
    devices: tuple[str, ...], words: str, wrong: list[int | None], flaky: list[int]
) -> None:
    votes = voted(*devices)
    assert words in votes.verdict()
    assert [votes.wrong(number) for number in range(len(devices))] == wrong
    assert [votes.flaky(number) for number in range(len(devices))] == flaky


def test_a_copy_that_arrives_changed_names_the_link_and_no_gpu() -> None:
    votes = voted("aaa", "aaa", link="aba")
    assert votes.verdict() == "link: 1 of 3 copies from GPU 0 to GPU 1 arrived changed"
    assert (votes.wrong(0), votes.wrong(1)) == (0, 0)


def corruption(devices: int, **changed: Any) -> dict[str, Reading]:
    """The readings after three steps on so many devices, which are all the CPU."""
    params = probe_corruption.Params(**{**probe_corruption.SMALL, **changed})
    workload = probe_corruption.build(params)
    batches = workload.batches(Share(ranks=devices))
    assert workload.step and workload.readings
    for _ in range(3):
        assert workload.step(next(batches)) == 4 * devices * (2 if devices > 1 else 1)
    return dict(workload.readings())


def test_healthy_devices_agree_and_a_planted_bit_in_one_result_is_found() -> None:
    well = corruption(3)
    assert well["verdict"].value == "equal"
    assert well["wrong"].values == well["flaky"].values == well["wrong_links"].values == (0.0, 0.0, 0.0)
    assert well["wrong_links"].labels == ("0>1", "1>2", "2>0")
    assert "planted" not in well
    odd = corruption(3, plant=(1, 2, 0))
    assert odd["wrong"].values == odd["flaky"].values == (0.0, 1.0, 0.0)
    assert "matmul_bf16: GPU 1 is wrong (flaky): 1 of 3" in str(odd["verdict"].value)
    assert "on purpose: bit 0 of the result of matmul_bf16 on GPU 1, in step 2" in str(odd["planted"].value)
    assert odd["hash_training"] == well["hash_training"], "the same work has the same bits in every run"


def test_a_planted_bit_in_a_copy_is_found_on_the_link() -> None:
    odd = corruption(2, plant=(1, -1, 3), plant_in="copy")
    assert odd["wrong"].values == (0.0, 0.0)
    assert dict(zip(odd["wrong_links"].labels, odd["wrong_links"].values, strict=True)) == {"0>1": 0.0, "1>0": 3.0}


def test_a_bit_is_planted_on_a_gpu_of_the_task_only() -> None:
    with pytest.raises(ModelError, match="no GPU 2 among the 2"):
        corruption(2, plant=(2, 0, 0))


# --- groups of ranks --------------------------------------------------------------------------------------------------


def test_the_ranks_of_a_group_measure_together_or_by_the_first(tmp_path: Path) -> None:
    reported = json.loads(ranks_of("probes_in_ranks.py", 2, with_pulse(tmp_path, 2)))
    found, steps = reported["found"], 2
    for operation in OPERATIONS:
        curve = found[operation]["readings"]
        assert curve["bus_by_size"]["labels"] == ["1 MiB"] and curve["bus_by_size"]["values"][0] > 0
        bus_gb = (1 << 20) * (1.0 if operation == "all_reduce" else 0.5) / 1e9
        taken_s = curve["time_by_size"]["values"][0] / 1e6
        assert curve["bus_by_size"]["values"][0] == pytest.approx(bus_gb / taken_s, rel=1e-4)
    assert {"compute_slowdown", "communication_slowdown"} == set(found["overlap"]["readings"])
    assert found["peer_links"]["readings"]["one_way"]["labels"] == ["0>1", "1>0"]
    assert None not in found["peer_links"]["readings"]["one_way"]["values"]
    assert "GPU 1 is wrong" in found["corruption"]["readings"]["verdict"]["value"]
    assert reported["beats"] == [steps * len(found)] * 2, "each rank beats once a step"


def test_readings_are_shown_in_words_and_many_of_them_by_their_extremes(make_result: Callable[..., Result]) -> None:
    many = [f"0>{number}" for number in range(1, 12)]
    readings = {
        "by_size": Reading(unit="TFLOP/s", values=(654.3, None), labels=("8192", "16384")),
        "one_way": Reading(unit="GB/s", values=tuple(map(float, range(380, 391))), labels=tuple(many)),
        "verdict": Reading(unit="word", value="equal"),
        "hash_attention": Reading(unit="hash", value="ab12"),
        "launch": Reading(unit="us", value=4.25),
    }
    result = make_result()
    (stream,) = result.measurement.streams
    streams = (msgspec.structs.replace(stream, readings=readings),)
    result = msgspec.structs.replace(result, measurement=Measurement(streams=streams))
    assert readings_words(result) == (
        "by_size 8192: 654.3, 16384: n/a TFLOP/s; one_way 380.0 (0>1) to 390.0 (0>11) GB/s; verdict equal; "
        "launch 4.25 us"
    )
    assert figure(result).words.endswith("; " + readings_words(result))


def test_the_quick_profile_has_jobs_of_the_long_one_with_the_same_parameters() -> None:
    long = {job.name: job for job in profile.load("probes").jobs}
    for job in profile.load("probes_quick").jobs:
        assert (job.model, job.params, job.placement) == (
            long[job.name].model, long[job.name].params, long[job.name].placement
        )  # fmt: skip
