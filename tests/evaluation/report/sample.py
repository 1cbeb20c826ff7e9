"""Results as a run leaves them: records of a simulated server, judged by the package's own definitions."""

from __future__ import annotations

import math

import numpy as np

from evaluation.metrics import definitions
from evaluation.metrics.goodput import good, judge, together
from evaluation.metrics.quantiles import summarize
from evaluation.quality.results import Figure, GateResult, QualityResult, TaskResult
from evaluation.schema import (
    Capacity,
    Concurrency,
    Counts,
    DatasetInfo,
    Endpoint,
    Finding,
    Health,
    LevelResult,
    Objective,
    Prefix,
    RequestRecord,
    ResultDoc,
    RunSpec,
    Search,
    Synthetic,
    Window,
)

SLO = [
    Objective(metric="e2el", quantile=0.95, limit_ms=2_000),
    Objective(metric="ttft", quantile=0.95, limit_ms=800),
    Objective(metric="tpot", quantile=0.95, limit_ms=60),
]
MS = 1_000_000
SERVERS = 8  # requests that the simulated server works on at once


def records(
    rate: float, n: int, seed: int, *, level: int = 0, slower: float = 1.0, fail: float = 0.0
) -> list[RequestRecord]:
    """Poisson arrivals at a server that works on SERVERS requests: prefill 80 ms, then 40 tokens of 20 ms."""
    rng = np.random.default_rng(seed)
    free = [0.0] * SERVERS
    made, now = [], 0.0
    for index in range(n):
        now += rng.exponential(1 / rate)
        slot = min(range(SERVERS), key=lambda i: free[i])
        begin = max(now, free[slot])
        tokens = int(rng.integers(20, 60))
        gaps = rng.gamma(20, 0.001, tokens) * slower
        first = begin + rng.gamma(16, 0.005) * slower
        times = first + np.concatenate([[0.0], np.cumsum(gaps[1:])])
        free[slot] = float(times[-1])
        lag = float(rng.exponential(0.0004))
        broken = rng.random() < fail
        made.append(
            RequestRecord(
                index=index,
                level=level,
                intended_ns=int(now * 1e9),
                sent_ns=int((now + lag) * 1e9),
                first_ns=int(times[0] * 1e9) if not broken else None,
                chunks=[] if broken else [(int(t * 1e9), 1) for t in times],
                end_ns=int(times[-1] * 1e9),
                status="error" if broken else "ok",
                error="http_503: <script>alert('x')</script>" if broken else "",
                prompt_tokens=int(rng.integers(300, 700)),
                cached_tokens=0,
                output_tokens=None if broken else tokens,
                finish_reason=None if broken else "length",
            )
        )
    return made


def level_of(
    found: list[RequestRecord], index: int, rate: float, slo: list[Objective], *, keep_up: bool = True
) -> LevelResult:
    """As a runner would sum it up, the whole run being the window."""
    seconds = (found[-1].intended_ns - found[0].intended_ns) / 1e9
    done = [r for r in found if r.end_ns is not None and r.end_ns <= found[-1].intended_ns]
    objectives = [judge(found, one) for one in slo]
    overloaded = not keep_up or len(done) < 0.93 * len(found)
    decision = "fail" if overloaded else together([one.decision for one in objectives])
    metrics = {}
    for name, unit in definitions.UNITS.items():
        values = definitions.values(name, found)
        if len(values):
            metrics[name] = summarize(values, unit)
    ticks = range(math.ceil(seconds))
    start = found[0].intended_ns
    second = [int((r.intended_ns - start) / 1e9) for r in found]
    ended = [int(((r.end_ns or 0) - start) / 1e9) for r in found]
    ttft = [[definitions.ttft(r, "intended") for r, s in zip(found, second, strict=True) if s == t] for t in ticks]
    return LevelResult(
        index=index,
        rate=rate,
        verdict="overloaded" if overloaded else "steady",
        seed=index + 7,
        window=Window(start_ns=start, end_ns=found[-1].intended_ns, seconds=seconds, truncated_s=4.0),
        counts=Counts(
            offered=len(found),
            done=len(done),
            ok=sum(r.status == "ok" for r in found),
            error=sum(r.status == "error" for r in found),
        ),
        offered_rate=len(found) / seconds,
        done_rate=len(done) / seconds,
        goodput=good(found, slo) / seconds,
        attainment=good(found, slo) / len(found),
        metrics=metrics,
        objectives=objectives,
        decision=decision,
        checks={"balance": 1 - len(done) / len(found), "little": 0.011, "in_flight_slope": 0.002},
        reasons=["in_flight_slope", "balance"] if overloaded else [],
        health=Health(pacing_p50_ms=0.31, pacing_p99_ms=1.9, loop_p99_ms=1.2, cpu_share=0.18, null_server_rate=4_210),
        prefix=Prefix(expected=0.012, measured=0.014, source="usage"),
        series={
            "t_s": [float(t) for t in ticks],
            "offered": [float(second.count(t)) for t in ticks],
            "done": [float(ended.count(t)) for t in ticks],
            "in_flight": [float(sum(s <= t for s in second) - sum(e <= t for e in ended)) for t in ticks],
            "ttft_ms": [float(np.mean([v for v in values if v is not None])) if values else None for values in ttft],
        },
        findings=[
            Finding(
                code="queue_build_up",
                severity="info",
                cause="The queue grew for the whole level: more was offered than the server finished.",
                remedy="Add a replica, or stay below the certified rate.",
                evidence={"offered_rate": len(found) / seconds, "done_rate": len(done) / seconds},
                level=index,
            )
        ]
        if overloaded
        else [],
    )


def search_result(n: int = 400, slower: float = 1.0, seed: int = 1) -> tuple[ResultDoc, list[RequestRecord]]:
    """A search from 0.5 requests/s to overload, with its records."""
    rates = [0.5, 1, 2, 4, 8, 16, 11.3, 6, 7, 6.5]
    levels, everything = [], []
    for index, rate in enumerate(rates):
        found = records(rate, n, seed + 100 * index, level=index, slower=slower, fail=0.004 if rate > 6 else 0)
        everything += found
        levels.append(level_of(found, index, rate, SLO))
    passing = [level.rate for level in levels if level.decision == "pass" and level.rate]
    failing = [level.rate for level in levels if level.decision == "fail" and level.rate]
    result = ResultDoc(
        id="0199-search",
        kind="search",
        state="complete",
        spec=RunSpec(
            name="Customer chat on two replicas",
            endpoint=Endpoint(url="http://127.0.0.1:8000", model="smollm2-135m-instruct", api_key_env="TURSIOPS_KEY"),
            dataset=Synthetic(),
            load=Search(low=0.5),
            slo=SLO,
            scenario="customer_chat",
        ),
        seed=4_021_993_117,
        started_at="2026-11-30T04:40:00Z",
        ended_at="2026-11-30T05:12:41Z",
        environment={
            "engine": "tursiops native 0.9",
            "device": "cpu, 2 threads",
            "commit": "283e6c0",
            "python": "3.11.7",
        },
        dataset=DatasetInfo(
            sha256="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            requests=4_000,
            lengths={"prompt": summarize([float(x) for x in range(300, 700)], "tokens")},
            expected_hit_rate=0.012,
        ),
        levels=levels,
        capacity=Capacity(
            low=max(passing, default=None),
            high=min(failing, default=None),
            decision="certified" if passing and failing else "undetermined",
            levels=len(levels),
        ),
        score={"scenario": "customer_chat", "value": 0.83, "weights": {"ttft": 0.6, "e2el": 0.4}},
        verdict="pass" if passing else "undetermined",
        findings=[
            Finding(
                code="early_stops",
                severity="warning",
                cause="12 % of the answers ended before the length that was asked for.",
                remedy="Set ignore_eos in the endpoint's extra_body, or plan with the lengths that were measured.",
                evidence={"share": 0.12, "asked_tokens": 64, "median_tokens": 39},
            )
        ],
    )
    return result, everything


def closed_loop_result() -> ResultDoc:
    """One level at a fixed concurrency, without objectives."""
    level = level_of(records(4, 300, 5), 0, 4, [])
    level.rate, level.concurrency, level.goodput, level.attainment = None, 8, None, None
    level.verdict, level.decision, level.reasons, level.findings = "steady", "undetermined", [], []
    spec = RunSpec(endpoint=Endpoint(url="http://x"), dataset=Synthetic(), load=Concurrency(concurrency=8))
    return ResultDoc(id="closed", kind="load", state="complete", spec=spec, levels=[level])


def quality_result() -> ResultDoc:
    share = Figure(value=0.612, low=0.583, high=0.641, n=1_100, method="clopper_pearson")
    tasks = [
        TaskResult(
            name="arc_easy",
            kind="lm_eval",
            primary="acc",
            figures={"acc_norm": Figure(value=0.55, low=0.52, high=0.58, n=1_100), "acc": share},
            items=1_119,
            measured=1_100,
            errors=19,
            state="incomplete",
            chance=0.25,
        ),
        TaskResult(
            name="wikitext",
            kind="perplexity",
            primary="perplexity",
            figures={
                "perplexity": Figure(value=21.77, low=20.9, high=22.7, unit="perplexity", n=148, method="bootstrap")
            },
            items=148,
            measured=148,
            state="complete",
        ),
    ]
    gates = [
        GateResult(
            name="no regression",
            metric="arc_easy.acc",
            rule="arc_easy.acc >= baseline - 0.01",
            decision="fail",
            blocks=True,
            value=0.612,
            low=0.583,
            high=0.641,
            baseline=0.66,
            right_to_wrong=91,
            wrong_to_right=37,
            p=2.1e-6,
            p_adjusted=4.2e-6,
            n=1_100,
            reason="91 answers became wrong and 37 right",
        ),
        GateResult(name="speed", metric="x.y", rule="x.y >= 1", decision="fail", blocks=False, reason="only told"),
    ]
    return ResultDoc(
        id="q1",
        kind="quality",
        state="complete",
        started_at="2026-11-30T03:00:00Z",
        request={"name": "Nightly quality", "suite": "chat"},
        quality=QualityResult(suite="chat", tasks=tasks, gates=gates),
        verdict="fail",
    )
