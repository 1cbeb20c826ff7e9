"""The least KV cache that a profile's peak needs, by Monte-Carlo over its joint distribution of lengths.

N = λ_peak × E2EL target requests are in flight (Little). Each holds its prompt and the part of its output that it has
got to, uniform over its stay; the q-quantile of their sum is what must be held: not N × the longest request.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from evaluation.planner.answers import KvFloor
from evaluation.planner.memory import Engine, kv_of_length
from evaluation.planner.model_spec import ModelSpec
from evaluation.profile import BusinessProfile

SAMPLES = 4_000
Floats = NDArray[np.float64]


def in_flight(rate: float, e2el_s: float) -> int:
    """Little's law, rounded up."""
    return max(1, math.ceil(rate * e2el_s - 1e-9))


def floor(
    model: ModelSpec,
    kv_dtype: str,
    profile: BusinessProfile,
    engine: Engine,
    *,
    e2el_s: float,
    rate: float | None = None,
    quantile: float = 0.99,
    lookahead: int = 0,
    seed: int = 1,
    samples: int = SAMPLES,
) -> KvFloor:
    """Bytes over all ranks (TP 1, PP 1). rate: requests/s, the profile's peak where it is None. lookahead: tokens of
    drafts that each request's step may add. The samples are drawn from `seed`, so that a plan can be repeated."""
    count = in_flight(profile.arrivals.peak if rate is None else rate, e2el_s)
    chooser = np.random.default_rng(seed)
    drawn = profile.draw(chooser, samples * count)
    progress = chooser.random(samples * count)
    per_token = kv_of_length(model, kv_dtype, 1, False)
    sizes = _sizer(model, kv_dtype, engine)
    own = drawn.user + drawn.output * progress
    prefixes = sum(group.prefix_tokens for group in profile.groups)
    shared_bytes = sum(float(sizes(np.array([group.prefix_tokens]))[0]) for group in profile.groups)
    alone = sizes(drawn.prefix + own)
    beside = alone - sizes(drawn.prefix)
    summed = {
        name: float(np.quantile(values.reshape(samples, count).sum(1), quantile))
        for name, values in (
            ("own_tokens", own),
            ("all_tokens", drawn.prefix + own),
            ("beside", beside),
            ("alone", alone),
        )
    }
    tokens_shared = math.ceil(prefixes + summed["own_tokens"])
    fragmentation = math.ceil(count * engine.block / 2 * per_token)
    ahead = math.ceil(count * lookahead * per_token)
    bursty = _bursty(chooser, alone, count, quantile)
    block = engine.block * per_token
    return KvFloor(
        in_flight=count,
        quantile=quantile,
        tokens_shared=tokens_shared,
        tokens_unshared=math.ceil(summed["all_tokens"]),
        shared=_whole(min(shared_bytes + summed["beside"], summed["alone"]), block) + fragmentation + ahead,
        unshared=_whole(summed["alone"], block) + fragmentation + ahead,
        fragmentation=fragmentation,
        lookahead=ahead,
        samples=samples,
        seed=seed,
        bursty_in_flight=bursty[0],
        bursty_unshared=_whole(bursty[1], block) + fragmentation + ahead,
    )


def _whole(size: float, block: float) -> int:
    return math.ceil(math.ceil(size / block - 1e-9) * block)


def _sizer(model: ModelSpec, kv_dtype: str, engine: Engine) -> Callable[[Floats], Floats]:
    """Lengths → bytes, of many sequences at once."""
    per_token = kv_of_length(model, kv_dtype, 1, False)
    widths = [window for window in model.windows if window]
    if not engine.saves_windows or not widths:
        return lambda lengths: lengths * per_token
    per_layer = per_token / model.layers
    whole = model.layers - len(widths)
    counted = {window: widths.count(window) for window in set(widths)}

    def sizes(lengths: Floats) -> Floats:
        held = whole * lengths
        for window, layers in counted.items():
            held = held + layers * np.minimum(lengths, window)
        return np.asarray(held * per_layer, np.float64)

    return sizes


def _bursty(chooser: np.random.Generator, sizes: Floats, mean: int, quantile: float) -> tuple[int, float]:
    """(quantile of the number in flight, of their bytes) where the number is Poisson about `mean`, as with Poisson
    arrivals and no queue."""
    counts = chooser.poisson(mean, SAMPLES // 4)
    sums = [float(chooser.choice(sizes, count).sum()) for count in counts]
    return int(np.quantile(counts, quantile)), float(np.quantile(sums, quantile))
