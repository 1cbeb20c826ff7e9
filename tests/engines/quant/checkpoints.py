"""Tiny checkpoints whose linears are quantized, round to nearest, in compressed-tensors' layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from engines.native.quant.packing import layout_for, packed
from engines.native.quant.scheme import ActivationScheme, LinearScheme, WeightScheme
from engines.native.quant.weight import QuantizedWeight, pack_nibbles
from tests.tiny_models import write_safetensors

Tensors = dict[str, torch.Tensor]
DOWN = "model.layers.0.mlp.down_proj"
STATIC = ActivationScheme("float", 8, False, "tensor")
SCHEMES = {
    "w4": LinearScheme(WeightScheme("int", 4, "group", 16, symmetric=False)),
    "w8a8": LinearScheme(WeightScheme("int", 8, "channel"), ActivationScheme("int")),
    "fp8": LinearScheme(WeightScheme("float", 8, "channel"), ActivationScheme("float")),
    "fp8 static": LinearScheme(WeightScheme("float", 8, "tensor"), STATIC),
}


def rounded(matrix: torch.Tensor, scheme: WeightScheme) -> QuantizedWeight:
    columns = matrix.shape[1]
    if scheme.strategy == "tensor":
        scales = matrix.abs().amax().reshape(1, 1)
    else:
        scales = matrix.unflatten(1, (-1, scheme.group or columns)).abs().amax(-1)
    if scheme.kind == "float":
        scales = scales / 448
        return QuantizedWeight(scheme, (matrix / scales).to(torch.float8_e4m3fn), scales)
    scales = scales / (2 ** (scheme.bits - 1) - 1)
    values = (matrix / scales.repeat_interleave(scheme.group or columns, 1)).round()
    if scheme.bits == 8:
        return QuantizedWeight(scheme, values.to(torch.int8), scales)
    zeros = None if scheme.symmetric else torch.full(scales.shape, 8, dtype=torch.uint8)
    return QuantizedWeight(scheme, pack_nibbles(values + 8), scales, zeros)


def written(folder: Path, scheme: LinearScheme, kv: dict[str, Any] | None = None) -> tuple[Path, Tensors]:
    """(a tiny Llama whose linears are quantized in compressed-tensors' layout, the matrices that they stand for)."""
    write_safetensors(folder)
    state, expected = load_file(folder / "model.safetensors"), {}
    layout = layout_for(scheme)
    for name in [name for name in state if name.endswith("proj.weight")]:
        weight = rounded(state.pop(name), scheme.weight)
        expected[name] = weight.dequantize()
        state |= {f"{name.removesuffix('.weight')}.{kind}": part for kind, part in packed(weight, layout).items()}
        if scheme.activations is STATIC:
            state[name.replace(".weight", ".input_scale")] = torch.tensor([0.5])
    weight_args = {
        "num_bits": scheme.weight.bits, "type": scheme.weight.kind, "strategy": scheme.weight.strategy,
        "group_size": scheme.weight.group or None, "symmetric": scheme.weight.symmetric,
    }  # fmt: skip
    inputs = scheme.activations and {
        "num_bits": 8, "type": scheme.activations.kind, "strategy": scheme.activations.strategy,
        "dynamic": scheme.activations.dynamic,
    }  # fmt: skip
    about = {
        "quant_method": "compressed-tensors", "format": layout, "ignore": ["lm_head"], "kv_cache_scheme": kv,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weight_args, "input_activations": inputs}},
    }  # fmt: skip
    save_file(state, folder / "model.safetensors")
    changed(folder, quantization_config=about)
    return folder, expected


def changed(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
