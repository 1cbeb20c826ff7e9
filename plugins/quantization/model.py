"""A model as the quantizer sees it: one layer's tensors by their names in the written checkpoint, and the engine's own
block that computes with them.

Rounding works on tensors as the checkpoint will hold them; what the engine's loader does to weights (row orders, norms
that add one, multipliers, centred columns) is done afresh to each changed set, so nothing has to be undone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType

import torch

from engines.native.loader.model_files import ModelFiles
from engines.native.loader.names import FUSED, expected_shapes, layout_of
from engines.native.loader.weights import Weights
from engines.native.models.build import raw_ends, raw_layer
from engines.native.models.decoder import DecoderWeights
from engines.native.models.smooth import RawLayer
from engines.native.vocabulary.hf_export import Export
from plugins.quantization.errors import QuantizationFailed

Parts = dict[str, torch.Tensor]
"""Tensors of one layer in float32, "q.weight" → [out, in]: the decoder's names without the layer's prefix."""


class Source:
    """Owns the mapped files; a context manager. config: of the written checkpoint. embed, norm, head, cos_sin: of the
    engine, in float32."""

    def __init__(self, files: ModelFiles, positions: int, instead: Mapping[str, torch.Tensor] | None = None) -> None:
        """positions: tokens that a calibration sequence has at most. instead: tensors around the layers, in float32, in
        place of the file's ("embed.weight"). Raises QuantizationFailed for an architecture
        that isn't taken apart here, ChildError for a GGUF file that has no other form."""
        config = files.config
        if config.moe is not None or config.latent is not None:
            what = "a mixture of experts" if config.moe is not None else "latent attention"
            raise QuantizationFailed(
                f"model: {config.architecture} has {what}, which the built-in back end doesn't calibrate: choose the "
                "back end llm_compressor, whose calibration passes all tokens through all experts"
            )
        self._weights = Weights(files)
        self._export = Export(files, self._weights, "auto") if files.format == "gguf" else None
        self.config = self._export.config if self._export else config
        self._fused = layout_of(files.format, config.architecture).fused
        self._files = replace(files, config=self.config)
        made = {"norm.weight": self.read("norm.weight"), **(instead or {})}
        self.ends: DecoderWeights = raw_ends(self._files, _Overlay(self._files, self._weights, made), positions)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._weights.__exit__()

    def read(self, name: str) -> torch.Tensor:
        """One tensor as the checkpoint has it, in float32."""
        return self._export.tensor(name).float() if self._export else self._weights.read(name, torch.float32)

    def parts(self, index: int) -> Parts:
        prefix = f"layers.{index}."
        return {name.removeprefix(prefix): self.read(name) for name in self._files.tensors if name.startswith(prefix)}

    def members(self, group: str) -> tuple[str, ...]:
        """The checkpoint's own modules of one product: ("q", "k", "v"), or ("qkv",) where it keeps them together."""
        if group in FUSED and group not in self._fused:
            return FUSED[group]
        return (group,)

    def inputs(self, group: str) -> int:
        """Of one product."""
        config = self.config
        return {"qkv": config.hidden, "o": config.q_size, "gate_up": config.hidden, "down": config.ffn}[group]

    def raw(self, index: int, parts: Mapping[str, torch.Tensor]) -> RawLayer:
        """What the engine computes with, of these parts of layer `index`."""
        made = {f"layers.{index}.{name}": tensor for name, tensor in parts.items()}
        return raw_layer(self._files, _Overlay(self._files, self._weights, made), index)

    def check_finite(self) -> None:
        """Raises QuantizationFailed naming the first tensor with NaN or infinite values: nothing is made of those."""
        for name in expected_shapes(self._files.config, self._fused):
            info = self._files.tensors[name]
            for rows in _bands(info.shape):
                values = self._weights.read(name, torch.float32, rows=rows)
                # A sum is finite unless one of its values isn't (or it overflows, which the exact look then decides).
                if bool(torch.isfinite(values.sum())):
                    continue
                if bad := int((~torch.isfinite(values)).sum()):
                    raise QuantizationFailed(
                        f"model: tensor {info.name} has {bad} values that are NaN or infinite: the file is damaged, or "
                        "the model diverged in training; register it again from its source"
                    )


class _Overlay(Weights):
    """The files' tensors, some of them replaced. Owns nothing."""

    def __init__(self, files: ModelFiles, below: Weights, made: Mapping[str, torch.Tensor]) -> None:
        super().__init__(files)
        self._below, self._made = below, made

    def read(
        self, name: str, dtype: torch.dtype, device: torch.device | str = "cpu", *, rows: slice = slice(None)
    ) -> torch.Tensor:
        if name not in self._made:
            return self._below.read(name, dtype, device, rows=rows)
        return self._made[name][rows].to(device, dtype, copy=True)

    def into(self, name: str, target: torch.Tensor, *, rows: slice = slice(None), columns: slice = slice(None)) -> None:
        if name in self._made:
            part = self._made[name][rows]
            target.copy_(part if columns == slice(None) else part[:, columns])
        else:
            self._below.into(name, target, rows=rows, columns=columns)


def _bands(shape: tuple[int, ...]) -> list[slice]:
    """Rows of about 4 million values."""
    step = max(1, 2**22 * shape[0] // max(1, torch.Size(shape).numel()))
    return [slice(first, min(first + step, shape[0])) for first in range(0, shape[0], step)]
