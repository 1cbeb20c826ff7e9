"""A decoder as an embedding model: its layers over whole texts, nothing kept.

Its attention reads keys and values from a pool of blocks, as in generation. Here one layer's pool serves all layers:
each writes every place before it reads it, and the next pass writes over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from engines.native.models.build import load_weights
from engines.native.models.decoder import Decoder
from engines.native.models.tensors import activation_dtype
from engines.native.ops.base import Batch
from engines.native.ops.registry import DEFAULTS, make_ops
from engines.native.ops.spans import spans_of
from engines.native.pooling.files import PoolingFiles
from engines.native.pooling.memory import PoolingSizes
from engines.native.pooling.queue import Text
from engines.native.state import kv_pool

BLOCK = 16  # tokens


class DecoderModel:
    """Implements engines.native.pooling.runner.Model."""

    def __init__(self, decoder: Decoder, device: torch.device) -> None:
        self._decoder, self._device = decoder, device

    def states(self, texts: Sequence[Text], wanted: NDArray[np.int64] | None) -> torch.Tensor:
        lengths = np.array([len(text.token_ids) for text in texts])
        blocks = -(-lengths // BLOCK)
        firsts = 1 + np.cumsum(blocks) - blocks  # block 0 is the null block
        width = int(blocks.max())
        tables = firsts[:, None] + np.arange(width)
        tables[np.arange(width)[None] >= blocks[:, None]] = 0
        positions = np.concatenate([np.arange(length) for length in lengths])
        every = np.arange(len(positions)) if wanted is None else wanted
        longest = int(lengths.max())
        batch = Batch(
            token_ids=self._send(np.concatenate([text.token_ids for text in texts]), np.int64),
            positions=self._send(positions, np.int64),
            slots=self._send(np.repeat(firsts * BLOCK, lengths) + positions, np.int64),
            cu_query=self._send(np.concatenate([[0], np.cumsum(lengths)]), np.int32),
            seq_lens=self._send(lengths, np.int32),
            block_tables=self._send(tables, np.int32),
            logits_index=self._send(every, np.int64),
            max_query=longest,
            max_seq=longest,
            spans=spans_of(np.zeros_like(lengths), lengths),  # texts come shortest first
        )
        return self._decoder.hidden(batch)

    def _send(self, values: NDArray[np.generic], dtype: type[np.generic]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values.astype(dtype))).to(self._device)


def load_decoder(
    files: PoolingFiles, sizes: PoolingSizes, device: torch.device, progress: Callable[[float], None]
) -> DecoderModel:
    """Raises BadModel."""
    assert files.decoder is not None
    config = files.decoder.config
    weights = load_weights(files.decoder, sizes.dtype, device, sizes.max_tokens, progress)
    blocks = 1 + sizes.max_batched_tokens // BLOCK + sizes.max_texts
    pool = kv_pool(1, blocks, config.kv_heads, BLOCK, config.head_dim, activation_dtype(sizes.dtype), device)
    return DecoderModel(Decoder(config, weights, make_ops(DEFAULTS[device.type]), pool * config.layers), device)
