"""Each way to serve a quantized weight gives the product of what the weight stands for, with the activations that its
checkpoint asks for; and which way is taken is chosen by name, counted, and never silent."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from engines.native.layers import quantized
from engines.native.layers.linear import DenseLinear
from engines.native.layers.quantized import DEQUANTIZED, JoinedLinear, Place, Served, choose, scaled
from engines.native.layers.quantized_cpu import Int4Linear, Int8Linear, activations_of
from engines.native.models.products import Products, turned
from engines.native.quant.scheme import ActivationScheme, WeightScheme
from engines.native.quant.weight import QuantizedWeight

CPU = Place(torch.device("cpu"), torch.float32)
OUT, IN = 96, 128
INT8_CHANNEL = WeightScheme("int", 8, "channel")
INT8_TOKEN = ActivationScheme("int", 8)
FP8_TOKEN = ActivationScheme("float", 8)


def weight(scheme: WeightScheme, activations: ActivationScheme | None = None, seed: int = 0, **more) -> QuantizedWeight:
    """Random values and scales of [OUT, IN]; of float16, as checkpoints have them."""
    draw = torch.Generator().manual_seed(seed)
    if scheme.kind == "float":
        values = torch.randn(OUT, IN, generator=draw).mul_(100).clamp_(-448, 448).to(torch.float8_e4m3fn)
    elif scheme.bits == 8:
        values = torch.randint(-127, 128, (OUT, IN), dtype=torch.int8, generator=draw)
    else:
        values = torch.randint(0, 256, (OUT, IN // 2), dtype=torch.uint8, generator=draw)
    sizes = {"tensor": (1, 1), "channel": (OUT, 1)}
    if scheme.strategy == "group":
        sizes["group"] = (OUT, IN // scheme.group)
    if scheme.block:
        sizes["block"] = (-(-OUT // scheme.block[0]), -(-IN // scheme.block[1]))
    size = sizes[scheme.strategy]
    scales = torch.rand(size, generator=draw).add_(0.1).mul_(0.01).half()
    zeros = None
    if not scheme.symmetric:
        zeros = torch.randint(0, 16 if scheme.bits == 4 else 256, size, dtype=torch.uint8, generator=draw)
    return QuantizedWeight(scheme, values, scales, zeros, activations=activations, **more)


CASES = [
    (INT8_CHANNEL, INT8_TOKEN, "int8_exact"),
    (WeightScheme("int", 8, "tensor"), INT8_TOKEN, "int8_exact"),
    (INT8_CHANNEL, replace(INT8_TOKEN, dynamic=False, strategy="tensor"), "int8_exact"),
    (INT8_CHANNEL, None, "float16"),
    (WeightScheme("int", 8, "channel", symmetric=False), INT8_TOKEN, "float16"),
    (WeightScheme("int", 8, "group", 32), INT8_TOKEN, "float16"),
    (WeightScheme("float", 8, "channel"), FP8_TOKEN, "float16"),
    (WeightScheme("float", 8, "tensor"), replace(FP8_TOKEN, dynamic=False, strategy="tensor"), "float16"),
    (WeightScheme("float", 8, "block", block=(32, 64)), replace(FP8_TOKEN, strategy="group", group=32), "float16"),
    (WeightScheme("int", 4, "group", 32), None, "int4_packed"),
    (WeightScheme("int", 4, "group", 64, symmetric=False), None, "int4_packed"),
    (WeightScheme("int", 4, "group", 16), None, "float16"),
    (WeightScheme("int", 4, "channel"), FP8_TOKEN, "float16"),
]
ROUNDED = 4e-4
"""Where scales change along the inputs: weights of 11 bits, so 2⁻¹² each at most, and 3 × that for the whole."""

BFLOAT16 = 5e-3
"""Activations, scales, zeros and outputs of 8 bits: 2⁻⁹ at most each, less on the whole."""


@pytest.mark.parametrize(("scheme", "activations", "name"), CASES, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("bias", [False, True])
def test_product(scheme, activations, name, bias):
    fixed = activations is not None and not activations.dynamic
    kept = weight(scheme, activations, input_scale=torch.tensor(0.02) if fixed else None)
    torch.manual_seed(1)
    x = torch.randn(7, IN) * torch.logspace(-2, 1, 7)[:, None]
    added = torch.randn(OUT) if bias else None
    chosen = choose(kept, CPU)
    assert chosen.name == name
    ours = chosen.method.make(kept, added, CPU)(x)
    rounded = activations_of(kept)
    values = (x if rounded is None else rounded(x)).double()
    wanted = values @ kept.dequantize(torch.float64).t() + (0 if added is None else added.double())
    exact = scheme.bits == 8 and scheme.symmetric and scheme.strategy in ("channel", "tensor")
    tolerance = BFLOAT16 if name == "int4_packed" else 1e-6 if exact else ROUNDED
    assert (ours - wanted).norm() / wanted.norm() < tolerance


@pytest.mark.parametrize("rows", [1, Int4Linear.MANY - 1, Int4Linear.MANY])
def test_many_rows_of_4_bits_are_multiplied_as_floats(rows):
    kept, x = weight(WeightScheme("int", 4, "group", 32, symmetric=False)), torch.randn(rows, IN)
    error = Int4Linear(kept, None)(x).double() - x.double() @ kept.dequantize(torch.float64).t()
    size = (x.double() @ kept.dequantize(torch.float64).t()).norm()
    assert error.norm() / size < (1e-6 if rows >= Int4Linear.MANY else BFLOAT16)


def test_act_order_and_minima_of_gguf():
    groups = torch.randperm(IN).to(torch.int32) // 32
    ordered = weight(WeightScheme("int", 4, "group", 32, actorder="group"), groups_of=groups)
    minima = weight(WeightScheme("int", 4, "group", 32), offsets=torch.randn(OUT, IN // 32).half() * 0.01)
    x = torch.randn(3, IN)
    for kept in (ordered, minima):
        wanted = x.double() @ kept.dequantize(torch.float64).t()
        chosen = choose(kept, CPU)
        tolerance = BFLOAT16 if chosen.name == "int4_packed" else ROUNDED
        assert (chosen.method.make(kept, None, CPU)(x) - wanted).norm() / wanted.norm() < tolerance


def test_int8_products_are_exact_where_16_bits_would_overflow():
    """Greatest values on both sides: FBGEMM adds two products of a pair in 16 bits."""
    values = torch.full((OUT, IN), 127, dtype=torch.int8)
    values[::2] = -128
    kept = QuantizedWeight(INT8_CHANNEL, values, torch.ones(OUT, 1), activations=INT8_TOKEN)
    x = torch.full((2, IN), 127.0)
    x[1, ::2] = -127.0
    torch.testing.assert_close(Int8Linear(kept, None)(x), x @ values.float().t(), rtol=0, atol=0)


def test_in_strict_mode_a_token_gets_the_same_whatever_is_beside_it():
    strict = replace(CPU, strict=True)
    kept = weight(INT8_CHANNEL, INT8_TOKEN)
    layer, x = choose(kept, strict).method.make(kept, None, strict), torch.randn(7, IN) * torch.rand(7, 1)
    together = layer(x)
    assert all(torch.equal(layer(x[i : i + 1])[0], together[i]) for i in range(7))
    assert choose(weight(INT8_CHANNEL), strict).name == DEQUANTIZED  # float16's sums of one row are others


def test_a_fixed_scale_that_is_missing_is_named():
    kept = weight(INT8_CHANNEL, replace(INT8_TOKEN, dynamic=False, strategy="tensor"), name="layers.3.o")
    with pytest.raises(ValueError, match=r"layers\.3\.o has activations of a fixed scale, but no input_scale"):
        choose(kept, CPU).method.make(kept, None, CPU)


# The choice


def test_what_no_method_takes_is_dequantized_counted_and_told(caplog):
    served = Served()
    products = Products(Place(torch.device("cpu"), torch.bfloat16), DenseLinear, served)
    kept = weight(INT8_CHANNEL)
    layer = products.of([kept], None)
    assert isinstance(layer, DenseLinear)
    assert torch.equal(layer.weight, kept.dequantize(torch.bfloat16))
    facts = served.facts()
    assert (facts["methods"], facts["dequantized"]) == ({DEQUANTIZED: 1}, 1)
    assert "int8 per channel: int8_exact: activations are torch.bfloat16" in next(iter(facts["reasons"]))
    with caplog.at_level(logging.WARNING):
        served.tell()
    assert "1 quantized products were dequantized at load" in caplog.text
    assert Served().facts() == {}


def test_a_plugin_comes_before_the_built_in_and_may_not_take_its_name(monkeypatch):
    class Mine:
        def refusal(self, kept, place):
            return "" if kept.scheme.bits == 4 else "it has 4 bits"

        def make(self, kept, bias, place):
            return DenseLinear(kept.dequantize(place.dtype), bias)

    def points(name):
        point = SimpleNamespace(name=name, value="mine:Mine", load=lambda: Mine)
        monkeypatch.setattr(quantized, "entry_points", lambda group: [point] if group == quantized.GROUP else [])
        quantized.methods.cache_clear()

    try:
        points("cpu.mine")
        assert choose(weight(WeightScheme("int", 4, "group", 32)), CPU).name == "mine"
        assert choose(weight(INT8_CHANNEL), CPU).name == "float16"
        points("cpu.float16")
        with pytest.raises(ValueError, match="two linear methods are called 'float16'"):
            choose(weight(INT8_CHANNEL), CPU)
    finally:
        monkeypatch.undo()
        quantized.methods.cache_clear()


# Merged products


def _wanted(parts, x):
    whole = [part if isinstance(part, torch.Tensor) else part.dequantize(torch.float32) for part in parts]
    return x @ torch.cat(whole).t()


def test_parts_of_one_scheme_are_one_product_and_others_run_beside():
    x, bias = torch.randn(3, IN), torch.randn(3 * OUT)
    served = Served()
    products = Products(CPU, DenseLinear, served)
    same = [weight(INT8_CHANNEL, seed=seed) for seed in range(3)]
    torch.testing.assert_close(products.of(same, bias)(x), _wanted(same, x) + bias, atol=1e-4, rtol=1e-5)
    assert served.methods.total() == 1
    mixed = [same[0], weight(WeightScheme("int", 4, "group", 32), seed=1), torch.randn(OUT, IN)]
    layer = products.of(mixed, bias)
    assert isinstance(layer, JoinedLinear)
    assert len(layer.parts) == 3
    wanted = _wanted(mixed, x) + bias
    assert (layer(x) - wanted).norm() / wanted.norm() < BFLOAT16


def test_what_is_worked_into_weights_is_the_same_on_quantized_ones():
    x = torch.randn(3, IN)
    for scheme in (
        INT8_CHANNEL,
        WeightScheme("int", 4, "group", 32),
        WeightScheme("float", 8, "block", block=(32, 64)),
    ):
        kept = weight(scheme)
        whole = kept.dequantize(torch.float32)
        order = torch.randperm(OUT)
        assert torch.equal(turned(kept, lambda rows, order=order: rows[order]).dequantize(torch.float32), whole[order])
        torch.testing.assert_close(scaled(kept, 0.37).dequantize(torch.float32), whole * 0.37, rtol=1e-6, atol=0)
        centered = Products(CPU, DenseLinear, Served()).of([kept], None, centered=True)(x)
        wanted = x @ (whole - whole.mean(0)).t()
        assert (centered - wanted).norm() / wanted.norm() < BFLOAT16
