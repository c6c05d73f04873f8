"""Stands in for torch in a task on a made-up GPU: what `benchsuite.worker` asks of it, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace

__version__ = "0.0+soak"
version = SimpleNamespace(cuda="0.0")
backends = SimpleNamespace(
    cuda=SimpleNamespace(matmul=SimpleNamespace()),
    cudnn=SimpleNamespace(conv=SimpleNamespace(), rnn=SimpleNamespace(), version=lambda: 0),
)
cuda = SimpleNamespace(
    is_available=lambda: True,
    device_count=lambda: 1,
    set_device=lambda index: None,
    synchronize=lambda: None,
    get_device_name=lambda index: "Card",
    reset_peak_memory_stats=lambda index: None,
    max_memory_allocated=lambda index: 0,
    max_memory_reserved=lambda index: 0,
    memory_reserved=lambda: 0,
    mem_get_info=lambda index=0: (8 << 30, 8 << 30),
)


def manual_seed(seed: int) -> None:
    """No random number is drawn."""


def get_num_threads() -> int:
    return 1
