"""A model's files, opened and checked: configuration, and where each of the decoder's tensors lies. No torch."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines.native.loader import gguf_config, hf_config
from engines.native.loader.errors import BadModel
from engines.native.loader.gguf import GgufFile, read_gguf
from engines.native.loader.names import IGNORED_SUFFIXES, Layout, expected_shapes, layout_of
from engines.native.loader.safetensors import QUANTIZED_WIDTHS, WIDTHS, read_safetensors
from engines.native.loader.tensors import TensorInfo
from engines.native.models.config import DecoderConfig
from engines.native.pooling.config import Task
from engines.native.pooling.headless import as_generating
from engines.native.pooling.task import task_of
from engines.native.quant.config import quant_config
from engines.native.quant.scheme import QuantConfig
from engines.native.quant.stored import FLOATS, KEPT_BLOCKS, KvScales, Stored, is_zero, kv_scales_of, of_blocks, stored


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """tensors: the decoder's own name → place; one that is quantized has the shape of its matrix, its scheme as type
    and the bytes of all its parts (in GGUF it is one tensor, and stays that). gguf: the parsed file, where the format
    is GGUF. quant: what config.json says of quantization. quantized: our name → what makes up the matrix, of those
    that can be kept as they are. kv_scales: layer → scales of keys and values."""

    format: str
    paths: dict[str, Path]
    config: DecoderConfig
    tensors: dict[str, TensorInfo]
    gguf: GgufFile | None
    quant: QuantConfig | None = None
    quantized: dict[str, Stored] = field(default_factory=dict)
    kv_scales: dict[int, KvScales] = field(default_factory=dict)

    def quantized_size(self, device: str = "") -> tuple[int, int]:
        """Of the matrices that the engine keeps quantized where it keeps any: parameters, and bytes in the files.
        device: "cpu", "cuda", or "" for what any keeps."""
        kept = [one for name, one in self.quantized.items() if self._keeps(name, device)]
        return sum(one.shape[0] * one.shape[1] for one in kept), sum(one.nbytes for one in kept)

    def _keeps(self, name: str, device: str) -> bool:
        """Not what `models.build` reads as floats: experts share a product, latent attention takes weights apart."""
        if ".experts." in name:
            return False
        if (latent := self.config.latent) is not None:
            parts = ("q_b" if latent.q_rank else "q", "kv_a", "kv_b")
            if name.startswith("layers.") and name.removesuffix(".weight").rpartition(".")[2] in parts:
                return False
        return device != "cuda" or self.format != "gguf" or self.tensors[name].type == "Q4_0"  # others have no kernel


def open_model(format: str, paths: dict[str, str]) -> ModelFiles:
    """Read headers, not weights. Raises BadModel, naming tensor, key or file."""
    located = {name: Path(path) for name, path in paths.items()}
    for name, path in located.items():
        if not path.is_file():
            raise BadModel("missing_file", f"the file {name} of the model is not there", "register the model again")
    if format == "gguf":
        return _open_gguf(located)
    if format == "safetensors":
        return _open_safetensors(located)
    raise BadModel("unknown_type", f"the model's format is {format!r}; it can be gguf or safetensors")


def _open_gguf(paths: dict[str, Path]) -> ModelFiles:
    files = [path for name, path in paths.items() if name.endswith(".gguf")] or list(paths.values())
    if len(files) != 1:
        raise BadModel("missing_file", f"a GGUF model is one file; {len(files)} are given")
    file = read_gguf(files[0])
    config = gguf_config.decoder_config(file)
    tensors = _checked(config, file.tensors, "gguf", {})
    matrices = {name: info for name, info in tensors.items() if len(info.shape) == 2}
    kept = {name: of_blocks(info) for name, info in matrices.items() if info.type in KEPT_BLOCKS}
    return ModelFiles("gguf", paths, config, tensors, file, QuantConfig("gguf") if kept else None, kept)


def _open_safetensors(paths: dict[str, Path]) -> ModelFiles:
    said = read_json(paths, "config.json")
    config, quant = hf_config.decoder_config(said), quant_config(said)
    shards = {name: path for name, path in paths.items() if name.endswith(".safetensors")}
    if not shards:
        raise BadModel("missing_file", "the model has no .safetensors file")
    _all_shards(paths, shards)
    tensors: dict[str, TensorInfo] = {}
    for name in sorted(shards):
        tensors.update(read_safetensors(shards[name], widths=QUANTIZED_WIDTHS if quant else WIDTHS))
    if task_of("safetensors", paths) is not Task.GENERATE:
        config, tensors = as_generating(config, tensors)
    layout = layout_of("safetensors", config.architecture)
    quantized = _quantized(config, quant, tensors, layout) if quant else {}
    scales = kv_scales_of(quant, config, layout, tensors) if quant else {}
    checked = _checked(config, tensors, "safetensors", quantized, scales)
    return ModelFiles("safetensors", paths, config, checked, None, quant, quantized, scales)


def read_json(paths: dict[str, Path], name: str, required: bool = True) -> dict[str, Any]:
    """The JSON object in one of the model's files; {} for an absent one that is not required."""
    if name not in paths:
        if required:
            raise BadModel("missing_file", f"the model has no {name}")
        return {}
    try:
        value = json.loads(paths[name].read_bytes())
    except ValueError as error:
        raise BadModel("bad_magic", f"{name} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadModel("bad_magic", f"{name} is no JSON object")
    return value


def _all_shards(paths: dict[str, Path], shards: dict[str, Path]) -> None:
    index = read_json(paths, "model.safetensors.index.json", required=False)
    for name in sorted(set(index.get("weight_map", {}).values())):
        if name not in shards:
            raise BadModel("missing_file", f"model.safetensors.index.json names {name}, which is not there")


def _quantized(
    config: DecoderConfig, quant: QuantConfig, found: dict[str, TensorInfo], layout: Layout
) -> dict[str, Stored]:
    """Our name → the matrix, of each that the configuration's rules quantize."""
    quantized = {}
    for name, shape in expected_shapes(config, layout.fused).items():
        module, _, kind = layout.name(name).rpartition(".")
        rule = quant.rule(module) if kind == "weight" and len(shape) == 2 else None
        if rule is not None:
            made = stored(module, (shape[0], shape[1]), rule, found)
            if made is not None:
                quantized[name] = made
    return quantized


def _checked(
    config: DecoderConfig,
    found: dict[str, TensorInfo],
    format: str,
    quantized: dict[str, Stored],
    kv_scales: dict[int, KvScales] | None = None,
) -> dict[str, TensorInfo]:
    """Each tensor that the decoder needs, and none that it would leave out: a bias without a place means another
    architecture than the one declared."""
    tensors, used = {}, set()
    layout = layout_of(format, config.architecture)
    for name, shape in expected_shapes(config, layout.fused).items():
        if name in quantized:
            tensors[name] = quantized[name].info()
            used |= {part.name for part in quantized[name].parts.values()}
        else:
            tensors[name] = _plain(layout.name(name), shape, found, format)
            used.add(tensors[name].name)
    used |= {scale.name for pair in (kv_scales or {}).values() for scale in pair}
    ignored = {layout.name("head.weight")} if config.tied else set()
    biases = {f"{matrix.module}.bias" for matrix in quantized.values() if matrix.layout.startswith("gptq")}
    for name in found:
        if name in used or name in ignored or layout.unused(name, config.layers) or name.endswith(IGNORED_SUFFIXES):
            continue
        if name in biases and is_zero(found[name]):  # AutoGPTQ writes one for each matrix, whatever the model has
            continue
        raise BadModel(
            "unknown_architecture", f"tensor {name} has no place in a {config.architecture} decoder of this form"
        )
    return tensors


def _plain(name: str, shape: tuple[int, ...], found: dict[str, TensorInfo], format: str) -> TensorInfo:
    info = found.get(name)
    if info is None:
        raise BadModel("missing_tensor", f"the tensor {name} is missing ({len(found)} others are there)")
    if info.shape != shape:
        raise BadModel(
            "wrong_shape", f"tensor {name} has shape {list(info.shape)}; the configuration makes it {list(shape)}"
        )
    if format == "safetensors" and info.type not in FLOATS:
        raise BadModel(
            "unknown_type",
            f"tensor {name} has dtype {info.type}, and quantization_config does not say that it is quantized",
            f"without that it can be {', '.join(FLOATS)}",
        )
    return info
