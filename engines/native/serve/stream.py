"""One request on its way through the core, as the API process sees it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from engines.native.ipc import Ending, PromptLogprobs, TopTokens
from engines.native.request import SamplingParams


@dataclass(slots=True, eq=False)
class Stream:
    """Tokens that came from the core and were not taken yet. Lives from `Engine.submit` to `Engine.close`.

    Its size is bounded by max_tokens: a client that reads slowly makes its own stream longer, nobody else's.
    `arrived` is shared by the streams of one HTTP request. Times are time.monotonic(), s.
    """

    id: int
    prompt_ids: list[int]
    params: SamplingParams
    arrived: asyncio.Event
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)  # beside tokens, where asked for
    top: list[TopTokens | None] = field(default_factory=list)  # beside tokens, where asked for
    sources: list[int] = field(default_factory=list)  # beside tokens, −1 = drawn plainly; empty where all of them are
    prompt_logprobs: list[PromptLogprobs] = field(default_factory=list)
    ending: Ending | None = None
    cached_tokens: int = 0
    generated: int = 0  # tokens that the core drew
    created_at: float = field(default_factory=time.monotonic)
    first_at: float = 0.0
    last_at: float = 0.0

    def feed(self, token: int, logprob: float | None, top: TopTokens | None, now: float, source: int = -1) -> None:
        """source: number of the proposer that guessed it."""
        if not self.generated:
            self.first_at = now
        self.generated += 1
        self.last_at = now
        if source >= 0 and not self.sources:
            self.sources = [-1] * len(self.tokens)
        if source >= 0 or self.sources:
            self.sources.append(source)
        self.tokens.append(token)
        if logprob is not None:
            self.logprobs.append(logprob)
            self.top.append(top)
        self.arrived.set()

    def end(self, ending: Ending) -> None:
        if self.ending is None:
            self.ending = ending
            self.arrived.set()

    def take(self) -> tuple[list[int], list[float], list[TopTokens | None], list[int]]:
        """All tokens that wait, with their logprobs, the most likely ones and their sources."""
        taken = (self.tokens, self.logprobs, self.top, self.sources)
        self.tokens, self.logprobs, self.top, self.sources = [], [], [], []
        return taken
