"""A request as the core knows it: what was asked, how far it is, how it ended.

Plain dataclasses, so that the offline path needs no msgspec; msgspec encodes them as they are.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engines.native.grammar.spec import Grammar

if TYPE_CHECKING:
    from engines.native.grammar.matcher import Matcher


class Finish(enum.StrEnum):
    """Why a request ended. `stop` and `length` are successes."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    TIMEOUT = "timeout"
    ERROR = "error"
    REPETITION = "repetition"  # a loop, where the request asked for its detection


class TimeoutLayer(enum.StrEnum):
    """Which limit a request ran into; the value is the error code that its client gets."""

    QUEUE = "queue_timeout"
    FIRST_TOKEN = "first_token_timeout"
    TOTAL = "total_timeout"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds from arrival that a request has in each layer. None = the engine's default, 0 = no limit."""

    queue: float | None = None  # to be begun
    first_token: float | None = None
    total: float | None = None  # to be finished

    def over(self, defaults: Timeouts) -> Timeouts:
        """These, and where one is not given, that of `defaults`."""
        return Timeouts(
            defaults.queue if self.queue is None else self.queue,
            defaults.first_token if self.first_token is None else self.first_token,
            defaults.total if self.total is None else self.total,
        )


NO_TIMEOUTS = Timeouts()
"""Of a request that names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to draw tokens. Built and validated at the door (`engines.native.serve.validate`), trusted afterwards."""

    temperature: float = 1.0  # 0 = greedy
    top_k: int = 0  # 0 = off
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0  # 1 = off
    seed: int = 0  # always set at the door; noise = f(seed, position, token)
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0  # 0 = off
    dry_base: float = 1.75
    dry_allowed_length: int = 2  # tokens that may be repeated freely
    dry_range: int = 0  # newest tokens that are looked at; 0 = all
    dry_breakers: list[int] = field(default_factory=list)  # tokens that no repetition reaches across
    no_repeat_ngram_size: int = 0  # 0 = off
    logit_bias: dict[int, float] = field(default_factory=dict)
    bad_words: list[list[int]] = field(default_factory=list)  # token sequences that may not be completed
    allowed_token_ids: list[int] = field(default_factory=list)  # empty = all
    max_tokens: int = 16
    min_tokens: int = 0
    stop_token_ids: list[int] = field(default_factory=list)  # end with `stop`; EOS included unless ignore_eos
    logprobs: int = -1  # −1 = none; 0 = of the sampled token; k = with the k most likely (≤ 20)
    prompt_logprobs: int = -1
    grammar: Grammar | None = None  # of the answer
    forks: bool = (
        False  # others go on from where it ends: its last, unfilled block stays to be found, and copied by them
    )

    @property
    def adjusts(self) -> bool:
        """Whether logits are changed before temperature and filters (`engines.native.sample.adjust`): what may be drawn
        then depends on each token said before."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
            or self.dry_multiplier > 0
            or bool(self.logit_bias)
            or bool(self.allowed_token_ids)
            or (self.min_tokens > 0 and bool(self.stop_token_ids))
            or self.no_repeat_ngram_size > 0
            or bool(self.bad_words)
            or (self.typical_p < 1 and self.temperature > 0)
        )


MAX_STOP_TOKEN_IDS = 64
"""Width of the scheduler's table of stop ids; the door refuses more."""


@dataclass(slots=True, eq=False)
class Request:
    """One request from arrival to ending. Owned by the scheduler; lives until `Scheduler.settle`.

    token_ids: int32, the prompt; after a preemption the prompt and all tokens drawn so far. While the request has a
    row, the row table holds the longer truth.
    """

    id: int
    token_ids: NDArray[np.int32]
    params: SamplingParams
    prompt_len: int
    priority: int = 0  # lower is served first
    salt: str = ""  # only requests with an equal salt share cached blocks
    tenant: str = ""  # whose share of the engine it uses (`engines.native.tenants`)
    arrived: float = 0.0  # time.monotonic(), s
    queue_deadline: float = math.inf  # to be admitted by then
    first_token_deadline: float = math.inf
    deadline: float = math.inf  # to be finished by then

    sequence: int = 0  # order of arrival; kept over preemptions
    rank: int = 0  # its class; `priority`, until it is promoted (`engines.native.waiting`)
    slot: int = 0  # of its tenant (`engines.native.tenants`)
    row: int = -1  # slot in the runner's tables; −1 while waiting
    blocks: list[int] = field(default_factory=list)  # block table, one reference held on each
    registered: int = 0  # leading blocks that the prefix cache knows
    prefix: int | str = ""  # identity of the registered prefix (BlockPool.register)
    computing: tuple[int | str, bytes] | None = None  # key of the full block that it computes next
    cached_tokens: int = 0  # prompt tokens taken from the prefix cache at the first admission
    started: bool = False  # was admitted once
    preemptions: int = 0
    host_blocks: list[int] = field(default_factory=list)  # of a preempted one: where its leading blocks wait
    host_tokens: int = 0  # how many tokens these hold
    drafted: int = 0  # tokens that were guessed for it and tried
    finish: Finish | None = None
    matcher: Matcher | None = None  # where it stands in its grammar, as of the newest commit; kept over preemptions

    @property
    def order(self) -> tuple[int, int]:
        """Who comes first; the victim of a preemption is the running request with the greatest order."""
        return (self.rank, self.sequence)
