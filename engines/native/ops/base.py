"""The operations that a decoder is made of. Two sets of them exist with the same signatures: `torch_ops` (used on a
CPU, and the reference in tests) and `triton_ops` (used on a GPU). The model code calls `Ops` and nothing below it.

Shapes: t tokens of all rows of the step, concatenated; n rows; hq query heads, hk key/value heads, d head size;
B blocks in the pool, s tokens in a block. One layer's KV pool is two tensors [B, hk, s, d]: one head's page is
contiguous, so a kernel reads a tile with one stride. Block 0 is the null block: padded tokens are written there.
In 8 bits it is two `QuantizedPool` instead, with operations made for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

from engines.native.layers.linear import Linear
from engines.native.ops.spans import Span
from engines.native.quantized_kv import Pool

if TYPE_CHECKING:
    from engines.native.decode_graph import DecodeGraphs
    from engines.native.models.decoder import Decoder
    from engines.native.sample.sampler import Sampler
    from engines.native.state import Rows


@dataclass(slots=True)
class Batch:
    """The inputs of one pass, made from the row tables. All tensors on the model's device.

    token_ids, positions: int64 [t]; slots: int64 [t], block × s + offset, where the token's K and V go;
    cu_query: int32 [n + 1], cumulative query lengths; seq_lens: int32 [n], tokens in the KV cache after this pass;
    block_tables: int32 [n, width]; logits_index: int64 [m], which of the t tokens need logits, None for all.
    ancestors: int32 [t], of a pass that verifies trees: bit j of a token's word says that it may see the j-th token of
    its row in this pass (itself is one); 0 is a plain causal token. None: all are. A token's place in its row, by which
    it is stored and seen, is then not its position.
    max_query, max_seq: upper bounds known on the host, so that no grid needs a device read. spans: the rows by how
    attention is best cut up, known on the host; empty: all alike.
    shared: what a set of operations works out in the first layer of the pass and reads in the others.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    cu_query: torch.Tensor
    seq_lens: torch.Tensor
    block_tables: torch.Tensor
    logits_index: torch.Tensor | None
    max_query: int
    max_seq: int
    spans: Sequence[Span] = ()
    ancestors: torch.Tensor | None = None
    shared: dict[str, Any] = field(default_factory=dict)


AddNorm = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float], tuple[torch.Tensor, torch.Tensor]]
"""`Ops.add_rms_norm`."""


class Ops(Protocol):
    trees: bool
    """Whether passes verify trees of guesses, with `Batch.ancestors`; else chains."""

    def linear(self, layer: Linear, x: torch.Tensor) -> torch.Tensor:
        """layer(x), [t, n]."""
        ...

    def summands(self, layer: Linear, x: torch.Tensor) -> torch.Tensor:
        """layer(x) [t, n] for `add_rms_norm` or `rope_and_cache`, which also take what a set of operations may leave in
        its place: float32 summands [splits, t, n]."""
        ...

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """x [t, h] → [t, h]: x / sqrt(mean(x²) + eps) × weight, statistics in float32."""
        ...

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(rms_norm(x + residual), x + residual); x: as `summands` gives it; `residual` may be written in place."""
        ...

    def add_rms_norm_for(self, layer: Linear | None) -> AddNorm:
        """`add_rms_norm` where nothing but `layer` reads the norm, through `summands` or `silu_gated`: it may come in a
        form of that layer's own, of which only the length is anyone's business."""
        ...

    def silu_gated_for(self, down: Linear) -> Callable[[Linear, torch.Tensor], torch.Tensor]:
        """`silu_gated` where nothing but `down` reads the result, through `linear` or `summands`; likewise."""
        ...

    def rope_and_cache(
        self,
        qkv: torch.Tensor,
        cos_sin: torch.Tensor,
        batch: Batch,
        k_cache: Pool,
        v_cache: Pool,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
        eps: float,
    ) -> torch.Tensor:
        """Split qkv [t, (hq + 2 hk) d], as `summands` gives it, RMS-normalise q and k per head where weights [d] are
        given, rotate them (half-split layout as in transformers; cos_sin [max position, d]: cos of d/2 angles, then
        sin), write k and v at `batch.slots`, and return q [t, hq, d]."""
        ...

    def attention(
        self, q: torch.Tensor, k_cache: Pool, v_cache: Pool, batch: Batch, scale: float, window: int
    ) -> torch.Tensor:
        """Causal paged attention of ragged queries: row i's queries are the last query-length of its seq_lens[i]
        tokens. q [t, hq, d] → [t, hq, d]. `window` > 0 limits how far back a query sees, in tokens."""
        ...

    def capped_attention(
        self,
        q: torch.Tensor,
        k_cache: Pool,
        v_cache: Pool,
        batch: Batch,
        scale: float,
        window: int,
        softcap: float,
    ) -> torch.Tensor:
        """As `attention`, with each score s, scaled, replaced by softcap × tanh(s / softcap)."""
        ...

    def latent_rope_and_cache(
        self, q: torch.Tensor, key: torch.Tensor, cos_sin: torch.Tensor, batch: Batch, cache: torch.Tensor
    ) -> torch.Tensor:
        """Rotate the last r dimensions of each head of q [t, hq, d] and of key [t, d] (cos_sin [max position, r]),
        write key at `batch.slots` of cache [B, 1, s, d], and return q."""
        ...

    def silu_gated(self, gate_up: Linear, x: torch.Tensor) -> torch.Tensor:
        """gate_up: [t, h] → [t, 2 f]; its first half through silu, times the second: [t, f]."""
        ...

    def gelu_tanh_gated(self, gate_up: Linear, x: torch.Tensor) -> torch.Tensor:
        """As `silu_gated`, with the tanh approximation of gelu."""
        ...

    def experts(
        self, x: torch.Tensor, shares: torch.Tensor, chosen: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
    ) -> torch.Tensor:
        """x [t, h] through the experts `chosen`, int64 [t, k], each a gated MLP (silu) with weights gate_up
        [experts, 2 f, h] and down [experts, h, f]: the sum of what they give times `shares` [t, k], [t, h]."""
        ...

    def sampler(self, rows: int, vocab: int, device: torch.device) -> Sampler:
        """The sampler that goes with these operations, for `rows` request slots."""
        ...

    def graphs(self, model: Decoder, rows: Rows, sampler: Sampler) -> DecodeGraphs | None:
        """Whole decode steps as captured graphs, where the device has them and the model's steps read nothing back.
        `sampler`: made by `sampler`."""
        ...
