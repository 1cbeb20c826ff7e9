"""The operations of a GPU for pools of keys and values in 8 bits.

A prompt that a library attends to whole does so with its keys and values before they are rounded; all that is read
later, by chunks, decodes and whoever shares the prefix, is rounded.
"""

from __future__ import annotations

from engines.native.kernels.quantized_write import quantized_rope_and_cache
from engines.native.ops.triton_ops import TritonOps


class QuantizedKvTritonOps(TritonOps):
    _write = staticmethod(quantized_rope_and_cache)
    _pairs = True
