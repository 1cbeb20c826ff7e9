"""A decoder's tensors as its products need them: read by our names, folded, merged, in the engine's dtype."""

from __future__ import annotations

import torch

from engines.native.layers.linear import DenseLinear, Method
from engines.native.layers.quantized import DEQUANTIZED, Served
from engines.native.layers.rope import reordered
from engines.native.loader.model_files import ModelFiles
from engines.native.loader.names import FUSED
from engines.native.loader.weights import Weights
from engines.native.models.products import Part

_TORCH = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.float32,  # activations
}


def activation_dtype(dtype: str) -> torch.dtype:
    """The torch dtype that activations and the KV cache have when the engine's dtype is `dtype`."""
    return _TORCH[dtype]


class ModelTensors:
    """Of open files. kept: quantized weights are asked for as they are; else, and where a layer takes its weights
    apart, they are read as floats, which is counted."""

    def __init__(
        self, files: ModelFiles, weights: Weights, dtype: str, device: torch.device, method: Method, *, kept: bool
    ) -> None:
        self._files, self._weights, self._device = files, weights, device
        self._config = files.config
        self._dtype = activation_dtype(dtype)
        self._method = method
        self._int8 = dtype == "int8"
        self._row_head = self._int8_table = False
        self._kept = frozenset(files.quantized) if kept else frozenset()
        self._served = Served()
        self._centered = self._config.norm == "layer"
        # 1 + weight has more digits than bfloat16: Gemma computes its norms in float32.
        wide = self._config.norm_offset or self._config.form == "sandwich"
        self._norm_dtype = torch.float32 if wide else self._dtype

    def _tensor(self, name: str) -> torch.Tensor:
        return self._weights.read(name, self._dtype, self._device)

    def _consumed(self, name: str) -> torch.Tensor:
        """Of a product whose method makes its own form of it: read from the file as it lies there, where it can be."""
        if self._device.type == "cpu" and self._method is not DenseLinear:
            return self._weights.lent(name, self._dtype)
        return self._tensor(name)

    def _stacked(self, names: list[str]) -> torch.Tensor:
        """Tensors whose rows follow each other in one, each read straight into its place."""
        shapes = [self._files.tensors[name].shape for name in names]
        counts = [shape[0] for shape in shapes]
        whole = torch.empty(sum(counts), *shapes[0][1:], dtype=self._dtype, device=self._device)
        first = 0
        for name, count in zip(names, counts, strict=True):
            self._weights.into(name, whole[first : first + count])
            first += count
        return whole

    def _embedding(self) -> torch.Tensor:
        """The table, laid out for a head that shares it."""
        if not (self._config.tied and self._row_head) or self._int8 or self._int8_table:
            return self._tensor("embed.weight")
        vocab, hidden = self._files.tensors["embed.weight"].shape
        table = torch.empty(hidden, vocab, dtype=self._dtype, device=self._device).t()
        self._weights.into("embed.weight", table)
        return table

    def _dequantized(self, names: list[str], reason: str) -> None:
        """Counts those of `names` that are quantized, and are read as floats."""
        for name in names:
            if self._quantized([name]):
                self._served.count(DEQUANTIZED, reason)

    def _optional(self, name: str) -> torch.Tensor | None:
        return self._tensor(name) if name in self._files.tensors else None

    def _norm(self, name: str) -> torch.Tensor:
        weight = self._weights.read(f"{name}.weight", self._norm_dtype, self._device)
        return weight.add_(self._config.norm_offset)

    def _optional_norm(self, name: str) -> torch.Tensor | None:
        return self._norm(name) if f"{name}.weight" in self._files.tensors else None

    def _merged(self, prefix: str, whole: str) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weight and bias of one product for the parts of `whole`: their rows follow each other in its output."""
        parts = self._parts(prefix, whole)
        if len(parts) == 1:
            return self._tensor(f"{parts[0]}.weight"), self._optional(f"{parts[0]}.bias")
        return self._stacked([f"{part}.weight" for part in parts]), self._merged_bias(parts)

    def _parts(self, prefix: str, whole: str) -> list[str]:
        """Names of the file's tensors, without their kind, whose rows make up `whole`."""
        if f"{prefix}.{whole}.weight" in self._files.tensors:
            return [f"{prefix}.{whole}"]
        return [f"{prefix}.{part}" for part in FUSED[whole]]

    def _merged_bias(self, parts: list[str]) -> torch.Tensor | None:
        biases = [name for part in parts if (name := f"{part}.bias") in self._files.tensors]
        return self._stacked(biases) if biases else None

    def _part(self, name: str) -> Part:
        """Part of a product of which at least one part is kept quantized."""
        weight = f"{name}.weight"
        return self._weights.quantized(weight) if weight in self._kept else self._tensor(weight)

    def _quantized(self, parts: list[str]) -> bool:
        return any(f"{part}.weight" in self._kept for part in parts)

    def _added(self, name: str) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weight and bias of a product whose output goes into the residual stream."""
        weight, bias = self._consumed(f"{name}.weight"), self._optional(f"{name}.bias")
        for tensor in (weight, bias):
            if tensor is not None and self._config.residual_scale != 1:
                tensor.mul_(self._config.residual_scale)
            if tensor is not None and self._centered:
                tensor.sub_(tensor.float().mean(0, keepdim=True).to(tensor.dtype))
        return weight, bias

    def _qkv(self, prefix: str, order: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        weight, bias = self._merged(prefix, "qkv")
        turned = self._config.q_size + self._config.kv_size
        if order is not None:
            for tensor in (weight, bias):
                if tensor is not None:
                    tensor[:turned] = reordered(tensor[:turned], order)
        return weight, bias
