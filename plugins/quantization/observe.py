"""What calibration tokens show of a layer: its inputs one product after the other, each behind the products that are
already quantized, in one pass.

A layer's pass stops before each product: its inputs are there, its weights are replaced, and the pass goes on from
there. So every product sees the inputs that it will have in the finished model, and nothing is computed twice but,
where memory is short, the products of the MLP.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional

from engines.native.layers.linear import Linear, method_for
from engines.native.models.blocks import Block, LayerWeights, Product, make_block
from engines.native.models.smooth import RawLayer
from engines.native.ops.base import Batch
from engines.native.ops.torch_ops import TorchOps
from plugins.quantization.model import Source

BLOCK = 16
CHUNK = 4096
"""Tokens that run together, rounded to whole sequences: a few dozen MB of activations."""
KEPT_BYTES = 2**30
"""Of inputs that are kept between the stages of one layer; what doesn't fit is computed again."""
BAND = 384
"""Columns of a Hessian that are summed up at once; only blocks on and above the diagonal are."""


class Hessian:
    """Σ x xᵀ over tokens, [in, in], and per input channel the greatest |x| and Σ |x|."""

    def __init__(self, inputs: int, products: bool = True) -> None:
        """products: whether the matrix is wanted, or only the ranges."""
        self._sum = torch.zeros(inputs, inputs) if products else None
        self.greatest, self.total, self.tokens = torch.zeros(inputs), torch.zeros(inputs), 0

    def add(self, x: torch.Tensor) -> None:
        """x: float32 [tokens, in]."""
        size = x.abs()
        self.greatest = torch.maximum(self.greatest, size.amax(0))
        self.total += size.sum(0)
        self.tokens += len(x)
        if self._sum is not None:
            for first in range(0, len(self._sum), BAND):
                self._sum[first : first + BAND, first:].addmm_(x[:, first : first + BAND].t(), x[:, first:])

    @property
    def products(self) -> bool:
        """Whether there is a matrix."""
        return self._sum is not None

    @property
    def mean(self) -> torch.Tensor:
        return self.total / max(1, self.tokens)

    def matrix(self) -> torch.Tensor:
        """Whole and symmetric. Raises ValueError where only ranges were collected."""
        if self._sum is None:
            raise ValueError("this pass collected ranges only")
        upper = self._sum.triu()
        return upper + upper.triu(1).t()


class Known:
    """Stands for a product whose output is known already. `values`: float32 [t, out]; of gate and up: what their gate
    makes of them, [t, ffn]."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.values.clone()  # a block may add to what it gets


class _Seen:
    """Stands for a product whose input is wanted: keeps it and gives zeros, from which nothing is read."""

    def __init__(self, out: int) -> None:
        self._out = out
        self.values = torch.empty(0)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.values = x
        return x.new_zeros(1, 1).expand(len(x), self._out)


class _Ops(TorchOps):
    """Gated products that are known are not computed; nor is what follows an input that was wanted."""

    def silu_gated(self, gate_up: Linear, x: torch.Tensor) -> torch.Tensor:
        return self._known(gate_up, x, super().silu_gated)

    def gelu_tanh_gated(self, gate_up: Linear, x: torch.Tensor) -> torch.Tensor:
        return self._known(gate_up, x, super().gelu_tanh_gated)

    @staticmethod
    def _known(gate_up: Linear, x: torch.Tensor, compute: Product) -> torch.Tensor:
        if isinstance(gate_up, Known):
            return gate_up.values
        return gate_up(x) if isinstance(gate_up, _Seen) else compute(gate_up, x)


@dataclass(slots=True)
class _Chunk:
    """Some sequences in one layer: where they are in the stream, and what is known of them so far."""

    tokens: slice
    batch: Batch
    attended: torch.Tensor | None = None  # [t, heads × head_dim], before o
    out: torch.Tensor | None = None  # what o gives
    gated: torch.Tensor | None = None  # [t, ffn], before down


class Stream:
    """Calibration sequences on their way through the layers. Owns their residual stream, float32 [tokens, hidden]."""

    def __init__(self, source: Source, ids: torch.Tensor) -> None:
        """ids: int64 [samples, tokens]."""
        self.source, self._samples, self._length = source, *ids.shape
        self.residual = source.ends.embed(ids.flatten())
        together = max(1, min(self._samples, CHUNK // self._length))
        config = source.config
        pages = -(-self._length // BLOCK)
        pool = torch.zeros(config.kv_heads, together * pages, BLOCK, config.head_dim).transpose(0, 1)
        self.pools = pool, pool.clone(memory_format=torch.preserve_format)
        whole, rest = _batch(together, self._length), self._samples % together
        last = _batch(rest, self._length) if rest else whole
        self.batches: list[tuple[slice, Batch]] = []
        for first in range(0, self._samples, together):
            end = min(first + together, self._samples)
            batch = whole if end - first == together else last
            self.batches.append((slice(first * self._length, end * self._length), batch))

    def fork(self) -> Stream:
        """Another at the same place, which goes its own way."""
        other = copy.copy(self)  # pools and batches are shared: a layer writes every place before it reads
        other.residual = self.residual.clone()
        return other

    def layer(self, index: int, raw: RawLayer) -> LayerPass:
        return LayerPass(self, index, raw)

    def normed(self, tokens: slice) -> torch.Tensor:
        """The final hidden states of some tokens, as the head reads them."""
        ends = self.source.ends
        return TorchOps().rms_norm(self.residual[tokens], ends.norm, self.source.config.norm_eps)


class LayerPass:
    """One layer's pass. `inputs` and `put` for each of GROUPS in their order, then `finish`."""

    def __init__(self, stream: Stream, index: int, raw: RawLayer) -> None:
        self._stream, self._index = stream, index
        self._chunks = [_Chunk(tokens, batch) for tokens, batch in stream.batches]
        self._linears: dict[str, Linear] = {}
        self._room = KEPT_BYTES
        self.key_range = self.value_range = torch.zeros(stream.source.config.kv_heads)
        self.renew(raw)

    def renew(self, raw: RawLayer) -> None:
        """The layer's tensors as they are now; products that `put` gave stay as they are."""
        self._raw, self._ops = raw, _Ops()  # Ops remember tensors by their identity
        self._floating: dict[str, Linear] = {}

    def put(self, group: str, linear: Linear) -> None:
        self._linears[group] = linear

    def inputs(self, group: str) -> Iterator[torch.Tensor]:
        """What the product reads, float32 [t, in], chunk by chunk; the tensors belong to the pass."""
        for chunk in self._chunks:
            if group == "qkv":
                yield self._normed(chunk)
            elif group == "o":
                yield self._attended(chunk)
            elif group == "gate_up":
                yield self._before(chunk, "gate_up")
            else:
                yield self._gated(chunk)

    def tried(self, **instead: Linear) -> torch.Tensor:
        """What comes of other products in place of "qkv", "gate_up" or both: attention's output, [tokens, hidden], or
        the residual stream after the MLP. The pass itself stays where it is."""
        outs = []
        for chunk in self._chunks:
            x = self._normed(chunk)
            out = self._linear("o")(self._block(**instead).attend(x, chunk.batch)) if "qkv" in instead else None
            if out is None or "gate_up" in instead:
                known = self._out(chunk) if out is None else out
                residual = self._stream.residual[chunk.tokens].clone()
                block = self._block(**instead | {"o": Known(known)})
                out = block.finish(known, x, residual)[1]
            outs.append(out)
        return torch.cat(outs)

    def finish(self) -> None:
        """Move the stream past the layer."""
        for chunk in self._chunks:
            gated = self._gated(chunk)
            _, after = self._finished(chunk, gate_up=Known(gated), down=self._linear("down"))
            self._stream.residual[chunk.tokens] = after
            chunk.attended = chunk.out = chunk.gated = None

    def _normed(self, chunk: _Chunk) -> torch.Tensor:
        eps = self._stream.source.config.norm_eps
        return self._ops.rms_norm(self._stream.residual[chunk.tokens], self._raw.input_norm, eps)

    def _attended(self, chunk: _Chunk) -> torch.Tensor:
        if chunk.attended is None:
            keys, values = self._stream.pools
            chunk.attended = self._block().attend(self._normed(chunk), chunk.batch)
            tokens = len(chunk.attended)
            self.key_range = torch.maximum(self.key_range, _by_head(keys, chunk.batch, tokens))
            self.value_range = torch.maximum(self.value_range, _by_head(values, chunk.batch, tokens))
        return chunk.attended

    def _out(self, chunk: _Chunk) -> torch.Tensor:
        if chunk.out is None:
            chunk.out = self._linear("o")(self._attended(chunk))
            chunk.attended = chunk.out.new_empty(len(chunk.out), 0)  # not read again
        return chunk.out

    def _gated(self, chunk: _Chunk) -> torch.Tensor:
        if chunk.gated is not None:
            return chunk.gated
        gated = self._before(chunk, "down")
        size = gated.numel() * gated.element_size()
        if size <= self._room:
            self._room -= size
            chunk.gated = gated
        return gated

    def _before(self, chunk: _Chunk, group: str) -> torch.Tensor:
        seen = _Seen(self._raw.down.shape[1] if group == "gate_up" else self._raw.down.shape[0])
        if group == "gate_up":
            self._finished(chunk, gate_up=seen, down=_Seen(self._raw.down.shape[0]))
        else:
            self._finished(chunk, gate_up=self._linear("gate_up"), down=seen)
        return seen.values

    def _finished(self, chunk: _Chunk, **instead: Linear) -> tuple[torch.Tensor, torch.Tensor]:
        """The second half of the block, with o's output as it is known."""
        out = self._out(chunk)
        residual = self._stream.residual[chunk.tokens].clone()  # a block may write over it
        block = self._block(o=Known(out), **instead)
        return block.finish(out, self._normed(chunk), residual)

    def _linear(self, group: str) -> Linear:
        if group in self._linears:
            return self._linears[group]
        if group not in self._floating:
            self._floating[group] = linear_of(self._raw, group)
        return self._floating[group]

    def _block(self, **instead: Linear) -> Block:
        stream, raw = self._stream, self._raw
        config = stream.source.config
        linears = {group: instead.get(group) or self._linear(group) for group in ("qkv", "o", "gate_up", "down")}
        layer = LayerWeights(
            raw.input_norm, linears["qkv"], raw.q_norm, raw.k_norm, linears["o"], raw.post_norm, linears["gate_up"],
            linears["down"], raw.after_attention, raw.after_mlp,
        )  # fmt: skip
        following = torch.ones(config.hidden)  # the next layer norms for itself
        cos_sin = stream.source.ends.cos_sin[self._index]
        return make_block(config, self._index, layer, following, cos_sin, self._ops, stream.pools)


def linear_of(raw: RawLayer, group: str) -> Linear:
    """One product of a layer, in float32."""
    made = {
        "qkv": (raw.qkv, raw.qkv_bias),
        "o": (raw.o, raw.o_bias),
        "gate_up": (raw.gate_up, raw.gate_up_bias),
        "down": (raw.down, raw.down_bias),
    }
    return method_for("float32", "cpu")(*made[group])


def _by_head(pool: torch.Tensor, batch: Batch, tokens: int) -> torch.Tensor:
    """The greatest |value| of each head over the tokens of the batch; pool [B, hk, s, d] → [hk]."""
    by_token = pool.transpose(0, 1).flatten(1, 2)[:, batch.slots[:tokens]]
    return by_token.abs().amax(dim=(1, 2))


def _batch(samples: int, length: int) -> Batch:
    """So many sequences of one length, each in blocks of its own."""
    pages = -(-length // BLOCK)
    positions = torch.arange(length).repeat(samples)
    starts = torch.arange(samples).repeat_interleave(length) * pages * BLOCK
    return Batch(
        token_ids=positions,  # never read: the stream holds what the embedding made of them
        positions=positions,
        slots=starts + positions,
        cu_query=torch.arange(samples + 1, dtype=torch.int32) * length,
        seq_lens=torch.full((samples,), length, dtype=torch.int32),
        block_tables=torch.arange(samples * pages, dtype=torch.int32).view(samples, pages),
        logits_index=None,
        max_query=length,
        max_seq=length,
    )


def negative_log_likelihood(stream: Stream, ids: torch.Tensor) -> torch.Tensor:
    """Of each token but the first of its sequence, nats, float64 [samples, tokens − 1]. ids: as the stream had them;
    its layers are done."""
    samples, length = ids.shape
    losses = torch.empty(samples, length - 1, dtype=torch.float64)
    for row in range(samples):
        logits = stream.source.ends.head(stream.normed(slice(row * length, (row + 1) * length - 1)))
        losses[row] = functional.cross_entropy(logits, ids[row, 1:], reduction="none").double()
    return losses
