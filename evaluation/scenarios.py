"""Kinds of traffic with their data set, their objectives, and what counts how much in their score.

A score is a summary of how far the objectives are met. It stands beside the verdict and never instead of it: it names
the verdict, and is marked as not counting where that is no pass.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from evaluation.report.reading import objective_value, shown_level
from evaluation.schema import Concurrency, Latency, Objective, ResultDoc, RunSpec


class Scenario(Struct, kw_only=True, frozen=True):
    """`weights` sum to 1; keys are metrics of the objectives, and "attainment"."""

    title: str
    dataset: dict[str, Any]
    slo: list[Objective]
    weights: dict[str, float]


def _p99(metric: Latency, limit_ms: float) -> Objective:
    return Objective(metric=metric, limit_ms=limit_ms, quantile=0.99)


def _lognormal(mean: float, spread: float = 0.5, high: int | None = None) -> dict[str, Any]:
    return {"distribution": "lognormal", "mean": mean, "stdev": spread * mean, "high": high}


SCENARIOS = {
    "customer_chat": Scenario(
        title="Customer-service chat: short turns after a fixed instruction; people wait for the first word",
        dataset={"kind": "shared_prefix", "prefix_tokens": 600, "prompt": _lognormal(120, high=1000),
                 "output": _lognormal(150, high=800)},
        slo=[_p99("ttft", 1000), _p99("e2el", 10_000)],
        weights={"ttft": 0.5, "e2el": 0.3, "attainment": 0.2},
    ),
    "long_generation": Scenario(
        title="Long generation: reports and stories; the pace of words counts",
        dataset={"kind": "synthetic", "prompt": _lognormal(300, high=2000), "output": _lognormal(1200, high=4000)},
        slo=[_p99("tpot", 60), _p99("e2el", 120_000)],
        weights={"tpot": 0.5, "e2el": 0.3, "attainment": 0.2},
    ),
    "rag": Scenario(
        title="Retrieval: long prompts of found passages, short answers",
        dataset={"kind": "shared_prefix", "prefix_tokens": 300, "prompt": _lognormal(3000, high=8000),
                 "output": _lognormal(200, high=800)},
        slo=[_p99("ttft", 3000), _p99("e2el", 15_000)],
        weights={"ttft": 0.4, "e2el": 0.4, "attainment": 0.2},
    ),
    "code": Scenario(
        title="Code completion: the editor waits",
        dataset={"kind": "shared_prefix", "prefix_tokens": 200, "groups": 8, "prompt": _lognormal(1500, high=6000),
                 "output": _lognormal(60, high=300)},
        slo=[_p99("ttft", 500), _p99("e2el", 2500)],
        weights={"ttft": 0.3, "e2el": 0.5, "attainment": 0.2},
    ),
    "batch": Scenario(
        title="Batch: nobody waits; what counts is how much is done",
        dataset={"kind": "synthetic", "prompt": _lognormal(800, high=4000), "output": _lognormal(300, high=2000)},
        slo=[_p99("e2el", 300_000)],
        weights={"e2el": 0.2, "attainment": 0.8},
    ),
}  # fmt: skip


def dataset(name: str) -> dict[str, Any]:
    """As a spec writes it; of no scenario: 512 tokens in, 128 out."""
    return dict(SCENARIOS[name].dataset) if name else {"kind": "synthetic"}


def objectives(spec: RunSpec) -> list[Objective]:
    """The spec's own, else its scenario's. In a closed loop latencies count from the actual start."""
    found = spec.slo or (SCENARIOS[spec.scenario].slo if spec.scenario else [])
    if isinstance(spec.load, Concurrency):
        return [msgspec.structs.replace(one, start="actual") for one in found]
    return list(found)


def score(spec: RunSpec, result: ResultDoc) -> dict[str, Any]:
    """0 … 100 at the best level: each weight times how far its limit is met. Empty without a scenario or a level."""
    level = shown_level(result)
    if not spec.scenario or level is None:
        return {}
    scenario = SCENARIOS[spec.scenario]
    parts: dict[str, Any] = {}
    total = 0.0
    for objective in level.objectives:
        weight = scenario.weights.get(objective.metric, 0.0)
        seen = objective_value(objective, level)
        share = min(1.0, objective.limit_ms / seen) if seen else 0.0
        parts[objective.metric] = {"weight": weight, "limit_ms": objective.limit_ms, "seen_ms": seen, "share": share}
        total += weight * share
    attained = level.attainment or 0.0
    parts["attainment"] = {"weight": scenario.weights["attainment"], "share": attained}
    total += scenario.weights["attainment"] * attained
    return {
        "scenario": spec.scenario,
        "value": round(100 * total, 1),
        "weights": scenario.weights,
        "parts": parts,
        "level": level.index,
        "rate": level.rate,
        "verdict": result.verdict,
        "counts": result.verdict == "pass" and level.decision == "pass",
    }
