"""A quantized weight is cut, turned and joined like the matrix that it stands for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.loader.errors import BadModel
from engines.native.quant import weight as module
from engines.native.quant.scheme import ActivationScheme, WeightScheme
from engines.native.quant.weight import QuantizedWeight, pack_nibbles, unpack_nibbles

SCHEMES = {
    "w4": WeightScheme("int", 4, "group", 16, symmetric=False),
    "w4 symmetric": WeightScheme("int", 4, "group", 32),
    "w4 by order": WeightScheme("int", 4, "group", 16, symmetric=False, actorder="group"),
    "w4 minima": WeightScheme("int", 4, "group", 32, symmetric=False),
    "w8": WeightScheme("int", 8, "channel"),
    "w8 groups": WeightScheme("int", 8, "group", 16, symmetric=False),
    "fp8": WeightScheme("float", 8, "tensor"),
    "fp8 blocks": WeightScheme("float", 8, "block", block=(16, 32)),
}


def random_weight(kind: str, rows: int, columns: int, seed: int = 0) -> tuple[QuantizedWeight, torch.Tensor]:
    """(weight, the matrix, from values and scales that were spread beforehand)."""
    scheme, draw = SCHEMES[kind], torch.Generator().manual_seed(seed)
    if scheme.kind == "float":
        whole = torch.randn(rows, columns, generator=draw).to(torch.float8_e4m3fn)
        values = whole.float()
    else:
        most = 2 ** (scheme.bits - 1)
        whole = torch.randint(-most, most, (rows, columns), generator=draw, dtype=torch.int8)
        values = whole.float()
    span = {"tensor": columns, "channel": columns, "group": scheme.group, "block": 32}[scheme.strategy]
    heights = {"tensor": rows, "block": 16}.get(scheme.strategy, 1)
    groups = -(-columns // span)
    scales = torch.rand(-(-rows // heights), groups, generator=draw)
    of = torch.arange(columns) // span
    if scheme.actorder:
        of = of[torch.randperm(columns, generator=draw)]

    def spread(part: torch.Tensor) -> torch.Tensor:
        return part.float().repeat_interleave(heights, 0)[:rows][:, of]

    packed = pack_nibbles(whole + 8) if scheme.bits == 4 else whole
    made = QuantizedWeight(scheme, packed, scales, name=kind, groups_of=of.int() if scheme.actorder else None)
    if kind == "w4 minima":
        made = replace(made, offsets=torch.rand(scales.shape, generator=draw))
        return made, (values + 8) * spread(scales) + spread(made.offsets)
    if not scheme.symmetric:
        most = 2 ** (scheme.bits - 1)
        zeros = torch.randint(0, 2 * most, scales.shape, generator=draw, dtype=torch.uint8)
        return replace(made, zeros=zeros), (values + most - spread(zeros)) * spread(scales)
    return made, values * spread(scales)


@pytest.mark.parametrize("kind", SCHEMES)
@settings(max_examples=25, deadline=None)
@given(data=st.data(), rows=st.integers(1, 70), groups=st.integers(1, 4))
def test_any_part_is_what_slicing_the_matrix_gives(kind: str, data: st.DataObject, rows: int, groups: int) -> None:
    columns = 32 * groups
    weight, matrix = random_weight(kind, rows, columns, rows)
    assert torch.equal(weight.dequantize(torch.float32), matrix)
    first = data.draw(st.integers(0, rows - 1))
    part = slice(first, data.draw(st.integers(first + 1, rows)))
    assert torch.equal(weight.rows(part).dequantize(), matrix[part])
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(first))
    assert torch.equal(weight.rows(order).dequantize(), matrix[order])
    start = 32 * data.draw(st.integers(0, groups - 1))
    cut = weight.columns(slice(start, columns))
    assert torch.equal(cut.dequantize(), matrix[:, start:])
    assert torch.equal(cut.rows(part).dequantize(), matrix[part, start:])
    assert cut.nbytes <= weight.nbytes


@pytest.mark.parametrize("kind", SCHEMES)
@pytest.mark.parametrize("sizes", [(32, 16, 16), (20, 7, 33)])
def test_parts_become_one(kind: str, sizes: tuple[int, ...]) -> None:
    made = [random_weight(kind, rows, 64, seed) for seed, rows in enumerate(sizes)]
    weights = [replace(weight, groups_of=made[0][0].groups_of) for weight, _ in made]
    expected = torch.cat([weight.dequantize() for weight in weights])
    whole = QuantizedWeight.stacked(weights)
    assert torch.equal(whole.dequantize(), expected)
    blocks = sizes[0] % 16 == 0
    strategy = {"tensor": "channel", "block": "block" if blocks else "group"}
    assert whole.scheme.strategy == strategy.get(SCHEMES[kind].strategy, SCHEMES[kind].strategy)
    assert torch.equal(whole.rows(slice(sizes[0], sizes[0] + sizes[1])).dequantize(), weights[1].dequantize())


def test_the_greatest_input_scale_is_that_of_all() -> None:
    static = ActivationScheme("float", 8, False, "tensor")
    one, _ = random_weight("fp8", 8, 32)
    parts = [replace(one, activations=static, input_scale=torch.tensor(scale)) for scale in (0.5, 2.0, 1.0)]
    assert QuantizedWeight.stacked(parts).input_scale == 2.0
    assert QuantizedWeight.stacked(parts).activations == static


def test_what_cannot_be_one_weight_is_named() -> None:
    w4, w8 = (random_weight(kind, 8, 32)[0] for kind in ("w4", "w8"))
    with pytest.raises(BadModel, match="w4 and w8 cannot be one weight: scheme int4 group 16 asymmetric and int8 per"):
        QuantizedWeight.stacked([w4, w8])
    a, b = (random_weight("w4 by order", 8, 64, seed)[0] for seed in (1, 2))
    with pytest.raises(BadModel, match="other orders of their inputs"):
        QuantizedWeight.stacked([a, b])
    half = replace(w8, scales=w8.scales.half())
    with pytest.raises(BadModel, match="scales of"):
        QuantizedWeight.stacked([w8, half])


def test_a_group_on_two_ranks_is_refused_with_what_would_do() -> None:
    scheme = WeightScheme("int", 4, "group", 128)
    weight = QuantizedWeight(
        scheme, torch.zeros(4, 288, dtype=torch.uint8), torch.ones(4, 5), name="model.layers.3.mlp.down_proj"
    )
    with pytest.raises(BadModel) as caught:
        weight.columns(slice(0, 288))
    assert caught.value.message.startswith("model.layers.3.mlp.down_proj: inputs 0 … 287 of 576 ")
    assert "128 does not divide in/TP = 288" in caught.value.message
    assert "groups of 32" in caught.value.hint
    wide = replace(weight, values=torch.zeros(4, 512, dtype=torch.uint8), scales=torch.ones(4, 8))
    with pytest.raises(BadModel, match=r"does not divide in/TP = 320") as caught:
        wide.columns(slice(0, 320))
    assert "split it over 2, 4, 8 ranks" in caught.value.hint
    eight = replace(wide, scheme=WeightScheme("int", 8, "channel"), scales=torch.ones(4, 1))
    assert eight.columns(slice(3, 22)).shape == (4, 19)
    with pytest.raises(BadModel, match="two in a byte"):
        replace(wide, scheme=WeightScheme("int", 4, "channel"), scales=torch.ones(4, 1)).columns(slice(3, 22))
    with pytest.raises(ValueError, match="not empty"):
        wide.columns(slice(4, 4))


def test_bands_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BAND", 200)
    for kind in SCHEMES:
        weight, matrix = random_weight(kind, 50, 64, 3)
        bands = list(weight.bands())
        assert len(bands) > 2
        assert torch.equal(torch.cat([band for _, band in bands]), matrix), kind


@given(st.integers(1, 9), st.integers(1, 9))
def test_nibbles(rows: int, columns: int) -> None:
    values = torch.randint(0, 16, (rows, columns), dtype=torch.uint8)
    assert torch.equal(unpack_nibbles(pack_nibbles(values), columns), values)
    assert pack_nibbles(torch.tensor([[1, 2, 3]])).tolist() == [[0x21, 0x03]]
