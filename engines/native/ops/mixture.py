"""A mixture of experts in plain torch: tokens sorted by expert, two products for each expert that has any."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def grouped_experts(
    x: torch.Tensor, shares: torch.Tensor, chosen: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """`Ops.experts`. Reads the number of tokens of each expert on the host, so no graph can hold it.

    A token's experts are summed in the order of their numbers.
    """
    flat, order = chosen.flatten().sort(stable=True)
    tokens = order // chosen.shape[1]
    weights = shares.flatten()[order, None].to(x.dtype)
    out = torch.zeros_like(x)
    first = 0
    for expert, count in enumerate(flat.bincount(minlength=len(gate_up)).tolist()):
        if not count:
            continue
        span = slice(first, first + count)
        gate, up = F.linear(x[tokens[span]], gate_up[expert]).chunk(2, dim=-1)
        own = F.linear(F.silu(gate).mul_(up), down[expert])
        out.index_add_(0, tokens[span], own.mul_(weights[span]))
        first += count
    return out
