"""Attention of whole prompts by a library: cuDNN, through torch. On an H200 it takes 0.6 to 0.75 of our kernel's time
(docs/performance.md).

It knows no pages and makes a plan for every new shape, which takes it some 50 ms. So it gets the heads of prompts
without context, which need no pages, in groups of 2ⁿ and lengths of whole STEPs, and only lengths that keep coming.
What is left of a prompt attends to its head like any chunk.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

STEP = 512  # tokens: at most a tenth of the work of a prompt of 8,192 is left to our kernel
OFTEN = 2  # times that a length must have come before, among the REMEMBERED last ones
REMEMBERED = 64


class LibraryAttention:
    """For one device."""

    def __init__(self, device: torch.device) -> None:
        self._there = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
        self._seen: OrderedDict[int, int] = OrderedDict()

    def takes(self, tokens: int, head_dim: int, dtype: torch.dtype) -> int:
        """How many of the first tokens of prompts of `tokens` each should come here. Asked once for each span of a
        pass."""
        tokens = tokens // STEP * STEP
        if not self._there or dtype not in (torch.bfloat16, torch.float16) or head_dim > 128 or head_dim % 8:
            return 0
        times = self._seen.get(tokens, 0)
        self._seen[tokens] = times + 1
        self._seen.move_to_end(tokens)
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return tokens if times >= OFTEN else 0


def groups(prompts: int) -> list[slice]:
    """`prompts` in parts of 2ⁿ, the largest first: few shapes for any number of them."""
    found, first = [], 0
    while first < prompts:
        size = 1 << ((prompts - first).bit_length() - 1)
        found.append(slice(first, first + size))
        first += size
    return found


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, prompts: int, scale: float
) -> torch.Tensor:
    """Causal. q [t, hq, d], k and v [t, hk, d] of `prompts` rows of one length, each token contiguous → [t, hq, d]:
    `out`, where it is given."""
    parts = groups(prompts)
    if out is None and len(parts) == 1:
        return _attend(q, k, v, prompts, scale)
    out, tokens = torch.empty_like(q) if out is None else out, len(q) // prompts
    for part in parts:
        at = slice(part.start * tokens, part.stop * tokens)
        out[at] = _attend(q[at], k[at], v[at], part.stop - part.start, scale)
    return out


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, prompts: int, scale: float) -> torch.Tensor:
    q, k, v = (x.view(prompts, -1, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
    return out.transpose(1, 2).flatten(0, 1)
