"""A decoder's weights from a model's files: read, merged, put into the engine's dtype, moved to its device."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engines.native.layers.embedding import ColumnEmbedding, Embedding, TableEmbedding
from engines.native.layers.linear import Linear, TransposedLinear, method_for
from engines.native.layers.rope import cos_sin_table
from engines.native.loader.model_files import ModelFiles
from engines.native.loader.weights import Weights
from engines.native.models.calibration import calibration_ids
from engines.native.models.decoder import DecoderWeights, LayerWeights
from engines.native.models.smooth import RawLayer, Smoother

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
    with Weights(files) as weights, torch.inference_mode():
        return _Loader(files, weights, dtype, device, positions).load(progress)


class _Loader:
    """Reads layer by layer, so that no more than one is in memory in both its forms."""

    def __init__(self, files: ModelFiles, weights: Weights, dtype: str, device: torch.device, positions: int) -> None:
        self._files, self._weights, self._device = files, weights, device
        self._config = files.config
        self._dtype = activation_dtype(dtype)
        self._method = method_for(dtype, device.type)
        self._int8 = dtype == "int8"
        rope = self._config.rope
        factors = weights.read("rope_factors.weight", torch.float32) if rope.kind == "factors" else None
        self._cos_sin = cos_sin_table(rope, self._config.head_dim, positions, factors).to(device)

    def load(self, progress: Progress) -> DecoderWeights:
        table = self._tensor("embed.weight")
        smoother = Smoother(self._config, table, self._cos_sin, calibration_ids(self._files)) if self._int8 else None
        layers = []
        for index in range(self._config.layers):
            raw = self._raw(f"layers.{index}")
            if smoother is not None:
                smoother.layer(raw)
            layers.append(self._layer(raw))
            progress((index + 1) / (self._config.layers + 1))
        norm = self._tensor("norm.weight")
        embed, head = self._ends(table, norm, smoother)
        return DecoderWeights(embed, layers, norm, head, self._cos_sin)

    def _ends(self, table: torch.Tensor, norm: torch.Tensor, smoother: Smoother | None) -> tuple[Embedding, Linear]:
        """Embedding and head; one tensor where they are tied and the head keeps it whole."""
        tied = self._config.tied
        if smoother is not None:
            embed = TableEmbedding(table.half(), self._dtype)  # before the head's factors go into a tied table
            weight = table if tied else self._tensor("head.weight")
            smoother.head(norm, weight)
            return embed, self._method(weight, None)
        if tied and self._device.type == "cpu":
            transposed = TransposedLinear(table, None)
            return ColumnEmbedding(transposed.weight), transposed
        head = self._method(table if tied else self._tensor("head.weight"), None)
        return TableEmbedding(table, self._dtype), head

    def _tensor(self, name: str) -> torch.Tensor:
        return self._weights.read(name, self._dtype).to(self._device)

    def _optional(self, name: str) -> torch.Tensor | None:
        return self._tensor(name) if name in self._files.tensors else None

    def _merged(self, prefix: str, *parts: str) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weight and bias of one product for `parts`: their rows follow each other in its output."""
        weight = torch.cat([self._tensor(f"{prefix}.{part}.weight") for part in parts])
        biases = [self._optional(f"{prefix}.{part}.bias") for part in parts]
        present = [bias for bias in biases if bias is not None]
        return weight, torch.cat(present) if present else None

    def _raw(self, prefix: str) -> RawLayer:
        qkv, qkv_bias = self._merged(prefix, "q", "k", "v")
        o, o_bias = self._merged(prefix, "o")
        gate_up, gate_up_bias = self._merged(prefix, "gate", "up")
        down, down_bias = self._merged(prefix, "down")
        return RawLayer(
            input_norm=self._tensor(f"{prefix}.input_norm.weight"),
            qkv=qkv,
            qkv_bias=qkv_bias,
            q_norm=self._optional(f"{prefix}.q_norm.weight"),
            k_norm=self._optional(f"{prefix}.k_norm.weight"),
            o=o,
            o_bias=o_bias,
            post_norm=self._tensor(f"{prefix}.post_norm.weight"),
            gate_up=gate_up,
            gate_up_bias=gate_up_bias,
            down=down,
            down_bias=down_bias,
        )

    def _layer(self, raw: RawLayer) -> LayerWeights:
        return LayerWeights(
            input_norm=raw.input_norm,
            qkv=self._method(raw.qkv, raw.qkv_bias),
            q_norm=raw.q_norm,
            k_norm=raw.k_norm,
            o=self._method(raw.o, raw.o_bias),
            post_norm=raw.post_norm,
            gate_up=self._method(raw.gate_up, raw.gate_up_bias),
            down=self._method(raw.down, raw.down_bias),
        )
