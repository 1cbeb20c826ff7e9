"""Bytes of one rank, part by part, each with how it was found.

weights        parameters × bytes of the scheme; projections are cut by TP and PP, norms are on every rank
activations    the widest moment of one step and the logits of every request
graphs         of a GPU: what the largest captured decode step keeps for itself
communication  buffers of NCCL, by TP
overhead       context of the device, libraries, the engine's row tables
reserve        at most 5 % of all the others: for fragmentation, never for what could have been computed
kv             what the profile needs at least (`kv_floor`), and what is left of the device
"""

from __future__ import annotations

import math

import msgspec
from msgspec import Struct

from evaluation.planner.answers import MemoryLine
from evaluation.planner.hardware import Gpu
from evaluation.planner.model_spec import ModelSpec
from evaluation.planner.schemes import Scheme, kv_bytes

MIB = 2**20
RESERVE = 0.05
NCCL = {1: 0, 2: 342 * MIB, 4: 392 * MIB, 8: 392 * MIB}
"""Bytes by number of ranks: aiconfigurator's system files."""


class Engine(Struct, kw_only=True, frozen=True):
    """What an engine takes beside a model: the native engine's figures. sequences: at once at most; step_tokens: of one
    step. saves_windows: whether the cache lets go of what a sliding window has left. overhead: bytes of the context and
    of libraries. sampling: bytes per logit, as scores and noise need them."""

    name: str = "native"
    block: int = 16  # tokens
    sequences: int = 256
    step_tokens: int = 8192
    max_length: int = 0  # tokens of one request; 0: the model's
    saves_windows: bool = False
    overhead: int = 400 * MIB
    sampling: int = 8
    gathered_keys: int = 0  # of a CPU: padded keys that a decode step gathers
    scores: int = 0  # of a CPU: of all heads, that exist at once, in pieces of 16 queries at least
    scratch: int = 0  # of int8 products on a CPU
    depth: int = 2  # steps on their way at once
    target_tpot_ms: float = 0.0  # 0: prompts take the whole step


def native(device: Gpu, scheme: Scheme, **changes: int | float | bool) -> Engine:
    """The native engine's choices where its options are left alone (engines/native/memory.py)."""
    if device.kind == "gpu":
        base = Engine(sampling=12 if scheme.compute == "float32" else 8)
    else:
        scratch = 120 * MIB if scheme.name == "int8" else 0
        base = Engine(
            depth=1,
            sequences=16,
            step_tokens=512,
            overhead=310 * MIB,
            sampling=12,
            gathered_keys=16_384,
            scores=2 * MIB,
            scratch=scratch,
        )
    return msgspec.structs.replace(base, **changes)


class Layout(Struct, frozen=True):
    """How many ranks share one copy of the model."""

    tp: int = 1
    pp: int = 1

    @property
    def ranks(self) -> int:
        return self.tp * self.pp


def weight_bytes(model: ModelSpec, scheme: Scheme, layout: Layout = Layout()) -> int:
    """Of the fullest rank: the ceiling of layers per stage, and the larger of its ends."""
    stage = math.ceil(model.layers / layout.pp) / model.layers
    kv_share = 2 * model.kv_heads * model.head_dim * model.hidden * model.layers if not model.latent else 0
    doubled = kv_share * (math.ceil(model.kv_heads / layout.tp) * layout.tp / model.kv_heads - 1)
    linear = (model.attention + doubled + model.dense_mlp + model.experts) * stage / layout.tp * scheme.linear
    table = model.embedding * scheme.ends / layout.tp
    head = model.embedding * (scheme.head_copy or (0 if model.tied else scheme.ends)) / layout.tp
    ends = table + head if layout.pp == 1 else max(table, head if not model.tied else table)
    return round(linear + ends + model.norms * stage * scheme.norms)


def kv_per_token(model: ModelSpec, dtype: str, layout: Layout = Layout()) -> float:
    """Bytes of one token on one rank. Heads fewer than ranks are on several of them; latent attention is on all."""
    layers = math.ceil(model.layers / layout.pp)
    values = model.kv_width if model.latent else 2 * math.ceil(model.kv_heads / layout.tp) * model.head_dim
    return layers * values * kv_bytes(dtype, model.head_dim)


def kv_of_length(model: ModelSpec, dtype: str, length: float, saves_windows: bool) -> float:
    """Bytes of one sequence of `length` tokens over all layers, TP 1."""
    per_layer = model.kv_width * kv_bytes(dtype, model.head_dim)
    if not saves_windows:
        return model.layers * per_layer * length
    return sum(per_layer * (min(length, window) if window else length) for window in model.windows)


def activation_bytes(model: ModelSpec, scheme: Scheme, engine: Engine, tokens: int, tp: int = 1) -> float:
    """Residual in and out, and the wider of the gated MLP (gate, up, product) and attention."""
    width = 4 if scheme.compute == "float32" or engine.gathered_keys else 2
    q, kv = model.heads * model.head_dim / tp, math.ceil(model.kv_heads / tp) * model.head_dim
    expert = model.moe.ffn * model.moe.active + model.moe.shared_ffn if model.moe else 0
    length = engine.max_length or model.context_length
    mlp, attention = (tokens * each * width for each in (3 * max(model.ffn, expert) / tp, 3 * q + 2 * kv))
    if engine.scores:  # and as many shares
        scores = max(engine.scores, 16 * model.heads * length)
        attention += 4 * 2 * min(scores, model.heads * tokens * length)
    logits = engine.sampling * engine.sequences * model.vocab / tp
    gathered = 2 * kv * width * min(engine.sequences * length, engine.gathered_keys)
    return tokens * 2 * model.hidden * width + max(mlp, attention) + logits + gathered


def fixed_lines(
    model: ModelSpec, scheme: Scheme, engine: Engine, device: Gpu, layout: Layout = Layout()
) -> list[MemoryLine]:
    """All but the KV cache and the reserve."""
    length = engine.max_length or model.context_length
    activations = activation_bytes(model, scheme, engine, engine.step_tokens, layout.tp)
    overhead = engine.overhead + engine.scratch + engine.sequences * length * 8
    lines = [
        MemoryLine(part="weights", bytes=weight_bytes(model, scheme, layout), code=scheme.name, source=scheme.source),
        MemoryLine(
            part="activations",
            bytes=round(activations),
            code="widest_step",
            source=f"a step of {engine.step_tokens} tokens and the logits of {engine.sequences} requests",
        ),
        MemoryLine(
            part="overhead",
            bytes=overhead,
            code="context_and_tables",
            source="device context and libraries as measured for the native engine, and 8 bytes per row and token",
        ),
    ]
    if device.kind == "gpu":
        rows = activation_bytes(model, scheme, engine, engine.sequences, layout.tp)
        text = f"the pool of the largest captured step, {engine.sequences} rows"
        lines.append(MemoryLine(part="graphs", bytes=round(rows), code="largest_graph", source=text))
    if layout.tp > 1:
        size = NCCL.get(layout.tp, NCCL[8])
        text = "NCCL's buffers, aiconfigurator's system files"
        lines.append(MemoryLine(part="communication", bytes=size, code="nccl", source=text))
    return lines


def reserve_line(lines: list[MemoryLine], share: float = RESERVE) -> MemoryLine:
    """Raises ValueError above 5 %: what is known to be needed belongs into a line of its own."""
    if not 0 <= share <= RESERVE:
        raise ValueError(f"reserve: {share:g} is not between 0 and {RESERVE:g}; put known needs into their own line")
    total = sum(line.bytes for line in lines)
    return MemoryLine(
        part="reserve", bytes=math.ceil(total * share), code="reserve", source=f"{share:.0%} of all other lines"
    )


def total(lines: list[MemoryLine]) -> int:
    """Bytes."""
    return sum(line.bytes for line in lines)
