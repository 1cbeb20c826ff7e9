"""Token masks over logits: what a grammar doesn't allow can't be drawn."""

from __future__ import annotations

import numpy as np
import torch

from engines.native.state import pinned
from engines.native.step import TokenMasks


def apply(logits: torch.Tensor, masks: TokenMasks) -> None:
    """Write −∞ over the tokens that may not be drawn, in the lines that have a mask. logits: float32 [m, vocab]. To a
    GPU the bits travel packed."""
    if logits.is_cuda:
        from engines.native.kernels.masks import mask_logits  # no Triton where there is no GPU

        lines, bits = (
            pinned(each, logits.device).to(logits.device, non_blocking=True) for each in (masks.places, masks.bits)
        )
        mask_logits(logits, lines, bits)
        return
    refused = ~allowed(masks.bits, logits.shape[1])
    if len(masks.places) == len(logits):
        logits.masked_fill_(refused, -torch.inf)
        return
    places = torch.from_numpy(masks.places)
    logits[places] = logits[places].masked_fill_(refused, -torch.inf)


def allowed(bits: np.ndarray[tuple[int, ...], np.dtype[np.int32]], vocab: int) -> torch.Tensor:
    """bits: int32 [k, words] → bool [k, vocab]."""
    flags = np.unpackbits(bits.view(np.uint8), axis=1, count=vocab, bitorder="little")
    return torch.from_numpy(flags.view(np.bool_))
