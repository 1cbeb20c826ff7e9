"""A decoder's weights from a model's files: read, merged, put into the engine's dtype, moved to its device."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engines.native.layers.embedding import ColumnEmbedding, Embedding, TableEmbedding
from engines.native.layers.linear import Linear, TransposedLinear, method_for
from engines.native.layers.rope import cos_sin_table
from engines.native.loader.model_files import ModelFiles
from engines.native.loader.weights import Weights
from engines.native.models.decoder import DecoderWeights, LayerWeights

Progress = Callable[[float], None]
"""Called with the share of the weights that is loaded, 0…1."""

_TORCH = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.float32,  # activations
}


def activation_dtype(dtype: str) -> torch.dtype:
    """The torch dtype that activations and the KV cache have when the engine's dtype is `dtype`."""
    return _TORCH[dtype]


def load_weights(
    files: ModelFiles, dtype: str, device: torch.device, positions: int, progress: Progress
) -> DecoderWeights:
    """positions: length of the rotary table, tokens."""
    with Weights(files) as weights:
        loader = _Loader(files, weights, dtype, device)
        embed, head = loader.ends()
        layers = []
        for index in range(files.config.layers):
            layers.append(loader.layer(f"layers.{index}"))
            progress((index + 1) / (files.config.layers + 1))
        factors = weights.read("rope_factors.weight", torch.float32) if files.config.rope.kind == "factors" else None
        table = cos_sin_table(files.config.rope, files.config.head_dim, positions, factors).to(device)
        return DecoderWeights(embed, layers, loader.tensor("norm.weight"), head, table)


class _Loader:
    def __init__(self, files: ModelFiles, weights: Weights, dtype: str, device: torch.device) -> None:
        self._files, self._weights, self._device = files, weights, device
        self._dtype = activation_dtype(dtype)
        self._method = method_for(dtype, device.type)
        self._table_dtype = torch.float16 if dtype == "int8" else self._dtype

    def tensor(self, name: str) -> torch.Tensor:
        return self._weights.read(name, self._dtype).to(self._device)

    def optional(self, name: str) -> torch.Tensor | None:
        return self.tensor(name) if name in self._files.tensors else None

    def linear(self, prefix: str, *parts: str) -> Linear:
        """One product for `parts`: their rows follow each other in its output."""
        weight = torch.cat([self.tensor(f"{prefix}.{part}.weight") for part in parts])
        biases = [self.optional(f"{prefix}.{part}.bias") for part in parts]
        present = [bias for bias in biases if bias is not None]
        return self._method(weight, torch.cat(present) if present else None)

    def ends(self) -> tuple[Embedding, Linear]:
        """Embedding and head; one tensor where they are tied and the head keeps it whole."""
        table = self.tensor("embed.weight")
        head = self._method(table if self._files.config.tied else self.tensor("head.weight"), None)
        if self._files.config.tied and isinstance(head, TransposedLinear):
            return ColumnEmbedding(head.weight), head
        return TableEmbedding(table.to(self._table_dtype), self._dtype), head

    def layer(self, prefix: str) -> LayerWeights:
        return LayerWeights(
            input_norm=self.tensor(f"{prefix}.input_norm.weight"),
            qkv=self.linear(prefix, "q", "k", "v"),
            q_norm=self.optional(f"{prefix}.q_norm.weight"),
            k_norm=self.optional(f"{prefix}.k_norm.weight"),
            o=self.linear(prefix, "o"),
            post_norm=self.tensor(f"{prefix}.post_norm.weight"),
            gate_up=self.linear(prefix, "gate", "up"),
            down=self.linear(prefix, "down"),
        )
