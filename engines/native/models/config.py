"""The numbers and switches that make one decoder out of the Llama family. No torch: the inspector reads it too."""

from __future__ import annotations

from dataclasses import dataclass

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class Rope:
    """theta: base. kind: "default"; "linear" (positions divided by `factor`); "llama3" (long wavelengths slowed by
    `factor`, between `low` and `high` blended, https://arxiv.org/abs/2407.21783); "factors" (one divisor per
    frequency, from a tensor of the file)."""

    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original_context: int = 8192  # tokens


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    architecture: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context_length: int  # tokens
    norm_eps: float
    rope: Rope
    tied: bool  # the head is the embedding
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    windows: tuple[int, ...]  # per layer, tokens that a query sees; 0 = all

    @property
    def q_size(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def sliding_window(self) -> int:
        """The widest window, 0 if any layer sees everything: the KV cache must hold that much."""
        return 0 if 0 in self.windows else max(self.windows)

    def parameters(self) -> int:
        from engines.native.loader.names import expected_shapes

        total = 0
        for shape in expected_shapes(self).values():
            count = 1
            for length in shape:
                count *= length
            total += count
        return total
