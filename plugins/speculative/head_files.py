"""Files of heads that guess tokens from a target's hidden states: tensors found, checked against their shapes, and read
by our names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from engines.native.config import ConfigError
from engines.native.loader.errors import BadModel
from engines.native.loader.hf_fields import Json
from engines.native.loader.model_files import ModelFiles, read_json
from engines.native.loader.safetensors import QUANTIZED_WIDTHS, read_safetensors
from engines.native.loader.tensors import Mapped, TensorInfo
from engines.native.models.config import DecoderConfig
from engines.native.quant.reader import tensor_of
from engines.native.speculation.proposer import ProposerSettings

Shape = tuple[int, ...]


def given(settings: ProposerSettings) -> tuple[Json, dict[str, Path]]:
    """config.json and the paths of a head. Raises ConfigError where none is given, BadModel for its files."""
    if settings.draft is None:
        raise ConfigError("speculation drafts with a head, but none is given: name a draft model, or leave it out")
    paths = {name: Path(path) for name, path in settings.draft[1].items()}
    for name, path in paths.items():
        if not path.is_file():
            raise BadModel("missing_file", f"the file {name} of the head is not there", "register the head again")
    return read_json(paths, "config.json"), paths


def tensors_of(paths: Mapping[str, Path], unread: str = "") -> dict[str, TensorInfo]:
    """By their names, less a leading "model."; those that end in `unread` are left out. Raises BadModel."""
    shards = sorted(name for name in paths if name.endswith(".safetensors"))
    if not shards:
        raise BadModel(
            "missing_file", f"the head has no .safetensors file, only {', '.join(sorted(paths))}",
            "save it in that format: files of pickled objects are not opened",
        )  # fmt: skip
    found: dict[str, TensorInfo] = {}
    for name in shards:
        found |= read_safetensors(paths[name], unread, QUANTIZED_WIDTHS)
    return {name.removeprefix("model."): info for name, info in found.items()}


def checked(
    found: Mapping[str, TensorInfo], names: Mapping[str, tuple[str, Shape]], optional: frozenset[str] = frozenset()
) -> dict[str, TensorInfo]:
    """names: ours → (theirs, shape). Raises BadModel for what is missing or has another shape."""
    tensors = {}
    for ours, (theirs, shape) in names.items():
        info = found.get(theirs)
        if info is None:
            if ours in optional:
                continue
            raise BadModel("missing_tensor", f"the head's tensor {theirs} is missing ({len(found)} others are there)")
        if info.shape != shape:
            raise BadModel(
                "wrong_shape", f"the head's tensor {theirs} has shape {list(info.shape)}; {list(shape)} fits here"
            )
        tensors[ours] = info
    return tensors


def as_files(paths: dict[str, Path], config: DecoderConfig, tensors: dict[str, TensorInfo]) -> ModelFiles:
    """For `engines.native.loader.weights`."""
    return ModelFiles("safetensors", paths, config, tensors, None)


def whole_numbers(info: TensorInfo) -> torch.Tensor:
    """int64, a copy."""
    mapped = Mapped()
    try:
        return tensor_of(info, mapped.bytes_of(info)).long().clone()
    finally:
        mapped.close()


def same_size(what: str, head: int, target: int) -> None:
    """Raises ConfigError, with both numbers."""
    if head != target:
        raise ConfigError(
            f"the head was trained for a model with a {what} of {head:,}, and this one's is {target:,}: take a head "
            "that was trained for it"
        )
