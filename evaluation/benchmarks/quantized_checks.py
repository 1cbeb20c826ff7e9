"""Products with quantized weights against float64, on fresh random inputs: every scheme, from one row to many."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from engines.native.kernels import INTERPRETED
from engines.native.layers.quantized import Place
from engines.native.layers.quantized_gpu import FEW_ROWS, GatedFor, GpuMethod, NormFor, ScaledLinear, UpcastLinear
from engines.native.ops.triton_ops import TritonOps
from evaluation.benchmarks.quantized_cases import SCHEMES, quantized
from evaluation.benchmarks.report import Row

METRIC = "relative error"
EXACT = {torch.bfloat16: 4e-3, torch.float16: 6e-4}
"""Activations of 16 bits: what one rounding of the result leaves."""
COARSE = {"float": 5e-2, "int": 2e-2}
"""Activations of 8 bits of that kind, per token or block: their own rounding."""
SHAPES = [(1024, 4096), (4096, 14_336), (960, 576), (992, 200)]
ROWS = (1, 3, 17, 40, 64, 65, 128, 200, 257, 600)


def run(names: list[str], device: torch.device) -> Iterator[list[Row]]:
    """Rows of one scheme after the other; what raises is a row that fails."""
    for name in names:
        for dtype in (torch.bfloat16, torch.float16):
            if INTERPRETED and dtype == torch.bfloat16:
                continue
            try:
                yield _products(name, dtype, device)
            except Exception as error:  # the other schemes are still to be seen
                yield [Row(f"{name} {_short(dtype)}: {type(error).__name__} {error!s:.300}", METRIC, 9.0, "", "lower",
                           target=0.0)]  # fmt: skip


def _products(name: str, dtype: torch.dtype, device: torch.device) -> list[Row]:
    scheme = SCHEMES[name]
    place = Place(device, dtype)
    worst = {"whole": 0.0, "summands": 0.0, "gated": 0.0, "8-bit": 0.0, "8-bit gated": 0.0, "behind a norm": 0.0}
    shapes, counts = ([(96, 256)], (3, 70)) if INTERPRETED else (SHAPES, ROWS)
    for outputs, inputs in shapes:
        if inputs % (scheme.weight.group or 1):
            continue
        weight = quantized(torch.randn(outputs, inputs, device=device).mul_(inputs**-0.5), scheme)
        bias = torch.randn(outputs, device=device).to(dtype)
        refused = GpuMethod().refusal(weight, place)
        if refused:
            raise ValueError(f"refused: {refused}")
        layer = GpuMethod().make(weight, bias, place)
        assert isinstance(layer, UpcastLinear)
        matrix = weight.dequantize(torch.float64)
        for count in counts:
            coarse = isinstance(layer, ScaledLinear) and count > FEW_ROWS
            x = torch.randn(count, inputs, device=device).to(dtype)
            wanted = x.double() @ matrix.t() + bias.double()
            gate, up = wanted.chunk(2, -1)
            summands = layer.summands(x).double()
            found = {
                "8-bit" if coarse else "whole": (layer(x), wanted),
                "8-bit gated" if coarse else "gated": (layer.gated(x), F.silu(gate) * up),
                "8-bit " if coarse else "summands": (summands.sum(0) if summands.dim() == 3 else summands, wanted),
            }
            for what, (value, right) in found.items():
                what = what.strip()
                worst[what] = max(worst[what], _error(value, right))
            if isinstance(layer, ScaledLinear):
                worst["behind a norm"] = max(worst["behind a norm"], _fused(layer, x, matrix, bias, dtype))
    rows = []
    for what, error in worst.items():
        if error == 0.0:
            continue
        target = EXACT[dtype] * (2 if "gated" in what else 1)
        if what not in ("whole", "summands", "gated"):
            assert scheme.activations is not None
            target = COARSE[scheme.activations.kind] * (1.6 if "gated" in what else 1)
        rows.append(Row(f"{name} {_short(dtype)} {what}", METRIC, error, "", "lower", target=target))
    return rows


def _fused(layer: ScaledLinear, x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor, dtype: torch.dtype) -> float:
    """A norm that quantizes for the product behind it, and silu × up that does for the next."""
    ops, size = TritonOps(), x.shape[1]
    residual, weight = torch.randn_like(x), torch.rand(size, device=x.device).to(dtype)
    total = (x.double() + residual.double()).to(dtype).double()
    normed = total / (total.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    rows, _ = NormFor(layer, ops.add_rms_norm)(x, residual, weight, 1e-5)
    first = _error(layer(rows), normed @ matrix.t() + bias.double())
    half = layer.weight.outputs // 2
    scheme = next(s for s in SCHEMES.values() if s.activations is not None and s.weight.kind == _kind(layer))
    down_weight = quantized(torch.randn(64, half, device=x.device).mul_(half**-0.5), scheme)
    down = GpuMethod().make(down_weight, None, Place(x.device, dtype))
    assert isinstance(down, ScaledLinear)
    gate, up = (x.double() @ matrix.t() + bias.double()).chunk(2, -1)
    wanted = (F.silu(gate) * up) @ down_weight.dequantize(torch.float64).t()
    return max(first, _error(down(GatedFor(down, ops.silu_gated)(layer, x)), wanted) / 2)


def _kind(layer: ScaledLinear) -> str:
    return "float" if layer.weight.form == "fp8" else "int"


def _error(value: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((value.double() - wanted).norm() / wanted.norm().clamp_min(1e-30))


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
