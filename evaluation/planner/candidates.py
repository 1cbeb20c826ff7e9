"""Ways to hold a model: device, format, parallelism; which of them hold it at all, and how many tokens are left."""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct

from evaluation.planner import hardware, memory, schemes
from evaluation.planner.answers import Line, MemoryLine, Value
from evaluation.planner.constraints import Constraints
from evaluation.planner.hardware import GIB, Gpu
from evaluation.planner.memory import Engine, Layout
from evaluation.planner.model_spec import ModelSpec
from evaluation.planner.schemes import Scheme

ENGINE_SHARE = 0.92
"""Of a GPU's free memory that the native engine uses at all (engines/native/memory.py)."""


class Candidate(Struct, kw_only=True, frozen=True):
    """One instance. kv_room: bytes of the fullest rank that are left for the KV cache; kv_tokens: that these hold."""

    gpu: Gpu
    layout: Layout
    scheme: Scheme
    kv_dtype: str
    engine: Engine
    lines: list[MemoryLine]  # without the KV cache; the reserve is the last
    kv_room: int
    kv_tokens: int


def all_of(model: ModelSpec, constraints: Constraints, longest: int) -> Iterator[Candidate | Line]:
    """Candidates, and a line for each that is no use."""
    names = constraints.schemes or [own_scheme(model)]
    for key in constraints.gpus or [key for key, gpu in hardware.table().items() if gpu.kind == "gpu"]:
        device = hardware.gpu(key)
        if key in constraints.memory_mib:
            device = hardware.with_memory(device, constraints.memory_mib[key] * 2**20)
        for name in names:
            scheme = schemes.scheme(name)
            if not device.has(scheme.compute):
                yield Line(
                    code="no_format",
                    text=f"{device.name} has no products in {scheme.compute}.",
                    values={"gpu": device.key, "scheme": name, "format": scheme.compute},
                )
                continue
            yield from _layouts(model, constraints, longest, device, scheme)


def own_scheme(model: ModelSpec) -> str:
    """Of the files, where it is one that we know; else 16 bits."""
    return model.dtype if model.dtype in schemes.SCHEMES else "bfloat16"


def _layouts(
    model: ModelSpec, constraints: Constraints, longest: int, device: Gpu, scheme: Scheme
) -> Iterator[Candidate | Line]:
    for kv_dtype in constraints.kv_dtypes or [default_kv(device, scheme)]:
        for tp in constraints.tp:
            for pp in constraints.pp:
                yield candidate(model, constraints, longest, device, scheme, kv_dtype, Layout(tp, pp))


def default_kv(device: Gpu, scheme: Scheme) -> str:
    """A CPU computes, and caches, in 32 bits."""
    return "float32" if device.kind == "cpu" or scheme.compute == "float32" else "bfloat16"


def candidate(
    model: ModelSpec, constraints: Constraints, longest: int, device: Gpu, scheme: Scheme, kv_dtype: str, layout: Layout
) -> Candidate | Line:
    """Or the reason why it can't be."""
    where: dict[str, Value] = {"gpu": device.key, "tp": layout.tp, "pp": layout.pp, "scheme": scheme.name}
    if model.heads % layout.tp or layout.pp > model.layers:
        return Line(
            code="not_divisible",
            text=f"{model.heads} heads can't be divided among {layout.tp} ranks, or {model.layers} layers among "
            f"{layout.pp} stages.",
            values={**where, "heads": model.heads, "layers": model.layers},
        )
    changes = {
        "max_length": min(model.context_length, constraints.max_length or longest),
        "target_tpot_ms": constraints.target_tpot_ms,
        **({"sequences": constraints.sequences} if constraints.sequences else {}),
        **({"step_tokens": constraints.step_tokens} if constraints.step_tokens else {}),
    }
    engine = memory.native(device, scheme, **changes)
    lines = memory.fixed_lines(model, scheme, engine, device, layout)
    lines = [*lines, memory.reserve_line(lines, constraints.reserve)]
    room = kv_room(lines, device)
    block = memory.kv_per_token(model, kv_dtype, layout) * engine.block
    tokens = max(0, int(room // block) - 1) * engine.block  # one block is the engine's null block
    if tokens < min(longest, engine.max_length):
        short = memory.total(lines) + math.ceil(longest / engine.block) * block - device.memory
        return Line(
            code="too_small",
            text=f"{layout.tp * layout.pp} × {device.name} in {scheme.name} leaves room for {tokens:,} tokens, and the "
            f"longest request has {longest:,}; {max(short, 0) / GIB:.1f} GiB per GPU are missing.",
            values={**where, "tokens": tokens, "longest": longest, "short_bytes": max(0, round(short))},
        )
    return Candidate(
        gpu=device, layout=layout, scheme=scheme, kv_dtype=kv_dtype, engine=engine, lines=lines, kv_room=room,
        kv_tokens=tokens,
    )  # fmt: skip


def kv_room(lines: list[MemoryLine], device: Gpu) -> int:
    """Bytes for the KV cache: what all lines leave, and no more than the engine itself would take of a GPU, which keeps
    graphs and fragmentation in the share that it leaves alone."""
    left = device.memory - memory.total(lines)
    if device.kind == "cpu":
        return max(0, left)
    ours = sum(line.bytes for line in lines if line.part not in ("graphs", "reserve"))
    context = sum(line.bytes for line in lines if line.part == "overhead")
    taken = int((device.memory - context) * ENGINE_SHARE) - ours
    return max(0, min(left, taken))
