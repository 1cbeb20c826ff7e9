"""A server's latencies as a law: what a measured figure must be can be computed, not guessed.

Requests wait first come, first served for one of `slots`; one that has a slot gets its first token after the prefill
time and one more every `itl_ms`, and keeps the slot to its last. `replay` computes what `servers.LawServer` does.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

Failure = Literal["reset", "cut", "invalid_sse", "http_500", "stream_error", "no_usage", "early_stop", "hang"]
Positive = Annotated[int, Meta(ge=1)]


class Law(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    ttft_ms: float = 20.0  # of a request that does not wait
    prompt_token_ms: float = 0.0  # added for each prompt token that is not cached
    itl_ms: float = 5.0  # between two tokens
    slots: Positive | None = None  # requests served at once; null: all
    output_tokens: Positive = 20  # where the request asks for none
    chunk_tokens: Positive = 1  # tokens of an event
    template_tokens: int = 0  # that the chat template adds to the prompt's words
    cache_tokens: int = 0  # size of a prefix cache; 0: none
    block_tokens: Positive = 16
    stall_at_s: float | None = None  # after the first request: the whole server stands still …
    stall_s: float = 0.0  # … for so long
    failure: Failure | None = None
    failure_every: Positive = 1  # the last of every so many requests fails

    def prefill_ns(self, computed_tokens: int) -> int:
        return int((self.ttft_ms + self.prompt_token_ms * computed_tokens) * 1e6)

    def decode_ns(self, output_tokens: int) -> int:
        """From the first event to the last."""
        return int(((output_tokens - 1) // self.chunk_tokens) * self.chunk_tokens * self.itl_ms * 1e6)

    def capacity(self, prompt_tokens: int, output_tokens: int) -> float | None:
        """Requests/s beyond which the queue grows without bound; None without slots. For requests all alike."""
        if self.slots is None:
            return None
        return self.slots * 1e9 / (self.prefill_ns(prompt_tokens) + self.decode_ns(output_tokens))


class Queue:
    """First come, first served. Times are those of the server's own clock, which stands still in a stall."""

    def __init__(self, slots: int | None) -> None:
        self._free = [0] * slots if slots is not None else None

    def admit(self, now: int, service_ns: int) -> int:
        """When the service begins of a request that comes `now`; in order of arrival."""
        if self._free is None:
            return now
        begin = max(now, self._free[0])
        heapq.heapreplace(self._free, begin + service_ns)
        return begin


class Answer(Struct, frozen=True):
    """Times after the schedule's zero, in seconds."""

    first_s: float
    last_s: float


def replay(law: Law, arrivals_s: Sequence[float], prompt_tokens: int, output_tokens: int) -> list[Answer]:
    """What the law makes of requests all alike, without a cache. arrivals_s: rising."""
    queue = Queue(law.slots)
    prefill, decode = law.prefill_ns(prompt_tokens), law.decode_ns(output_tokens)
    zero = arrivals_s[0] if arrivals_s else 0.0
    answers = []
    for arrival in arrivals_s:
        begin = queue.admit(int(_own_clock(law, arrival, zero) * 1e9), prefill + decode)
        first = _real_clock(law, (begin + prefill) / 1e9, zero)
        answers.append(Answer(first, _real_clock(law, (begin + prefill + decode) / 1e9, zero)))
    return answers


def _own_clock(law: Law, real_s: float, zero_s: float) -> float:
    if law.stall_at_s is None or real_s <= zero_s + law.stall_at_s:
        return real_s
    return max(zero_s + law.stall_at_s, real_s - law.stall_s)


def _real_clock(law: Law, own_s: float, zero_s: float) -> float:
    if law.stall_at_s is None or own_s <= zero_s + law.stall_at_s:
        return own_s
    return own_s + law.stall_s
