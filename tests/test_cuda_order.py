"""Numbers in CUDA_VISIBLE_DEVICES on a machine of unlike GPUs whose user chose CUDA's own order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fake_nvml import card, play

from benchsuite.host import cards, cuda_order
from benchsuite.host.visible import visible

SMALL, BIG = card(0, "Small"), card(1, "Big")
TORCH = """
from types import SimpleNamespace
import os
assert "CUDA_VISIBLE_DEVICES" not in os.environ
assert os.environ["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"
CARDS = [SimpleNamespace(uuid=u, pci_domain_id=0, pci_bus_id=b, pci_device_id=0) for u, b in %r]
cuda = SimpleNamespace(device_count=lambda: len(CARDS), get_device_properties=CARDS.__getitem__)
"""


@pytest.fixture(name="fake")
def fake_fixture(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    return partial(play, monkeypatch)


@pytest.fixture(name="fastest_first")
def fastest_first_fixture(tmp_path: Path, fake: Any) -> Callable[[str, str], tuple[list[tuple[int, str]], str | None]]:
    """Visible (index, name) of the small and the big card where the user chose CUDA's order and torch is `torch`."""

    def look_up(torch: str, wanted: str) -> tuple[list[tuple[int, str]], str | None]:
        fake(SMALL, BIG)
        (tmp_path / "torch.py").write_text(torch)
        variables = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST", "PYTHONPATH": str(tmp_path)}
        found, why = visible(cards.gpus()[0], {**variables, "CUDA_VISIBLE_DEVICES": wanted})
        return [(g.visible_index, g.name) for g in found], why

    return look_up


@pytest.mark.parametrize("uuids", [("11", "00"), ("GPU-11", "GPU-00"), ("unlike", "other")])
def test_cudas_own_numbers_are_matched_by_uuid_or_pci_address(fastest_first: Any, uuids: tuple[str, str]) -> None:
    torch = TORCH % list(zip(uuids, (2, 1), strict=True))
    assert fastest_first(torch, "0") == ([(0, "Big")], None)
    assert fastest_first(torch, "1,0") == ([(0, "Small"), (1, "Big")], None)


@pytest.mark.parametrize(
    ("torch", "reason"),
    [
        ("raise RuntimeError('no driver')", "RuntimeError: no driver"),
        (TORCH % [], "torch sees no GPU"),
        ("import time; time.sleep(30)", "within 0.5 s"),
    ],
)
def test_where_cuda_cannot_be_asked_no_card_is_guessed(
    fastest_first: Any, monkeypatch: pytest.MonkeyPatch, torch: str, reason: str
) -> None:
    monkeypatch.setattr(cuda_order, "LIMIT_S", 0.5 if "sleep" in torch else 30)
    found, why = fastest_first(torch, "0")
    assert found == []
    assert reason in why
    assert "by UUID" in why


def test_cuda_is_not_asked_where_numbers_mean_the_same(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("CUDA was asked")

    monkeypatch.setattr(cuda_order, "numbered", never)
    fake(SMALL, BIG)
    present = cards.gpus()[0]
    unlike = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    assert visible(present, {**unlike, "CUDA_VISIBLE_DEVICES": "GPU-11"})[0][0].name == "Big"
    assert visible(present, {"CUDA_VISIBLE_DEVICES": "1"})[0][0].name == "Big"
    assert [g.name for g in visible(present, unlike)[0]] == ["Small", "Big"]
    fake(card(0), card(1))
    assert visible(cards.gpus()[0], {**unlike, "CUDA_VISIBLE_DEVICES": "1"})[0][0].uuid == "GPU-11"
