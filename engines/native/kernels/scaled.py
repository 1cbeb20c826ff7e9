"""Products of 8-bit activations with an 8-bit weight: fp8 × fp8 or int8 × int8, scaled as their sums leave.

Two kernels. Of some dozens to hundreds of rows (`scaled_linear`): as in `kernels.linear`, a program reads a band of the
weight once, and leaves summands where the bands do not fill the device. Of thousands (`scaled_product`): large tiles
that the copy engine brings (sm_90), neighbours in time sharing what is in the L2 cache.

fp8 sums of the tensor cores keep 14 bits; after every 128 inputs they are added in float32 (`scaled_linear`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from engines.native.kernels import INTERPRETED, linear
from engines.native.kernels.dependent import ask_for, begin, dependent, wait
from engines.native.kernels.linear import LEAST_INPUTS, MOST_SPLITS, SHARED, WIDE, processors
from engines.native.kernels.packed import BLOCK, Packed
from engines.native.kernels.quantize import QuantizedRows
from engines.native.kernels.upcast import shared_of

AHEAD = 128  # pairs of bytes of each band that are asked for before the rows are there
GROUP_M = 16  # blocks of rows that one band is multiplied with before the next band's turn


@dataclass(frozen=True, slots=True)
class ScaledPlan:
    """block_m rows against block_n outputs × block_k inputs per step, `steps` of them in each of `splits`."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    splits: int
    steps: int


def plan(
    *, rows: int, outputs: int, inputs: int, grouped: bool, gated: bool, processors: int, shared: int = SHARED
) -> ScaledPlan:  # fmt: skip
    """outputs: of the result, so half the rows of a gated weight. inputs: padded to whole blocks. grouped: scales are
    of 128 inputs. Up to 64 rows nothing stands between the bytes and the tensor cores: tiles are `linear.plan`'s, two
    of these values for one of 16 bits."""
    block_m = min(max(16, 1 << (rows - 1).bit_length()), 64 if grouped else 128)  # groups' sums need registers, too
    if block_m <= 64 and not grouped and inputs % (2 * BLOCK) == 0 and shared == SHARED:
        like = linear.plan(rows=rows, outputs=outputs, inputs=inputs // 2, gated=gated, processors=processors)
        return ScaledPlan(
            like.block_m, like.block_n, 2 * like.block_k, like.warps, like.stages, like.splits, like.steps
        )  # fmt: skip
    steps = inputs // BLOCK
    block_n, warps = (128, 8) if block_m == 128 or (grouped and block_m == 64) else (64, 4)
    stages = max(2, min(4, shared // ((block_n + block_m) * BLOCK)))
    if gated or outputs > WIDE:
        return ScaledPlan(block_m, block_n, BLOCK, warps, stages, 1, steps)
    bands = -(-outputs // block_n) * -(-rows // block_m)
    places = max(1, min(3, SHARED // (stages * (block_n + block_m) * BLOCK))) * processors
    splits = 1
    while splits < MOST_SPLITS and bands * splits * 2 <= places and inputs >= splits * 2 * LEAST_INPUTS:
        splits *= 2
    return ScaledPlan(block_m, block_n, BLOCK, warps, stages, splits, -(-steps // splits))


@triton.jit(do_not_specialize=["rows", "steps", "x_stride"])
def scaled_linear_kernel(
    x, x_scales, weight, scales, bias, out, rows, outputs, inputs, steps, split_stride, x_stride, scale_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUPED: tl.constexpr, HEIGHT: tl.constexpr,
    GATED: tl.constexpr, EVEN: tl.constexpr, FP8: tl.constexpr, AHEAD: tl.constexpr, DEPENDENT: tl.constexpr,
    INTERP: tl.constexpr,
):  # fmt: skip
    """Grid: (blocks of rows, bands of outputs, splits). x [rows, inputs] and weight [outputs, inputs], both 8 bits,
    inputs in whole blocks; x_scales: one for a token, x_stride apart, or, GROUPED, for each 128 inputs of it. scales:
    [groups, outputs / HEIGHT]. out, bias, GATED: as upcast_linear_kernel has them.
    """
    begin(DEPENDENT)
    split = tl.program_id(2)
    lane = tl.arange(0, BLOCK_N)
    WIDTH: tl.constexpr = BLOCK_N // 2 if GATED else BLOCK_N
    n = tl.program_id(1) * WIDTH + lane % WIDTH
    row = n + lane // WIDTH * outputs
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.arange(0, BLOCK_K)
    first = split * steps * BLOCK_K
    band = weight + row.to(tl.int64) * inputs + first
    if AHEAD > 0:
        ask_for(band.to(tl.pointer_type(tl.int16), bitcast=True), AHEAD)
    here, used = n < outputs, m < rows
    wait(DEPENDENT)
    w_at = band[:, None] + k[None, :]
    x_at = x + first + m[None, :].to(tl.int64) * inputs + k[:, None]
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32 if FP8 or INTERP or GROUPED else tl.int32)
    for at in range(first, tl.minimum(first + steps * BLOCK_K, inputs), BLOCK_K):
        w = tl.load(w_at) if EVEN else tl.load(w_at, mask=here[:, None], other=0.0)
        v = tl.load(x_at, mask=used[None, :], other=0.0)
        if INTERP:
            w = w.to(tl.float32)
            v = v.to(tl.float32)
        if GROUPED:
            scale = tl.load(scales + at // 128 * scale_stride + row // HEIGHT, mask=here, other=0.0).to(tl.float32)
            x_scale = tl.load(x_scales + m * x_stride + at // 128, mask=used, other=0.0)
            part = tl.dot(w, v, input_precision="ieee", out_dtype=tl.float32 if FP8 or INTERP else tl.int32)
            acc += part.to(tl.float32) * (scale[:, None] * x_scale[None, :])
        elif FP8:
            acc = tl.dot(w, v, acc, input_precision="ieee", max_num_imprecise_acc=128)
        else:
            acc = tl.dot(w, v, acc, input_precision="ieee", out_dtype=acc.dtype)
        w_at += BLOCK_K
        x_at += BLOCK_K
    y = acc.to(tl.float32)
    if not GROUPED:
        scale = tl.load(scales + row, mask=here, other=0.0).to(tl.float32)
        y *= scale[:, None] * tl.load(x_scales + m * x_stride, mask=used, other=0.0)[None, :]
    if bias is not None:
        y += tl.load(bias + row, mask=here & (split == 0), other=0.0).to(tl.float32)[:, None]
    if GATED:
        gate, up = tl.split(tl.permute(tl.reshape(y, [2, WIDTH, BLOCK_M]), [1, 2, 0]))
        y = gate / (1.0 + tl.exp(-gate)) * up
        n = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
        here = n < outputs
    to = out + split.to(tl.int64) * split_stride + m[None, :].to(tl.int64) * outputs + n[:, None]
    tl.store(to, y.to(out.dtype.element_ty), mask=here[:, None] & used[None, :])


@triton.jit(do_not_specialize=["rows", "x_stride"])
def scaled_product_kernel(
    x, x_scales, weight, scales, bias, out, rows, outputs, inputs, x_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, FP8: tl.constexpr,
    INTERP: tl.constexpr,
):  # fmt: skip
    """Grid: (tiles). x and weight: descriptors of [rows, inputs] and [outputs, inputs], blocks [BLOCK_M, BLOCK_K] and
    [BLOCK_N, BLOCK_K]. One scale for each token (x_stride apart) and each output."""
    tile = tl.program_id(0)
    down, across = tl.cdiv(rows, BLOCK_M), tl.cdiv(outputs, BLOCK_N)
    group = tile // (GROUP_M * across)
    high = tl.minimum(down - group * GROUP_M, GROUP_M)
    first_m = (group * GROUP_M + tile % (GROUP_M * across) % high) * BLOCK_M
    first_n = tile % (GROUP_M * across) // high * BLOCK_N
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32 if FP8 or INTERP else tl.int32)
    for at in range(0, inputs, BLOCK_K):
        v = x.load([first_m, at])
        w = weight.load([first_n, at])
        if INTERP:
            w = w.to(tl.float32)
            v = v.to(tl.float32)
        acc = tl.dot(v, w.T, acc, input_precision="ieee", out_dtype=acc.dtype)
    m, n = first_m + tl.arange(0, BLOCK_M), first_n + tl.arange(0, BLOCK_N)
    used, here = m < rows, n < outputs
    scale = tl.load(scales + n, mask=here, other=0.0).to(tl.float32)
    y = acc.to(tl.float32) * tl.load(x_scales + m * x_stride, mask=used, other=0.0)[:, None] * scale[None, :]
    if bias is not None:
        y += tl.load(bias + n, mask=here, other=0.0).to(tl.float32)[None, :]
    to = out + m[:, None].to(tl.int64) * outputs + n[None, :]
    tl.store(to, y.to(out.dtype.element_ty), mask=used[:, None] & here[None, :])


def scaled_linear(
    x: QuantizedRows, weight: Packed, bias: torch.Tensor | None, *, splits: bool, made: ScaledPlan | None = None
) -> torch.Tensor:
    """x [t, in] times `weight`, transposed, plus bias [out]: [t, out] in x.dtype, or, where `splits` allows it, float32
    summands [s, t, out]. made: instead of `plan`'s."""
    rows, outputs, inputs = len(x), weight.outputs, weight.padded
    if made is None:
        made = plan(
            rows=rows, outputs=outputs, inputs=inputs, grouped=x.scales.dim() == 2, gated=False,
            processors=processors(x.values.device),
            shared=shared_of(x.values.device),
        )  # fmt: skip
    if not splits or made.splits == 1:
        made = replace(made, splits=1, steps=inputs // made.block_k)
        out = torch.empty(rows, outputs, dtype=x.dtype, device=x.values.device)
    else:
        made = replace(made, splits=-(-inputs // (made.steps * made.block_k)))
        out = torch.empty(made.splits, rows, outputs, dtype=torch.float32, device=x.values.device)
    _launch(x, weight, bias, out, made, gated=False)
    return out


def scaled_gated(
    x: QuantizedRows, weight: Packed, bias: torch.Tensor | None, made: ScaledPlan | None = None
) -> torch.Tensor:
    """silu(x times the first half of `weight`) × (x times the second half): [t, f] in x.dtype; bias [2 f]."""
    rows, outputs, inputs = len(x), weight.outputs // 2, weight.padded
    if made is None:
        made = plan(
            rows=rows, outputs=outputs, inputs=inputs, grouped=x.scales.dim() == 2, gated=True,
            processors=processors(x.values.device),
            shared=shared_of(x.values.device),
        )  # fmt: skip
    out = torch.empty(rows, outputs, dtype=x.dtype, device=x.values.device)
    _launch(x, weight, bias, out, made, gated=True)
    return out


@dataclass(frozen=True, slots=True)
class Tile:
    block_m: int = 128
    block_n: int = 256
    block_k: int = 128
    warps: int = 8
    stages: int = 4


def scaled_product(
    x: QuantizedRows, weight: Packed, bias: torch.Tensor | None, tile: Tile = Tile()
) -> torch.Tensor:  # fmt: skip
    """As `scaled_linear`, whole, for any number of rows; one scale for a token and one for an output."""
    rows, outputs = len(x), weight.outputs
    out = torch.empty(rows, outputs, dtype=x.dtype, device=x.values.device)
    values = TensorDescriptor.from_tensor(x.values, [tile.block_m, tile.block_k])
    matrix = TensorDescriptor.from_tensor(weight.bytes, [tile.block_n, tile.block_k])
    scaled_product_kernel[(-(-rows // tile.block_m) * -(-outputs // tile.block_n),)](
        values, x.scales, matrix, weight.scales, bias, out, rows, outputs, weight.padded, int(x.scales.numel() > 1),
        BLOCK_M=tile.block_m, BLOCK_N=tile.block_n, BLOCK_K=tile.block_k, GROUP_M=GROUP_M, FP8=weight.form == "fp8",
        INTERP=INTERPRETED, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out


def _launch(
    x: QuantizedRows, weight: Packed, bias: torch.Tensor | None, out: torch.Tensor, made: ScaledPlan, *, gated: bool
) -> None:  # fmt: skip
    rows, outputs, inputs = len(x), out.shape[-1], weight.padded
    follows = dependent(x.values.device)
    width = made.block_n // 2 if gated else made.block_n
    grouped = x.scales.dim() == 2
    scaled_linear_kernel[(-(-rows // made.block_m), -(-outputs // width), made.splits)](
        x.values, x.scales, weight.bytes, weight.scales, bias, out, rows, outputs, inputs, made.steps, rows * outputs,
        x.scales.shape[1] if grouped else int(x.scales.numel() > 1), weight.scales.shape[1],
        BLOCK_M=made.block_m, BLOCK_N=made.block_n, BLOCK_K=made.block_k, GROUPED=grouped, HEIGHT=weight.height,
        GATED=gated, EVEN=outputs % width == 0, FP8=weight.form == "fp8",
        AHEAD=AHEAD if follows and not gated else 0, DEPENDENT=follows, INTERP=INTERPRETED,
        num_warps=made.warps, num_stages=made.stages, launch_pdl=follows,
    )  # fmt: skip
