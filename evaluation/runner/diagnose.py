"""Why a level's figures are as they are: rules from evidence to cause and remedy. The codes are stable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from evaluation.metrics import definitions
from evaluation.metrics.goodput import FAILED, FAILED_SHARE
from evaluation.metrics.stats import least_n
from evaluation.schema import Finding, LevelResult, Prefix, RequestRecord

PREFIX_POINTS = 0.05  # expected and measured may differ by so much
UNVERIFIED_POINTS = 0.3  # where the tokens were estimated, and the chat template is not known
SHORT = 0.9  # of the planned output
SHORT_SHARE = 0.05  # of requests that may stop early
LENGTH_POINTS = 0.05
KV_FULL = 0.97
COLD = 2.0  # x the settled median TTFT
SERVER_GAP_MS, SERVER_GAP = 5.0, 0.2  # client's mean TTFT over the server's: whichever is more

# The text that begins a record's error → what to do. Other codes fall back to the last.
REMEDIES = {
    "connection_refused": "Nothing listens there: start the endpoint, or correct its url.",
    "unknown_host": "The host has no address: correct the url.",
    "connection_reset": "The server closes connections: read its log of that time, and its limits of connections.",
    "http_401": "The key is refused: set the endpoint's api_key_env to the variable that holds a valid one.",
    "http_404": "The path or the model is unknown: correct url or model.",
    "http_429": "The server limits this client: raise its limits, or lower the rate.",
    "http_503": "The server refuses work that it can't queue: lower the rate, or add instances.",
    "timeout": "Answers take longer than timeout_s: lower the rate, or raise endpoint.timeout_s.",
    "invalid_sse": "The stream is not what the API promises: compare the server's version with its documentation.",
    "": "See the errors of the requests (requests.jsonl), and the server's log of that time.",
}


def diagnose(level: LevelResult, records: Sequence[RequestRecord]) -> list[Finding]:
    """All findings of one level, the gravest first. records: of the whole level, the warm-up among them."""
    window = level.window
    chosen = [one for one in records if window and window.start_ns <= one.intended_ns < window.end_ns]
    found = [finding for rule in RULES for finding in [rule(level, chosen)] if finding is not None]
    if (cold := _cold_start(level, records, chosen)) is not None:
        found.append(cold)
    for finding in found:
        finding.level = level.index
    order = {"error": 0, "warning": 1, "info": 2}
    return sorted(found, key=lambda finding: order[finding.severity])


def measured_prefix(
    expected: float | None, records: Sequence[RequestRecord], server: dict[str, float], *, verified: bool = True
) -> Prefix:
    """Share of prompt tokens from the cache: by each answer's usage, else by the engine's counters."""
    told = [one for one in records if one.cached_tokens is not None and one.prompt_tokens]
    if told:
        share = sum(one.cached_tokens or 0 for one in told) / sum(one.prompt_tokens or 0 for one in told)
        return Prefix(expected=expected, measured=share, source="usage", verified=verified)
    if server.get("prefix_query_tokens"):
        share = server.get("prefix_hit_tokens", 0.0) / server["prefix_query_tokens"]
        return Prefix(expected=expected, measured=share, source="metrics", verified=verified)
    return Prefix(expected=expected, verified=verified)


Severity = Literal["info", "warning", "error"]


def _finding(code: str, severity: Severity, cause: str, remedy: str, **evidence: Any) -> Finding:
    return Finding(code=code, severity=severity, cause=cause, remedy=remedy, evidence=evidence)


def client_bound(level: LevelResult, _: Sequence[RequestRecord]) -> Finding | None:
    health = level.health
    if health.healthy:
        return None
    return _finding(
        "client_bound",
        "error",
        "The client itself was late, so the latencies are not the server's: the level is invalid.",
        "Use more processes, a machine of its own for the client, or a lower rate.",
        reasons=health.reasons,
        pacing_p99_ms=health.pacing_p99_ms,
        loop_p99_ms=health.loop_p99_ms,
        cpu_share=health.cpu_share,
        processes=health.processes,
    )


def cache_inflated(level: LevelResult, _: Sequence[RequestRecord]) -> Finding | None:
    expected, measured = level.prefix.expected, level.prefix.measured
    allowed = PREFIX_POINTS if level.prefix.verified else UNVERIFIED_POINTS
    if expected is None or measured is None or abs(measured - expected) <= allowed:
        return None
    evidence = {"expected": expected, "measured": measured, "allowed": allowed, "source": level.prefix.source}
    if measured > expected:
        return _finding(
            "cache_inflated",
            "error",
            "The prefix cache answered more of the prompts than the data set repeats: they were sent before.",
            "Run with a fresh seed (leave `seed` out), or reset the server's prefix cache between two equal runs.",
            **evidence,
        )
    return _finding(
        "cache_below_expected",
        "warning",
        "The prefix cache answered less of the prompts than the data set repeats.",
        "Check that prefix caching is on, that the cache holds the prefixes, and that requests with the same prefix "
        "reach the same instance.",
        **evidence,
    )


def queue_build_up(level: LevelResult, _: Sequence[RequestRecord]) -> Finding | None:
    if level.verdict != "overloaded":
        return None
    return _finding(
        "queue_build_up",
        "error",
        "More requests come than are served, so the queue grows as long as the level lasts: its percentiles are "
        "those of the moment it was stopped, not of the rate.",
        "Offer less than the rate that was served, or add instances or slots.",
        offered_rate=level.offered_rate,
        done_rate=level.done_rate,
        in_flight_per_s=level.checks.get("in_flight_slope"),
        ttft_ms_per_s=level.checks.get("ttft_slope_ms"),
        in_flight_end=level.counts.in_flight_end,
        server_waiting_peak=level.server.get("waiting_peak"),
    )


def error_storm(level: LevelResult, chosen: Sequence[RequestRecord]) -> Finding | None:
    failed = [one for one in chosen if one.status in FAILED]
    if not chosen or len(failed) <= FAILED_SHARE * len(chosen):
        return None
    codes = Counter(one.error.partition(":")[0] or one.status for one in failed)
    main = codes.most_common(1)[0][0]
    every = len(failed) == len(chosen)
    cause = "Every request failed" if every else "Requests failed"
    return _finding(
        "endpoint_down" if every and main in ("connection_refused", "unknown_host") else "error_storm",
        "error",
        f"{cause}, most of them with {main}. They count as misses and have no latency.",
        REMEDIES.get(main, REMEDIES[""]),
        failed=len(failed),
        of=len(chosen),
        codes=dict(codes.most_common(5)),
        example=next(one.error for one in failed if (one.error.partition(":")[0] or one.status) == main)[:300],
    )


def preemption(level: LevelResult, _: Sequence[RequestRecord]) -> Finding | None:
    count = level.server.get("preemptions", 0)
    if not count:
        return None
    return _finding(
        "preemption",
        "warning",
        "The engine took requests off and computed them again, as its KV cache had no room for all that ran.",
        "Give the KV cache more memory, allow fewer requests at once, or shorten the context.",
        preemptions=count,
        per_request=count / max(1, level.counts.done),
        kv_share_peak=level.server.get("kv_share_peak"),
    )


def kv_full(level: LevelResult, _: Sequence[RequestRecord]) -> Finding | None:
    share = level.server.get("kv_share_peak")
    if share is None or share < KV_FULL or not level.server.get("waiting_peak"):
        return None
    return _finding(
        "kv_full",
        "warning",
        "The KV cache was full while requests waited: memory bounds how many run at once, not compute.",
        "Quantize the KV cache, give it more memory, share prefixes, or add instances.",
        kv_share_peak=share,
        waiting_peak=level.server["waiting_peak"],
        running_peak=level.server.get("running_peak"),
    )


def early_stops(level: LevelResult, chosen: Sequence[RequestRecord]) -> Finding | None:
    told = [one for one in chosen if one.status == "ok" and one.output_tokens is not None]
    planned = [one for one in told if one.planned_output_tokens]
    short = [one for one in planned if (one.output_tokens or 0) < SHORT * (one.planned_output_tokens or 0)]
    if not planned or len(short) <= SHORT_SHARE * len(planned):
        return None
    return _finding(
        "early_stops",
        "warning",
        "Answers ended before the length that was asked for: the run generated less than its plan.",
        'Where lengths must hold, set extra_body {"ignore_eos": true}; else plan by the model\'s own lengths.',
        short=len(short),
        of=len(planned),
        planned_mean=float(np.mean([one.planned_output_tokens for one in planned])),
        measured_mean=float(np.mean([one.output_tokens for one in planned])),
        reasons=dict(Counter(one.finish_reason or "none" for one in short)),
    )


def no_usage(level: LevelResult, chosen: Sequence[RequestRecord]) -> Finding | None:
    ok = [one for one in chosen if one.status == "ok"]
    without = sum(one.output_tokens is None for one in ok)
    if not without:
        return None
    return _finding(
        "no_usage",
        "warning",
        "The server told no usage, so tokens are unknown: TPOT and tokens per second are missing, not guessed.",
        "Use a server that answers stream_options.include_usage.",
        without=without,
        of=len(ok),
    )


def prompt_lengths(level: LevelResult, chosen: Sequence[RequestRecord]) -> Finding | None:
    both = [one for one in chosen if one.planned_prompt_tokens and one.prompt_tokens]
    if not both:
        return None
    planned = float(np.mean([one.planned_prompt_tokens for one in both]))
    counted = float(np.mean([one.prompt_tokens for one in both]))
    if abs(counted - planned) <= LENGTH_POINTS * planned:
        return None
    return _finding(
        "prompt_length_differs",
        "warning",
        "The server counts other prompt lengths than were planned: the chat template adds to them, or its tokenizer "
        "is another.",
        "Set dataset.after_template, and endpoint.tokenizer to the model's own.",
        planned_mean=planned,
        counted_mean=counted,
    )


def chunks_are_not_tokens(level: LevelResult, chosen: Sequence[RequestRecord]) -> Finding | None:
    told = [one for one in chosen if one.status == "ok" and one.output_tokens and len(one.chunks) > 1]
    chunks, tokens = sum(len(one.chunks) for one in told), sum(one.output_tokens or 0 for one in told)
    if not told or abs(tokens / chunks - 1) <= LENGTH_POINTS:
        return None
    return _finding(
        "chunks_are_not_tokens",
        "info",
        "A chunk carries another number of tokens than one: gaps between chunks are ICL; ITL and TPOT are per token "
        "of the usage.",
        "None is needed; a tool that divides by chunks reports another TPOT.",
        tokens_per_chunk=tokens / chunks,
    )


def ttft_parts(level: LevelResult, chosen: Sequence[RequestRecord]) -> Finding | None:
    """Client's TTFT against the server's own, and where the difference lies: pacing, connection, gateway, rest."""
    begun = [one for one in chosen if one.status == "ok" and one.first_ns is not None and one.sent_ns is not None]
    count = level.server.get("ttft_count")
    if not begun or not count:
        return None
    client = float(np.mean([definitions.ttft(one) or 0.0 for one in begun]))
    server = 1000 * level.server["ttft_s_sum"] / count
    connect = float(np.mean([(one.connect_ns or 0) * definitions.MS for one in begun]))
    gateway = float(np.mean([one.server_ms.get("overhead", 0.0) + one.server_ms.get("queue", 0.0) for one in begun]))
    gap = client - server
    large = gap > max(SERVER_GAP_MS, SERVER_GAP * client)
    queue_count = level.server.get("queue_count")
    return _finding(
        "ttft_parts",
        "warning" if large else "info",
        "The client sees its first token later than the server says it was made."
        if large
        else "Client and server agree on the time to the first token.",
        "Look at the parts: a new connection per request, a gateway's queue, or the network and the server's own "
        "input queue in the rest."
        if large
        else "None is needed.",
        client_ms=client,
        server_ms=server,
        difference_ms=gap,
        pacing_ms=float(np.mean([definitions.send_lag(one) or 0.0 for one in begun])),
        connect_ms=connect,
        gateway_ms=gateway,
        rest_ms=gap - connect - gateway,
        server_queue_ms=1000 * level.server["queue_s_sum"] / queue_count if queue_count else None,
    )


def sample_too_small(level: LevelResult, _: Sequence[RequestRecord]) -> Finding | None:
    short = [one for one in level.objectives if one.decision == "undetermined" and one.n < least_n(one.quantile)]
    if not short:
        return None
    worst = max(short, key=lambda one: one.quantile)
    return _finding(
        "sample_too_small",
        "warning",
        "Fewer requests than the objective's quantile needs: nothing can be certified, however good they were.",
        "Raise min_requests, or let levels last longer (steady.max_s).",
        n=worst.n,
        needed=least_n(worst.quantile),
        quantile=worst.quantile,
    )


def not_steady(level: LevelResult, _: Sequence[RequestRecord]) -> Finding | None:
    if level.verdict != "undetermined":
        return None
    return _finding(
        "not_steady",
        "warning",
        "The level ended before it was steady: its percentiles say nothing of the rate.",
        "Let levels last longer (steady.max_s), or look for what disturbs the server.",
        reasons=level.reasons,
        seconds=level.window.seconds if level.window else 0.0,
    )


def _cold_start(
    level: LevelResult, records: Sequence[RequestRecord], chosen: Sequence[RequestRecord]
) -> Finding | None:
    """The level's first answers against the settled ones."""
    first = definitions.values("ttft", sorted(records, key=lambda one: one.intended_ns)[:5])
    settled = definitions.values("ttft", chosen)
    if level.verdict != "steady" or len(first) < 3 or len(settled) < 30:
        return None
    before, after = float(np.median(first)), float(np.median(settled))
    if before <= COLD * float(np.quantile(settled, 0.95)):
        return None
    return _finding(
        "cold_start",
        "info",
        "The first answers of the level took longer than the settled ones: caches, graphs or connections were cold. "
        "They are not in the window.",
        "None is needed; a longer warm_up_s saves the search time.",
        first_ttft_ms=before,
        settled_ttft_ms=after,
        truncated_s=level.window.truncated_s if level.window else None,
    )


RULES: list[Callable[[LevelResult, Sequence[RequestRecord]], Finding | None]] = [
    client_bound,
    cache_inflated,
    queue_build_up,
    error_storm,
    preemption,
    kv_full,
    early_stops,
    no_usage,
    prompt_lengths,
    chunks_are_not_tokens,
    ttft_parts,
    sample_too_small,
    not_steady,
]
