"""Which hardware serves a profile: every candidate that holds the model is sized, the best are simulated at the peak.

`recommend` is pure: the same profile, model, constraints and grids give the same plan, whatever the day or the machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from evaluation.planner import candidates, capacity, kv_floor, memory, model_spec, pd, predict, reasons, util_grid
from evaluation.planner.answers import Choice, Figure, KvFloor, Line, MemoryLine, Plan, Value
from evaluation.planner.candidates import Candidate
from evaluation.planner.capacity import Bounds, Mean
from evaluation.planner.constraints import Constraints, read_constraints
from evaluation.planner.grids import shipped
from evaluation.planner.hardware import GIB
from evaluation.planner.model_spec import ModelSpec
from evaluation.planner.roofline import Roof, decode
from evaluation.planner.simulate import Limits
from evaluation.planner.util_grid import Grid, Timing
from evaluation.profile import BusinessProfile, read_profile
from evaluation.schema import Objective

MOST_ROUNDS = 3
"""Simulations of a choice: each but the first has more replicas, because the one before missed an objective."""
_ASSUMED_E2EL_S = 30.0
_ORDER = {"yes": 0, "unknown": 1, "no": 2}


def recommend(
    profile: BusinessProfile | Mapping[str, Any],
    model: ModelSpec | Mapping[str, Any],
    constraints: Constraints | Mapping[str, Any] | None = None,
    grids: Sequence[Grid] = (),
    created_at: str = "",
) -> Plan:
    """A plan, by `grids` and those that the package ships. Raises ProfileError, SpecError, ConstraintError: each names
    the field, the reason and the fix."""
    profile = profile if isinstance(profile, BusinessProfile) else read_profile(profile)
    spec = model if isinstance(model, ModelSpec) else model_spec.load(model)
    asked = read_constraints(constraints)
    demand = _Demand.of(profile, spec, asked)
    found = list(candidates.all_of(spec, asked, demand.longest))
    rejected = [each for each in found if isinstance(each, Line)]
    sized = [_size(each, spec, asked, demand, grids) for each in found if isinstance(each, Candidate)]
    rejected += [each for each in sized if isinstance(each, Line)]
    possible = sorted((each for each in sized if isinstance(each, _Sized)), key=lambda each: each.order)
    floors: dict[str, KvFloor] = {}
    choices = []
    for each in _varied(possible, asked.choices):
        made = _choose(each, profile, spec, asked, demand, floors)
        if isinstance(made, Line):
            rejected.append(made)
        else:
            choices.append(made)
    choices.sort(key=lambda each: (_ORDER[each.meets], _cost_order(each, asked), each.usable))
    return Plan(
        model=spec.name,
        profile=profile.name,
        created_at=created_at,
        recommended=0 if choices and choices[0].meets != "no" else None,
        choices=choices,
        kv_floor=floors,
        rejected=rejected,
        findings=reasons.of_plan(choices, profile, asked, demand.e2el_s if demand.assumed else None),
        summary=_summary(profile, spec, demand),
    )


class _Demand(Struct, kw_only=True, frozen=True):
    """Of the whole deployment. longest: tokens of one request, prompt and output."""

    mean: Mean
    longest: int
    peak: float
    e2el_s: float
    assumed: bool
    bounds: dict[str, float]

    @classmethod
    def of(cls, profile: BusinessProfile, model: ModelSpec, asked: Constraints) -> _Demand:
        drawn = profile.draw(np.random.default_rng(asked.seed), 4_000)
        prefix, user, output = (float(values.mean()) for values in drawn)
        hit = prefix * asked.prefix_hits
        longest = int(np.max(drawn.prefix + drawn.user + drawn.output))
        if longest > model.context_length:
            raise model_spec.SpecError(
                f"context_length: {model.name} takes {model.context_length:,} tokens, and the profile's longest "
                f"request has {longest:,}; choose another model or leave such requests out"
            )
        e2el, ttft, tpot = (profile.objective(metric) for metric in ("e2el", "ttft", "tpot"))
        target = asked.e2el_s or (e2el.limit_ms / 1e3 if e2el else 0.0)
        if not target and ttft and tpot:
            target = (ttft.limit_ms + tpot.limit_ms * (output - 1)) / 1e3
        limits = {"tpot_s": tpot.limit_ms / 1e3 if tpot else 0.0, "ttft_s": ttft.limit_ms / 1e3 if ttft else 0.0}
        return cls(
            mean=Mean(max(1.0, prefix - hit + user), hit, max(output, 1.0), profile.guesses),
            longest=longest,
            peak=profile.arrivals.peak,
            e2el_s=target or _ASSUMED_E2EL_S,
            assumed=not target,
            bounds=limits | {"e2el_s": e2el.limit_ms / 1e3 if e2el else 0.0},
        )


class _Sized(Struct, frozen=True):
    """A candidate with as many replicas as its means need."""

    candidate: Candidate
    timing: Timing
    bounds: Bounds
    best: capacity.Point
    replicas: int
    order: tuple[float, ...]


def _size(
    each: Candidate, model: ModelSpec, asked: Constraints, demand: _Demand, grids: Sequence[Grid]
) -> _Sized | Line:
    roof = Roof(model, each.gpu, each.scheme, each.kv_dtype, each.layout)
    timing = Timing(roof, _grid(roof, grids, each.engine.name))
    bounds = Bounds(
        each.engine.sequences, each.kv_tokens, each.engine.step_tokens, demand.bounds["tpot_s"], demand.bounds["e2el_s"]
    )
    best = capacity.largest(timing, demand.mean, bounds)
    where: dict[str, Value] = {
        "gpu": each.gpu.key,
        "tp": each.layout.tp,
        "pp": each.layout.pp,
        "scheme": each.scheme.name,
    }
    if best is None:
        return Line(
            code="too_slow",
            text=f"{each.layout.ranks} × {each.gpu.name} misses the objectives even without load.",
            values=where,
        )
    replicas = max(1, math.ceil(demand.peak / (best.rate * (1 - asked.headroom)) - 1e-9))
    gpus = replicas * each.layout.ranks
    if gpus > asked.max_gpus:
        return Line(
            code="too_many",
            text=f"{gpus} × {each.gpu.name} would be needed, and {asked.max_gpus} are allowed.",
            values={**where, "gpus": gpus, "max_gpus": asked.max_gpus},
        )
    price = asked.prices.get(each.gpu.key)
    order = (0.0, gpus * price) if price else (1.0, gpus * each.gpu.memory * 1.0)
    return _Sized(each, timing, bounds, best, replicas, (*order, gpus))


def _grid(roof: Roof, own: Sequence[Grid], engine: str) -> Grid | None:
    """The caller's grid of this very model goes before those that the package ships."""
    found = util_grid.choose(own, roof, engine)
    if found is not None and Timing(roof, found).basis == "calibrated":
        return found
    return util_grid.choose([*own, *shipped()], roof, engine)


def _varied(possible: list[_Sized], most: int) -> list[_Sized]:
    """The best of each device first, then the second best: a list of five variants of one GPU is no choice."""
    by_gpu: dict[str, int] = {}
    ranked = []
    for each in possible:
        key = each.candidate.gpu.key
        by_gpu[key] = by_gpu.get(key, 0) + 1
        ranked.append((by_gpu[key], each.order, each))
    return [each for _, _, each in sorted(ranked, key=lambda entry: entry[:2])[:most]]


def _choose(
    sized: _Sized,
    profile: BusinessProfile,
    model: ModelSpec,
    asked: Constraints,
    demand: _Demand,
    floors: dict[str, KvFloor],
) -> Choice | Line:
    each, timing, replicas = sized.candidate, sized.timing, sized.replicas
    most = max(1, asked.max_gpus // each.layout.ranks)
    for left in reversed(range(MOST_ROUNDS)):
        ends = _simulate(sized, profile, asked, demand, replicas)
        verdict, verdicts = predict.meets(ends, timing, profile.slo)
        if verdict == "yes" or (verdict == "unknown" and not _may_become_yes(timing, verdicts)):
            break
        if replicas >= most or not left:
            break
        replicas = min(most, math.ceil(replicas * 1.25))
    if each.kv_dtype not in floors:
        floors[each.kv_dtype] = _floor(each, model, profile, asked, demand, 1)
    floor = _floor(each, model, profile, asked, demand, replicas)
    ratio = memory.kv_per_token(model, each.kv_dtype, each.layout) / memory.kv_per_token(model, each.kv_dtype)
    needed, other = round(floor.shared * ratio), round(floor.unshared * ratio)
    if needed > each.kv_room:
        return Line(
            code="kv_floor",
            text=f"{each.layout.ranks} × {each.gpu.name}: the peak needs {needed / GIB:.2f} GiB of KV cache per GPU, "
            f"and {each.kv_room / GIB:.2f} GiB are left.",
            values={"gpu": each.gpu.key, "tp": each.layout.tp, "needed": needed, "left": each.kv_room},
        )
    lines = [*each.lines[:-1], _kv_line(needed, other, floor), each.lines[-1]]
    lines_of = reasons.of_choice(each, timing, verdicts, needed, other)
    gpus = replicas * each.layout.ranks
    price = asked.prices.get(each.gpu.key)
    link = asked.link_gbps * 1e9 / 8 if asked.link_gbps else each.gpu.link
    advice = pd.advise(
        timing, demand.mean, sized.bounds, instances=replicas, rate=demand.peak, kv_dtype=each.kv_dtype, link=link,
        ttft_s=demand.bounds["ttft_s"],
    )  # fmt: skip
    return Choice(
        gpu=each.gpu.key,
        gpu_name=each.gpu.name,
        tp=each.layout.tp,
        pp=each.layout.pp,
        replicas=replicas,
        scheme=each.scheme.name,
        kv_dtype=each.kv_dtype,
        gpus=gpus,
        fits=True,
        meets=verdict,
        memory=lines,
        usable=each.gpu.memory,
        kv_tokens=each.kv_tokens,
        figures=[*predict.figures(ends, timing, profile.slo), *_rates(sized, demand, replicas)],
        reasons=[_replicas(sized, demand, replicas), *lines_of],
        basis=timing.basis,
        cost_per_hour=gpus * price if price else None,
        pd=advice,
    )


def _may_become_yes(timing: Timing, verdicts: Sequence[tuple[Objective, predict.Meets]]) -> bool:
    """By more replicas. Without a grid nothing can, and gaps between tokens never are."""
    return timing.grid is not None and any(
        said == "unknown" and objective.metric != "itl" for objective, said in verdicts
    )


def _replicas(sized: _Sized, demand: _Demand, replicas: int) -> Line:
    return Line(
        code="replicas",
        text=f"The peak of {demand.peak:.2f} requests/s, {sized.best.rate:.2f} per instance by the means, makes "
        f"{replicas} instances.",
        values={"peak": demand.peak, "per_instance": sized.best.rate, "replicas": replicas},
    )


def _simulate(
    sized: _Sized, profile: BusinessProfile, asked: Constraints, demand: _Demand, replicas: int
) -> predict.Ends:
    each = sized.candidate
    rate = demand.peak / replicas
    count = int(np.clip(4 * rate * demand.e2el_s, asked.requests, 3 * asked.requests))
    work = predict.work_of(profile, rate, count, prefix_hits=asked.prefix_hits, seed=asked.seed)
    prefixes = sum(group.prefix_tokens for group in profile.groups)
    limits = Limits(
        each.engine.sequences,
        each.engine.step_tokens,
        max(each.kv_tokens - prefixes, float(np.max(work.prompt + work.output))),
        each.engine.block,
        each.engine.depth,
        each.engine.target_tpot_ms / 1e3,
    )
    return predict.run(sized.timing, work, limits)


def _floor(
    each: Candidate, model: ModelSpec, profile: BusinessProfile, asked: Constraints, demand: _Demand, replicas: int
) -> KvFloor:
    rate = demand.peak / replicas
    count = kv_floor.in_flight(rate, demand.e2el_s)
    return kv_floor.floor(
        model, each.kv_dtype, profile, each.engine, e2el_s=demand.e2el_s, rate=rate, quantile=asked.quantile,
        lookahead=asked.lookahead, seed=asked.seed, samples=int(np.clip(200_000 // count, 400, kv_floor.SAMPLES)),
    )  # fmt: skip


def _kv_line(needed: int, unshared: int, floor: KvFloor) -> MemoryLine:
    return MemoryLine(
        part="kv_floor",
        bytes=needed,
        code="little_and_lengths",
        source=f"{floor.in_flight} requests in flight, P{floor.quantile * 100:g} of their tokens over {floor.samples} "
        f"draws, shared prefixes once; {unshared / GIB:.2f} GiB without sharing",
    )


def _rates(sized: _Sized, demand: _Demand, replicas: int) -> list[Figure]:
    """Requests/s that all replicas serve within the means of the limits, and one decode step at the peak."""
    timing = sized.timing
    fast, slow = timing.factors
    best = sized.best.rate * replicas
    here = capacity.at_rate(timing, demand.mean, sized.bounds, demand.peak / replicas) or sized.best
    step = timing.estimate(decode(max(1.0, here.rows), demand.mean.context))
    known = timing.grid is not None
    return [
        Figure(
            metric="requests_per_s", unit="req/s", low=best / slow, value=best if known else None, high=best / fast,
            basis=timing.basis, source=timing.source,
        ),
        Figure(
            metric="decode_step", unit="ms", low=step.low * 1e3, value=step.value * 1e3 if known else None,
            high=step.high * 1e3, basis=timing.basis, source=timing.source,
        ),
    ]  # fmt: skip


def _cost_order(choice: Choice, asked: Constraints) -> tuple[float, float]:
    if choice.cost_per_hour is not None:
        return 0.0, choice.cost_per_hour
    return 1.0, float(choice.gpus * choice.usable)


def _summary(profile: BusinessProfile, model: ModelSpec, demand: _Demand) -> dict[str, Any]:
    return {
        "parameters": model.parameters,
        "active_parameters": round(model.active_parameters),
        "kv_bytes_per_token": memory.kv_per_token(model, "bfloat16"),
        "rate": profile.arrivals.rate,
        "peak": demand.peak,
        "prompt_tokens": demand.mean.prompt,
        "cached_tokens": demand.mean.cached,
        "output_tokens": demand.mean.output,
        "longest_tokens": demand.longest,
        "e2el_s": demand.e2el_s,
        "slo": msgspec.to_builtins(profile.slo),
    }
