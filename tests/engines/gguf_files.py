"""Small GGUF files for tests, written by the `gguf` package: the reference that our reader is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, VOCAB = 2, 64, 96, 4, 2, 64


def tensors(seed: int = 0) -> dict[str, np.ndarray]:
    """Every tensor of a tiny llama, float32."""
    random = np.random.default_rng(seed)
    kv = HIDDEN // HEADS * KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (HIDDEN,),
            f"blk.{layer}.attn_q.weight": (HIDDEN, HIDDEN),
            f"blk.{layer}.attn_k.weight": (kv, HIDDEN),
            f"blk.{layer}.attn_v.weight": (kv, HIDDEN),
            f"blk.{layer}.attn_output.weight": (HIDDEN, HIDDEN),
            f"blk.{layer}.ffn_norm.weight": (HIDDEN,),
            f"blk.{layer}.ffn_gate.weight": (FFN, HIDDEN),
            f"blk.{layer}.ffn_up.weight": (FFN, HIDDEN),
            f"blk.{layer}.ffn_down.weight": (HIDDEN, FFN),
        }
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write(
    path: Path,
    content: dict[str, np.ndarray] | None = None,
    *,
    architecture: str = "llama",
    pre: str = "smollm",
    model: str = "gpt2",
    without: tuple[str, ...] = (),
    blocks: gguf.GGMLQuantizationType | None = None,
    **overrides: Any,
) -> Path:
    """A complete tiny model, but for what the arguments change. `without`: metadata keys left out. blocks: type that
    the matrices are quantized to, by the `gguf` package."""
    writer = gguf.GGUFWriter(path, architecture)
    numbers = {
        "block_count": LAYERS,
        "context_length": 128,
        "embedding_length": HIDDEN,
        "feed_forward_length": FFN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "rope.dimension_count": HIDDEN // HEADS,
    } | overrides
    for key, value in numbers.items():
        if key not in without:
            writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    tokens = [chr(0x21 + i) for i in range(VOCAB - 2)] + ['!"', "<|im_end|>"]
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (VOCAB - 1) + [3])
    writer.add_token_merges(['! "'])
    writer.add_eos_token_id(VOCAB - 1)
    for name, values in (tensors() if content is None else content).items():
        if blocks is not None and values.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(values, blocks), raw_dtype=blocks)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
