"""The sets of operations by name. A set is imported when it is chosen: Triton only where it runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from engines.native.ops.base import Ops

FACTORIES = {
    "torch": "engines.native.ops.torch_ops:TorchOps",
    "strict": "engines.native.ops.strict_ops:StrictOps",
    "triton": "engines.native.ops.triton_ops:TritonOps",
    "torch, kv 8": "engines.native.ops.quantized_kv_torch:QuantizedKvOps",
    "strict, kv 8": "engines.native.ops.quantized_kv_torch:StrictQuantizedKvOps",
    "triton, kv 8": "engines.native.ops.quantized_kv_triton:QuantizedKvTritonOps",
    "strict triton": "engines.native.ops.strict_triton:StrictTritonOps",
    "strict triton, kv 8": "engines.native.ops.strict_triton:StrictQuantizedKvTritonOps",
}
KV_8 = ", kv 8"
"""Behind the name of a set: the one like it for keys and values in 8 bits."""
DEFAULTS = {"cpu": "torch", "cuda": "triton"}
"""Device type → name of the set that is used there unless the configuration names another."""
STRICT = {"cpu": "strict", "cuda": "strict triton"}
"""The same for strict mode."""


def make_ops(name: str) -> Ops:
    """Raises KeyError with the names known."""
    if name not in FACTORIES:
        raise KeyError(f"no operations named {name!r}; known: {', '.join(FACTORIES)}")
    module, _, attribute = FACTORIES[name].partition(":")
    factory: Callable[[], Ops] = getattr(importlib.import_module(module), attribute)
    return factory()
