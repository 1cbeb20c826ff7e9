"""What a version will take, before it is made: arithmetic of its shape. Bytes."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from engines.api import LaunchSpec, ModelShape
from tursiops.core import registry
from tursiops.quantization.asked import HEAD
from tursiops.quantization.schemes import Scheme

WIDTH = 2  # bytes of a value in 16 bits
UNCHANGED = "unchanged"  # weights, of a scheme for something else
_GROUPS = (128, 64, 32)  # tried in this order where the group size is left open
_PART = re.compile(r"\.(self_attn|mlp)\.(\w+)_proj$")
_PRODUCTS = {"q": ".qkv", "k": ".qkv", "v": ".qkv", "gate": ".gate_up", "up": ".gate_up"}
_JOB_BASE = 700 * 2**20  # of a child with torch in it
_MLP_INPUTS = 2**30  # that a job holds at most


def modules(shape: ModelShape) -> dict[str, int]:
    """Name of each linear product, as in a checkpoint, → its parameters; the experts of a mixture are one `mlp`."""
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    attention = {
        "self_attn.q_proj": shape.hidden * q,
        "self_attn.k_proj": shape.hidden * kv,
        "self_attn.v_proj": shape.hidden * kv,
        "self_attn.o_proj": q * shape.hidden,
    }
    mlp = dict.fromkeys(("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), shape.hidden * shape.ffn)
    dense = shape.layers * (sum(attention.values()) + sum(mlp.values()))
    experts = shape.parameters - tables(shape) - dense
    if experts > 0.05 * shape.parameters:
        mlp = {"mlp": (shape.parameters - tables(shape)) // max(1, shape.layers) - sum(attention.values())}
    parts = {**attention, **mlp}
    return {f"model.layers.{layer}.{name}": size for layer in range(shape.layers) for name, size in parts.items()}


def tables(shape: ModelShape) -> int:
    """Parameters of the embedding, and of a head of its own."""
    return shape.vocab * shape.hidden * (1 if shape.tied_embeddings else 2)


def quantized(shape: ModelShape, keep: Sequence[str]) -> int:
    """Parameters of the products that no pattern of `keep` names. A regular expression (re:…) is passed over: a bad one
    runs for ever, and would hang the web process; the optimizer's child follows it."""
    return sum(size for name, size in modules(shape).items() if not any(_named(each, name) for each in keep))


def products(shape: ModelShape) -> dict[str, int]:
    """Name of each product, as a report's rows are called → its bytes in 16 bits."""
    found: dict[str, int] = {}
    for name, size in modules(shape).items():
        found[_product(name)] = found.get(_product(name), 0) + size * WIDTH
    return found


def _product(module: str) -> str:
    """ "layers.3.qkv" of "model.layers.3.self_attn.q_proj"."""
    return _PART.sub(lambda found: _PRODUCTS.get(found[2], f".{found[2]}"), module.removeprefix("model."))


def _named(pattern: str, name: str) -> bool:
    if pattern.startswith("re:"):
        return False
    if f"{_product(name)}.".startswith(f"{pattern}."):
        return True
    return name == pattern or name.startswith(f"{pattern}.") or fnmatch.fnmatchcase(name, pattern)


def group_of(shape: ModelShape, recipe: dict[str, Any], tp: int) -> int:
    """Inputs that share a scale, of a scheme with groups."""
    asked = int(recipe.get("group_size") or 0)
    shards = (shape.hidden, shape.heads * shape.head_dim // tp, shape.ffn // tp)
    return asked or next((group for group in _GROUPS if all(shard % group == 0 for shard in shards)), _GROUPS[-1])


def predicted(shape: ModelShape, scheme: Scheme, recipe: dict[str, Any], tp: int) -> tuple[ModelShape, int, float]:
    """The version's shape, bytes of its files, and bits of a quantized weight."""
    if scheme.about["weights"] == UNCHANGED:
        bits, count = 16.0, 0
    else:
        bits = scheme.bits(group_of(shape, recipe, tp)) if scheme.grouped else scheme.bits()
        count = quantized(shape, recipe.get("keep", [HEAD]))
    packed = int(count * bits / 8)
    table = shape.vocab * shape.hidden
    narrow = recipe.get("embedding") == "int8" or scheme.about["embedding"] not in ("16 bits", "")
    wide = shape.parameters - count - (table if narrow else 0)
    if budget := int(recipe.get("budget_bytes") or 0):
        packed = max(0, budget - wide * WIDTH)
    size = packed + wide * WIDTH + (table + shape.vocab * WIDTH if narrow else 0)
    made = msgspec.structs.replace(shape, quantized_parameters=count, quantized_bytes=packed)
    return made, size, bits


def resident(shape: ModelShape, device: str, size: int) -> int:
    """Bytes of the weights in the engine's memory on "cpu" or "cuda", as the engine itself plans them."""
    spec = LaunchSpec(instance_id="", served_name="", files=[], format="safetensors", device=device)
    return registry.engine("native").fit(shape, spec, size, 2**50).weights


def job_memory(shape: ModelShape, samples: int, tokens: int, *, data: bool) -> int:
    """Most that a job of the built-in back end holds: one layer in float32, its Hessian and that one's factor, the
    residual stream of all rows about three times, and the MLP's inputs up to 1 GiB."""
    layer = max((size for size in modules(shape).values()), default=0) * 7 * 4
    if not data:
        return _JOB_BASE + layer
    rows = samples * tokens
    hessian = 3 * max(shape.ffn, shape.hidden) ** 2 * 4
    return _JOB_BASE + layer + hessian + 3 * rows * shape.hidden * 4 + min(_MLP_INPUTS, rows * shape.ffn * 4)
