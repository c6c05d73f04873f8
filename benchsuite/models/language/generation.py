"""Sampling from a decoder, token by token, with a cache of static size."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from benchsuite.models.language.attention import Cache
from benchsuite.models.language.network import Decoder
from benchsuite.models.language.shapes import Shape


class Actor:
    """A copy of a decoder that samples. Nothing waits for the device.

    Args:
        net: on its device, with rotary positions.
        shape: `batch_size` rows of `sequence` tokens, prompt and sampled ones together.
        dtype: of the copied weights and the cache.
        compiled: compile the step of one token and, on a GPU, replay it as a CUDA graph.

    Attributes:
        words: int64 [rows, tokens], what was prompted and sampled.
    """

    def __init__(self, net: Decoder, shape: Shape, dtype: torch.dtype, *, compiled: bool) -> None:
        self._net = copy.deepcopy(net).requires_grad_(False)
        for parameter in self._net.parameters():
            parameter.data = parameter.data.to(dtype)
        device = next(net.parameters()).device
        size = (shape.batch_size, shape.kv_heads, shape.sequence, shape.head_width)
        self._stored = [
            (torch.zeros(size, dtype=dtype, device=device), torch.zeros(size, dtype=dtype, device=device))
            for _ in range(shape.layers)
        ]
        self.words = torch.zeros(shape.batch_size, shape.sequence, dtype=torch.int64, device=device)
        self._place = torch.zeros(1, dtype=torch.int64, device=device)
        self._advance: Callable[[], None] = self._sample_next
        if compiled:
            self._advance = torch.compile(self._sample_next)
            if device.type == "cuda":
                self._advance = self._graphed(self._advance)

    def refresh(self, net: Decoder) -> None:
        """Copy the weights of the trained decoder."""
        with torch.no_grad():
            torch._foreach_copy_(list(self._net.parameters()), list(net.parameters()))

    def sample(self, prompts: Tensor) -> Tensor:
        """Continue prompts int64 [rows, n] to the full length -> `words`, which the next call overwrites."""
        first, length = prompts.shape[1], self.words.shape[1]
        self.words[:, :first] = prompts
        self.words[:, first] = self._drawn(prompts, torch.arange(first, device=prompts.device))
        self._place.fill_(first)
        for _ in range(first + 1, length):
            self._advance()
        return self.words

    def logits(self, words: Tensor, places: Tensor) -> Tensor:
        """Logits [rows, words] of the token that follows `words` int64 [rows, n], which are at `places` int64 [n]."""
        x = self._net.embed(words)
        for block, (keys, values) in zip(self._net.blocks, self._stored, strict=True):
            x = block(x, cache=Cache(keys, values, places))
        return self._net.logits(x[:, -1:])[:, 0]

    def _drawn(self, words: Tensor, places: Tensor) -> Tensor:
        """A token for each row, int64 [rows], drawn with the probability that the decoder gives it.

        It has the largest quotient of its probability and an exponential variable; `torch.multinomial` would wait for
        the device.
        """
        chances = self.logits(words, places).float().softmax(dim=-1)
        return (chances / torch.empty_like(chances).exponential_()).argmax(dim=-1)

    def _sample_next(self) -> None:
        """Sample the token after the one at `_place`, and move on."""
        drawn = self._drawn(self.words.index_select(1, self._place), self._place)
        self._place.add_(1)
        self.words.index_copy_(1, self._place, drawn[:, None])

    def _graphed(self, advance: Callable[[], None]) -> Callable[[], None]:
        """`advance` as a CUDA graph, captured after two calls on a stream of their own, as torch asks for."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._place.zero_()
                advance()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            advance()
        replay: Callable[[], None] = graph.replay
        return replay
