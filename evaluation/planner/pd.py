"""Prefill and decode apart: how many of each, what the hand-over takes, and whether it is worth it.

Rates match by aiconfigurator's rule, seq/s = min(x·r_P·0.9, y·r_D·0.92). Queueing for a first token is DistServe's
M/D/1 (https://arxiv.org/abs/2401.09670). What splitting buys is time between tokens and throughput under a TPOT limit;
it never makes a first token come sooner, and no answer here says so.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from evaluation.planner import capacity
from evaluation.planner.answers import Line, PdAdvice
from evaluation.planner.capacity import Bounds, Mean
from evaluation.planner.memory import kv_per_token
from evaluation.planner.model_spec import ModelSpec
from evaluation.planner.roofline import decode
from evaluation.planner.util_grid import Timing

PREFILL_FILLED, DECODE_FILLED = 0.9, 0.92
"""Pipeline bubbles and unfilled decode slots: aiconfigurator's defaults, to be calibrated."""
TINY_OUTPUT = 32
"""Mean output tokens under which a decode pool has too little to do (vllm-project/vllm #23144: 1,024 in, 6 out)."""
WORTH = 1.10
"""Sequences/s over those of the same instances mixed, from which splitting is advised."""


def ttft_md1(service_s: float, rate: float) -> float:
    """Mean seconds to the first token: D + R·D² / (2·(1 − R·D)); infinite where the queue has no end."""
    free = 1 - rate * service_s
    return service_s + rate * service_s**2 / (2 * free) if free > 0 else math.inf


def ttft_tp(service_s: float, rate: float, ranks: int) -> float:
    """With tensor parallelism of K, ideally: D/K + R·D² / (2·K·(K − R·D))."""
    free = ranks - rate * service_s
    return service_s / ranks + rate * service_s**2 / (2 * ranks * free) if free > 0 else math.inf


def ttft_pp2(service_s: float, rate: float) -> float:
    """With two pipeline stages: D + R·D² / (4·(2 − R·D))."""
    free = 2 - rate * service_s
    return service_s + rate * service_s**2 / (4 * free) if free > 0 else math.inf


def matched(prefills: int, prefill_rate: float, decodes: int, decode_rate: float) -> float:
    """Sequences/s that pools of so many instances serve together."""
    return min(prefills * prefill_rate * PREFILL_FILLED, decodes * decode_rate * DECODE_FILLED)


def transfer_s(model: ModelSpec, kv_dtype: str, tokens: float, bandwidth: float) -> float:
    """Seconds to move a prompt's keys and values, bandwidth in bytes/s."""
    return tokens * kv_per_token(model, kv_dtype) / bandwidth


class Pools(NamedTuple):
    prefills: int
    decodes: int
    rate: float


def split(instances: int, prefill_rate: float, decode_rate: float) -> Pools:
    """The division of so many instances that serves most."""
    options = [
        Pools(count, instances - count, matched(count, prefill_rate, instances - count, decode_rate))
        for count in range(1, instances)
    ]
    return max(options, key=lambda pools: pools.rate)


def advise(
    timing: Timing,
    mean: Mean,
    bounds: Bounds,
    *,
    instances: int,
    rate: float,
    kv_dtype: str,
    link: float,
    ttft_s: float = 0.0,
) -> PdAdvice:
    """For `instances` instances at `rate` requests/s. link: bytes/s between them; ttft_s: the limit, 0 = none."""
    model, instances = timing.roof.model, max(2, instances)
    filling = capacity.prefill_s(timing, mean, bounds.step_tokens)
    moving = transfer_s(model, kv_dtype, mean.prompt + mean.cached, link)
    mixed = capacity.largest(timing, mean, bounds)
    mixed_rate = instances * mixed.rate if mixed else 0.0
    apart = capacity.largest(timing, mean, bounds, prefills=False)
    decode_rate = apart.rate if apart else 0.0
    pools = split(instances, 1 / filling, decode_rate if mean.output > 1 else math.inf)
    here = capacity.at_rate(timing, mean, bounds, min(rate, 0.95 * max(mixed_rate, 1e-9)) / instances)
    tpot_change = _tpot_change(timing, mean, bounds, pools, here, min(rate, pools.rate))
    served = min(rate, pools.rate, 0.95 * instances / filling)
    together = ttft_md1(filling, served / instances)
    waiting = ttft_md1(filling, served / pools.prefills) + moving
    ttft_change = max(moving, waiting - together) / together
    seen = _Seen(mean, pools, mixed_rate, filling, moving, waiting, tpot_change, ttft_change)
    against = _against(seen, ttft_s)
    return PdAdvice(
        advised=not against,
        prefill_instances=pools.prefills,
        decode_instances=pools.decodes,
        sequences_per_s=pools.rate,
        mixed_sequences_per_s=mixed_rate,
        transfer_ms=moving * 1e3,
        ttft_change=ttft_change,
        tpot_change=tpot_change,
        reasons=against or _in_favour(seen),
    )


class _Seen(NamedTuple):
    """What speaks for or against. filling_s: of a prompt; moving_s: of its keys and values; waiting_s: TTFT apart."""

    mean: Mean
    pools: Pools
    mixed_rate: float
    filling_s: float
    moving_s: float
    waiting_s: float
    tpot_change: float
    ttft_change: float

    @property
    def gain(self) -> float:
        return self.pools.rate / self.mixed_rate if self.mixed_rate else math.inf


def _against(seen: _Seen, ttft_s: float) -> list[Line]:
    pools, moving, filling = seen.pools, seen.moving_s, seen.filling_s
    lines = []
    if seen.mean.output < TINY_OUTPUT:
        lines.append(
            Line(
                code="pd_tiny_output",
                text=f"Answers have {seen.mean.output:.0f} tokens on average: a decode pool would have little to do, "
                "and its instances would be missing for prompts.",
                values={"output": round(seen.mean.output, 1), "limit": TINY_OUTPUT},
            )
        )
    if seen.gain < WORTH:
        instances = pools.prefills + pools.decodes
        lines.append(
            Line(
                code="pd_no_gain",
                text=f"Apart, {instances} instances serve {pools.rate:.2f} requests/s; mixed they serve "
                f"{seen.mixed_rate:.2f} within the same limits.",
                values={"apart": pools.rate, "mixed": seen.mixed_rate, "instances": instances},
            )
        )
    if moving > filling:
        lines.append(
            Line(
                code="pd_slow_link",
                text=f"Moving a prompt's keys and values takes {moving * 1e3:.0f} ms, longer than computing them "
                f"({filling * 1e3:.0f} ms).",
                values={"transfer_ms": moving * 1e3, "prefill_ms": filling * 1e3},
            )
        )
    if ttft_s and seen.waiting_s > ttft_s:
        lines.append(
            Line(
                code="pd_ttft",
                text=f"The first token would take {seen.waiting_s * 1e3:.0f} ms on average, and the limit is "
                f"{ttft_s * 1e3:.0f} ms.",
                values={"ttft_ms": seen.waiting_s * 1e3, "limit_ms": ttft_s * 1e3},
            )
        )
    return lines


def _in_favour(seen: _Seen) -> list[Line]:
    pools, gain = seen.pools, seen.gain
    return [
        Line(
            code="pd_gain",
            text=f"Within the same limits {pools.prefills} prefill and {pools.decodes} decode instances serve "
            f"{pools.rate:.2f} requests/s, and mixed they serve {seen.mixed_rate:.2f}; the time between tokens changes "
            f"by {seen.tpot_change:+.0%}, the first token comes {seen.ttft_change:.0%} later.",
            values={
                "apart": pools.rate,
                "mixed": seen.mixed_rate,
                "gain": gain if math.isfinite(gain) else None,
                "tpot_change": seen.tpot_change,
                "ttft_change": seen.ttft_change,
            },
        ),
        Line(
            code="pd_admission",
            text="A burst can fill the decode instances: they must admit by free blocks.",
            severity="warning",
        ),
    ]


def _tpot_change(
    timing: Timing, mean: Mean, bounds: Bounds, pools: Pools, mixed: capacity.Point | None, rate: float
) -> float:
    """Relative, at the same rate of the whole."""
    if mixed is None or mixed.tpot_s <= 0:
        return 0.0
    apart = capacity.at_rate(timing, mean, bounds, rate / pools.decodes, prefills=False)
    tpot = apart.tpot_s if apart else timing.seconds(decode(bounds.sequences, mean.context))
    return tpot / mixed.tpot_s - 1
