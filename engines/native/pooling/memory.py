"""Where a pooling instance's memory goes, and the choices that its configuration leaves open. Pure arithmetic: the same
for the estimate in the console and for the runner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engines.api import Fit, LaunchSpec, ModelShape, size_text
from engines.native.config import ConfigError, EngineConfig
from engines.native.memory import KV_BYTES, MIB
from engines.native.pooling.config import ENCODERS

if TYPE_CHECKING:
    import torch

    from engines.native.pooling.files import PoolingFiles

DEFAULT_TEXTS = 256
"""Texts of one pass, where the launch says none."""
DEFAULT_BATCHED = {"cpu": 2048, "cuda": 16_384}
"""Tokens of one pass. On a CPU larger passes were no faster, and a single text waits for the one before it."""
_OVERHEAD = {"cpu": 310 * MIB, "cuda": 400 * MIB}
_BLOCK = 16


@dataclass(frozen=True, slots=True)
class PoolingSizes:
    dtype: str
    max_tokens: int  # of one text
    max_texts: int  # of one pass
    max_batched_tokens: int  # of one pass
    weights: int  # bytes
    activations: int  # bytes


def sizes_of(files: PoolingFiles, config: EngineConfig, device: torch.device) -> PoolingSizes:
    """Raises ConfigError, with numbers, where the request can't be met."""
    _check_kv(config.kv_cache_dtype)
    return _sizes(
        files.shape(),
        device.type,
        dtype=config.dtype,
        max_model_len=config.max_model_len,
        max_num_seqs=config.max_num_seqs,
        max_batched_tokens=config.max_batched_tokens,
    )


def _check_kv(kv_cache_dtype: str) -> None:
    if kv_cache_dtype != "auto":
        raise ConfigError(
            f"kv_cache_dtype is {kv_cache_dtype!r}, but a model that embeds or scores keeps no keys and values beyond "
            "a pass; set it to 'auto'"
        )


def _sizes(
    shape: ModelShape, device: str, *, dtype: str, max_model_len: int, max_num_seqs: int, max_batched_tokens: int
) -> PoolingSizes:
    effective = _dtype(dtype, device, shape.architecture)
    if max_model_len > shape.context_length:
        raise ConfigError(
            f"max_model_len is {max_model_len}, but the model was made for texts of {shape.context_length} tokens; "
            "give at most that"
        )
    longest = max_model_len or shape.context_length
    texts = max_num_seqs or DEFAULT_TEXTS
    batched = max(max_batched_tokens or DEFAULT_BATCHED[device], longest)  # a text is never cut
    width = KV_BYTES[effective]
    attention = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    per_token = (2 * shape.hidden + max(2 * shape.ffn, 3 * attention)) * width
    if shape.architecture not in ENCODERS:  # keys and values of one layer at a time
        per_token += 2 * shape.kv_heads * shape.head_dim * width
    return PoolingSizes(
        effective, longest, texts, batched, _weights(shape, effective), (batched + texts * _BLOCK) * per_token
    )


def _dtype(dtype: str, device: str, architecture: str) -> str:
    """ "auto" is float32 on a CPU: int8 would cost accuracy that people compare; half precision on a GPU."""
    if dtype == "auto":
        if device == "cpu":
            return "float32"
        return "float16" if architecture in ENCODERS else "bfloat16"
    if dtype == "int8" and device != "cpu":
        raise ConfigError("dtype is 'int8', which the native engine has on a CPU only; use 'float16' on a GPU")
    return dtype


def _weights(shape: ModelShape, dtype: str) -> int:
    if dtype != "int8":
        return shape.parameters * KV_BYTES[dtype]
    table = shape.vocab * shape.hidden
    return table * 4 + shape.parameters - table


def fit(shape: ModelShape, spec: LaunchSpec, available: int) -> Fit:
    """Memory need of `spec`, in bytes. `spec.device` "auto" is taken as a CPU."""
    device = "cuda" if spec.device == "cuda" else "cpu"
    try:
        _check_kv(str(spec.options.get("kv_cache_dtype", "auto")))
        sizes = _sizes(
            shape,
            device,
            dtype=spec.dtype,
            max_model_len=spec.max_model_len,
            max_num_seqs=spec.max_num_seqs,
            max_batched_tokens=int(spec.options.get("max_batched_tokens", 0)),
        )
    except ConfigError as error:
        return Fit(0, 0, 0, 0, available, False, 0, str(error), [])
    overhead = _OVERHEAD[device]
    total = sizes.weights + sizes.activations + overhead
    need, have = size_text(total), size_text(available)
    fits = total <= available
    if fits:
        reason = f"{need} of {have} are needed; a pass takes up to {sizes.max_batched_tokens:,} tokens of texts."
    else:
        reason = f"{need} are needed and {have} are free: {size_text(total - available)} too little."
    return Fit(
        weights=sizes.weights,
        kv_cache=0,
        activations=sizes.activations,
        overhead=overhead,
        available=available,
        fits=fits,
        kv_tokens=sizes.max_batched_tokens,
        reason=reason,
        suggestions=[] if fits else [f"Choose a node with {need} free, or a smaller model."],
    )
