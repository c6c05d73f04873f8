"""One rank of a group that trains a model together: how it joins the others, agrees with them, and leaves them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from benchsuite.describe.training import Backend
from benchsuite.errors import ModelError
from benchsuite.events import PULSE_BYTES
from benchsuite.measurement import GroupUsed


@dataclass
class Ranks:
    """This rank and its group.

    Attributes:
        rank: the number of this rank, from 0.
        ranks: the number of ranks.
        facts: how the ranks met, for the result.
        pulse: the group's heartbeats, a counter for each rank.
        said_stop: the parent has asked rank 0 to stop, and all ranks know it.
        counting: the ranks whose items count, each as many as those of rank 0; 0 stands for all ranks.
    """

    rank: int
    ranks: int
    facts: GroupUsed
    pulse: memoryview
    said_stop: bool = False
    counting: int = 0

    def __post_init__(self) -> None:
        self.counting = self.counting or self.ranks

    def agree(self, said: Sequence[int]) -> list[int]:
        """The numbers of rank 0, on every rank. All ranks wait for it.

        Args:
            said: this rank's numbers; only those of rank 0 matter, the others give as many.
        """
        import torch
        import torch.distributed as dist

        numbers = torch.tensor(said, dtype=torch.int64)
        dist.broadcast(numbers, 0)
        agreed: list[int] = numbers.tolist()
        return agreed

    def total(self, numbers: Sequence[float]) -> list[float]:
        """The sums of the numbers of all ranks, on every rank. All ranks wait for it."""
        import torch
        import torch.distributed as dist

        sums = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(sums)  # on the CPU, through gloo
        added: list[float] = sums.tolist()
        return added

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        import torch
        import torch.distributed as dist

        dist.all_reduce(torch.zeros(1))  # on the CPU, through gloo

    def beat(self) -> None:
        """Count one more step of progress. If the group hangs, its parent finds the ranks that are behind."""
        self.pulse[self.rank] += 1

    def leave(self) -> None:
        """Leave the group, once all ranks are here."""
        import torch.distributed as dist

        dist.all_gather_object([None] * self.ranks, self.rank)  # no rank leaves while another waits for it
        dist.destroy_process_group()


def is_of_peers(error: BaseException) -> bool:
    """Does the error say that another rank could not be reached? Then that rank has the cause."""
    return type(error).__name__.startswith("Dist") or any(word in str(error) for word in ("gloo/transport", "NCCL"))


def rank_of(environ: Mapping[str, str]) -> int:
    """The number of this rank, which the launcher sets; 0 for a process without a group."""
    return int(environ.get("RANK", "0"))


def local_rank_of(environ: Mapping[str, str]) -> int:
    """The number of this rank among those of its launcher, which is the place of its GPU; 0 without a group."""
    return int(environ.get("LOCAL_RANK", "0"))


def join(device: str, timeout_s: float, pulse: str, backend: Backend | None = None) -> Ranks:
    """Join the other ranks at the place that the launcher put into the environment.

    Tensors on GPUs are exchanged through NCCL, tensors on the CPU through gloo.

    Args:
        device: torch's name.
        timeout_s: how long a rank waits for another before it fails.
        pulse: the group's file of heartbeats.
        backend: what carries tensors on GPUs instead of NCCL.

    Raises:
        RuntimeError: the ranks do not meet.
        ModelError: NCCL is asked for, and the ranks run on the CPU.
    """
    import torch
    import torch.distributed as dist

    on_gpu = device.startswith("cuda")
    if backend == "nccl" and not on_gpu:
        raise ModelError("parallel.backend nccl carries tensors between GPUs, and the ranks run on the CPU; give gloo")
    used = backend or ("nccl" if on_gpu else "gloo")
    dist.init_process_group(f"cpu:gloo,cuda:{used}" if on_gpu else "gloo", timeout=timedelta(seconds=timeout_s))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if used == "nccl" else None
    facts = GroupUsed(
        ranks=ranks,
        backend=used,
        nccl=nccl,
        port=int(os.environ["MASTER_PORT"]),
    )
    return Ranks(rank, ranks, facts, _open_pulse(Path(pulse), ranks))


def _open_pulse(path: Path, ranks: int) -> memoryview:
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), ranks * PULSE_BYTES)).cast("Q")
