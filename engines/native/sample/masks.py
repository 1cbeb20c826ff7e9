"""Token masks over logits: what a grammar doesn't allow can't be drawn."""

from __future__ import annotations

import numpy as np
import torch

from engines.native.state import pinned
from engines.native.step import TokenMasks


def apply(logits: torch.Tensor, masks: TokenMasks) -> None:
    """Write −∞ over the tokens that may not be drawn, in the lines that have a mask. logits: float32 [m, vocab]."""
    refused = ~allowed(masks.bits, logits.shape[1], logits.device)
    if len(masks.places) == len(logits):
        logits.masked_fill_(refused, -torch.inf)
        return
    places = pinned(masks.places, logits.device).to(logits.device, non_blocking=True)
    logits[places] = logits[places].masked_fill_(refused, -torch.inf)


def allowed(bits: np.ndarray[tuple[int, ...], np.dtype[np.int32]], vocab: int, device: torch.device) -> torch.Tensor:
    """bits: int32 [k, words] → bool [k, vocab] on `device`. To a GPU they travel packed."""
    if device.type == "cpu":
        flags = np.unpackbits(bits.view(np.uint8), axis=1, count=vocab, bitorder="little")
        return torch.from_numpy(flags.view(np.bool_))
    return unpacked(pinned(bits, device).to(device, non_blocking=True), vocab)


def unpacked(words: torch.Tensor, vocab: int) -> torch.Tensor:
    """int32 [k, words] → bool [k, vocab], on the device of `words`."""
    shifts = torch.arange(32, dtype=torch.int32, device=words.device)
    return ((words[:, :, None] >> shifts) & 1).bool().flatten(1)[:, :vocab]
