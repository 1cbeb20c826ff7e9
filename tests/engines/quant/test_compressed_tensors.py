"""compressed-tensors 0.19 is the oracle: what it writes we read to the same bits, and what we write it reads so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

from engines.native.loader.errors import BadModel
from engines.native.quant.packing import layout_for, packed, unpacked
from engines.native.quant.scheme import ActivationScheme, LinearScheme, WeightScheme
from engines.native.quant.weight import QuantizedWeight
from tests.engines.quant.oracle import qparams

INT8 = ActivationScheme("int")
FP8 = ActivationScheme("float")
FP8_GROUP = ActivationScheme("float", 8, True, "group", 8)
STATIC = ActivationScheme("int", 8, False, "tensor")
CASES = [
    (LinearScheme(WeightScheme("int", 4, "group", 32)), (24, 128)),
    (LinearScheme(WeightScheme("int", 4, "group", 32, symmetric=False)), (13, 128)),
    (LinearScheme(WeightScheme("int", 4, "group", 8, symmetric=False)), (5, 24)),
    (LinearScheme(WeightScheme("int", 4, "channel")), (7, 33)),
    (LinearScheme(WeightScheme("int", 4, "channel", symmetric=False)), (9, 21)),
    (LinearScheme(WeightScheme("int", 4, "tensor")), (6, 40)),
    (LinearScheme(WeightScheme("int", 8, "channel")), (11, 30)),
    (LinearScheme(WeightScheme("int", 8, "group", 64, symmetric=False)), (10, 128)),
    (LinearScheme(WeightScheme("int", 4, "group", 32, actorder="static"), FP8), (16, 64)),
    (LinearScheme(WeightScheme("int", 8, "channel"), INT8), (11, 30)),
    (LinearScheme(WeightScheme("int", 8, "tensor"), STATIC), (8, 16)),
    (LinearScheme(WeightScheme("int", 8, "channel", symmetric=False), INT8), (9, 17)),
    (LinearScheme(WeightScheme("float", 8, "channel"), FP8), (12, 33)),
    (LinearScheme(WeightScheme("float", 8, "tensor"), ActivationScheme("float", 8, False, "tensor")), (12, 33)),
    (LinearScheme(WeightScheme("float", 8, "block", block=(16, 8)), FP8_GROUP), (40, 20)),
    (LinearScheme(WeightScheme("float", 8, "block", block=(16, 8)), FP8_GROUP), (48, 32)),
    (LinearScheme(WeightScheme("float", 8, "group", 16)), (6, 48)),
]  # fmt: skip


def args_of(scheme: WeightScheme) -> QuantizationArgs:
    return QuantizationArgs(
        num_bits=scheme.bits,
        type=scheme.kind,
        strategy=scheme.strategy,
        group_size=scheme.group or None,
        block_structure=list(scheme.block) if scheme.block else None,
        symmetric=scheme.symmetric,
    )


def compressed(scheme: LinearScheme, shape: tuple[int, int], dtype: torch.dtype) -> tuple[dict[str, Any], torch.Tensor]:
    """(what the library writes of random weights, what it makes of that when it reads it)."""
    args = args_of(scheme.weight)
    values = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)
    scales, zeros = qparams(values, args)
    theirs = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = BaseCompressor.get_value_from_registry(layout_for(scheme))
    written = compressor.compress({"weight": values, "weight_scale": scales, "weight_zero_point": zeros}, theirs)
    return written, compressor.decompress(dict(written), theirs)["weight"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("scheme", "shape"), CASES, ids=str)
def test_reads_and_writes_what_the_library_does(
    scheme: LinearScheme, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    written, expected = compressed(scheme, shape, dtype)
    if scheme.activations is not None and not scheme.activations.dynamic:
        written["input_scale"] = torch.tensor([0.25])
    ours = unpacked(layout_for(scheme), written, scheme, shape, "layer")
    assert ours.shape == shape
    assert ours.scheme == scheme.weight
    assert ours.dequantize().dtype == dtype
    assert torch.equal(ours.dequantize(), expected)
    assert expected.float().std() > 0.5
    assert torch.equal(ours.rows(slice(2, 5)).dequantize(), expected[2:5])
    half = shape[1] // 2
    if half % (scheme.weight.group or 8) == 0:  # as a rank of tensor parallelism has it
        assert torch.equal(ours.columns(slice(half, shape[1])).dequantize(), expected[:, half:])
    again = packed(ours, layout_for(scheme))
    assert again.keys() == written.keys()
    for kind, tensor in written.items():
        assert again[kind].dtype == tensor.dtype, kind
        assert torch.equal(*(one.reshape(-1).view(torch.uint8) for one in (again[kind], tensor))), kind


@pytest.mark.parametrize(("scheme", "shape"), CASES, ids=str)
def test_float32_is_the_exact_product(scheme: LinearScheme, shape: tuple[int, int]) -> None:
    """In bfloat16 the library rounds each product; read as float32 it keeps its digits."""
    written, expected = compressed(scheme, shape, torch.bfloat16)
    ours = unpacked(layout_for(scheme), written, scheme, shape, "layer").dequantize(torch.float32)
    assert torch.equal(ours.to(torch.bfloat16), expected)
    if not (scheme.weight.kind == "float" or scheme.weight.bits == 4):
        assert not torch.equal(ours, expected.float())


@pytest.mark.parametrize("symmetric", [True, False])
def test_groups_that_the_inputs_name(symmetric: bool) -> None:
    """`weight_g_idx`, which compressed-tensors wrote up to 0.18: scales by the group of each input."""
    rows, columns, size = 10, 96, 32
    draw = torch.Generator().manual_seed(5)
    values = torch.randint(-8, 8, (rows, columns), generator=draw, dtype=torch.int8)
    order = (torch.arange(columns) // size)[torch.randperm(columns, generator=draw)].to(torch.int32)
    scales = torch.rand(rows, 3, generator=draw).to(torch.bfloat16)
    zeros = torch.randint(-8, 8, (rows, 3), generator=draw, dtype=torch.int8)
    scheme = LinearScheme(WeightScheme("int", 4, "group", size, symmetric=symmetric, actorder="group"))
    parts = {
        "weight_packed": pack_to_int32(values, 4),
        "weight_scale": scales,
        "weight_shape": torch.tensor([rows, columns]),
        "weight_g_idx": order,
    }
    if not symmetric:
        parts["weight_zero_point"] = pack_to_int32(zeros, 4, packed_dim=0)
    weight = unpacked("pack-quantized", parts, scheme, (rows, columns), "layer")
    shifted = values.to(torch.bfloat16) - (0 if symmetric else zeros.to(torch.bfloat16)[:, order.long()])
    expected = shifted * scales[:, order.long()]
    assert torch.equal(weight.dequantize(), expected)
    assert torch.equal(weight.columns(slice(16, 50)).dequantize(), expected[:, 16:50])
    assert torch.equal(packed(weight, "pack-quantized")["weight_g_idx"], order)
    natural = unpacked(
        "pack-quantized",
        parts | {"weight_g_idx": torch.arange(columns).int() // size},
        scheme,
        (rows, columns),
        "layer",
    )
    assert (natural.groups_of, natural.scheme.actorder) == (None, "")
    unused = parts | {"weight_g_idx": torch.full((columns,), -1, dtype=torch.int32)}
    assert unpacked("pack-quantized", unused, scheme, (rows, columns), "layer").groups_of is None
    with pytest.raises(BadModel, match=r"layer\.weight_g_idx names groups 1 … 3, and there are 3"):
        unpacked("pack-quantized", parts | {"weight_g_idx": order + 1}, scheme, (rows, columns), "layer")


@pytest.mark.parametrize("bits", [4, 8])
def test_integers_in_bytes_of_their_own(bits: int) -> None:
    """int-quantized, as some writers keep 4 bits, too."""
    most = 2 ** (bits - 1)
    values = torch.randint(-most, most, (6, 24), dtype=torch.int8)
    scales = torch.rand(6, 3).to(torch.float16)
    scheme = LinearScheme(WeightScheme("int", bits, "group", 8))
    weight = unpacked("int-quantized", {"weight": values, "weight_scale": scales}, scheme, (6, 24), "layer")
    assert torch.equal(weight.dequantize(), values.to(torch.float16) * scales.repeat_interleave(8, 1))
    assert torch.equal(packed(weight, "int-quantized")["weight"], values)


def test_what_is_not_of_the_layout_is_named() -> None:
    scheme = LinearScheme(WeightScheme("int", 4, "channel"))
    parts = {
        "weight_packed": torch.zeros(4, 1, dtype=torch.int32),
        "weight_scale": torch.ones(4, 1),
        "weight_shape": torch.tensor([4, 7]),
    }
    with pytest.raises(BadModel, match=r"mlp\.weight_shape says \[4, 7\]; the configuration makes it \[4, 8\]"):
        unpacked("pack-quantized", parts, scheme, (4, 8), "mlp")
    with pytest.raises(BadModel, match=r"mlp\.weight has values outside -8 … 7"):
        unpacked(
            "int-quantized", {"weight": torch.full((4, 8), 8).to(torch.int8), "weight_scale": torch.ones(4, 1)},
            scheme, (4, 8), "mlp",
        )  # fmt: skip
    minima = QuantizedWeight(
        replace(scheme.weight, symmetric=False), torch.zeros(4, 4, dtype=torch.uint8), torch.ones(4, 1),
        offsets=torch.ones(4, 1), name="mlp",
    )  # fmt: skip
    with pytest.raises(ValueError, match="mlp: minima"):
        packed(minima, "pack-quantized")
