"""The client's verdict of itself: what it was late by may not pass for the server's latency."""

from __future__ import annotations

import numpy as np

from evaluation.client.messages import Vitals
from evaluation.schema import Health

PACING_P99_MS = 5.0  # or a hundredth of the median TTFT, whichever is more
LOOP_P99_MS = 10.0
CPU_SHARE = 0.9  # of one core, in the busiest process: beyond, queues form in the client
FILES_SHARE = 0.9  # of the limit of open files


def judge(lags_ms: list[float], ttft_ms: list[float], vitals: list[Vitals]) -> Health:
    """`lags_ms`: sent minus intended of each request; `ttft_ms` from the actual start. Reasons are schema codes."""
    pacing = _quantile(lags_ms, 0.99)
    loop_lags = [lag for vital in vitals for lag in vital.loop_lags_ms]
    loop = _quantile(loop_lags, 0.99)
    shares = [vital.cpu_s / vital.wall_s for vital in vitals if vital.wall_s > 0]
    wall_s = max((vital.wall_s for vital in vitals), default=0.0)
    bound = max(PACING_P99_MS, 0.01 * (_quantile(ttft_ms, 0.5) or 0.0))
    reasons = []
    if pacing is not None and pacing > bound:
        reasons.append("pacing_lag")
    if loop is not None and loop > LOOP_P99_MS:
        reasons.append("loop_lag")
    if shares and max(shares) > CPU_SHARE:
        reasons.append("cpu")
    if any(vital.files_open > FILES_SHARE * vital.files_limit for vital in vitals):
        reasons.append("file_descriptors")
    return Health(
        healthy=not reasons,
        reasons=reasons,
        pacing_p50_ms=_quantile(lags_ms, 0.5),
        pacing_p99_ms=pacing,
        loop_p99_ms=loop,
        cpu_share=max(shares, default=None),
        processes=len(vitals),
        chunks_per_s=sum(vital.chunks for vital in vitals) / wall_s if wall_s > 0 else None,
    )


def _quantile(values: list[float], quantile: float) -> float | None:
    return float(np.quantile(values, quantile, method="inverted_cdf")) if values else None
