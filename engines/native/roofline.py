"""How near a decode step's work comes to what the device can do: bytes and operations that must be, over the time.

What must be is known from the model's shape: a matrix product reads its weight once (n × k values) and does 2 m n k
operations for m rows; attention reads the keys and values of every row. Which kernel does which product is found by
order: a step does them in the order of the layers. Where the matrix products of a step can't be told apart (another
number of kernels than of products, a mixture's experts, latent attention) nothing is said.

The device's limits are measured where the step was: a large copy for the bandwidth, a large product for the operations.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from statistics import median
from typing import Protocol

import torch

from engines.native.layers.linear import method_for
from engines.native.memory import KV_BYTES
from engines.native.models.config import DecoderConfig
from engines.native.models.tensors import activation_dtype

_PRODUCT = re.compile(r"linear|gemm|gemv|nvjet|matmul|addmm|\bmm\b|int8_head", re.IGNORECASE)
_NO_PRODUCT = re.compile(r"reduce|prepack|reorder", re.IGNORECASE)
_ATTENTION = re.compile(r"attention|flash|sdpa", re.IGNORECASE)
MOST_NAMES = 8
"""Names of kernels among which those of the products are looked for."""
WEIGHT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
"""Effective dtype → bytes that a product reads of each weight."""
_COPY = {"cuda": 2**30, "cpu": 2**27}  # bytes
_SQUARE = {"cuda": 8192, "cpu": 768}
_REPEATS = 5


class Work(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Need:
    """What a piece of a step can't do without. bytes read; flops: floating-point operations."""

    part: str
    bytes: float
    flops: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Measured: bytes/s of a copy (read and written), floating-point operations/s of a large product."""

    bandwidth: float
    flops: float

    def seconds(self, need: Need) -> float:
        """The least time that `need` can take."""
        return max(need.bytes / self.bandwidth, need.flops / self.flops)


@dataclass(frozen=True, slots=True)
class Reached:
    """One part of a step, or one kernel, per step: µs that it takes and the least that it could."""

    name: str
    spent: float
    least: float
    bytes: float

    @property
    def share(self) -> float:
        return self.least / self.spent if self.spent else 0.0

    @property
    def gigabytes(self) -> float:
        """GB/s of the bytes that must be read."""
        return self.bytes / self.spent / 1e3 if self.spent else 0.0


def products(config: DecoderConfig, dtype: str, rows: int) -> list[Need]:
    """Of one decode step of `rows` rows, in their order; none for a model whose products depend on its tokens."""
    if config.moe is not None or config.latent is not None:
        return []
    shapes = {
        "qkv": (config.q_size + 2 * config.kv_size, config.hidden),
        "o": (config.hidden, config.q_size),
        "gate_up": (2 * config.ffn, config.hidden),
        "down": (config.hidden, config.ffn),
    }
    layer = [_product(part, n, k, dtype, rows) for part, (n, k) in shapes.items()]
    return [*layer * config.layers, _product("head", config.vocab, config.hidden, dtype, rows)]


def _product(part: str, n: int, k: int, dtype: str, rows: int) -> Need:
    return Need(part, float(n * k * WEIGHT_BYTES[dtype]), 2.0 * rows * n * k)


def attention(config: DecoderConfig, dtype: str, rows: int, keys: float) -> Need:
    """Of all layers of one decode step: `keys` tokens of each row, fewer where a layer has a window."""
    width = KV_BYTES[dtype]
    seen = sum(min(keys, window) if window else keys for window in config.windows)
    values = 2 * rows * seen * config.kv_heads * config.head_dim
    return Need("attention", values * width, 4.0 * rows * seen * config.heads * config.head_dim)


def reached(
    works: Sequence[Work], steps: int, needs: Sequence[Need], attending: Need | None, limits: Limits
) -> tuple[list[Reached], list[Reached]]:
    """(by part of the model, by kernel), of `steps` steps. What can't be told is left out of both."""
    parts: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    kernels: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    found = product_works(works, steps, len(needs))
    for at, work in enumerate(found):
        need = needs[at % len(needs)]
        for sums in (parts[need.part], kernels[work.name]):
            _add(sums, work.end - work.start, limits.seconds(need) * 1e6, need.bytes)
    ours = {id(work) for work in found}
    attends = [work for work in works if _ATTENTION.search(work.name) and id(work) not in ours]
    if attending is not None and attends:
        spent = sum(work.end - work.start for work in attends)
        figures = (spent, limits.seconds(attending) * 1e6 * steps, attending.bytes * steps)
        _add(parts["attention"], *figures)
        if len({work.name for work in attends}) == 1:
            _add(kernels[attends[0].name], *figures)
    return _rows(parts, steps), _rows(kernels, steps)


def product_works(works: Sequence[Work], steps: int, count: int) -> list[Work]:
    """The works that do a step's `count` products, in order, of `steps` whole steps; none where it can't be told.

    A profile may begin within a step, whose rest comes first, so that a part of the kernels can have the right number,
    too: the set that holds all others is taken, and its kernels must come in the same order in each step."""
    if not count:
        return []
    by_name: dict[str, list[Work]] = defaultdict(list)
    for work in works:
        if _PRODUCT.search(work.name) and not _NO_PRODUCT.search(work.name):
            by_name[work.name].append(work)
    names = sorted(by_name, key=lambda name: -len(by_name[name]))[:MOST_NAMES]
    wanted = steps * count
    fitting = [
        set(chosen)
        for size in range(1, len(names) + 1)
        for chosen in combinations(names, size)
        if wanted <= sum(len(by_name[name]) for name in chosen) < wanted + count
    ]
    largest = max(fitting, key=len, default=set())
    if not all(largest >= chosen for chosen in fitting):
        return []
    ordered = sorted((work for name in largest for work in by_name[name]), key=lambda work: work.start)[-wanted:]
    if any(work.name != ordered[at % count].name for at, work in enumerate(ordered)):
        return []
    return ordered


def measure(device: torch.device, dtype: str) -> Limits:
    """What a copy and a product in `dtype` reach here; the device must be idle. Takes some tenths of a second."""
    source = torch.empty(_COPY[device.type] // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = _seconds(device, partial(target.copy_, source))
    size = _SQUARE[device.type]
    x = torch.ones(size, size, dtype=activation_dtype(dtype), device=device)
    linear = method_for(dtype, device.type)(torch.ones_like(x), None)
    return Limits(2 * source.numel() / copied, 2.0 * size**3 / _seconds(device, partial(linear, x)))


def _seconds(device: torch.device, work: Callable[[], object]) -> float:
    taken = []
    for _ in range(_REPEATS + 1):
        begun = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - begun)
    return median(taken[1:])


def _add(sums: list[float], spent: float, least: float, size: float) -> None:
    for place, value in enumerate((spent, least, size)):
        sums[place] += value


def _rows(sums: dict[str, list[float]], steps: int) -> list[Reached]:
    rows = [Reached(name, spent / steps, least / steps, size / steps) for name, (spent, least, size) in sums.items()]
    return sorted(rows, key=lambda row: -row.spent)
