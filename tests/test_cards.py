"""The table of cards: shipped files are complete, users extend it, and bad files are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Call

from benchsuite.describe import cards
from benchsuite.errors import ProfileError

OWN = """\
lab_card:
  names: ["NVIDIA Lab*"]
  dense_tflops: {bf16: 100}
  source: measured by the lab
"""


def own_file(folder: Path, text: str = OWN) -> dict[str, str]:
    """A file of cards in the user's folder of configuration."""
    (folder / "benchsuite" / "cards").mkdir(parents=True)
    (folder / "benchsuite" / "cards" / "lab.yaml").write_text(text, encoding="utf-8")
    return {"XDG_CONFIG_HOME": str(folder)}


def test_every_shipped_card_has_a_source_and_faster_formats_of_fewer_bits(tmp_path: Path) -> None:
    table = cards.table({"XDG_CONFIG_HOME": str(tmp_path)})
    assert len(table) > 20 and len({known.name for known in table}) == len(table)
    for known in table:
        assert known.card.source.startswith("https://")
        peaks = [peak for format in cards.FORMATS if (peak := known.peak_tflops(format))]
        assert peaks == sorted(peaks), known.name


@pytest.mark.parametrize(
    ("gpu", "name", "bf16"),
    [
        ("NVIDIA H100 80GB HBM3", "h100_sxm", 989.4),
        ("NVIDIA H100 PCIe", "h100_pcie", 756),
        ("NVIDIA H200", "h200", 989.4),
        ("NVIDIA B200", "b200", 2250),
        ("NVIDIA A100-SXM4-80GB", "a100_80gb_sxm", 312),
        ("A100-SXM4-40GB", "a100_40gb", 312),
        ("NVIDIA L40S", "l40s", 362),
        ("Tesla V100-SXM2-16GB", "v100_sxm2", None),
        ("nvidia l4", "l4", 121),
    ],
)
def test_a_card_is_found_by_the_name_that_nvml_gives(gpu: str, name: str, bf16: float | None, tmp_path: Path) -> None:
    known = cards.find(gpu, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert known and known.name == name and known.peak_tflops("bf16") == bf16 and not known.own


@pytest.mark.parametrize("gpu", ["NVIDIA H200 NVL", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA A10G", "Test"])
def test_a_card_that_is_not_in_the_table_is_not_guessed(gpu: str, tmp_path: Path) -> None:
    assert cards.find(gpu, {"XDG_CONFIG_HOME": str(tmp_path)}) is None


def test_a_user_adds_a_card_and_replaces_a_shipped_one(tmp_path: Path) -> None:
    environ = own_file(tmp_path / "config", OWN + OWN.replace("lab_card", "mine").replace("NVIDIA Lab*", "*H200*"))
    assert (found := cards.find("NVIDIA Lab 1", environ)) and found.name == "lab_card" and found.own
    assert (found := cards.find("NVIDIA H200", environ)) and found.name == "mine"
    other = tmp_path / "other.yaml"
    other.write_text(OWN.replace("lab_card", "elsewhere"), encoding="utf-8")
    alone = {"XDG_CONFIG_HOME": str(tmp_path), cards.VARIABLE: str(other)}
    assert (found := cards.find("NVIDIA Lab 1", alone)) and found.name == "elsewhere"
    with pytest.raises(ProfileError, match=r"BENCHSUITE_CARDS: .*gone does not exist; name a file or a folder"):
        cards.table({**alone, cards.VARIABLE: str(tmp_path / "gone")})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("source:", "sourse:", "card 'lab_card': unknown field 'sourse'.*source"),
        ("bf16: 100", "bf17: 100", "field 'dense_tflops': .*bf17.*; the formats are fp32, tf32, fp16, bf16, fp8"),
        ("bf16: 100", "bf16: -1", "field 'dense_tflops.bf16': expected .* > 0"),
        ('["NVIDIA Lab*"]', "[]", "field 'names': expected"),
        ("  source: measured by the lab\n", "", "card 'lab_card': .*source"),
    ],
)
def test_a_bad_file_is_named_with_card_and_field(old: str, new: str, message: str, tmp_path: Path) -> None:
    environ = own_file(tmp_path, OWN.replace(old, new))
    with pytest.raises(ProfileError, match=f"lab.yaml: .*{message}"):
        cards.table(environ)


def test_the_list_of_cards_gives_peaks_and_sources(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", own_file(tmp_path)["XDG_CONFIG_HOME"])
    text = call("list", "cards")[1]
    assert "h200: NVIDIA H200\n    dense TFLOP/s: fp32 66.9, tf32 494.7, fp16 989.4, bf16 989.4, fp8 1978.9" in text
    assert "lab_card: NVIDIA Lab*\n    dense TFLOP/s: bf16 100\n    measured by the lab" in text
    listed = {card["name"]: card for card in json.loads(call("list", "cards", "--json")[1])}
    assert listed["l4"]["memory_gb_s"] == 300 and listed["lab_card"]["file"].endswith("lab.yaml")
