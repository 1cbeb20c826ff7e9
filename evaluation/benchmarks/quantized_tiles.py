"""Which tiles the kernels of quantized products take: all candidates on an H200, the best beside what `plan` says.

How the tables of `kernels.upcast` and `kernels.scaled` were chosen. Candidates are compiled by several processes first
(Triton's cache on the disk hands them over), then timed by one.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import torch

from engines.native.kernels import quantize, scaled, upcast
from engines.native.kernels.packed import BLOCK, Packed, part_of
from engines.native.kernels.packed import FORMS as BITS
from engines.native.kernels.scaled import ScaledPlan, Tile
from engines.native.kernels.upcast import UpcastPlan
from evaluation.benchmarks.gpu_timing import chain_microseconds
from evaluation.benchmarks.quantized_cases import SCHEMES
from evaluation.benchmarks.quantized_times import NORMED, WEIGHTS, layers

Work = Callable[[Packed], object]
FORMS = {"w4a16": "int4", "fp8": "fp8", "int8": "int8"}
FEW, SOME, MANY = (1, 32, 64), (128, 256), (8192,)
PROCESSES = 12


def candidates(kind: str, scheme: str, name: str, count: int) -> list[UpcastPlan | ScaledPlan | Tile]:
    outputs, inputs = WEIGHTS[name]
    form, group = FORMS[scheme], SCHEMES[scheme].weight.group
    block = part_of(form, inputs, group) * 16 // BITS[form]
    steps = inputs // BLOCK
    splits = (1,) if name == "gate_up" else (1, 2, 4, 8) if count <= 64 else (1, 2, 4)
    found: list[UpcastPlan | ScaledPlan | Tile] = []
    if kind == "upcast":
        block_m = min(max(16, count), 128)
        tiles = [(64, 4, 4), (64, 4, 6), (128, 4, 3), (128, 4, 4), (128, 8, 3), (128, 8, 4)]
        if count >= 64:  # whole, or as several blocks that share what is in the L2 cache
            tiles = [(128, 8, 2), (128, 8, 3), (128, 8, 4), (64, 4, 3), (64, 4, 4)]
        blocks_m = {block_m, min(block_m, 64)}
        for (block_n, warps, stages), cut, high in itertools.product(tiles, splits, sorted(blocks_m)):
            for wide in (block, 2 * block) if not group else (block,):
                if -(-outputs // block_n) * cut <= 132 * 8:
                    parts = inputs // wide
                    found.append(UpcastPlan(high, block_n, wide, warps, stages, cut, -(-parts // cut)))
    elif kind == "scaled" and count <= 64:
        block_m = max(16, count)
        tiles_8 = [(64, 256, 4, 4), (64, 256, 4, 6), (64, 128, 4, 8), (128, 256, 8, 4), (128, 128, 4, 6)]
        for (block_n, block_k, warps, stages), cut in itertools.product(tiles_8, splits):
            parts = inputs // block_k
            found.append(ScaledPlan(block_m, block_n, block_k, warps, stages, cut, -(-parts // cut)))
    elif kind == "scaled":
        for (block_m, block_n, warps, stages), cut in itertools.product(
            [(128, 64, 4, 5), (128, 128, 8, 4), (64, 64, 4, 6), (64, 128, 8, 5)], splits[:3]
        ):
            found.append(ScaledPlan(block_m, block_n, BLOCK, warps, stages, cut, -(-steps // cut)))
    else:
        found += [Tile(128, 256, 128, 8, 4), Tile(128, 256, 128, 8, 3), Tile(256, 128, 128, 8, 4),
                  Tile(128, 128, 128, 8, 5), Tile(128, 128, 128, 4, 4), Tile(128, 256, 64, 8, 6)]  # fmt: skip
    return found


def works(kind: str, scheme: str, name: str, count: int) -> dict[str, Work]:
    """By name. Peers of the library are among them."""
    x = torch.randn(count, WEIGHTS[name][1], device="cuda").bfloat16()
    gated = name == "gate_up"
    found: dict[str, Work] = {}
    if kind == "upcast":
        for made in candidates(kind, scheme, name, count):
            assert isinstance(made, UpcastPlan)
            if gated:
                found[str(made)] = lambda w, made=made: upcast.upcast_gated(x, w, None, made)  # type: ignore[misc] # a lambda's default
            else:
                found[str(made)] = lambda w, made=made: upcast.upcast_linear(x, w, None, splits=True, made=made)  # type: ignore[misc] # a lambda's default
        return found
    values = torch.int8 if FORMS[scheme] == "int8" else torch.float8_e4m3fn
    rows = quantize.quantize(x, values, quantize.TOKEN)
    for made in candidates(kind, scheme, name, count):
        if isinstance(made, ScaledPlan):
            if gated:
                found[str(made)] = lambda w, made=made: scaled.scaled_gated(rows, w, None, made)  # type: ignore[misc] # a lambda's default
            else:
                found[str(made)] = lambda w, made=made: scaled.scaled_linear(rows, w, None, splits=True, made=made)  # type: ignore[misc] # a lambda's default
        elif isinstance(made, Tile):
            found[str(made)] = lambda w, made=made: scaled.scaled_product(rows, w, None, made)  # type: ignore[misc] # a lambda's default
    if FORMS[scheme] == "int8":
        found["torch._int_mm, unscaled"] = lambda w: torch._int_mm(rows.values, w.bytes.t())
    else:
        scales = rows.scales[:, None]
        for fast in (True, False):
            found[f"torch._scaled_mm, fast {fast}"] = lambda w, fast=fast: torch._scaled_mm(  # type: ignore[misc] # a lambda's default
                rows.values, w.bytes.t(), scales, w.scales, out_dtype=torch.bfloat16, use_fast_accum=fast
            )
    return found


def cases(schemes: list[str], rows: list[int] | None) -> list[tuple[str, str, str, int]]:
    found = []
    for scheme in schemes:
        if scheme not in FORMS:
            continue
        if FORMS[scheme] == "int4":
            kinds: list[tuple[str, tuple[int, ...]]] = [("upcast", (*FEW, *SOME))]
        else:
            kinds = [("upcast", FEW), ("scaled", (*FEW, *SOME)), ("product", MANY)]
        if FORMS[scheme] == "int8":
            kinds = kinds[1:]  # its few rows differ from fp8's in arithmetic only
        for kind, counts in kinds:
            for name, count in itertools.product(WEIGHTS, counts):
                if kind == "upcast" and FORMS[scheme] != "int4" and name in NORMED:
                    continue  # multiplied in 8 bits
                if rows is None or count in rows:
                    found.append((kind, scheme, name, count))
    return found


def _compile(case: tuple[str, str, int]) -> None:
    """Two shapes stand for all four: no kernel is made for a size."""
    kind, scheme, count = case
    for name in ("o", "gate_up"):
        weight = layers(name, scheme, 1)[0].weight
        for work in works(kind, scheme, name, count).values():
            with contextlib.suppress(Exception):  # it is told where it is timed
                work(weight)
                torch.cuda.synchronize()


def run(schemes: list[str], bandwidth: float, rows: list[int] | None = None) -> Iterator[str]:
    """One line a case: the five best, and what failed. rows: which cases; None: all."""
    asked = cases(schemes, rows)
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        list(pool.imap_unordered(_compile, sorted({(kind, scheme, count) for kind, scheme, _, count in asked})))
    for (scheme, name), group in itertools.groupby(
        sorted(asked, key=lambda c: (c[1], c[2])), key=lambda case: (case[1], case[2])
    ):
        made = layers(name, scheme)
        floor = made[0].weight.nbytes / bandwidth * 1e6
        for kind, _, _, count in group:
            times: list[tuple[float, str]] = []
            failed: Counter[str] = Counter()
            for label, work in works(kind, scheme, name, count).items():
                try:
                    chain: list[Callable[[], object]] = [partial(work, layer.weight) for layer in made]
                    times.append((chain_microseconds(chain), label))
                except Exception as error:  # too much shared memory, say: the others are still to be seen
                    torch.cuda.synchronize()
                    failed[f"{type(error).__name__} {error!s:.80}"] += 1
            best = "; ".join(f"{taken:.1f} {_brief(label)}" for taken, label in sorted(times)[:5])
            peers = "; ".join(f"{taken:.1f} {label}" for taken, label in times if label.startswith("torch"))
            case = f"{scheme} {name} {count} rows {kind} (floor {floor:.1f})"
            yield f"{case}: {best} | {peers} | failed: {dict(failed) or 0}"
        del made
        torch.cuda.empty_cache()


def _brief(label: str) -> str:
    return label.replace("block_", "").replace("UpcastPlan", "").replace("ScaledPlan", "").replace(" ", "")
