"""The points that a quantized weight can take, and rounding to the nearest of them (RTN).

A group of weights shares a scale s and, if asymmetric, a zero z; its points are s × (q − z). Symmetric: s = max|w| /
(2^(b−1) − 1), of fp8 (e4m3fn) max|w| / 448. Asymmetric: s = (max − min) / (2^b − 1), the range stretched to 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engines.native.quant.scheme import WeightScheme
from engines.native.quant.weight import QuantizedWeight, pack_nibbles
from plugins.quantization.errors import QuantizationFailed

FP8_MAX = 448.0
RATIOS = tuple(1 - step / 40 for step in range(21))
"""Of a group's range, that a search tries: 1 … 0.5."""

Loss = Callable[[torch.Tensor], torch.Tensor]
"""Error of the weights, [out, in] as `Grid.tiles` has them → what it costs each group, [out groups, in groups]."""


def check_scheme(scheme: WeightScheme, inputs: int, name: str) -> None:
    """Raises QuantizationFailed for what can't be made of a matrix with so many inputs."""
    if scheme.strategy == "group" and (scheme.group < 1 or inputs % scheme.group):
        fitting = [size for size in (16, 32, 64, 96, 128, 192, 256) if inputs % size == 0]
        raise QuantizationFailed(
            f"{name}: groups of {scheme.group} don't divide its {inputs} inputs; "
            + (f"choose a group size of {', '.join(map(str, fitting))}" if fitting else "quantize it per channel")
        )
    if scheme.kind == "float" and (scheme.bits != 8 or not scheme.symmetric):
        raise QuantizationFailed(f"{name}: floating-point weights are fp8 and symmetric; {scheme} isn't made")
    if scheme.kind == "int" and scheme.bits not in (4, 8):
        raise QuantizationFailed(f"{name}: integers of {scheme.bits} bits aren't made; choose 4 or 8")


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a matrix [out, in] falls into groups that share a scale: `high` outputs × `wide` inputs."""

    out: int
    inputs: int
    high: int
    wide: int

    @classmethod
    def of(cls, scheme: WeightScheme, shape: tuple[int, int]) -> Tiling:
        out, inputs = shape
        if scheme.block is not None:
            return cls(out, inputs, *scheme.block)
        high = out if scheme.strategy == "tensor" else 1
        return cls(out, inputs, high, scheme.group if scheme.strategy == "group" else inputs)

    @property
    def grid(self) -> tuple[int, int]:
        return -(-self.out // self.high), -(-self.inputs // self.wide)

    def tiles(self, weight: torch.Tensor) -> torch.Tensor:
        """[out, in] → [out groups, in groups, high × wide]; what a block lacks at the edges is 0."""
        rows, columns = self.grid
        missing = columns * self.wide - self.inputs, rows * self.high - self.out
        if any(missing):
            weight = torch.nn.functional.pad(weight, (0, missing[0], 0, missing[1]))
        return weight.view(rows, self.high, columns, self.wide).transpose(1, 2).reshape(rows, columns, -1)

    def spread(self, groups: torch.Tensor) -> torch.Tensor:
        """One value a group → one a weight, [out, in] or [out, 1] where all inputs share it."""
        rows = groups if self.high == 1 else groups.repeat_interleave(self.high, 0)[: self.out]
        return rows if self.grid[1] == 1 else rows.repeat_interleave(self.wide, 1)[:, : self.inputs]


@dataclass(frozen=True, slots=True)
class Grid:
    """scales, zeros: float32 [out groups, in groups]; scales hold values that `scale_dtype` can. zeros: None if
    symmetric; else whole numbers, on the scale of the codes."""

    scheme: WeightScheme
    tiling: Tiling
    scales: torch.Tensor
    zeros: torch.Tensor | None
    scale_dtype: torch.dtype = torch.float32

    @property
    def least(self) -> int:
        """Of the codes; asymmetric ones of 8 bits are signed, too."""
        return 0 if self.scheme.bits == 4 and not self.scheme.symmetric else -(2 ** (self.scheme.bits - 1))

    def codes(self, weight: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None) -> torch.Tensor:
        """The nearest codes in float32; scales and zeros broadcast with weight."""
        if self.scheme.kind == "float":
            return (weight / scales).clamp_(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn).float()
        codes = torch.round(weight / scales)
        if zeros is not None:
            codes += zeros
        return codes.clamp_(self.least, self.least + 2**self.scheme.bits - 1)

    def spread(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scale and zero of each weight, [out, in] or [out, 1]."""
        return self.tiling.spread(self.scales), None if self.zeros is None else self.tiling.spread(self.zeros)

    def column(self, index: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scale and zero of the weights of one input, [out]."""
        group = index // self.tiling.wide
        return self._rows(self.scales[:, group]), None if self.zeros is None else self._rows(self.zeros[:, group])

    def _rows(self, groups: torch.Tensor) -> torch.Tensor:
        return groups if self.tiling.high == 1 else groups.repeat_interleave(self.tiling.high, 0)[: self.tiling.out]

    def values(self, codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None) -> torch.Tensor:
        """What codes stand for."""
        return codes * scales if zeros is None else (codes - zeros) * scales

    def nearest(self, weight: torch.Tensor) -> torch.Tensor:
        """weight [out, in], each rounded to its nearest point."""
        scales, zeros = self.spread()
        return self.values(self.codes(weight, scales, zeros), scales, zeros)

    def packed(self, codes: torch.Tensor) -> QuantizedWeight:
        """codes: float32 [out, in]."""
        scales = self.scales.to(self.scale_dtype)
        zeros = self.zeros
        if self.scheme.kind == "float":
            values = codes.to(torch.float8_e4m3fn)
        elif self.scheme.bits == 4:
            values = pack_nibbles(codes - self.least)
        else:
            values = codes.to(torch.int8)
            zeros = None if zeros is None else zeros + 128
        odd = self.tiling.inputs if self.scheme.bits == 4 and self.tiling.inputs % 2 else None
        return QuantizedWeight(
            self.scheme, values, scales, None if zeros is None else zeros.to(torch.uint8), inputs=odd
        )


def grid_of(
    weight: torch.Tensor, scheme: WeightScheme, scale_dtype: torch.dtype = torch.float32, loss: Loss | None = None
) -> Grid:
    """The grid over weight [out, in] (float32). loss: the range of each group is the ratio of RATIOS that costs least
    by it; None: the whole range."""
    tiling = Tiling.of(scheme, (weight.shape[0], weight.shape[1]))
    tiles = tiling.tiles(weight)
    low, high = tiles.amin(-1).clamp_(max=0), tiles.amax(-1).clamp_(min=0)
    grid = _grid(scheme, tiling, low, high, scale_dtype)
    if loss is None:
        return grid
    best = torch.full_like(grid.scales, torch.inf)
    scales, zeros = grid.scales.clone(), None if grid.zeros is None else grid.zeros.clone()
    for ratio in RATIOS:
        tried = _grid(scheme, tiling, low * ratio, high * ratio, scale_dtype)
        cost = loss(tried.nearest(weight).sub_(weight))
        better = cost < best
        best = torch.where(better, cost, best)
        scales = torch.where(better, tried.scales, scales)
        if zeros is not None and tried.zeros is not None:
            zeros = torch.where(better, tried.zeros, zeros)
    return Grid(scheme, tiling, scales, zeros, scale_dtype)


def _grid(
    scheme: WeightScheme, tiling: Tiling, low: torch.Tensor, high: torch.Tensor, scale_dtype: torch.dtype
) -> Grid:
    """low ≤ 0 ≤ high: the ranges, [out groups, in groups]."""
    if scheme.symmetric:
        most = FP8_MAX if scheme.kind == "float" else 2 ** (scheme.bits - 1) - 1
        scales = torch.maximum(-low, high) / most
        return Grid(scheme, tiling, _held(scales, scale_dtype), None, scale_dtype)
    scales = _held((high - low) / (2**scheme.bits - 1), scale_dtype)
    least = 0 if scheme.bits == 4 else -128
    zeros = (torch.round(-low / scales) + least).clamp_(least, least + 2**scheme.bits - 1)
    return Grid(scheme, tiling, scales, zeros, scale_dtype)


def _held(scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """As they come back from the file; a group of zeros has some scale, not 0. Any other keeps its own, however small:
    a greater one would round the whole group to zeros."""
    held = scales.to(dtype).float()
    return torch.where(held == 0, 1.0, held)


def squared_error(tiling: Tiling) -> Loss:
    """By the weights alone."""
    return lambda error: tiling.tiles(error).square().sum(-1)


def output_error(tiling: Tiling, hessian: torch.Tensor) -> Loss:
    """By the products' outputs, as if each group had the only error: Δ H Δᵀ with H = X Xᵀ of the group's own inputs.
    Scales of several outputs, or of the whole input, count by the diagonal of H."""
    groups = tiling.grid[1]
    if tiling.high > 1 or tiling.wide * groups != tiling.inputs or tiling.wide > 512:
        diagonal = hessian.diagonal()
        return lambda error: tiling.tiles(error.square() * diagonal).sum(-1)
    at = torch.arange(groups)
    blocks = hessian.view(groups, tiling.wide, groups, tiling.wide)[at, :, at]  # [groups, wide, wide]

    def cost(error: torch.Tensor) -> torch.Tensor:
        tiles = tiling.tiles(error).transpose(0, 1)  # [groups, out, wide]
        return (torch.bmm(tiles, blocks) * tiles).sum(-1).t()

    return cost


def quantize_rtn(
    weight: torch.Tensor,
    scheme: WeightScheme,
    clip_search: bool = False,
    hessian: torch.Tensor | None = None,
    scale_dtype: torch.dtype = torch.float32,
) -> QuantizedWeight:
    """Each weight to its nearest point. weight: float32 [out, in]; hessian: [in, in], by which a clip search weighs
    errors; scale_dtype: of the scales in the file."""
    loss = None
    if clip_search:
        tiling = Tiling.of(scheme, (weight.shape[0], weight.shape[1]))
        loss = squared_error(tiling) if hessian is None else output_error(tiling, hessian)
    grid = grid_of(weight, scheme, scale_dtype, loss)
    scales, zeros = grid.spread()
    return grid.packed(grid.codes(weight, scales, zeros))
