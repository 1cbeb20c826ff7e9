"""The choices that the configuration leaves open, made for one model on one device."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

import torch

from engines.native import memory
from engines.native.config import ConfigError, EngineConfig
from engines.native.loader.errors import BadModel
from engines.native.loader.model_files import open_model
from engines.native.models.config import DecoderConfig
from engines.native.quant.scheme import KvScheme
from engines.native.speculation.heads import config_of, feature_width, head_kind
from engines.native.speculation.names import OFF, asks_for

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sizes:
    dtype: str
    max_model_len: int  # tokens
    max_num_seqs: int
    max_batched_tokens: int
    block_size: int
    num_blocks: int
    plan: memory.MemoryPlan
    host_blocks: int = 0  # KV blocks that the swap space holds
    kept: bool = False  # quantized weights are served as they are
    kv_cache_dtype: str = ""  # "fp8" | "int8"; "": that of activations
    feature_bytes: int = 0  # of a block: what a head has the model keep beside keys and values


SWAP_SPACE = 4 * 2**30
"""Bytes of host memory for KV blocks beside a GPU where no size is given; a quarter of what is free if that is less."""


def device_of(config: EngineConfig) -> torch.device:
    """Raises ConfigError where a GPU is asked for and there is none."""
    found = torch.cuda.is_available()
    if config.device == "cuda" and not found:
        raise ConfigError("device is 'cuda', but torch sees no GPU here; use 'cpu' or 'auto'")
    return torch.device("cuda" if found and config.device != "cpu" else "cpu")


def sizes_of(
    shape: DecoderConfig,
    config: EngineConfig,
    device: torch.device,
    quantized: tuple[int, int] = (0, 0),
    kv: KvScheme | None = None,
) -> Sizes:
    """quantized: parameters that the files keep in 4 or 8 bits, and their bytes. kv: what the files say of the KV
    cache. Raises ConfigError, with numbers, where the request cannot be met."""
    dimensions = memory.dimensions(shape, *quantized)
    demand = memory.demand_of(
        dimensions,
        device=device.type,
        dtype=config.dtype,
        max_model_len=config.max_model_len,
        max_num_seqs=config.max_num_seqs,
        max_batched_tokens=config.max_batched_tokens,
        block_size=config.block_size,
        kv_cache_bytes=config.kv_cache_bytes,
        embedding_dtype=config.embedding_dtype,
        offload_layers=config.offload_layers,
        offload_to=config.offload_to,
        format=config.format,
        quantized_weights=config.quantized_weights,
        kv_cache_dtype=_kv_cache_dtype(config, kv, dimensions),
        draft=(draft := _draft_need(config, device, dimensions)),
        speculation=config.speculation,
    )
    if config.quantized_weights == "kept" and not demand.kept:
        log.warning(
            "options.quantized_weights is 'kept', but no weight of this version can be on %s in %s: full size counts",
            device.type,
            demand.dtype,
        )
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
    plan = memory.plan(dimensions, demand, free)
    if plan.num_blocks < 2:
        raise ConfigError(
            f"the KV cache of {plan.kv_cache:,} bytes holds {plan.num_blocks} blocks of {config.block_size} tokens; at "
            "least 2 are needed: raise kv_cache_bytes or choose a smaller dtype"
        )
    _require_room(plan, free if device.type == "cuda" else _physical_memory(), device)
    features = draft.features_per_token * demand.block_size
    return Sizes(
        demand.dtype,
        demand.max_model_len,
        demand.max_num_seqs,
        demand.max_batched_tokens,
        demand.block_size,
        plan.num_blocks,
        plan,
        _host_blocks(config, device, plan, features, demand.max_model_len),
        demand.kept,
        demand.kv_cache_dtype,
        features,
    )


def _draft_need(config: EngineConfig, device: torch.device, target: memory.Dimensions) -> memory.DraftNeed:
    """Nothing where the option makes no use of it. Files that are broken count as they are: their proposer says so."""
    paths = dict(config.draft_paths)
    if not paths or config.speculation == OFF:
        return memory.DraftNeed(0)
    size = sum(os.path.getsize(path) for path in paths.values())
    if said := config_of(config.draft_format, paths):
        if not asks_for(config.speculation, head_kind(said)):
            return memory.DraftNeed(0)
        return memory.head_need(target, size, config.dtype, device.type, feature_width(said, target.hidden))
    try:
        files = open_model(config.draft_format, paths)
    except BadModel:
        return memory.DraftNeed(size)
    draft = memory.dimensions(files.config, *files.quantized_size(device.type))
    return memory.draft_need(draft, device.type, config.max_num_seqs, files.format)


def _kv_cache_dtype(config: EngineConfig, kv: KvScheme | None, shape: memory.Dimensions) -> str:
    if config.kv_cache_dtype != "auto" or kv is None:
        return config.kv_cache_dtype
    if reason := memory.no_8_bit_cache(shape):  # nobody asked for it here, so nothing is refused
        log.warning(
            "the checkpoint asks for a KV cache in 8 bits, but %s: it is kept in the activations' dtype", reason
        )
        return "auto"
    return "fp8" if kv.kind == "float" else "int8"


def _require_room(plan: memory.MemoryPlan, room: int, device: torch.device) -> None:
    """Refuses what can't be held before a byte of it is read. Of a CPU's memory only what weights and KV cache exceed
    as a whole: the rest of the plan is an estimate, and the system pages."""
    need = plan.total if device.type == "cuda" else plan.weights + plan.kv_cache
    if need > room:
        raise ConfigError(
            f"weights of {plan.weights:,} and a KV cache of {plan.kv_cache:,} bytes need {need:,} bytes, and the "
            f"{device.type} has {room:,}: lower kv_cache_bytes, max_model_len or max_num_seqs, or take a smaller dtype"
        )


def _physical_memory() -> int:
    """Bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _host_blocks(
    config: EngineConfig, device: torch.device, plan: memory.MemoryPlan, features: int, max_model_len: int
) -> int:
    """features: bytes that a head has kept beside each block's keys and values."""
    block_bytes = plan.kv_cache // plan.num_blocks + features
    space = swap_space(config, device)
    if config.kv_disk_path and not space:
        space = memory.disk_staging(block_bytes, config.block_size, max_model_len)
    return max(0, space // block_bytes - 1)  # one is the null block's


def swap_space(config: EngineConfig, device: torch.device) -> int:
    """Bytes of host memory for KV blocks of preempted requests."""
    if config.swap_space_bytes >= 0:
        return config.swap_space_bytes
    if device.type != "cuda":
        return 0
    return min(SWAP_SPACE, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)
