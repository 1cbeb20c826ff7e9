"""AutoGPTQ's, AutoAWQ's and Hugging Face's fp8 checkpoints, against those projects' own arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

from engines.native.quant.packing import unpacked
from engines.native.quant.scheme import ActivationScheme, LinearScheme, WeightScheme

# -- AutoGPTQ 0.7.1, auto_gptq/nn_modules/qlinear/qlinear_cuda_old.py: `pack` and the plain torch path of `forward`;
# gptq_v2 is the same without the 1 (GPTQModel, gptqmodel/utils/model.py: convert_gptq_v1_to_v2_format)


def autogptq_pack(values: np.ndarray, zeros: np.ndarray, bits: int, v1: bool) -> dict[str, torch.Tensor]:
    """values: uint32 [in, out], zeros: uint32 [groups, out]."""
    per_word = 32 // bits
    qweight = np.zeros((values.shape[0] // per_word, values.shape[1]), np.uint32)
    for row in range(qweight.shape[0]):
        for j in range(per_word):
            qweight[row] |= values[row * per_word + j] << np.uint32(bits * j)
    stored = zeros - np.uint32(v1) & np.uint32(2**bits - 1)
    qzeros = np.zeros((zeros.shape[0], zeros.shape[1] // per_word), np.uint32)
    for column in range(qzeros.shape[1]):
        for j in range(per_word):
            qzeros[:, column] |= stored[:, column * per_word + j] << np.uint32(bits * j)
    return {
        "qweight": torch.from_numpy(qweight.view(np.int32)),
        "qzeros": torch.from_numpy(qzeros.view(np.int32)),
    }


def autogptq_weight(parts: dict[str, torch.Tensor], bits: int, v1: bool) -> torch.Tensor:
    """[in, out] in the dtype of the scales."""
    wf = torch.tensor(list(range(0, 32, bits)), dtype=torch.int32).unsqueeze(0)
    qweight, qzeros, scales, g_idx = (parts[name] for name in ("qweight", "qzeros", "scales", "g_idx"))
    kind = torch.int16 if bits == 8 else torch.int8
    zeros = torch.bitwise_right_shift(torch.unsqueeze(qzeros, 2).expand(-1, -1, 32 // bits), wf.unsqueeze(0)).to(kind)
    zeros = zeros + int(v1)
    zeros = torch.bitwise_and(zeros, 2**bits - 1).reshape(scales.shape)
    weight = torch.bitwise_right_shift(torch.unsqueeze(qweight, 1).expand(-1, 32 // bits, -1), wf.unsqueeze(-1)).to(
        kind
    )
    weight = torch.bitwise_and(weight, 2**bits - 1).reshape(-1, scales.shape[1])
    return scales[g_idx.long()] * (weight - zeros[g_idx.long()])


@pytest.mark.parametrize("layout", ["gptq", "gptq_v2"])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    ("bits", "size", "shape", "symmetric"),
    [
        (4, 32, (24, 96), True),
        (4, 32, (40, 64), False),
        (4, -1, (8, 40), False),
        (4, 64, (16, 96), False),  # the last group is not full
        (8, 16, (12, 48), True),
        (8, 32, (20, 64), False),
    ],
)
def test_gptq(bits: int, size: int, shape: tuple[int, int], symmetric: bool, ordered: bool, layout: str) -> None:
    rows, columns = shape
    draw = np.random.default_rng(bits + rows)
    width = columns if size == -1 else size
    groups = -(-columns // width)
    values = draw.integers(0, 2**bits, (columns, rows), dtype=np.uint32)
    zeros = draw.integers(0, 2**bits, (groups, rows), dtype=np.uint32)
    if symmetric:
        zeros = np.full_like(zeros, 2 ** (bits - 1))
    g_idx = torch.arange(columns, dtype=torch.int32) // width
    if ordered:
        g_idx = g_idx[torch.from_numpy(draw.permutation(columns))]
    parts = autogptq_pack(values, zeros, bits, layout == "gptq")
    parts |= {"scales": torch.from_numpy(draw.random((groups, rows)).astype(np.float16)), "g_idx": g_idx}
    strategy = "channel" if size == -1 else "group"
    scheme = LinearScheme(
        WeightScheme("int", bits, strategy, max(size, 0), None, symmetric, "group" if ordered else "")
    )
    weight = unpacked(layout, parts, scheme, shape, "layer")
    expected = autogptq_weight(parts, bits, layout == "gptq").t()
    assert torch.equal(weight.dequantize(), expected)
    assert (weight.zeros is None) is symmetric
    assert (weight.groups_of is not None) is (ordered and groups > 1)
    if not ordered and columns % (2 * width) == 0:
        assert torch.equal(weight.columns(slice(columns // 2, columns)).dequantize(), expected[:, columns // 2 :])


def test_gptq_zeros_that_are_not_in_the_middle_make_it_asymmetric_whatever_is_said() -> None:
    values, zeros = np.arange(64, dtype=np.uint32).reshape(8, 8) % 16, np.full((1, 8), 7, np.uint32)
    parts = autogptq_pack(values, zeros, 4, True) | {"scales": torch.ones(1, 8, dtype=torch.float16)}
    scheme = LinearScheme(WeightScheme("int", 4, "group", 8))
    weight = unpacked("gptq", parts, scheme, (8, 8), "layer")
    assert not weight.scheme.symmetric
    assert torch.equal(weight.dequantize(), torch.from_numpy(values.T.astype(np.float16) - 7))


# -- AutoAWQ 0.2.9, awq/utils/packing_utils.py (unpack_awq, reverse_awq_order, dequantize_gemm) and
# awq/modules/linear/gemm.py (WQLinear_GEMM.from_linear: order_map)

AWQ_REVERSE_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]
AWQ_ORDER_MAP = [0, 2, 4, 6, 1, 3, 5, 7]


def autoawq_pack(values: torch.Tensor) -> torch.Tensor:
    """int32 [n, out] of 0 … 15 → [n, out/8]."""
    made = torch.zeros((values.shape[0], values.shape[1] // 8), dtype=torch.int32)
    for column in range(made.shape[1]):
        for i in range(8):
            made[:, column] |= values[:, column * 8 + AWQ_ORDER_MAP[i]] << (i * 4)
    return made


def unpack_awq(qweight: torch.Tensor, qzeros: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    shifts = torch.arange(0, 32, bits)
    iweights = torch.bitwise_right_shift(qweight[:, :, None], shifts[None, None, :]).to(torch.int8)
    izeros = torch.bitwise_right_shift(qzeros[:, :, None], shifts[None, None, :]).to(torch.int8)
    return iweights.view(iweights.shape[0], -1), izeros.view(izeros.shape[0], -1)


def dequantize_gemm(qweight: torch.Tensor, qzeros: torch.Tensor, scales: torch.Tensor, group_size: int) -> torch.Tensor:
    iweight, izeros = unpack_awq(qweight, qzeros, 4)
    order = torch.arange(iweight.shape[-1], dtype=torch.int32).view(-1, 8)[:, AWQ_REVERSE_ORDER].view(-1)
    iweight = torch.bitwise_and(iweight[:, order], 15)
    izeros = torch.bitwise_and(izeros[:, order], 15)
    return (iweight - izeros.repeat_interleave(group_size, dim=0)) * scales.repeat_interleave(group_size, dim=0)


@pytest.mark.parametrize(("size", "shape"), [(32, (24, 96)), (64, (8, 128)), (-1, (16, 40)), (5, (8, 15))])
def test_awq(size: int, shape: tuple[int, int]) -> None:
    rows, columns = shape
    width = columns if size == -1 else size
    draw = torch.Generator().manual_seed(rows)
    groups = columns // width
    parts = {
        "qweight": autoawq_pack(torch.randint(0, 16, (columns, rows), generator=draw, dtype=torch.int32)),
        "qzeros": autoawq_pack(torch.randint(0, 16, (groups, rows), generator=draw, dtype=torch.int32)),
        "scales": torch.rand(groups, rows, generator=draw).to(torch.float16),
    }
    strategy = "channel" if size == -1 else "group"
    scheme = LinearScheme(WeightScheme("int", 4, strategy, max(size, 0), symmetric=False))
    weight = unpacked("awq", parts, scheme, shape, "layer")
    expected = dequantize_gemm(parts["qweight"], parts["qzeros"], parts["scales"], width).t()
    assert weight.shape == shape
    assert torch.equal(weight.dequantize(), expected)
    assert torch.equal(weight.rows(slice(3, 7)).dequantize(), expected[3:7])


# -- transformers 5.23, integrations/finegrained_fp8.py


@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(256, 384), (128, 256)])
def test_fp8_blocks(shape: tuple[int, int], scale_dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(3)
    values = torch.randn(shape, generator=draw).mul(100).to(torch.float8_e4m3fn)
    scales = torch.rand(shape[0] // 128, shape[1] // 128, generator=draw).to(scale_dtype)
    block = ActivationScheme("float", 8, True, "group", 128)
    scheme = LinearScheme(WeightScheme("float", 8, "block", block=(128, 128)), block)
    weight = unpacked("fp8", {"weight": values, "weight_scale": scales}, scheme, shape, "layer")
    expected = Fp8Dequantize(None)._dequantize_one(values, scales)
    assert torch.equal(weight.dequantize(), expected)
    assert torch.equal(weight.columns(slice(128, 256)).dequantize(), expected[:, 128:256])
    assert torch.equal(weight.rows(slice(5, 101)).dequantize(), expected[5:101])
