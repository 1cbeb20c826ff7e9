"""A GGUF model as a checkpoint of compressed-tensors, rounded to nearest: what benchmarks serve, made in seconds.

    python -m evaluation.benchmarks.quantized_folder MODEL.gguf FOLDER SCHEME

Only linear layers are quantized; the head and the embedding stay. Better recipes are the quantization plugin's.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from engines.native.loader.model_files import open_model
from engines.native.loader.names import file_name
from engines.native.loader.weights import Weights
from engines.native.quant.packing import layout_for, packed
from engines.native.quant.scheme import ActivationScheme, LinearScheme, WeightScheme
from engines.native.quant.weight import QuantizedWeight, pack_nibbles
from engines.native.vocabulary.hf_export import Export
from evaluation.benchmarks.hf_folder import write_tokenizer

SCHEMES = {
    "w8a8": "INT8 W8A8, rounded",
    "w8a16": "INT8 weights only, rounded",
    "fp8": "FP8 W8A8, rounded",
    "int4": "INT4 groups of 64, rounded",
}
_SCHEMES = {
    "w8a8": LinearScheme(WeightScheme("int", 8, "channel"), ActivationScheme("int", 8)),
    "w8a16": LinearScheme(WeightScheme("int", 8, "channel")),
    "fp8": LinearScheme(WeightScheme("float", 8, "channel"), ActivationScheme("float", 8)),
    "int4": LinearScheme(WeightScheme("int", 4, "group", 64)),
}


def rounded(weight: torch.Tensor, scheme: WeightScheme) -> QuantizedWeight:
    """weight: float32 [out, in]. scheme: symmetric, per channel or group."""
    rows, columns = weight.shape
    span = scheme.group or columns
    greatest = 448 if scheme.kind == "float" else 2 ** (scheme.bits - 1) - 1
    parts = weight.view(rows, columns // span, span)
    scales = parts.abs().amax(-1).div_(greatest).clamp_(min=1e-9)
    values = (parts / scales[..., None]).view(rows, columns)
    if scheme.kind == "float":
        return QuantizedWeight(scheme, values.to(torch.float8_e4m3fn), scales)
    whole = values.round_()
    return QuantizedWeight(scheme, pack_nibbles(whole + 8) if scheme.bits == 4 else whole.to(torch.int8), scales)


def write_quantized(model: Path, folder: Path, scheme: str) -> Path:
    """Writes a folder that engines load; returns `folder`."""
    chosen = _SCHEMES[scheme]
    layout = layout_for(chosen)
    files = open_model("gguf", {model.name: str(model)})
    folder.mkdir(parents=True)
    state: dict[str, torch.Tensor] = {}
    with Weights(files) as weights:
        export = Export(files, weights, "float32")
        for name, shape in export.shapes().items():
            written = file_name(name, "safetensors", export.config.architecture)
            tensor = export.tensor(name)
            if name.startswith("layers.") and len(shape) == 2:
                module = written.removesuffix(".weight")
                parts = packed(rounded(tensor, chosen.weight), layout)
                state |= {f"{module}.{kind}": part for kind, part in parts.items()}
            else:
                state[written] = tensor
        config = write_tokenizer(files, export, folder)
    config["quantization_config"] = _config(chosen, layout)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _config(scheme: LinearScheme, layout: str) -> dict[str, Any]:
    weight, activations = scheme.weight, scheme.activations
    common = {"symmetric": True, "group_size": weight.group or None}
    weights = common | {"num_bits": weight.bits, "type": weight.kind, "strategy": weight.strategy, "dynamic": False}
    inputs = None
    if activations is not None:
        inputs = common | {"num_bits": 8, "type": activations.kind, "strategy": "token", "dynamic": True}
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("scheme", choices=list(SCHEMES))
    options = parser.parse_args()
    print(write_quantized(options.model, options.folder, options.scheme))


if __name__ == "__main__":
    main()
