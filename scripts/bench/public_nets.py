"""The nets of the plain loops in `loops.py`, each written from a public recipe that its comment names.

All return their loss, so that torch.compile sees it as well.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# --- GPT-2 ------------------------------------------------------------------------------------------------------------
# Model and settings after nanoGPT (github.com/karpathy/nanoGPT, model.py and bench.py): fp32 weights under autocast,
# one compiled forward pass with the loss, fused AdamW. The 1558M shape is that of llm.c, scripts/run_gpt2_1558M.sh.


class GptBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.ln1(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, sequence: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        for value in self.parameters():
            if value.dim() > 1:
                nn.init.normal_(value, std=0.02)

    def forward(self, words: Tensor, following: Tensor) -> Tensor:
        x = self.wte(words) + self.wpe(torch.arange(words.shape[1], device=words.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), following.flatten())


# --- Llama ------------------------------------------------------------------------------------------------------------
# Model and settings after torchtitan (github.com/pytorch/torchtitan, models/llama3): fp32 weights, activations in bf16,
# three matrices for queries, keys and values, two for the MLP's hidden units, fused AdamW with betas 0.9 and 0.95,
# gradients clipped at 1. The shape is Meta's Llama-3.2-1B, whose output is tied.


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).type_as(x)


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.head = width // heads
        self.norm1, self.norm2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.wq, self.wo = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.wk, self.wv = (nn.Linear(width, kv_heads * self.head, bias=False) for _ in range(2))
        self.w1, self.w3 = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.w2 = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y = normed(x, self.norm1)
        q, k, v = (w(y).unflatten(-1, (-1, self.head)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.wo(mixed.transpose(1, 2).flatten(2))
        y = normed(x, self.norm2)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


def normed(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, weight.shape, weight.to(x.dtype), 1e-5)


class Llama(nn.Module):
    def __init__(
        self, layers: int, width: int, heads: int, kv_heads: int, hidden: int, vocabulary: int, sequence: int
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, kv_heads, hidden) for _ in range(layers))
        self.norm = nn.Parameter(torch.ones(width))
        speeds = 500_000.0 ** (-torch.arange(0, width // heads, 2) / (width // heads))
        angles = torch.arange(sequence)[:, None] * speeds
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        for value in self.parameters():
            if value.dim() > 1:
                nn.init.normal_(value, std=0.02)

    def forward(self, words: Tensor, following: Tensor) -> Tensor:
        x = self.embed(words).bfloat16()
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(normed(x, self.norm), self.embed.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), following.flatten())


# --- BERT -------------------------------------------------------------------------------------------------------------
# Model after Devlin et al. (2018) and BertForMaskedLM of Hugging Face transformers (models/bert/modeling_bert.py):
# norms after the sums, dropout 0.1, logits at every place, and a loss over the masked 15 %.


class BertLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.ln1, self.ln2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0)
        x = self.ln1(x + self.drop(self.proj(mixed.transpose(1, 2).flatten(2))))
        return self.ln2(x + self.drop(self.out(F.gelu(self.fc(x)))))


class Bert(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, sequence: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.kinds = nn.Embedding(2, width)
        self.ln, self.drop = nn.LayerNorm(width, eps=1e-12), nn.Dropout(0.1)
        self.layers = nn.Sequential(*(BertLayer(width, heads) for _ in range(layers)))
        self.dense, self.dense_ln = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        for value in self.parameters():
            if value.dim() > 1:
                nn.init.normal_(value, std=0.02)

    def forward(self, words: Tensor, masked: Tensor) -> Tensor:
        places = torch.arange(words.shape[1], device=words.device)
        x = self.words(words) + self.places(places) + self.kinds(torch.zeros_like(words))
        x = self.layers(self.drop(self.ln(x)))
        logits = F.linear(self.dense_ln(F.gelu(self.dense(x))), self.words.weight, self.bias)
        return F.cross_entropy(logits.flatten(0, 1), masked.flatten())


# --- ResNet-50 --------------------------------------------------------------------------------------------------------
# Settings after the reference of torchvision (github.com/pytorch/vision, references/classification): SGD with momentum
# 0.9 and weight decay 1e-4, mixed precision, channels last.


class ResNet(nn.Module):
    def __init__(self, arch: str) -> None:
        super().__init__()
        import torchvision.models

        self.net = torchvision.models.get_model(arch, weights=None).to(memory_format=torch.channels_last)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.net(images), labels)
