"""A model's files, opened and checked: configuration, and where each of the decoder's tensors lies. No torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.native.loader import gguf_config, hf_config
from engines.native.loader.errors import BadModel
from engines.native.loader.gguf import GgufFile, read_gguf
from engines.native.loader.names import IGNORED_SUFFIXES, expected_shapes, layout_of
from engines.native.loader.safetensors import read_safetensors
from engines.native.loader.tensors import TensorInfo
from engines.native.models.config import DecoderConfig
from engines.native.pooling.config import Task
from engines.native.pooling.headless import as_generating
from engines.native.pooling.task import task_of


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """tensors: the decoder's own name → place. gguf: the parsed file, where the format is GGUF."""

    format: str
    paths: dict[str, Path]
    config: DecoderConfig
    tensors: dict[str, TensorInfo]
    gguf: GgufFile | None


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
    return ModelFiles("gguf", paths, config, _checked(config, file.tensors, "gguf"), file)


def _open_safetensors(paths: dict[str, Path]) -> ModelFiles:
    config = hf_config.decoder_config(read_json(paths, "config.json"))
    shards = {name: path for name, path in paths.items() if name.endswith(".safetensors")}
    if not shards:
        raise BadModel("missing_file", "the model has no .safetensors file")
    _all_shards(paths, shards)
    tensors: dict[str, TensorInfo] = {}
    for name in sorted(shards):
        tensors.update(read_safetensors(shards[name]))
    if task_of("safetensors", paths) is not Task.GENERATE:
        config, tensors = as_generating(config, tensors)
    return ModelFiles("safetensors", paths, config, _checked(config, tensors, "safetensors"), None)


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


def _checked(config: DecoderConfig, found: dict[str, TensorInfo], format: str) -> dict[str, TensorInfo]:
    """Each tensor that the decoder needs, and none that it would leave out: a bias without a place means another
    architecture than the one declared."""
    tensors = {}
    layout = layout_of(format, config.architecture)
    for name, shape in expected_shapes(config, layout.fused).items():
        in_file = layout.name(name)
        info = found.get(in_file)
        if info is None:
            raise BadModel("missing_tensor", f"the tensor {in_file} is missing ({len(found)} others are there)")
        if info.shape != shape:
            raise BadModel(
                "wrong_shape",
                f"tensor {in_file} has shape {list(info.shape)}; the configuration makes it {list(shape)}",
            )
        tensors[name] = info
    used = {info.name for info in tensors.values()}
    ignored = {layout.name("head.weight")} if config.tied else set()
    for name in found:
        if name in used or name in ignored or layout.unused(name, config.layers):
            continue
        if not name.endswith(IGNORED_SUFFIXES):
            raise BadModel(
                "unknown_architecture", f"tensor {name} has no place in a {config.architecture} decoder of this form"
            )
    return tensors
