"""The numbers and switches that make one decoder out of many families. No torch: the inspector reads it too.

A switch says what a model is, never how it is computed. Whatever can be worked into the weights is, when they are
loaded (`engines.native.models.build`): norms that add one, residual and logit multipliers, other orders of rotated
pairs, LayerNorm. The rest chooses callables once (`engines.native.models.blocks`); no step asks a switch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DENSE = (
    "llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma", "gemma2", "gemma3", "phi3", "glm", "glm4", "chatglm",
    "minicpm", "baichuan", "cohere", "cohere2",
)  # fmt: skip
MIXTURES = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3")
"""Mixture-of-experts models: in floating point only, and without captured graphs on a GPU."""
ARCHITECTURES = DENSE + MIXTURES


@dataclass(frozen=True, slots=True)
class Rope:
    """theta: base. kind: "default"; "linear" (positions divided by `factor`); "llama3" (long wavelengths slowed by
    `factor`, between `low` and `high` blended, https://arxiv.org/abs/2407.21783); "factors" (one divisor per
    frequency, from a tensor of the file); "yarn" (wavelengths that fit `beta_slow` times into the original context
    slowed, those that fit `beta_fast` times kept, https://arxiv.org/abs/2309.00071); "longrope" (one divisor per
    frequency: `long` where the engine serves more than the original context, else `short`,
    https://arxiv.org/abs/2402.13753).

    dims: dimensions of a head that are turned, its first ones; 0 = all. interleaved: the file pairs dimensions
    (2i, 2i + 1), not (i, i + dims / 2). attention_factor: of cosines and sines.
    """

    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original_context: int = 8192  # tokens
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()
    attention_factor: float = 1.0
    dims: int = 0
    interleaved: bool = False


@dataclass(frozen=True, slots=True)
class Moe:
    """Experts of the layers marked in `sparse`; the others have a plain MLP of the model's own width.

    scoring: of the router's logits. normalise: the chosen scores are divided by their sum; scale: then multiplied.
    groups, top_groups: only experts of the best groups can be chosen; a group is as good as the sum of its `group_best`
    best experts. correction: a bias in the file is added for the choice, not for the weight.
    """

    experts: int
    active: int  # of each token
    ffn: int  # of one expert
    sparse: tuple[bool, ...]
    scoring: Literal["softmax", "sigmoid"] = "softmax"
    normalise: bool = True
    scale: float = 1.0
    groups: int = 1
    top_groups: int = 1
    group_best: int = 1
    correction: bool = False
    shared_ffn: int = 0  # of an expert that every token passes; 0 = none
    shared_gate: bool = False  # its share is a sigmoid of the token


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, https://arxiv.org/abs/2405.04434): keys and values of a token are one
    vector of `kv_rank` values, which the cache holds beside one rotated key part of `rope_dim` for all heads."""

    q_rank: int  # 0 = queries are not compressed
    kv_rank: int
    nope_dim: int  # of a head, not rotated
    rope_dim: int
    value_dim: int
    norm_eps: float = 1e-6  # of the norms of the compressed vectors


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """form: "pre" (norm before attention and before the MLP); "sandwich" (and after each, before it is added);
    "parallel" (one norm, attention and MLP of it side by side). norm: "layer" has no bias. norm_offset: added to each
    norm weight of the file. ropes: per layer, None = not rotated; empty = `rope` in each. attention_scale: 0 =
    head_dim ** -0.5. Softcaps: cap × tanh(x / cap), 0 = none. residual_scale: of what attention and MLP add.
    normed_head: rows of the head are scaled to length 1. With `latent`, kv_heads is 1 and head_dim what the cache holds
    of a token.
    """

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
    form: Literal["pre", "sandwich", "parallel"] = "pre"
    norm: Literal["rms", "layer"] = "rms"
    norm_offset: float = 0.0
    activation: Literal["silu", "gelu_tanh"] = "silu"
    ropes: tuple[Rope | None, ...] = ()
    attention_scale: float = 0.0
    attention_softcap: float = 0.0
    logit_softcap: float = 0.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    normed_head: bool = False
    moe: Moe | None = None
    latent: Latent | None = None

    @property
    def q_size(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def scale(self) -> float:
        """Of the products of queries and keys."""
        return self.attention_scale or self.head_dim**-0.5

    @property
    def sees_all(self) -> bool:
        """Every query sees all tokens before it, with plain scores."""
        return not any(self.windows) and self.attention_softcap == 0

    @property
    def sliding_window(self) -> int:
        """The widest window, 0 if any layer sees everything: the KV cache must hold that much."""
        return 0 if 0 in self.windows else max(self.windows)

    @property
    def kv_values(self) -> int:
        """Values that the KV cache holds of one token, in all layers."""
        return self.layers * self.kv_size * (1 if self.latent else 2)

    @property
    def widest_ffn(self) -> int:
        """Of what one token passes: a plain MLP, or its experts with the shared one."""
        if self.moe is None:
            return self.ffn
        mixed = self.moe.active * self.moe.ffn + self.moe.shared_ffn
        return mixed if all(self.moe.sparse) else max(self.ffn, mixed)

    def rope_of(self, layer: int) -> Rope | None:
        return self.ropes[layer] if self.ropes else self.rope

    def sparse(self, layer: int) -> bool:
        return self.moe is not None and self.moe.sparse[layer]

    def parameters(self) -> int:
        from engines.native.loader.names import expected_shapes

        total = 0
        for shape in expected_shapes(self).values():
            count = 1
            for length in shape:
                count *= length
            total += count
        return total
