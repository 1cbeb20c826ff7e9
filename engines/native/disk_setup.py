"""The disk tier of one engine, made from its configuration, its model and the disk it is given."""

from __future__ import annotations

import logging
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import torch

from engines.native import disk_costs, kv_identity
from engines.native.config import ConfigError, EngineConfig
from engines.native.disk_store import BlockStore
from engines.native.disk_tier import READERS, DiskTier
from engines.native.quantized_kv import fixed_scales, planes
from engines.native.runner import ModelRunner
from engines.native.swap_costs import NEVER

log = logging.getLogger(__name__)

APART = frozenset(
    [
        "paths",
        "digests",
        "device",
        "dtype",
        "kv_cache_dtype",
        "max_model_len",
        "max_num_seqs",
        "kv_cache_bytes",
        "max_batched_tokens",
        "prefix_cache",
        "threads",
        "swap_space_bytes",
        "host_prefix_cache",
        "kv_disk_path",
        "kv_disk_bytes",
        "policy",
        "policy_window_ms",
        "target_tpot_ms",
        "speculation",
        "draft_format",
        "draft_paths",
    ]
)
"""Settings that no block depends on, or that stand among its facts otherwise. A new one separates until it is here."""
DISK_SHARE = 10
"""One in so many bytes of the file system is used where no size is given …"""
DISK_MOST = 64 * 2**30
"""… and at most these."""


def disk_of(config: EngineConfig, runner: ModelRunner) -> DiskTier | None:
    """None where none is asked for, or nothing could go through the host. Raises ConfigError for a folder that can't be
    written, or a size that holds no request."""
    if not config.kv_disk_path:
        return None
    if not runner.host_blocks or runner.swap_costs is None:
        log.warning("kv_disk_path is not used: there is no host memory for blocks to pass through")
        return None
    identity = kv_identity.identity(facts(config, runner))
    store = open_store(config, identity, runner.host_view(1).nbytes)
    readers = ThreadPoolExecutor(READERS, "kv-disk-read")
    try:
        costs = disk_costs.measure(
            store, runner.host_view, runner.host_blocks, runner.block_size, readers, runner.swap_costs
        )
    except OSError as error:
        log.warning("the disk of kv_disk_path could not be timed, so it is taken to be as fast as memory: %s", error)
        costs = disk_costs.DiskCosts(0.0, 0.0, runner.swap_costs)
    log.info(
        "KV blocks on the disk at %s: %d of this model found, room for %d tokens; reading takes %.2f ms + %.1f us a "
        "token, computing %.1f us a token: read from %s tokens on",
        store.folder,
        len(store),
        store.limit // store.file_bytes * runner.block_size,
        costs.fixed_s * 1e3,
        costs.disk_s * 1e6,
        costs.device.recompute_s * 1e6,
        "no number of" if costs.crossover >= NEVER else costs.crossover,
    )
    return DiskTier(
        store,
        identity,
        runner.host_view,
        min_tokens=costs.crossover,
        compute_s=costs.device.recompute_s,
        readers=readers,
        writer=ThreadPoolExecutor(1, "kv-disk-write"),
    )


def open_store(config: EngineConfig, identity: bytes, block_bytes: int) -> BlockStore:
    folder = Path(config.kv_disk_path)
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        limit = config.kv_disk_bytes or min(DISK_MOST, shutil.disk_usage(folder).total // DISK_SHARE)
        store = BlockStore(folder, identity, block_bytes, limit)
    except OSError as error:
        raise ConfigError(
            f"kv_disk_path is {config.kv_disk_path!r}: {error.strerror}; give a folder to write"
        ) from error
    if limit < store.file_bytes:
        raise ConfigError(
            f"kv_disk_bytes is {limit:,}, but a block of {config.block_size} tokens of this model takes "
            f"{store.file_bytes:,}; give more, or no kv_disk_path"
        )
    return store


def facts(config: EngineConfig, runner: ModelRunner) -> dict[str, object]:
    """What the bytes of a block depend on beside its tokens."""
    shapes = [[[str(plane.dtype), *plane.shape[1:]] for plane in planes(*layer)] for layer in runner.model.kv]
    return {
        "files": kv_identity.files(config.paths, config.digests),
        "settings": {each.name: getattr(config, each.name) for each in fields(config) if each.name not in APART},
        "dtype": runner.sizes.dtype,
        "cache": [runner.sizes.kv_cache_dtype, shapes, fixed_scales(runner.model.kv)],
        "device": torch.cuda.get_device_name(runner.device) if runner.device.type == "cuda" else "cpu",
        "ops": type(runner.model.ops).__name__,
        "head": kv_identity.files(config.draft_paths, {}) if runner.sizes.feature_bytes else {},
        "block_size": runner.block_size,
        "max_model_len": runner.max_model_len,  # tables of positions may follow from it
        "code": kv_identity.code(),
        "torch": torch.__version__,
    }
