"""A draft model loaded beside its target: whether it can draft for it, how much memory it may take, its runner."""

from __future__ import annotations

import logging

import torch

from engines.native import memory
from engines.native.config import ConfigError, EngineConfig
from engines.native.loader.model_files import ModelFiles, open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.runner import ModelRunner, runner_for
from engines.native.speculation.proposer import ProposerSettings

log = logging.getLogger(__name__)

BATCHED = {"cpu": 512, "cuda": 2048}
"""Tokens of a pass that computes a prompt: a large one's activations would take memory from KV blocks."""
GPU_SHARE = 0.75
"""Of what the target has left of a GPU's free memory; its graphs and workspaces have the rest."""


def draft_runner(settings: ProposerSettings) -> ModelRunner:
    """Raises ConfigError, with both numbers, for a model that can't draft for the target; BadModel for its files."""
    files = draft_files(settings)
    if files.config.vocab != settings.vocab:
        raise ConfigError(
            f"the draft model has a vocabulary of {files.config.vocab:,} tokens and the model one of "
            f"{settings.vocab:,}: take a draft model of the same family, or leave 'draft' out of speculation"
        )
    if settings.target is not None:
        check_tokenizers(files, open_model(*settings.target))
    runner = runner_for(files, draft_config(settings, files))
    log.info("draft model: %s, %d blocks of KV cache", files.config.architecture, runner.num_blocks)
    return runner


def draft_files(settings: ProposerSettings) -> ModelFiles:
    """Of a draft model or of heads. Raises ConfigError where none is given, BadModel."""
    if settings.draft is None:
        raise ConfigError("speculation drafts with a model, but none is given: name a draft model, or leave it out")
    return open_model(*settings.draft)


def check_tokenizers(draft: ModelFiles, target: ModelFiles) -> None:
    """Raises ConfigError where an id is one token here and another there. Ids that only one of them knows are never
    guessed, or never hold."""
    ours, theirs = load_tokenizer(draft)[0].get_vocab(), load_tokenizer(target)[0].get_vocab()
    known = {token_id: token for token, token_id in theirs.items()}
    different = [(token_id, token) for token, token_id in ours.items() if known.get(token_id, token) != token]
    if different:
        token_id, token = min(different)
        raise ConfigError(
            f"the draft model has another tokenizer: {len(different):,} of its {len(ours):,} tokens are others in the "
            f"model's {len(theirs):,}; number {token_id} is {token!r} there and {known[token_id]!r} here. Take a draft "
            "model of the same family"
        )


def draft_config(settings: ProposerSettings, files: ModelFiles) -> EngineConfig:
    """As many rows as the target's runner has, of the same length where the draft model can. options: dtype ("auto"),
    kv_cache_bytes (0 = what as many tokens take as the target's cache holds; on a GPU within GPU_SHARE)."""
    target: ModelRunner = settings.runner
    device, sizes = target.device, target.sizes
    dtype, asked = str(settings.options.get("dtype", "auto")), int(settings.options.get("kv_cache_bytes", 0))
    length = min(sizes.max_model_len, files.config.context_length)
    batched = max(BATCHED[device.type], sizes.max_num_seqs + sizes.block_size)
    return EngineConfig(
        format=files.format,
        paths={name: str(path) for name, path in files.paths.items()},
        device=device.type,
        dtype=dtype,
        max_model_len=length,
        max_num_seqs=sizes.max_num_seqs,
        max_batched_tokens=batched,
        kv_cache_bytes=asked or _kv_bytes(files, target, dtype, length, batched),
        block_size=sizes.block_size,
        swap_space_bytes=0,
        speculation="off",
        threads=torch.get_num_threads() if device.type == "cpu" else 0,
    )


def _kv_bytes(files: ModelFiles, target: ModelRunner, dtype: str, length: int, batched: int) -> int:
    device, sizes = target.device, target.sizes
    shape = memory.dimensions(files.config, *files.quantized_size(device.type))
    demand = memory.demand_of(
        shape, device=device.type, dtype=dtype, max_model_len=length, max_num_seqs=sizes.max_num_seqs,
        max_batched_tokens=batched, block_size=sizes.block_size, kv_cache_bytes=0, format=files.format,
    )  # fmt: skip
    per_block = memory.kv_bytes_per_token(shape, demand.dtype) * sizes.block_size
    most = sizes.max_num_seqs * -(-length // sizes.block_size) + 1
    wanted = min(sizes.num_blocks, most) * per_block
    if device.type == "cuda":
        plan = memory.plan(shape, demand, 0)
        free = int(torch.cuda.mem_get_info(device)[0] * GPU_SHARE)
        wanted = min(wanted, max(2 * per_block, free - plan.weights - plan.activations))
    return wanted
