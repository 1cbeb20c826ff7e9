"""Products of Llama-3.1-8B's shapes with quantized weights: time by rows, beside cuBLAS in bfloat16 and the floor."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from engines.native.kernels import fused, linear
from engines.native.kernels.quantize import QuantizedRows, quantize
from engines.native.layers.linear import DenseLinear
from engines.native.layers.quantized import Place
from engines.native.layers.quantized_gpu import GpuMethod, ScaledLinear, UpcastLinear
from engines.native.ops.triton_ops import TritonOps
from evaluation.benchmarks.gpu_timing import chain_microseconds
from evaluation.benchmarks.quantized_cases import SCHEMES, quantized
from evaluation.benchmarks.report import Row

WEIGHTS = {"qkv": (6144, 4096), "o": (4096, 4096), "gate_up": (28_672, 4096), "down": (4096, 14_336)}
"""[outputs, inputs]"""
NORMED = ("qkv", "gate_up")
"""Read the output of a norm."""
ROWS = (1, 8, 32, 64, 128, 256, 8192)
BYTES = 300_000_000  # of the weights of one chain: several times the L2 cache


def copies(nbytes: int) -> int:
    return min(40, max(4, -(-BYTES // nbytes)))


def layers(name: str, scheme: str, count: int = 0) -> list[UpcastLinear]:
    """count: 0 for so many of one shape that the L2 cache holds none of them when it is read again."""
    outputs, inputs = WEIGHTS[name]
    made = []
    for _ in range(count or copies(outputs * inputs * SCHEMES[scheme].weight.bits // 8)):
        dense = torch.randn(outputs, inputs, device="cuda").mul_(inputs**-0.5)
        weight = quantized(dense, SCHEMES[scheme])
        layer = GpuMethod().make(weight, None, Place(weight.device, torch.bfloat16))
        assert isinstance(layer, UpcastLinear)
        made.append(layer)
    return made


def bf16_times(counts: tuple[int, ...]) -> dict[tuple[str, int], tuple[float, float]]:
    """(name, rows) → µs of what the engine takes in bfloat16, and of cuBLAS (with silu·mul behind gate_up)."""
    found, ops = {}, TritonOps()
    for name, (outputs, inputs) in WEIGHTS.items():
        dense = [
            torch.randn(outputs, inputs, device="cuda").mul_(inputs**-0.5).bfloat16()
            for _ in range(copies(outputs * inputs * 2))
        ]
        gated = name == "gate_up"
        for count in counts:
            x = torch.randn(count, inputs, device="cuda").bfloat16()

            def library(weight: torch.Tensor, x: torch.Tensor = x, gated: bool = gated) -> torch.Tensor:
                y = F.linear(x, weight)
                return fused.silu_mul(y) if gated else y

            def engine(weight: torch.Tensor, x: torch.Tensor = x, gated: bool = gated) -> torch.Tensor:
                layer = DenseLinear(weight, None)
                return ops.silu_gated(layer, x) if gated else ops.summands(layer, x)

            cublas = chain_microseconds([lambda weight=weight: library(weight) for weight in dense])  # type: ignore[misc] # a lambda's default
            ours = cublas
            if linear.ours(rows=count, outputs=outputs // 2 if gated else outputs, gated=gated):
                ours = chain_microseconds([lambda weight=weight: engine(weight) for weight in dense])  # type: ignore[misc] # a lambda's default
            found[name, count] = ours, cublas
        del dense
        torch.cuda.empty_cache()
    return found


def run(schemes: list[str], bandwidth: float) -> Iterator[list[Row]]:
    """Of each scheme: product by product, then all four together as a layer has them. qkv and gate_up read what a norm
    has quantized, where it does; o and down what attention and silu × up leave."""
    bf16 = bf16_times(ROWS)
    yield [
        Row(f"bf16 layer, {count} rows", "products", sum(bf16[name, count][0] for name in WEIGHTS), "µs", "lower",
            "cuBLAS", sum(bf16[name, count][1] for name in WEIGHTS))
        for count in ROWS
    ]  # fmt: skip
    for scheme in schemes:
        rows: list[Row] = []
        layer = dict.fromkeys(ROWS, 0.0)
        least = 0.0
        for name in WEIGHTS:
            made = layers(name, scheme)
            floor = made[0].weight.nbytes / bandwidth * 1e6
            least += floor
            for count in ROWS:
                try:
                    taken = _time(name, made, count)
                except Exception as error:  # the other rows are still to be seen
                    print(f"{scheme} {name} {count} rows: {type(error).__name__} {error!s:.300}", flush=True)
                    taken = float("nan")
                layer[count] += taken
                rows.append(Row(f"{scheme} {name}, {count} rows", "chosen", taken, "µs", "lower", "bf16",
                                bf16[name, count][0], floor))  # fmt: skip
            del made
            torch.cuda.empty_cache()
        for count in ROWS:
            whole = sum(bf16[name, count][0] for name in WEIGHTS)
            rows.append(Row(f"{scheme} layer, {count} rows", "products", layer[count], "µs", "lower", "bf16", whole,
                            least))  # fmt: skip
        yield rows


def _time(name: str, made: list[UpcastLinear], count: int) -> float:
    x: torch.Tensor | QuantizedRows = torch.randn(count, WEIGHTS[name][1], device="cuda").bfloat16()
    first = made[0]
    if isinstance(first, ScaledLinear) and name in NORMED and first.quantizes(count, normed=True):
        assert isinstance(x, torch.Tensor)
        x = quantize(x, first.values, first.kind, first.given)
    if name == "gate_up":
        return chain_microseconds([lambda layer=layer: layer.gated(x) for layer in made])  # type: ignore[misc] # a lambda's default
    return chain_microseconds([lambda layer=layer: layer.summands(x) for layer in made])  # type: ignore[misc] # a lambda's default
