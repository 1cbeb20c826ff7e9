"""GPTQ (Frantar et al., https://arxiv.org/abs/2210.17323): columns are rounded one after the other, and what a column
lost is made up for by those that follow, as the inverse Hessian of the layer's squared output error says."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engines.native.quant.scheme import WeightScheme
from engines.native.quant.weight import QuantizedWeight
from plugins.quantization.algorithms.grid import Grid, Loss, Tiling, grid_of, output_error, squared_error

COLUMNS = 128
"""Rounded before the rest of the matrix hears of it."""
LADDER = (1.0, 10.0, 100.0, 1000.0)


class NotPositiveDefinite(Exception):
    """The Hessian can't be inverted, with any damping of the ladder. damping: the last that was tried."""

    def __init__(self, damping: float) -> None:
        super().__init__(f"the Hessian isn't positive definite, even with damping {damping:g}")
        self.damping = damping


@dataclass(frozen=True, slots=True)
class GptqReport:
    """loss: Σ (w − q)² / U_ii² / 2, the squared output error that was accepted, as GPTQ counts it. damping: share of
    the mean diagonal. dead: inputs that were 0 in all of the calibration."""

    loss: float
    damping: float
    dead: int


def gptq(
    weight: torch.Tensor,
    hessian: torch.Tensor,
    scheme: WeightScheme,
    damping: float = 0.01,
    clip_search: bool = False,
    scale_dtype: torch.dtype = torch.float32,
) -> tuple[QuantizedWeight, GptqReport]:
    """weight: float32 [out, in]; hessian: X Xᵀ [in, in] of the inputs, in float32 or float64 (any multiple of it).

    scheme.actorder "static": inputs of the greatest energy first, with the groups and scales of the natural order.
    Without, a group's scale is taken when its turn comes, of what the columns before have made of it.
    Raises NotPositiveDefinite.
    """
    dead = hessian.diagonal() == 0
    weight = weight.to(hessian.dtype, copy=True)
    weight[:, dead] = 0
    order = _order(hessian, scheme)
    factor, used = inverse_factor(hessian[order][:, order], dead[order], damping)
    tiling = Tiling.of(scheme, (weight.shape[0], weight.shape[1]))
    cost = output_error(tiling, hessian.float()) if clip_search else None
    grid = grid_of(weight.float(), scheme, scale_dtype, cost)
    fresh = not scheme.actorder and scheme.strategy == "group"
    codes, loss = _columns(
        weight, order, factor, grid, _Scales(grid, hessian if clip_search else None) if fresh else None
    )
    return grid.packed(codes), GptqReport(loss, used, int(dead.sum()))


def _order(hessian: torch.Tensor, scheme: WeightScheme) -> torch.Tensor:
    if not scheme.actorder:
        return torch.arange(len(hessian))
    return torch.argsort(hessian.diagonal(), descending=True, stable=True)


def inverse_factor(hessian: torch.Tensor, dead: torch.Tensor, damping: float) -> tuple[torch.Tensor, float]:
    """U, upper triangular, with Uᵀ U = H⁻¹, and the damping that it took. Raises NotPositiveDefinite."""
    diagonal = torch.where(dead, 1.0, hessian.diagonal())
    mean = float(diagonal.mean())
    tried = damping
    for step in LADDER:
        tried = damping * step
        damped = hessian.clone()
        damped.diagonal().copy_(diagonal + tried * mean)
        lower, failed = torch.linalg.cholesky_ex(damped)
        if int(failed) or not bool(torch.isfinite(lower).all()):
            continue
        upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
        if not int(failed) and bool(torch.isfinite(upper).all()):
            return upper, tried
    raise NotPositiveDefinite(tried)


class _Scales:
    """Takes a group's scale anew from its weights as they are when its first column comes. Owns nothing: it writes into
    the grid's own tensors."""

    def __init__(self, grid: Grid, hessian: torch.Tensor | None) -> None:
        self._grid, self._hessian = grid, hessian

    def take(self, weight: torch.Tensor, first: int) -> None:
        """weight: of the group that begins at input `first`, [out, wide]."""
        grid, wide = self._grid, self._grid.tiling.wide
        tiling = Tiling(weight.shape[0], wide, 1, wide)
        cost: Loss | None = None
        if self._hessian is not None:
            own = self._hessian[first : first + wide, first : first + wide]
            cost = output_error(tiling, own.float()) if wide <= 512 else squared_error(tiling)
        found = grid_of(weight.float(), grid.scheme, grid.scale_dtype, cost)
        grid.scales[:, first // wide] = found.scales[:, 0]
        if grid.zeros is not None and found.zeros is not None:
            grid.zeros[:, first // wide] = found.zeros[:, 0]


def _columns(
    weight: torch.Tensor, order: torch.Tensor, factor: torch.Tensor, grid: Grid, scales: _Scales | None
) -> tuple[torch.Tensor, float]:
    """Codes float32 [out, in] in the natural order, and the loss. weight is used up.

    Works on transposed matrices: a column of weights is then a row that lies together in memory.
    """
    work = weight.t()[order].contiguous()  # [in, out]
    inputs, wide = len(work), grid.tiling.wide
    codes = torch.empty(work.shape)
    loss = 0.0
    places = order.tolist()
    for first in range(0, inputs, COLUMNS):
        last = min(first + COLUMNS, inputs)
        block, inner = work[first:last], factor[first:last, first:last]
        errors = torch.empty_like(block)
        for at in range(last - first):
            place = places[first + at]
            if scales is not None and place % wide == 0:
                # Columns of a group past this block haven't heard of the block's errors so far: tell them first.
                ahead = work[first + at : first + at + wide].clone()
                if (beyond := first + at + wide - last) > 0 and at:
                    ahead[-beyond:] -= factor[first : first + at, last : last + beyond].t() @ errors[:at]
                scales.take(ahead.t(), place)
            scale, zero = grid.column(place)
            code = grid.codes(block[at], scale, zero)
            codes[place] = code
            error = errors[at] = (block[at] - grid.values(code, scale, zero)) / inner[at, at]
            block[at + 1 :].addr_(inner[at, at + 1 :], error, alpha=-1)
        loss += float(errors.square().sum()) / 2
        work[last:].addmm_(factor[first:last, last:].t(), errors, alpha=-1)
    return codes.t().contiguous(), loss
