"""The place of this process among the agents of a run over nodes, from the variables that a launcher sets."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchsuite.describe.tasks import Gpu
from benchsuite.errors import UsageError, encodable

_REMEDY = "start it with torchrun, srun or another launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"


@dataclass(frozen=True)
class Invited:
    """The place of this process.

    Attributes:
        rank: its number among all agents. Number 0 records the results.
        size: the number of agents.
        address, port: where the agents meet, an address of the first one.
        node: the number of its node.
        local_rank, local_size: its number among the agents of its node, and their number.
        store: torch's launcher serves a store at this address.
        meeting: distinguishes this start from others that use the same store.
    """

    rank: int
    size: int
    address: str
    port: int
    node: int
    local_rank: int = 0
    local_size: int = 1
    store: bool = False
    meeting: str = ""
    name: str = ""

    def own(self, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
        """This agent's share of the GPUs of its node.

        Raises:
            UsageError: they cannot be divided equally.
        """
        each, rest = divmod(len(gpus), self.local_size)
        if rest:
            raise UsageError(
                f"--join: {len(gpus)} GPUs of a node cannot be divided equally among its {self.local_size} processes; "
                "start one process on each node"
            )
        return tuple(gpus[self.local_rank * each : (self.local_rank + 1) * each])


def invited(environ: Mapping[str, str]) -> Invited:
    """The place that the environment gives this process: by RANK and WORLD_SIZE, or by the variables of srun.

    Raises:
        UsageError: a variable is missing, or its value is not possible.
    """
    by_slurm = "RANK" not in environ and "SLURM_PROCID" in environ
    rank_name, size_name = ("SLURM_PROCID", "SLURM_NTASKS") if by_slurm else ("RANK", "WORLD_SIZE")
    rank, size = _number(environ, rank_name), _number(environ, size_name)
    if size < 1 or rank >= size:
        raise UsageError(f"--join: {rank_name} {rank} is not below {size_name} {size}; number the processes from 0")
    address = environ.get("MASTER_ADDR", "")
    if not address:
        raise UsageError(f"--join: MASTER_ADDR is not set; {_REMEDY}")
    port = _number(environ, "MASTER_PORT")
    if not 0 < port < 65536:
        raise UsageError(f"--join: MASTER_PORT {port} is no TCP port; give one from 1 to 65535")
    local_rank, local_size = _local(environ, size, by_slurm=by_slurm)
    node_name = "SLURM_NODEID" if by_slurm else "GROUP_RANK"
    node = _number(environ, node_name) if node_name in environ else rank // local_size
    return Invited(
        rank=rank,
        size=size,
        address=address,
        port=port,
        node=node,
        local_rank=local_rank,
        local_size=local_size,
        store=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        meeting="/".join(environ.get(f"TORCHELASTIC_{name}", "0") for name in ("RUN_ID", "RESTART_COUNT")),
        name=environ.get("SLURMD_NODENAME") or encodable(socket.gethostname()),
    )


def _local(environ: Mapping[str, str], size: int, *, by_slurm: bool) -> tuple[int, int]:
    """The number of this process among those of its node, and their number."""
    if by_slurm:
        nodes = _number(environ, "SLURM_STEP_NUM_NODES" if "SLURM_STEP_NUM_NODES" in environ else "SLURM_NNODES")
        if nodes < 1 or size % nodes:
            raise UsageError(f"--join: {size} processes on {nodes} nodes; start equally many: srun --ntasks-per-node=1")
        local_rank, local_size = _number(environ, "SLURM_LOCALID"), size // nodes
    else:
        local_size = _number(environ, "LOCAL_WORLD_SIZE") if "LOCAL_WORLD_SIZE" in environ else 1
        local_rank = _number(environ, "LOCAL_RANK") if local_size > 1 else 0
    if local_size < 1 or size % local_size or local_rank >= local_size:
        raise UsageError(
            f"--join: LOCAL_RANK {local_rank} and LOCAL_WORLD_SIZE {local_size} do not fit {size} processes; start "
            "equally many on each node"
        )
    return local_rank, local_size


def _number(environ: Mapping[str, str], name: str) -> int:
    value = environ.get(name)
    if value is None:
        raise UsageError(f"--join: {name} is not set; {_REMEDY}")
    if not value.isascii() or not value.isdigit():
        raise UsageError(f"--join: {name} '{value}' is no number; {_REMEDY}")
    return int(value)
