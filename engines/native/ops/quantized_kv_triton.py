"""The operations of a GPU for pools of keys and values in 8 bits.

A prompt that a library attends to whole does so with its keys and values before they are rounded; all that is read
later, by chunks, decodes and whoever shares the prefix, is rounded. Decodes and short chunks take keys apart as they
read them; for long chunks they are widened first.
"""

from __future__ import annotations

import torch

from engines.native.kernels.quantized_pages import widen_pages
from engines.native.kernels.quantized_write import quantized_rope_and_cache
from engines.native.memory import WIDENED_KEYS
from engines.native.ops.triton_ops import Part, TritonOps
from engines.native.quantized_kv import Pool, QuantizedPool

LONG = 128
"""Tokens of a row from which on its keys are widened."""


class QuantizedKvTritonOps(TritonOps):
    _write = staticmethod(quantized_rope_and_cache)

    def _pairs(self, rows: int, max_query: int, max_seq: int) -> bool:
        return max_query < LONG or (rows > 1 and rows * max_seq > WIDENED_KEYS)

    def _read(self, k_cache: Pool, v_cache: Pool, part: Part) -> tuple[Pool, Pool, torch.Tensor]:
        if part.pairs or not isinstance(k_cache, QuantizedPool) or not isinstance(v_cache, QuantizedPool):
            return k_cache, v_cache, part.block_tables
        rows, pages = len(part.seq_lens), -(-part.max_seq // k_cache.shape[2])
        tables = torch.arange(rows * pages, dtype=torch.int32, device=k_cache.device).view(rows, pages)
        return *widen_pages(k_cache, v_cache, part.seq_lens, part.block_tables, pages), tables
