"""An encoder's weights from its files: read, merged, put into the engine's dtype, moved to its device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from engines.native.layers.linear import Linear, PackedLinear, method_for
from engines.native.loader.tensors import Mapped
from engines.native.models.encoder import Encoder, EncoderLayer, EncoderWeights, Norm
from engines.native.models.tensors import activation_dtype
from engines.native.pooling.config import EncoderConfig, Task
from engines.native.pooling.files import PoolingFiles

Progress = Callable[[float], None]

_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}
_FUSED = {"gelu": ("gelu", "none"), "gelu_new": ("gelu", "tanh"), "gelu_pytorch_tanh": ("gelu", "tanh")}
"""Our name → oneDNN's attribute and its algorithm."""


@dataclass(slots=True)
class ScoreHead:
    """A cross-encoder's classifier: tanh(dense(first token)), then one number."""

    dense: Linear
    out: Linear

    def __call__(self, first: torch.Tensor) -> torch.Tensor:
        """[n, hidden] → [n, labels]."""
        return self.out(torch.tanh(self.dense(first)))


class _PackedActivated(PackedLinear):
    """A packed product that puts its outputs through GELU while they are in registers."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, activation: str) -> None:
        super().__init__(weight, bias)
        self._attribute, self._algorithm = _FUSED[activation]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self._product(x, self._packed, self._bias, self._attribute, [], self._algorithm)
        return y


class _Activated:
    def __init__(self, linear: Linear, activation: str) -> None:
        self._linear, self._activation = linear, _ACTIVATIONS[activation]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._activation(self._linear(x))


def load_encoder(
    files: PoolingFiles, dtype: str, device: torch.device, progress: Progress
) -> tuple[Encoder, ScoreHead | None]:
    """The encoder, and the head of a cross-encoder."""
    assert files.encoder is not None
    mapped = Mapped()
    try:
        with torch.inference_mode():
            loader = _Loader(files, files.encoder, mapped, dtype, device)
            return Encoder(files.encoder, loader.weights(progress)), loader.head()
    finally:
        mapped.close()


class _Loader:
    def __init__(
        self, files: PoolingFiles, config: EncoderConfig, mapped: Mapped, dtype: str, device: torch.device
    ) -> None:
        self._files, self._config, self._mapped = files, config, mapped
        self._dtype, self._device = activation_dtype(dtype), device
        self._method = method_for(dtype, device.type)

    def weights(self, progress: Progress) -> EncoderWeights:
        config = self._config
        types = self._tensor("types.weight")
        layers = []
        for index in range(config.layers):
            layers.append(self._layer(f"layers.{index}."))
            progress((index + 1) / config.layers)
        return EncoderWeights(
            words=self._tensor("words.weight"),
            positions=self._tensor("positions.weight") + types[0],
            second=types[1] - types[0] if len(types) > 1 else None,
            norm=self._norm("embed_norm"),
            layers=layers,
        )

    def head(self) -> ScoreHead | None:
        if self._files.head.task is not Task.SCORE:
            return None
        return ScoreHead(*(self._linear(name) for name in ("head_dense", "head_out")))

    def _layer(self, prefix: str) -> EncoderLayer:
        return EncoderLayer(
            qkv=self._linear(*(prefix + part for part in "qkv")),
            o=self._linear(prefix + "o"),
            attention_norm=self._norm(prefix + "attention_norm"),
            up=self._up(prefix + "up"),
            down=self._linear(prefix + "down"),
            output_norm=self._norm(prefix + "output_norm"),
        )

    def _up(self, name: str) -> Linear:
        activation = self._config.activation
        if self._method is PackedLinear and activation in _FUSED:
            return _PackedActivated(self._tensor(f"{name}.weight"), self._tensor(f"{name}.bias"), activation)
        return _Activated(self._linear(name), activation)

    def _linear(self, *names: str) -> Linear:
        """One product for several weights: their rows follow each other in its output."""
        weight = torch.cat([self._tensor(f"{name}.weight") for name in names])
        return self._method(weight, torch.cat([self._tensor(f"{name}.bias") for name in names]))

    def _norm(self, name: str) -> Norm:
        return Norm(self._tensor(f"{name}.weight"), self._tensor(f"{name}.bias"))

    def _tensor(self, name: str) -> torch.Tensor:
        """A copy, in our dtype and on our device."""
        info = self._files.tensors[name]
        read = torch.frombuffer(self._mapped.bytes_of(info), dtype=_FLOATS[info.type]).view(info.shape)
        return read.to(self._dtype, copy=True).to(self._device)
