"""Checkpoints of a decoder without its head: tensors without the prefix `model.`, and no lm_head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engines.native.loader.tensors import TensorInfo
from engines.native.models.config import DecoderConfig

_HEAD = "lm_head.weight"
_PREFIX = "model."


def as_generating(
    config: DecoderConfig, found: Mapping[str, TensorInfo]
) -> tuple[DecoderConfig, dict[str, TensorInfo]]:
    """The same, as a checkpoint of the generating class would be; a head that is not there counts as tied:
    nothing reads it."""
    tensors = dict(found)
    if not any(name.startswith(_PREFIX) for name in tensors):
        named = {name if name == _HEAD else _PREFIX + name: info for name, info in tensors.items()}
        tensors = {name: replace(info, name=name) for name, info in named.items()}
    return (config if _HEAD in tensors else replace(config, tied=True)), tensors
