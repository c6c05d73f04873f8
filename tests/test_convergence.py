"""Models trained one by one and as a fused array have the same loss curves, by the script that compares them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
sys.path.append(str(Path(__file__).resolve().parents[1] / "scripts/bench"))


def test_loss_curves_of_a_fused_array_are_those_of_models_trained_one_by_one(tmp_path: Path, one_thread: None) -> None:
    import convergence
    import torch

    asked = convergence.Asked((0.002, 0.001, 0.0005), 10, 2, "fp32", "none", tiny=True, device="cpu")
    found = convergence.curves(asked, tmp_path)
    apart = convergence.differences(found, asked)
    assert apart.pop("again:0.002") == 0.0, "a training on the CPU repeats exactly"
    assert [*apart] == ["fused:0.002", "fused:0.001", "fused:0.0005"]
    assert max(apart.values()) < 1e-9
    serial = [found[f"serial:{rate}"] for rate in ("0.002", "0.001", "0.0005")]
    assert torch.equal(serial[0][:1], serial[1][:1]), "the first loss is that of the saved weights"
    assert not torch.equal(serial[0][1:], serial[1][1:]), "learning rates make a difference"
    assert (tmp_path / "initial.pt").is_file()
    labels = [line.get_label() for line in convergence.plot(found, asked, "CPU").axes[0].lines]
    assert labels[:2] == ["serial, lr 0.002", "fused, lr 0.002"]
