"""Products of 16-bit activations with a weight of 4 or 8 bits that is widened in registers: decode steps.

Programs, bands and splits are those of `kernels.linear`; what differs is that a band is read as words
(`kernels.packed`) and taken apart on the way to the tensor cores, whose left operand may come from registers. Few bit
operations make an activation's format of them, exactly:

int4  four bits in the mantissa of 128 (of 1024 in float16), less 136
int8  eight bits in the mantissa of a float32 2²³, less 2²³ + 128, the upper half of it
fp8   its seven bits where exponent and mantissa lie, times 2¹²⁰ (2⁸), which mends the exponent and denormals

so no GPU needs fp8 of its own here. Scales are applied to sums: a row's at the end, a group's at the group's. Zeros
are taken off there too, times the sum of the group's activations, which the tensor cores have time for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import torch
import triton
import triton.language as tl

from engines.native.kernels import INTERPRETED
from engines.native.kernels.dependent import ask_for, begin, dependent, wait
from engines.native.kernels.linear import LEAST_INPUTS, MOST_SPLITS, SHARED, WIDE, processors
from engines.native.kernels.packed import FORMS, Packed

MANY_ROWS = 256
"""More are left to products with 8-bit activations, or to a widened copy."""
SHARED_BEFORE = 99 * 1024  # bytes that a program may have on sm_89; on sm_80 more
AHEAD = 128  # words of each band that are asked for before the rows are there


@cache
def shared_of(device: torch.device) -> int:
    """Bytes that a program may have: one of two amounts that plans are known to fit. Newer is not more: sm_120 has 99
    KiB."""
    if device.type != "cuda":
        return SHARED_BEFORE
    most = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", None)
    return SHARED if (dependent(device) if most is None else most >= SHARED) else SHARED_BEFORE


@dataclass(frozen=True, slots=True)
class UpcastPlan:
    """block_m rows against block_n outputs × block_k inputs per step, `steps` of them in each of `splits`. block_k: a
    block, or two of a weight without groups."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    splits: int
    steps: int


def plan(
    *, form: str, rows: int, outputs: int, inputs: int, block: int, gated: bool, processors: int, shared: int = SHARED
) -> UpcastPlan:  # fmt: skip
    """For up to MANY_ROWS rows; tiles measured on an H200. outputs: of the result, so half the rows of a gated weight.
    block: inputs of a block (`Packed.block`), one of which a step takes. shared: bytes that a program may have."""
    block_m = min(max(16, 1 << (rows - 1).bit_length()), 64)
    steps = -(-inputs // block)
    four = form == "int4"
    depths: tuple[int, ...]
    wide = gated or outputs > WIDE
    if block_m == 64 and four:
        block_n, warps, depths = 128, 8, (4,)
    elif wide and not (four and block_m == 16):
        block_n, warps, depths = 128, 8, (5,)
    else:
        block_n, warps, depths = 64, 4, {16: (6, 4) if four else (8, 6), 32: (6, 4), 64: (4,)}[block_m]
    step_bytes = block_n * FORMS[form] * block // 8 + block_m * block * 2
    found = []
    for depth in depths:
        stages = max(2, min(depth, shared // step_bytes))
        places = max(1, min(4, SHARED // (stages * step_bytes))) * processors
        bands = -(-outputs // block_n) * -(-rows // block_m)
        splits = 1
        while (
            not wide and splits < MOST_SPLITS and bands * splits * 2 <= places and inputs >= splits * 2 * LEAST_INPUTS
        ):
            splits *= 2
        used = bands * splits / (-(-bands * splits // places) * places)
        found.append((round(used, 1), stages, splits))
    _, stages, splits = max(found)  # where they use the device alike, the deeper pipeline
    return UpcastPlan(block_m, block_n, block, warps, stages, splits, -(-steps // splits))


@triton.jit
def _nibble(q, PART: tl.constexpr, HALF: tl.constexpr):
    """One of four values of each word, less 8."""
    SHIFT: tl.constexpr = 4 * PART
    if HALF:
        value = tl.inline_asm_elementwise(
            f"""{{
            .reg .b32 t, most;
            shr.u32 t, $1, {SHIFT};
            lop3.b32 t, t, 0x000f000f, 0x64006400, 0xea;
            mov.b32 most, 0x64086408;
            sub.f16x2 $0, t, most;
            }}""",
            "=r,r", [q], dtype=tl.float16, is_pure=True, pack=2,
        )  # fmt: skip
    else:
        value = tl.inline_asm_elementwise(
            f"""{{
            .reg .b32 t, one, less;
            shr.u32 t, $1, {SHIFT};
            lop3.b32 t, t, 0x000f000f, 0x43004300, 0xea;
            mov.b32 one, 0x3f803f80;
            mov.b32 less, 0xc308c308;
            fma.rn.bf16x2 $0, t, one, less;
            }}""",
            "=r,r", [q], dtype=tl.bfloat16, is_pure=True, pack=2,
        )  # fmt: skip
    return value


@triton.jit
def _float(q, PART: tl.constexpr, HALF: tl.constexpr):
    """One of two e4m3fn values of each word. Its NaN, 0x7f and 0xff, come out as ±480: a checkpoint has none."""
    SHIFT: tl.constexpr = 8 - 8 * PART
    if HALF:
        value = tl.inline_asm_elementwise(
            f"""{{
            .reg .b32 t, u, factor, zero;
            shl.b32 t, $1, {SHIFT};
            shr.u32 u, t, 1;
            and.b32 u, u, 0x3f803f80;
            lop3.b32 t, t, 0x80008000, u, 0xea;
            mov.b32 factor, 0x5c005c00;
            mov.b32 zero, 0x80008000;
            fma.rn.f16x2 $0, t, factor, zero;
            }}""",
            "=r,r", [q], dtype=tl.float16, is_pure=True, pack=2,
        )  # fmt: skip
    else:
        value = tl.inline_asm_elementwise(
            f"""{{
            .reg .b32 t, u, factor, zero;
            shl.b32 t, $1, {SHIFT};
            shr.u32 u, t, 4;
            and.b32 u, u, 0x07f007f0;
            lop3.b32 t, t, 0x80008000, u, 0xea;
            mov.b32 factor, 0x7b807b80;
            mov.b32 zero, 0x80008000;
            fma.rn.bf16x2 $0, t, factor, zero;
            }}""",
            "=r,r", [q], dtype=tl.bfloat16, is_pure=True, pack=2,
        )  # fmt: skip
    return value


@triton.jit
def _byte(q, PART: tl.constexpr, HALF: tl.constexpr):
    """One of two int8 values of each word."""
    SHIFT: tl.constexpr = 8 * PART
    FIRST: tl.constexpr = PART
    SECOND: tl.constexpr = PART + 2
    if HALF:
        value = tl.inline_asm_elementwise(
            f"""{{
            .reg .b32 t, most;
            xor.b32 t, $1, 0x80808080;
            shr.u32 t, t, {SHIFT};
            lop3.b32 t, t, 0x00ff00ff, 0x64006400, 0xea;
            mov.b32 most, 0x64806480;
            sub.f16x2 $0, t, most;
            }}""",
            "=r,r", [q], dtype=tl.float16, is_pure=True, pack=2,
        )  # fmt: skip
    else:
        value = tl.inline_asm_elementwise(
            f"""{{
            .reg .b32 t, u, big;
            .reg .f32 a, b;
            xor.b32 t, $1, 0x80808080;
            mov.b32 big, 0x4b000000;
            prmt.b32 u, t, big, 0x765{FIRST};
            mov.b32 a, u;
            prmt.b32 u, t, big, 0x765{SECOND};
            mov.b32 b, u;
            sub.f32 a, a, 0f4B000080;
            sub.f32 b, b, 0f4B000080;
            mov.b32 t, a;
            mov.b32 u, b;
            prmt.b32 $0, t, u, 0x7632;
            }}""",
            "=r,r", [q], dtype=tl.bfloat16, is_pure=True, pack=2,
        )  # fmt: skip
    return value


@triton.jit
def _plain(q, PART: tl.constexpr, FORM: tl.constexpr):
    """The same bit operations in float32: Triton's interpreter has no assembler."""
    bits = q.to(tl.int32) & 0xFFFF
    if FORM == "int4":
        value = ((bits >> (4 * PART)) & 15).to(tl.float32) - 8.0
    elif FORM == "int8":
        value = (0x4B000000 | ((bits >> (8 * PART)) & 255 ^ 128)).to(tl.float32, bitcast=True) - 8388736.0
    else:
        word = bits << (8 - 8 * PART)
        word = (word & 0x8000) | ((word >> 4) & 0x07F0)
        value = (word << 16).to(tl.float32, bitcast=True) * 1.329227995784916e36  # 2¹²⁰
    return value


@triton.jit
def _widened(q, PART: tl.constexpr, FORM: tl.constexpr, HALF: tl.constexpr, INTERP: tl.constexpr):
    """Words → the values of one of their parts, of int4 less 8; bfloat16, or float16 (HALF)."""
    if INTERP:
        value = _plain(q, PART, FORM)
    elif FORM == "int4":
        value = _nibble(q, PART, HALF)
    elif FORM == "int8":
        value = _byte(q, PART, HALF)
    else:
        value = _float(q, PART, HALF)
    return value


@triton.jit
def _of_group(first, group, stride, mask):
    """Scales or zeros [block] of one group, float32."""
    return tl.load(first + group * stride, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _of_groups(
    first, at, inputs, stride, mask, GROUP: tl.constexpr, SPAN: tl.constexpr, SPANS: tl.constexpr
):  # fmt: skip
    """Those of the SPANS spans of a step that begins at input `at`: always four tensors, the last ones not used."""
    s0 = tl.zeros(mask.shape, tl.float32)
    s1, s2, s3 = s0, s0, s0
    if GROUP > 0:
        last = inputs - 1  # what the step after the last asks for is not used
        s0 = _of_group(first, tl.minimum(at, last) // GROUP, stride, mask)
        if SPANS > 1:
            s1 = _of_group(first, tl.minimum(at + SPAN, last) // GROUP, stride, mask)
        if SPANS > 2:
            s2 = _of_group(first, tl.minimum(at + 2 * SPAN, last) // GROUP, stride, mask)
            s3 = _of_group(first, tl.minimum(at + 3 * SPAN, last) // GROUP, stride, mask)
    return s0, s1, s2, s3


@triton.jit
def _nth(s0, s1, s2, s3, AT: tl.constexpr):
    if AT == 0:
        found = s0
    elif AT == 1:
        found = s1
    elif AT == 2:
        found = s2
    else:
        found = s3
    return found


@triton.jit
def _activations(x_at, used, k, left, EVEN: tl.constexpr, INTERP: tl.constexpr):
    """Those of one part, at inputs k from x_at on; left: how many inputs there are from its first on."""
    v = tl.load(x_at, mask=used, other=0.0) if EVEN else tl.load(x_at, mask=used & (k < left)[:, None], other=0.0)
    if INTERP:
        v = v.to(tl.float32)
    return v


@triton.jit(do_not_specialize=["rows", "steps"])
def upcast_linear_kernel(
    x, words, scales, zeros, bias, out, rows, outputs, inputs, steps, split_stride, scale_stride, word_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WORDS: tl.constexpr, PART: tl.constexpr, FORM: tl.constexpr,
    GROUP: tl.constexpr, HEIGHT: tl.constexpr,
    GATED: tl.constexpr, EVEN: tl.constexpr, HALF: tl.constexpr, AHEAD: tl.constexpr, DEPENDENT: tl.constexpr,
    INTERP: tl.constexpr,
):  # fmt: skip
    """Grid: (blocks of rows, bands of outputs, splits). x [rows, inputs] times the weight (fields of `Packed`: GROUP is
    group, HEIGHT height, PART part), transposed, plus bias where it is not None, into out [rows, outputs], or each
    split's sum into its own, split_stride apart. A step takes WORDS words of each output: a block, or two if no groups.

    GATED: the weight has 2 × outputs rows, the gates first; a band is BLOCK_N / 2 of the gates and the same of what
    they let through, and out is silu(gate) × up. EVEN: no band and no step of the inputs is partly empty. HALF: x is
    float16.
    """
    begin(DEPENDENT)
    PARTS: tl.constexpr = 4 if FORM == "int4" else 2
    STEP: tl.constexpr = WORDS * PARTS
    # inputs whose sum gets one scale, and how many such there are in a step
    SPAN: tl.constexpr = STEP if GROUP % STEP == 0 else GROUP if STEP % GROUP == 0 else PART
    SPANS: tl.constexpr = STEP // SPAN
    split = tl.program_id(2)
    lane = tl.arange(0, BLOCK_N)
    WIDTH: tl.constexpr = BLOCK_N // 2 if GATED else BLOCK_N
    n = tl.program_id(1) * WIDTH + lane % WIDTH
    row = n + lane // WIDTH * outputs
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.arange(0, WORDS)
    k = j // PART * (PART * PARTS) + j % PART  # the input of a word's first part
    first = split * steps
    band = words + row.to(tl.int64) * word_stride + first * WORDS
    if AHEAD > 0:
        ask_for(band, AHEAD)
    here, used = n < outputs, (m < rows)[None, :]
    scale_at = scales + row // HEIGHT
    s0, s1, s2, s3 = _of_groups(scale_at, first * STEP, inputs, scale_stride, here, GROUP, SPAN, SPANS)  # weights, too
    if zeros is not None:
        z0, z1, z2, z3 = _of_groups(zeros + row, first * STEP, inputs, scale_stride, here, GROUP, SPAN, SPANS)
    wait(DEPENDENT)
    w_at = band[:, None] + j[None, :]
    x_at = x + first * STEP + m[None, :] * inputs + k[:, None]
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for step in range(first, tl.minimum(first + steps, tl.cdiv(inputs, STEP))):
        q = tl.load(w_at) if EVEN else tl.load(w_at, mask=here[:, None], other=0)
        left = inputs - step * STEP
        if GROUP == 0:
            for part in tl.static_range(PARTS):
                v = _activations(x_at + part * PART, used, k, left - part * PART, EVEN, INTERP)
                acc = tl.dot(_widened(q, part, FORM, HALF, INTERP), v, acc, input_precision="ieee")
        else:  # scales of the next step are asked for before this one's are used
            n0, n1, n2, n3 = _of_groups(scale_at, (step + 1) * STEP, inputs, scale_stride, here, GROUP, SPAN, SPANS)
            total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
            plain = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)  # sums of activations alone, for zeros
            for part in tl.static_range(PARTS):
                v = _activations(x_at + part * PART, used, k, left - part * PART, EVEN, INTERP)
                total = tl.dot(_widened(q, part, FORM, HALF, INTERP), v, total, input_precision="ieee")
                if zeros is not None:
                    plain = tl.dot(tl.full([BLOCK_N, PART], 1.0, v.dtype), v, plain, input_precision="ieee")
                if (part + 1) * PART % SPAN == 0:
                    if zeros is not None:
                        total -= plain * (_nth(z0, z1, z2, z3, (part + 1) * PART // SPAN - 1) - 8.0)[:, None]
                        plain = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
                    acc += total * _nth(s0, s1, s2, s3, (part + 1) * PART // SPAN - 1)[:, None]
                    total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
            s0, s1, s2, s3 = n0, n1, n2, n3
            if zeros is not None:
                z0, z1, z2, z3 = _of_groups(
                    zeros + row, (step + 1) * STEP, inputs, scale_stride, here, GROUP, SPAN, SPANS
                )
        w_at += WORDS
        x_at += STEP
    if GROUP == 0:
        acc *= tl.load(scale_at, mask=here, other=0.0).to(tl.float32)[:, None]
    if bias is not None:
        acc += tl.load(bias + row, mask=here & (split == 0), other=0.0).to(tl.float32)[:, None]
    if GATED:
        gate, up = tl.split(tl.permute(tl.reshape(acc, [2, WIDTH, BLOCK_M]), [1, 2, 0]))
        acc = gate / (1.0 + tl.exp(-gate)) * up
        n = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
        here = n < outputs
    to = out + split.to(tl.int64) * split_stride + m[None, :] * outputs + n[:, None]
    tl.store(to, acc.to(out.dtype.element_ty), mask=here[:, None] & used)


@triton.jit
def widen_kernel(
    words, scales, zeros, out, outputs, inputs, scale_stride, word_stride,
    BLOCK_N: tl.constexpr, PART: tl.constexpr, FORM: tl.constexpr, GROUP: tl.constexpr, HEIGHT: tl.constexpr,
    HALF: tl.constexpr, INTERP: tl.constexpr,
):  # fmt: skip
    """Grid: (blocks of inputs, bands of outputs). The weight as out [outputs, inputs], in 16 bits."""
    PARTS: tl.constexpr = 4 if FORM == "int4" else 2
    block = tl.program_id(0)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, PART)
    here = n < outputs
    row = n.to(tl.int64)
    q = tl.load(words + row[:, None] * word_stride + block * PART + k[None, :], mask=here[:, None])
    for part in tl.static_range(PARTS):
        at = (block * PARTS + part) * PART
        group = tl.minimum(at, inputs - 1) // GROUP if GROUP > 0 else 0
        value = _widened(q, part, FORM, HALF, INTERP).to(tl.float32)
        if zeros is not None:
            value -= (_of_group(zeros + row, group, scale_stride, here) - 8.0)[:, None]
        value *= _of_group(scales + row // HEIGHT, group, scale_stride, here)[:, None]
        to = out + row[:, None] * inputs + at + k[None, :]
        tl.store(to, value.to(out.dtype.element_ty), mask=here[:, None] & (k < inputs - at)[None, :])


def upcast_linear(
    x: torch.Tensor, weight: Packed, bias: torch.Tensor | None, *, splits: bool, made: UpcastPlan | None = None
) -> torch.Tensor:
    """x [t, in] times `weight`, transposed, plus bias [out]: [t, out] in x's dtype, or, where `splits` allows it,
    float32 summands [s, t, out]. x contiguous, 16 bits; made: instead of `plan`'s."""
    (rows, inputs), outputs = x.shape, weight.outputs
    if made is None:
        made = plan(
            form=weight.form, rows=rows, outputs=outputs, inputs=inputs, block=weight.block, gated=False,
            processors=processors(x.device), shared=shared_of(x.device),
        )  # fmt: skip
    if not splits or made.splits == 1:
        made = replace(made, splits=1, steps=-(-inputs // made.block_k))
        out = x.new_empty(rows, outputs)
    else:  # rounding steps up may leave the last splits nothing
        made = replace(made, splits=-(-inputs // (made.steps * made.block_k)))
        out = torch.empty(made.splits, rows, outputs, dtype=torch.float32, device=x.device)
    _launch(x, weight, bias, out, made, gated=False)
    return out


def upcast_gated(
    x: torch.Tensor, weight: Packed, bias: torch.Tensor | None, made: UpcastPlan | None = None
) -> torch.Tensor:
    """silu(x times the first half of `weight`) × (x times the second half): [t, f] in x's dtype; bias [2 f]."""
    (rows, inputs), outputs = x.shape, weight.outputs // 2
    if made is None:
        made = plan(
            form=weight.form, rows=rows, outputs=outputs, inputs=inputs, block=weight.block, gated=True,
            processors=processors(x.device), shared=shared_of(x.device),
        )  # fmt: skip
    out = x.new_empty(rows, outputs)
    _launch(x, weight, bias, out, made, gated=True)
    return out


def widen(weight: Packed, out: torch.Tensor) -> torch.Tensor:
    """The weight in out [outputs, inputs], bfloat16 or float16, rounded once."""
    rows = 32
    widen_kernel[(weight.padded // weight.block, -(-weight.outputs // rows))](
        weight.words, weight.scales, weight.zeros, out, weight.outputs, weight.inputs, weight.scales.shape[1],
        weight.words.shape[1], BLOCK_N=rows, PART=weight.part, FORM=weight.form, GROUP=weight.group,
        HEIGHT=weight.height, HALF=out.dtype == torch.float16, INTERP=INTERPRETED, num_warps=4,
    )  # fmt: skip
    return out


def _launch(
    x: torch.Tensor, weight: Packed, bias: torch.Tensor | None, out: torch.Tensor, made: UpcastPlan, *, gated: bool
) -> None:  # fmt: skip
    (rows, inputs), outputs = x.shape, out.shape[-1]
    follows = dependent(x.device)
    width = made.block_n // 2 if gated else made.block_n
    upcast_linear_kernel[(-(-rows // made.block_m), -(-outputs // width), made.splits)](
        x, weight.words, weight.scales, weight.zeros, bias, out, rows, outputs, inputs, made.steps, rows * outputs,
        weight.scales.shape[1], weight.words.shape[1], BLOCK_M=made.block_m, BLOCK_N=made.block_n,
        WORDS=made.block_k * FORMS[weight.form] // 16, PART=weight.part, FORM=weight.form, GROUP=weight.group,
        HEIGHT=weight.height, GATED=gated, EVEN=outputs % width == 0 and inputs % made.block_k == 0,
        HALF=x.dtype == torch.float16, AHEAD=AHEAD if follows and not gated else 0, DEPENDENT=follows,
        INTERP=INTERPRETED, num_warps=made.warps, num_stages=made.stages, launch_pdl=follows,
    )  # fmt: skip
