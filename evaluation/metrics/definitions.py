"""What each metric is. Version 1 (`schema.DEFINITIONS`); a change of meaning is a new version.

For a request i: t0 = `sent_ns`, tau = `intended_ns`, c_1 … c_k = arrivals of the events that carried at least one token
(content, reasoning or tool-call arguments), n = output tokens by the server's usage.

    TTFT  = c_1 - t0            TTFT* = c_1 - tau
    E2EL  = c_k - t0            E2EL* = c_k - tau           the starred ones are what objectives judge in open loop
    TPOT  = (c_k - c_1) / (n - 1)                           undefined, not 0, for n <= 1
    ITL   = the gap c_j - c_(j-1) split evenly over the tokens of chunk j, one value per token
    ICL   = c_j - c_(j-1), one value per chunk after the first; their sum is E2EL - TTFT

A failed, timed-out or cut request has none of them; it is a miss of every objective and is counted beside the figure.
docs/evaluation.md compares these with the definitions of other tools.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from evaluation.schema import RequestRecord

Array = npt.NDArray[np.float64]
Start = Literal["intended", "actual"]
MS = 1e-6  # of a nanosecond
UNITS = {
    "ttft": "ms",
    "ttft_intended": "ms",
    "e2el": "ms",
    "e2el_intended": "ms",
    "tpot": "ms",
    "itl": "ms",
    "icl": "ms",
    "send_lag": "ms",
    "prompt_tokens": "tokens",
    "output_tokens": "tokens",
    "tokens_per_chunk": "tokens",
}


def _begin(record: RequestRecord, start: Start) -> int | None:
    return record.intended_ns if start == "intended" else record.sent_ns


def ttft(record: RequestRecord, start: Start = "actual") -> float | None:
    """ms to the first token; None where none came. A stream that broke off later still has a first token."""
    begin = _begin(record, start)
    if record.first_ns is None or begin is None:
        return None
    return (record.first_ns - begin) * MS


def e2el(record: RequestRecord, start: Start = "actual") -> float | None:
    """ms to the last token of a request that succeeded."""
    begin = _begin(record, start)
    if record.status != "ok" or begin is None or not record.chunks:
        return None
    return (record.chunks[-1][0] - begin) * MS


def output_tokens(record: RequestRecord) -> int | None:
    """By the server's usage; None where it told none (a count of chunks is no count of tokens)."""
    return record.output_tokens


def tpot(record: RequestRecord) -> float | None:
    """ms per token after the first."""
    tokens = output_tokens(record)
    if record.status != "ok" or record.first_ns is None or tokens is None or tokens <= 1:
        return None
    return (record.chunks[-1][0] - record.first_ns) * MS / (tokens - 1)


def icl(record: RequestRecord) -> list[float]:
    """ms between chunks: k - 1 values for k chunks."""
    times = [time for time, _ in record.chunks]
    return [(after - before) * MS for before, after in itertools.pairwise(times)]


def itl(record: RequestRecord) -> list[float]:
    """ms per token after the first chunk's; sums to E2EL - TTFT as the chunks do."""
    gaps: list[float] = []
    for gap, (_, tokens) in zip(icl(record), record.chunks[1:], strict=True):
        gaps += [gap / tokens] * tokens if tokens > 0 else []
    return gaps


def send_lag(record: RequestRecord) -> float | None:
    """ms that the client itself was late."""
    return None if record.sent_ns is None else (record.sent_ns - record.intended_ns) * MS


def tokens_per_chunk(record: RequestRecord) -> float | None:
    """Acceptance length as a client sees it: tokens after the first chunk / chunks after the first.

    Counts every step, those that accepted nothing too. An engine that joins steps into one chunk raises it: the
    server's own counters are the truth where it has them.
    """
    tokens = output_tokens(record)
    if record.status != "ok" or tokens is None or len(record.chunks) < 2:
        return None
    first = record.chunks[0][1]
    return (tokens - first) / (len(record.chunks) - 1)


def values(name: str, records: Iterable[RequestRecord]) -> Array:
    """One metric of all successful requests that have it, in the order of the records. Raises KeyError by name."""
    ok = [record for record in records if record.status == "ok"]
    found: Sequence[float | None]
    match name:
        case "ttft" | "ttft_intended":
            found = [ttft(record, _start_of(name)) for record in ok]
        case "e2el" | "e2el_intended":
            found = [e2el(record, _start_of(name)) for record in ok]
        case "tpot":
            found = [tpot(record) for record in ok]
        case "itl":
            found = [gap for record in ok for gap in itl(record)]
        case "icl":
            found = [gap for record in ok for gap in icl(record)]
        case "send_lag":
            found = [send_lag(record) for record in ok]
        case "prompt_tokens":
            found = [record.prompt_tokens for record in ok]
        case "output_tokens":
            found = [output_tokens(record) for record in ok]
        case "tokens_per_chunk":
            found = [tokens_per_chunk(record) for record in ok]
        case _:
            raise KeyError(f"unknown metric '{name}'; known: {', '.join(UNITS)}")
    return np.array([value for value in found if value is not None], dtype=np.float64)


def _start_of(name: str) -> Start:
    return "intended" if name.endswith("_intended") else "actual"
