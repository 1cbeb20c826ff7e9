"""Products of few rows with a large weight, where a decode step spends nearly all of its time.

A program reads a band of the weight once, from end to end, and multiplies it with every row of the step. The weight
stands in the M dimension of the tensor cores' tile, so that few rows do not leave it empty. Where the bands alone do
not fill the device, each is cut into splits along the inputs, whose sums are left to the next kernel: `fused` adds
them up, in split order, as it reads them.

A row's result does not depend on the rows beside it, up to 32 of them: they only choose how wide the other side of the
tile is. `fixed_linear` has one tile for any number of rows, and so one order of sums: strict mode's product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

from engines.native.kernels import INTERPRETED
from engines.native.kernels.dependent import ask_for, begin, dependent, wait

MANY_ROWS = 256
"""More are left to cuBLAS."""

WIDE = 8192  # outputs from which on the bands alone fill a device
NARROW = 4096  # outputs up to which cuBLAS, too, has to cut up the inputs
SHARED = 227 * 1024
MOST_SPLITS = 8
LEAST_INPUTS = 256  # of a split
AHEAD = 128  # inputs of each band that are asked for before the rows are there


@dataclass(frozen=True, slots=True)
class LinearPlan:
    """block_m rows against block_n weight rows × block_k inputs per step, `steps` of them in each of `splits`."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    splits: int
    steps: int


def ours(*, rows: int, outputs: int, gated: bool) -> bool:
    """Whether the kernel here is faster than cuBLAS, on an H200 (docs/benchmarks/linear.h200.json)."""
    if rows <= 64:
        return rows > 0
    return rows <= (MANY_ROWS if outputs <= 1024 else 128 if gated or outputs <= NARROW else 0)


def plan(*, rows: int, outputs: int, inputs: int, gated: bool, processors: int) -> LinearPlan:
    """For up to MANY_ROWS rows; tiles measured on an H200 (docs/benchmarks/linear.h200.json).

    outputs: of the result, so half the rows of a gated weight. Only sums of a narrow result are split.
    """
    block_m = min(max(16, 1 << (rows - 1).bit_length()), 128)
    if gated or outputs > WIDE:
        if block_m == 128 and -(-outputs // 64) < processors:  # bands of so many rows would not fill the device
            block_m = 64
        block_n, block_k, warps, stages = {
            16: (64, 128, 4, 4),
            32: (64, 128, 4, 4),
            64: (128, 128, 8, 4) if outputs > WIDE else (128, 64, 4, 6),
            128: (128, 64, 8, 3),
        }[block_m]
        return LinearPlan(block_m, block_n, block_k, warps, stages, 1, -(-inputs // block_k))
    block_k = 128 if block_m <= 64 else 64
    bands, steps = -(-outputs // 64) * -(-rows // block_m), -(-inputs // block_k)
    found = []
    for stages in {16: (6, 4, 3), 32: (6, 4, 3), 64: (4,), 128: (6,)}[block_m]:
        places = SHARED // (stages * (64 + block_m) * block_k * 2) * processors
        splits = 1
        while splits < MOST_SPLITS and bands * splits * 2 <= places and inputs >= splits * 2 * LEAST_INPUTS:
            splits *= 2
        used = bands * splits / (-(-bands * splits // places) * places)
        found.append((round(used, 1), stages, splits))
    _, stages, splits = max(found)  # where they use the device alike, the deeper pipeline with fewer splits
    return LinearPlan(block_m, 64, block_k, 4, stages, splits, -(-steps // splits))


def fixed_plan(*, inputs: int, dtype: torch.dtype) -> LinearPlan:
    """The same tile whatever the rows and the device; it fits in the 99 KiB of sm_86 and sm_89."""
    block_k, stages = (32, 2) if dtype == torch.float32 else (64, 4)
    return LinearPlan(64, 64, block_k, 4, stages, 1, -(-inputs // block_k))


@triton.jit(do_not_specialize=["rows", "steps"])
def linear_kernel(
    x, weight, bias, out, rows, outputs, inputs, steps, split_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GATED: tl.constexpr, EVEN: tl.constexpr,
    AHEAD: tl.constexpr, DEPENDENT: tl.constexpr, INTERP: tl.constexpr,
):  # fmt: skip
    """Grid: (blocks of rows, bands of outputs, splits). x [rows, inputs] times weight [outputs, inputs], transposed,
    plus bias where it is not None, into out [rows, outputs], or each split's sum into its own, split_stride apart.

    GATED: weight has 2 × outputs rows, the gates first; a band is BLOCK_N / 2 of the gates and the same of what they
    let through, and out is silu(gate) × up. EVEN: no band and no step of the inputs is partly empty.
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
        ask_for(band, AHEAD)
    wait(DEPENDENT)
    here, used = (n < outputs)[:, None], (m < rows)[None, :]
    w_at = band[:, None] + k[None, :]
    x_at = x + first + m[None, :] * inputs + k[:, None]
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for at in range(first, tl.minimum(first + steps * BLOCK_K, inputs), BLOCK_K):
        if EVEN:
            w = tl.load(w_at)
            v = tl.load(x_at, mask=used, other=0.0)
        else:
            w = tl.load(w_at, mask=here & (k < inputs - at)[None, :], other=0.0)
            v = tl.load(x_at, mask=used & (k < inputs - at)[:, None], other=0.0)
        if INTERP:
            w = w.to(tl.float32)
            v = v.to(tl.float32)
        acc = tl.dot(w, v, acc, input_precision="ieee")
        w_at += BLOCK_K
        x_at += BLOCK_K
    if bias is not None:
        added = tl.load(bias + row, mask=(n < outputs) & (split == 0), other=0.0).to(tl.float32)
        acc += added[:, None]
    if GATED:
        gate, up = tl.split(tl.permute(tl.reshape(acc, [2, WIDTH, BLOCK_M]), [1, 2, 0]))
        acc = gate / (1.0 + tl.exp(-gate)) * up
        n = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
        here = (n < outputs)[:, None]
    to = out + split.to(tl.int64) * split_stride + m[None, :] * outputs + n[:, None]
    tl.store(to, acc.to(out.dtype.element_ty), mask=here & used)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *, splits: bool) -> torch.Tensor:
    """x [t, in] times weight [out, in], transposed, plus bias [out]: [t, out] in x's dtype, or, where `splits` allows
    it, float32 summands [s, t, out]. All contiguous; 1 … MANY_ROWS rows."""
    (rows, inputs), outputs = x.shape, weight.shape[0]
    made = plan(rows=rows, outputs=outputs, inputs=inputs, gated=False, processors=processors(x.device))
    if not splits or made.splits == 1:
        made = replace(made, splits=1, steps=-(-inputs // made.block_k))
        out = x.new_empty(rows, outputs)
    else:  # rounding steps up may leave the last splits nothing
        made = replace(made, splits=-(-inputs // (made.steps * made.block_k)))
        out = torch.empty(made.splits, rows, outputs, dtype=torch.float32, device=x.device)
    _launch(x, weight, bias, out, made, gated=False)
    return out


def fixed_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x [t, in] times weight [out, in], transposed, plus bias [out]: [t, out] in x's dtype. All contiguous; any number
    of rows, none of which changes another's bits."""
    out = x.new_empty(len(x), len(weight))
    if len(x):
        _launch(x, weight, bias, out, fixed_plan(inputs=x.shape[1], dtype=x.dtype), gated=False)
    return out


def gated_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """silu(x times the first half of weight [2 f, in]) × (x times the second half): [t, f] in x's dtype; bias [2 f]."""
    (rows, inputs), outputs = x.shape, weight.shape[0] // 2
    made = plan(rows=rows, outputs=outputs, inputs=inputs, gated=True, processors=processors(x.device))
    out = x.new_empty(rows, outputs)
    _launch(x, weight, bias, out, made, gated=True)
    return out


def _launch(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor, made: LinearPlan, *,
    gated: bool,
) -> None:  # fmt: skip
    (rows, inputs), outputs = x.shape, out.shape[-1]
    follows = dependent(x.device)
    width = made.block_n // 2 if gated else made.block_n
    linear_kernel[(-(-rows // made.block_m), -(-outputs // width), made.splits)](
        x, weight, bias, out, rows, outputs, inputs, made.steps, rows * outputs,
        BLOCK_M=made.block_m, BLOCK_N=made.block_n, BLOCK_K=made.block_k, GATED=gated,
        EVEN=outputs % width == 0 and inputs % made.block_k == 0,
        AHEAD=AHEAD if follows and made.block_n == 64 and not gated else 0, DEPENDENT=follows, INTERP=INTERPRETED,
        num_warps=made.warps, num_stages=made.stages, launch_pdl=follows,
    )  # fmt: skip


def processors(device: torch.device) -> int:
    """Multiprocessors of a GPU; an H200's where kernels are interpreted."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 132
