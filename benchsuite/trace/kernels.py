"""Classes of GPU kernels, by the words in their names."""

from __future__ import annotations

import re

# In order: the first class whose words are in the name is taken. Names are those of NCCL, cuBLAS, CUTLASS, cuDNN,
# FlashAttention, PyTorch and Triton.
_CLASSES = (
    ("communication", r"nccl|allreduce|all_reduce|reducescatter|reduce_scatter|allgather|all_gather|sendrecv"),
    ("attention", r"flash|fmha|attention|mha_(fwd|bwd)|sdpa"),
    ("optimiser", r"multi_tensor_apply|multitensor|fused_?adam|fused_?sgd|adamw?_|lamb"),
    ("batch or layer norm", r"batch_?norm|bn_(fw|bw)|layer_?norm|rms_?norm|group_?norm|instance_?norm"),
    ("convolution", r"conv|wgrad|dgrad|implicit_gemm|winograd|fprop|cudnn_infer|xmma_.*grad"),
    ("recurrent", r"lstm|gru_|rnn|elementwise_rnn|persist.*cell"),
    ("matrix product", r"gemm|gemv|cutlass|cublas|nvjet|matmul|_mm_|splitk|dot_kernel"),
    ("pooling", r"pool"),
    ("embedding and gather", r"embedding|index|gather|scatter"),
    ("softmax and loss", r"softmax|nll|cross_entropy|logsumexp|ctc"),
    ("random", r"distribution|philox|dropout|bernoulli"),
    ("layout and copy", r"nchwtonhwc|nhwctonchw|transpose|permute|copy|catarray|cat_|cast|fill"),
    ("reduction", r"reduce|sum_|norm|argmax|cub::|scan"),
    ("elementwise", r"elementwise|pointwise|vectorized|unrolled|triton_poi|foreach|relu|gelu|silu|binary|unary"),
    ("compiled (Triton)", r"triton"),
)
_PATTERNS = tuple((name, re.compile(words, re.IGNORECASE)) for name, words in _CLASSES)
OTHER = "other"
_LONGEST_NAME = 60
COMMUNICATION = "communication"


def kernel_class(name: str) -> str:
    """The class of a kernel; `other` if no word of its name is known."""
    return next((label for label, pattern in _PATTERNS if pattern.search(name)), OTHER)


def short_name(name: str) -> str:
    """A kernel's name without return type, template arguments and parameters, cut to 60 characters."""
    text = re.sub(r"^void ", "", name).replace("(anonymous namespace)::", "")
    inner = re.search(r"(\w+_kernel_cuda|\w*[Ff]unctor\w*|cutlass_\w+|\w+Ops?)\b", text)
    plain = re.sub(r"[<(].*", "", text, flags=re.DOTALL).rpartition("::")[2].strip() or text
    if inner and inner[1] not in plain:
        plain = f"{plain}<{inner[1]}>"
    return plain if len(plain) <= _LONGEST_NAME else f"{plain[: _LONGEST_NAME - 3]}..."
