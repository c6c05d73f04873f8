"""Environment variables that a task records and a rerun restores, and those that a worker never inherits."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Only these environment variables are recorded. Each can affect a measurement, and none should hold a secret.
_RECORDED = re.compile(
    r"(CUDA|NCCL|GLOO|TORCH|TORCHINDUCTOR|TORCHDYNAMO|TRITON|PYTORCH|ATEN|CUDNN|CUBLAS|DNNL|ONEDNN|MKLDNN"
    r"|OMP|MKL|KMP|GOMP|OPENBLAS|MALLOC)(_\w+)?"
    r"|NVIDIA_TF32_OVERRIDE|GLIBC_TUNABLES|PYTHONHASHSEED|PYTHONPATH|LD_PRELOAD|LD_LIBRARY_PATH"
)


# Words of a name, between underscores, that hint at a secret. TOKENIZERS_PARALLELISM holds none of them.
_SECRET = re.compile(
    r"(^|_)([A-Z0-9]*(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)S?|AUTH|PASS)(_|$)", re.IGNORECASE
)


# What sets the intra-op threads of torch: MKL's variable has precedence, but not every build of torch uses MKL.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


# Its value is the secret that the processes of a run over nodes share.
JOIN_SECRET = "BENCHSUITE_JOIN_SECRET"  # noqa: S105 - the name of the variable


# The launcher sets these for each rank, or for each process of a run over nodes; a worker never inherits them.
RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", JOIN_SECRET)


def looks_secret(name: str) -> bool:
    """Whether the name of an environment variable hints at a secret, as TORCH_SECRET_KEY and HF_TOKEN do."""
    return bool(_SECRET.search(name))


def recorded_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that a task records and a rerun restores. A worker inherits all others unrecorded."""
    return {name: environ[name] for name in sorted(environ) if _RECORDED.fullmatch(name) and not looks_secret(name)}
