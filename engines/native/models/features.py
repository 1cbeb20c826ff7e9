"""What a head that guesses tokens reads of its target: a vector of each token, made of residual streams as they pass,
and kept in the slot of the token's keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from engines.native.config import ConfigError
from engines.native.models.config import DecoderConfig
from engines.native.quantized_kv import Pool
from engines.native.state import kv_plane

Feature = Callable[[torch.Tensor], torch.Tensor]
"""[t, streams × hidden] → [t, size]; it may run in a captured graph."""


class Features:
    """pool: [B, 1, s, size], in the dtype of the activations, zeroed."""

    def __init__(self, config: DecoderConfig, layers: Sequence[int], size: int, feature: Feature, like: Pool) -> None:
        """like: a pool of the KV cache whose blocks these go with. Raises ConfigError."""
        rising = bool(layers) and list(layers) == sorted(set(layers))
        if not rising or not 1 <= layers[0] <= layers[-1] < config.layers + (len(layers) == 1):
            raise ConfigError(
                f"the head reads what stands before layers {list(layers)}; the model has {config.layers}, of which "
                "1 … can be named, in rising order: take a head that was trained for this model"
            )
        if config.norm == "layer":
            raise ConfigError(
                f"{config.architecture} models are loaded with their streams' means taken out: no head fits"
            )
        blocks, _, block_size, _ = like.shape
        self.pool = kv_plane(blocks, 1, block_size, (size,), like.dtype, like.device)
        by_slot = self.pool.transpose(0, 1) if like.device.type == "cpu" else self.pool
        self._slots = by_slot.view(blocks * block_size, size)
        self._feature, self._count = feature, len(layers)
        self._streams: list[torch.Tensor] = []

    def see(self, place: int, slots: torch.Tensor, stream: torch.Tensor) -> None:
        """The stream number `place`, [t, hidden], of the tokens in `slots`; what comes after writes over it."""
        if place == 0:
            self._streams = []  # a pass that raised has left some
        if self._count == 1:
            self._slots.index_copy_(0, slots, self._feature(stream))
            return
        self._streams.append(stream.clone())
        if place == self._count - 1:
            self._slots.index_copy_(0, slots, self._feature(torch.cat(self._streams, -1)))
            self._streams = []
