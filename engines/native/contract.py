"""The native engine as the control plane sees it. Runs inside the control plane: no torch, no model code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engines.api import Capabilities, DtypeCapacity, Fit, LaunchSpec, ModelShape, Role, size_text
from engines.native import memory
from engines.native.capacity import capacity_of
from engines.native.config import DTYPES, ConfigError, options_schema
from engines.native.models.config import ARCHITECTURES, MIXTURES
from engines.native.pooling import memory as pooling_memory
from engines.native.pooling.config import ENCODERS, Task
from engines.native.speculation.names import DRAFTING, proposer_names


class NativeEngine:
    name = "native"
    label = "Tursiops (native)"

    def capabilities(self) -> Capabilities:
        return Capabilities(
            formats=["gguf", "safetensors"],
            architectures=[*ARCHITECTURES, *ENCODERS],
            devices=["cpu", "cuda"],
            dtypes=[dtype for dtype in DTYPES if dtype != "auto"],
            roles=[Role.UNIFIED],
            features=[
                *("prefix_cache", "chunked_prefill", "logprobs", "penalties", "seed", "tools", "reasoning"),
                *("embeddings", "score", "structured_output"),
            ],
            proposers=proposer_names(),
            drafting=[*DRAFTING],
        )

    def options_schema(self) -> dict[str, Any]:
        return options_schema()

    def command(self, run_dir: Path) -> list[str]:
        return [sys.executable, "-m", "engines.native.serve", "--run-dir", str(run_dir)]

    def inspect_command(self) -> list[str]:
        return [sys.executable, "-m", "engines.native.inspect"]

    def compare_command(self) -> list[str]:
        return [sys.executable, "-m", "engines.native.compare_job"]

    def measure_command(self) -> list[str]:
        return [sys.executable, "-m", "engines.native.measure_job"]

    def add_tokens_command(self) -> list[str]:
        return [sys.executable, "-m", "engines.native.vocabulary"]

    def fit(self, shape: ModelShape, spec: LaunchSpec, weights_bytes: int, available: int) -> Fit:
        """`weights_bytes`, the files' size, is not used: weights take their size in the engine's dtype.

        `spec.device` "auto" is taken as a CPU: placement asks with the device that it has in mind.
        """
        if shape.task != Task.GENERATE:
            return pooling_memory.fit(shape, spec, available)
        try:
            demand = memory.demand_for(shape, spec)
        except ConfigError as error:
            return Fit(0, 0, 0, 0, available, False, 0, str(error), [])
        available -= _swap_beside(spec)
        return _judge(shape, demand, memory.plan(shape, demand, available), available)

    def capacity(
        self,
        shape: ModelShape,
        spec: LaunchSpec,
        weights_bytes: int,
        available: int,
        *,
        dtypes: Sequence[str],
        contexts: Sequence[int],
        concurrencies: Sequence[int],
    ) -> list[DtypeCapacity]:
        if shape.task != Task.GENERATE:
            raise ValueError("A model that generates nothing keeps no KV cache; its estimate says all.")
        available -= _swap_beside(spec)
        return [capacity_of(shape, spec, available, dtype, contexts, concurrencies) for dtype in dtypes]


def _swap_beside(spec: LaunchSpec) -> int:
    """Bytes of swap space that lie in the same memory as the instance; at most what a disk tier needs by itself."""
    swap = max(0, int(spec.options.get("swap_space_bytes", 0)))
    if spec.options.get("kv_disk_path") and not swap:
        swap = memory.DISK_STAGING[1]
    return 0 if spec.device == "cuda" else swap


def _judge(shape: ModelShape, demand: memory.Demand, plan: memory.MemoryPlan, available: int) -> Fit:
    longest = min(plan.kv_tokens, demand.max_model_len)
    short = plan.total - available
    fits = _fits(shape, demand, available)
    if fits:
        reason = (
            f"{size_text(plan.total)} of {size_text(available)} are needed; "
            f"the KV cache holds {plan.kv_tokens:,} tokens, "
            f"{plan.kv_tokens / demand.max_model_len:.1f} requests of full length ({demand.max_model_len:,})."
        )
        if longest < demand.max_model_len:
            reason += f" One request can have {longest:,} tokens at most."
        if plan.host:
            reason += f" Offloaded weights take {size_text(plan.host)} of host memory besides."
    elif short > 0:
        reason = (
            f"{size_text(plan.total)} are needed and {size_text(available)} are free: {size_text(short)} too little."
        )
    else:
        reason = f"Nothing is left for a KV cache: weights, activations and overhead take {size_text(plan.total)}."
    suggestions = [] if fits and longest == demand.max_model_len else _suggestions(shape, demand, available)
    return Fit(
        weights=plan.weights + plan.draft_weights,
        kv_cache=plan.kv_cache + plan.draft_kv,
        activations=plan.activations,
        verification=plan.verification,
        overhead=plan.overhead,
        available=available,
        fits=fits,
        kv_tokens=plan.kv_tokens,
        reason=reason,
        suggestions=suggestions,
        host=plan.host,
    )


def _suggestions(shape: ModelShape, demand: memory.Demand, available: int) -> list[str]:
    """Single changes that would make it fit, with numbers; each one is tried before it is named."""
    found = []
    floating = demand.device == "cuda" or shape.architecture in MIXTURES or demand.offload_layers
    smaller = demand.dtype if demand.kept else "bfloat16" if floating else "int8"
    if demand.dtype != smaller and _fits(shape, replace(demand, dtype=smaller), available):
        table = demand.embedding_dtype
        saved = memory.weight_bytes(shape, demand.dtype, table) - memory.weight_bytes(shape, smaller, table)
        found.append(f"Set dtype to {smaller}: the weights take {size_text(saved)} less.")
    bare = memory.plan(shape, replace(demand, kv_cache_bytes=1), available)  # holds no block
    per_token = memory.kv_bytes_per_token(shape, demand.dtype, demand.kv_cache_dtype)
    room = (available - bare.total) // (per_token * demand.block_size) * demand.block_size - demand.block_size
    if room >= demand.max_model_len:
        kv_bytes = (room + demand.block_size) * per_token
        found.append(f"Set kv_cache_bytes to {kv_bytes} ({size_text(kv_bytes)}): that holds {room:,} tokens.")
    elif room >= 2 * demand.block_size:
        found.append(
            f"Set max_model_len to {room} and kv_cache_bytes to {(room + demand.block_size) * per_token}: that fits."
        )
    if not found and (offloading := _offloading(shape, demand, available)):
        found.append(offloading)
    if not found:
        need = memory.plan(shape, replace(demand, dtype=smaller), available).total
        found.append(f"Choose a node with {size_text(need)} free (in {smaller}), or a smaller model.")
    return found


def _offloading(shape: ModelShape, demand: memory.Demand, available: int) -> str:
    """As few layers as leave room for a cache of some use; "" where that does not help, or was done."""
    if demand.offload_layers or demand.kept:
        return ""
    to = "host" if demand.device == "cuda" else "disk"
    dtype = "float32" if demand.dtype == "int8" else demand.dtype
    for count in range(3, shape.layers + 1):
        fewer = replace(demand, dtype=dtype, offload_layers=count, offload_to=to)
        plan = memory.plan(shape, fewer, available)
        if plan.total <= available and plan.kv_tokens >= min(demand.max_model_len, _USEFUL):
            size = size_text(count * memory.layer_bytes(shape, dtype))
            if to == "host":
                return f"Set offload_layers to {count}: each step then copies {size} of weights from host memory."
            return (
                f"Set dtype to {dtype}, offload_layers to {count} and offload_to to disk: each step then reads {size} "
                "of weights from the disk."
            )
    return ""


_USEFUL = 2048  # tokens


def _fits(shape: ModelShape, demand: memory.Demand, available: int) -> bool:
    plan = memory.plan(shape, demand, available)
    return plan.total <= available and plan.kv_tokens >= demand.block_size
