"""The least time that a step can take on a device, op by op: max(operations / F, bytes / BW).

A step is `Step`: decode rows with their contexts, and prompt chunks. Everything else (utilization, launches, queues) is
put on top of this by `util_grid` and `simulate`.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from evaluation.planner.hardware import Gpu
from evaluation.planner.memory import Layout, kv_per_token
from evaluation.planner.model_spec import ModelSpec
from evaluation.planner.schemes import Scheme

HOP_S = 10e-6
"""Latency of one message between two devices of a host: aiconfigurator's `p2p_latency`."""


class Step(NamedTuple):
    """rows: decode rows, each with one token; keys: of all of them together, tokens in the cache; chunk: prompt tokens;
    pairs: query-key pairs of the chunks, Σ n·(start + n/2); guesses: checked beside the rows' own tokens, of all rows
    together."""

    rows: float = 0.0
    keys: float = 0.0
    chunk: float = 0.0
    pairs: float = 0.0
    guesses: float = 0.0

    @property
    def tokens(self) -> float:
        return self.rows + self.chunk + self.guesses

    @property
    def drawn(self) -> float:
        """Tokens whose logits are computed."""
        return self.rows + self.guesses + (1.0 if self.chunk else 0.0)


def decode(rows: float, context: float) -> Step:
    """`rows` requests of `context` tokens each."""
    return Step(rows=rows, keys=rows * context)


def prefill(tokens: float, start: float = 0.0, prompts: int = 1) -> Step:
    """`prompts` pieces of `tokens` tokens each, each behind `start` tokens of its own prompt."""
    return Step(chunk=prompts * tokens, pairs=prompts * tokens * (start + tokens / 2))


class Op(NamedTuple):
    """flops: operations; bytes read and written; seconds: the least time for both."""

    name: str
    flops: float
    bytes: float
    seconds: float


class Need(Struct, frozen=True):
    """Seconds that a step can't do without, by op: the grid's utilization divides each."""

    linear: float
    attention_decode: float
    attention_prefill: float
    communication: float

    @property
    def total(self) -> float:
        return self.linear + self.attention_decode + self.attention_prefill + self.communication


class Roof:
    """One rank of a model on a device. Reusable: constants are worked out once, `need` is a few products."""

    def __init__(self, model: ModelSpec, device: Gpu, scheme: Scheme, kv_dtype: str, layout: Layout = Layout()) -> None:
        self.model, self.device, self.scheme, self.layout = model, device, scheme, layout
        self._flops = device.flops(scheme.compute)
        self._attention_flops = device.flops("float32" if scheme.compute == "float32" else "bfloat16")
        self._kv = kv_per_token(model, kv_dtype, Layout(layout.tp, 1))  # pp stages take their turns
        tp, routed = layout.tp, model.experts * model.moe.active / model.moe.experts if model.moe else 0.0
        dense = model.attention + model.dense_mlp
        self._flops_per_token = 2.0 * (dense + routed) / tp
        self._flops_per_draw = 2.0 * model.embedding / tp
        self._dense_bytes = dense * scheme.linear / tp
        self._expert_bytes = model.experts * scheme.linear / tp
        self._head_bytes = model.embedding * (scheme.head_copy or scheme.ends) / tp
        self._window_share = _window_share(model)

    def linear(self, tokens: float, drawn: float) -> Op:
        """All projections of `tokens` rows and the head of `drawn` of them; weights are read once."""
        flops = self._flops_per_token * tokens + self._flops_per_draw * drawn
        size = self._dense_bytes + (self._head_bytes if drawn else 0.0)
        if self._expert_bytes:
            size += self._expert_bytes * self.model.experts_touched(tokens)
        return Op("linear", flops, size, max(flops / self._flops, size / self.device.bandwidth))

    def attention_decode(self, keys: float, rows: float) -> Op:
        model = self.model
        seen = self._seen(keys, rows)
        flops = 4.0 * model.layers * model.q_width * seen / self.layout.tp
        size = seen * self._kv
        seconds = max(flops / self._attention_flops, size / self.device.bandwidth)
        return Op("attention_decode", flops, size, seconds)

    def attention_prefill(self, pairs: float, tokens: float) -> Op:
        model = self.model
        flops = 4.0 * model.layers * model.q_width * pairs / self.layout.tp
        size = 2.0 * tokens * self._kv
        seconds = max(flops / self._attention_flops, size / self.device.bandwidth)
        return Op("attention_prefill", flops, size, seconds)

    def communication(self, tokens: float) -> Op:
        """Two all-reduces per layer, ring or one-shot, whichever is shorter; between stages one message."""
        model, tp, pp = self.model, self.layout.tp, self.layout.pp
        size = tokens * model.hidden * 2.0
        one = all_reduce(size, tp, self.device.link)
        hops = (pp - 1) * (size / self.device.link + HOP_S)
        seconds = 2 * model.layers * one + hops
        return Op("communication", 0.0, 2 * model.layers * size * (tp > 1) + (pp - 1) * size, seconds)

    def ops(self, step: Step) -> list[Op]:
        """In the order of a step."""
        found = [self.linear(step.tokens, step.drawn)]
        if step.rows:
            found.append(self.attention_decode(step.keys, step.rows))
        if step.chunk:
            found.append(self.attention_prefill(step.pairs, step.chunk))
        if self.layout.ranks > 1:
            found.append(self.communication(step.tokens))
        return found

    def need(self, step: Step) -> Need:
        tokens = step.tokens
        return Need(
            self.linear(tokens, step.drawn).seconds,
            self.attention_decode(step.keys, step.rows).seconds if step.rows else 0.0,
            self.attention_prefill(step.pairs, step.chunk).seconds if step.chunk else 0.0,
            self.communication(tokens).seconds if self.layout.ranks > 1 else 0.0,
        )

    def sol(self, step: Step) -> float:
        """Seconds: no implementation on this device is faster."""
        return self.need(step).total

    def _seen(self, keys: float, rows: float) -> float:
        """Keys that a decode reads, with windows; the mean over layers."""
        if not rows or not self._window_share:
            return keys
        mean = keys / rows
        whole = 1.0 - sum(share for _, share in self._window_share)
        return rows * (whole * mean + sum(share * min(mean, window) for window, share in self._window_share))


def all_reduce(size: float, ranks: int, link: float, latency: float = HOP_S) -> float:
    """Seconds of one all-reduce of `size` bytes: a ring, 2·(TP − 1)/TP·m/bw + 2·(TP − 1)·lat, or for small messages
    one shot, in which every rank reads the others' parts whole: (TP − 1)·m/bw + lat."""
    if ranks == 1:
        return 0.0
    ring = 2 * (ranks - 1) / ranks * size / link + 2 * (ranks - 1) * latency
    return min(ring, (ranks - 1) * size / link + latency)


def _window_share(model: ModelSpec) -> list[tuple[int, float]]:
    """(window, share of the layers)."""
    counted = {window: model.windows.count(window) for window in set(model.windows) if window}
    return [(window, layers / model.layers) for window, layers in counted.items()]
