"""Work of the device that is the same at each step, as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import torch

EAGER = 3  # first runs, in which optimisers make their states


def graphed(work: Callable[[], None]) -> Callable[[], None]:
    """`work` as a CUDA graph, which is captured at its fourth call.

    The work reads and writes the same tensors at each call, and its first calls make all that it keeps.
    """
    calls = 0
    graph: torch.cuda.CUDAGraph | None = None

    def run() -> None:
        nonlocal calls, graph
        calls += 1
        if graph is not None:
            graph.replay()
        elif calls <= EAGER:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                work()
            torch.cuda.current_stream().wait_stream(stream)
        else:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                work()
            graph.replay()

    return run
