"""One rank among those that train a model together: how it joins them, agrees with them, and leaves them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from benchsuite.events import PULSE_BYTES
from benchsuite.measurement import GroupUsed


@dataclass
class Ranks:
    """This rank's place in its group. `said_stop`: rank 0 was told by the parent to end, and all have heard it."""

    rank: int
    ranks: int
    facts: GroupUsed
    pulse: memoryview
    said_stop: bool = False

    def agree(self, said: Sequence[int]) -> list[int]:
        """Whole numbers as rank 0 says them; all ranks wait for it."""
        import torch
        import torch.distributed as dist

        numbers = torch.tensor(said, dtype=torch.int64)
        dist.broadcast(numbers, 0)
        agreed: list[int] = numbers.tolist()
        return agreed

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        import torch
        import torch.distributed as dist

        dist.all_reduce(torch.zeros(1))  # on the CPU, where the ranks talk by gloo

    def beat(self) -> None:
        """This rank has come one point further: its parent can tell who stays behind in a group that hangs."""
        self.pulse[self.rank] += 1

    def leave(self) -> None:
        """Part from the others, once all have come so far."""
        import torch.distributed as dist

        dist.all_gather_object([None] * self.ranks, self.rank)  # none goes while another still listens to it
        dist.destroy_process_group()


def is_of_peers(error: Exception) -> bool:
    """Does the error say that other ranks could not be reached? Then one of them has the cause."""
    return type(error).__name__.startswith("Dist") or any(word in str(error) for word in ("gloo/transport", "NCCL"))


def rank_of(environ: Mapping[str, str]) -> int:
    """This process's number in its group, from the launcher; 0 for one that is alone."""
    return int(environ.get("RANK", "0"))


def join(device: str, timeout_s: float, pulse: str) -> Ranks:
    """Meet the other ranks, by what the launcher put into the environment: NCCL for GPUs, gloo for what is on the CPU.

    Args:
        device: as torch calls it.
        timeout_s: after which a rank that waits for another gives up.
        pulse: the group's file of heartbeats.

    Raises:
        RuntimeError: they do not come together.
    """
    import torch
    import torch.distributed as dist

    on_gpu = device.startswith("cuda")
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=timedelta(seconds=timeout_s))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else None
    facts = GroupUsed(
        ranks=ranks,
        backend="nccl" if on_gpu else "gloo",
        nccl=nccl,
        port=int(os.environ["MASTER_PORT"]),
    )
    return Ranks(rank, ranks, facts, _open_pulse(Path(pulse), ranks))


def _open_pulse(path: Path, ranks: int) -> memoryview:
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), ranks * PULSE_BYTES)).cast("Q")
