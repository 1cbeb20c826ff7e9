"""A runner's KV cache: its pools, and the scales of those in FP8.

A checkpoint's scales are taken as they are. Where it has none, or all are 1.0 (what tools write that never looked), the
engine looks itself: it runs a page of text (`models.calibration`) through the loaded model with keys and values in the
dtype of activations, and gives each head a scale by the greatest value seen. e4m3 is as precise at a hundredth of its
range as at the top, so the range is twice that.
"""

from __future__ import annotations

import logging

import torch

from engines.native.loader.errors import BadModel
from engines.native.loader.model_files import ModelFiles
from engines.native.loader.weights import Weights
from engines.native.models.blocks import Pools
from engines.native.models.calibration import calibration_ids
from engines.native.models.config import DecoderConfig
from engines.native.models.decoder import Decoder, DecoderWeights
from engines.native.models.tensors import activation_dtype
from engines.native.ops.base import Batch
from engines.native.ops.registry import DEFAULTS, make_ops
from engines.native.quantized_kv import FP8_MOST, LEAST, Fp8Pool, Int8Pool
from engines.native.sizes import Sizes
from engines.native.state import kv_plane, kv_pool

log = logging.getLogger(__name__)

HEADROOM = 2.0
"""Range of a calibrated scale, over the greatest value of the calibration."""

Scales = list[tuple[torch.Tensor, torch.Tensor]]
"""Of each layer's keys and values, float32 [kv heads]."""


def make_pools(shape: DecoderConfig, sizes: Sizes, device: torch.device, scales: Scales | None = None) -> list[Pools]:
    """Per layer, K and V, zeroed. scales: for "fp8"."""
    blocks, dtype, kind = sizes.num_blocks, activation_dtype(sizes.dtype), sizes.kv_cache_dtype
    stored = torch.int8 if kind else dtype
    plain = kv_pool(
        shape.layers, blocks, shape.kv_heads, sizes.block_size, shape.head_dim, stored, device,
        shared=shape.latent is not None,
    )  # fmt: skip
    if not kind:
        return list(plain)
    if kind == "int8":

        def int8(values: torch.Tensor) -> Int8Pool:
            return Int8Pool(
                values, kv_plane(blocks, shape.kv_heads, sizes.block_size, (), torch.float32, device), dtype
            )

        return [(int8(keys), int8(values)) for keys, values in plain]
    if scales is None:
        raise ValueError("a KV cache in FP8 needs scales")
    return [
        (Fp8Pool(keys, k.to(device), dtype), Fp8Pool(values, v.to(device), dtype))
        for (keys, values), (k, v) in zip(plain, scales, strict=True)
    ]


def scales_for(files: ModelFiles, weights: DecoderWeights, sizes: Sizes, device: torch.device) -> Scales | None:
    """None unless the cache is in FP8. Raises BadModel for scales that nothing can be divided by."""
    if sizes.kv_cache_dtype != "fp8":
        return None
    shape = files.config
    with Weights(files) as stored:
        found = [_of_file(stored.kv_scales(layer), layer, shape.kv_heads) for layer in range(shape.layers)]
    known = [pair for pair in found if pair is not None]
    ones = bool(known) and all(bool((scale == 1).all()) for pair in known for scale in pair)
    if len(known) == len(found) and not ones:
        return known
    promised = files.quant is not None and files.quant.kv is not None
    log.log(
        logging.WARNING if promised else logging.INFO,
        "KV cache in FP8: %s, so they come from a text that the engine brings along",
        "all scales of the checkpoint are 1.0, which no calibration gives"
        if ones
        else f"the checkpoint has scales for {len(known)} of {len(found)} layers",
    )
    made = calibrate(shape, weights, calibration_ids(files), activation_dtype(sizes.dtype), device)
    if ones:
        return made
    return [of_text if of_file is None else of_file for of_file, of_text in zip(found, made, strict=True)]


def _of_file(
    pair: tuple[torch.Tensor, torch.Tensor] | None, layer: int, heads: int
) -> tuple[torch.Tensor, torch.Tensor] | None:
    if pair is None:
        return None
    for name, scale in zip("kv", pair, strict=True):
        if not bool((scale.isfinite() & (scale > 0)).all()):
            raise BadModel(
                "unknown_type",
                f"{name}_scale of layer {layer} is {scale.tolist()}; scales are positive numbers",
                "quantize the model anew, or set options.kv_cache_dtype to int8, which needs none",
            )
    return pair[0].expand(heads).clone(), pair[1].expand(heads).clone()


@torch.inference_mode()
def calibrate(
    shape: DecoderConfig, weights: DecoderWeights, ids: torch.Tensor, dtype: torch.dtype, device: torch.device
) -> Scales:
    """ids: int64, tokens to run, cut to the length that the model is loaded for. dtype: of activations."""
    ids = ids[: len(weights.cos_sin[0])].to(device)
    count, size = len(ids), 16
    blocks = -(-count // size)
    pools = kv_pool(shape.layers, blocks, shape.kv_heads, size, shape.head_dim, dtype, device)
    positions = torch.arange(count, device=device)
    model = Decoder(shape, weights, make_ops(DEFAULTS[device.type]), list(pools))
    model.hidden(
        Batch(
            token_ids=ids,
            positions=positions,
            slots=positions,
            cu_query=torch.tensor([0, count], dtype=torch.int32, device=device),
            seq_lens=torch.tensor([count], dtype=torch.int32, device=device),
            block_tables=torch.arange(blocks, dtype=torch.int32, device=device)[None],
            logits_index=positions[:0],
            max_query=count,
            max_seq=count,
        )
    )
    return [(_scale(keys), _scale(values)) for keys, values in pools]


def _scale(pool: torch.Tensor) -> torch.Tensor:
    """[B, hk, s, d] → float32 [hk]."""
    return pool.abs().amax((0, 2, 3)).float().clamp_(min=LEAST) * (HEADROOM / FP8_MOST)
