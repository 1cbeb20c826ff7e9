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


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to draw tokens. Built and validated at the door (`engines.native.serve.validate`), trusted afterwards."""

    temperature: float = 1.0  # 0 = greedy
    top_k: int = 0  # 0 = off
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0  # always set at the door; noise = f(seed, position, token)
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    max_tokens: int = 16
    min_tokens: int = 0
    stop_token_ids: list[int] = field(default_factory=list)  # end with `stop`; EOS included unless ignore_eos
    logprobs: int = -1  # −1 = none; 0 = of the sampled token; k = with the k most likely (≤ 20)
    prompt_logprobs: int = -1
    grammar: Grammar | None = None  # of the answer


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
    arrived: float = 0.0  # time.monotonic(), s
    queue_deadline: float = math.inf  # to be admitted by then
    deadline: float = math.inf  # to be finished by then

    sequence: int = 0  # order of arrival; kept over preemptions
    row: int = -1  # slot in the runner's tables; −1 while waiting
    blocks: list[int] = field(default_factory=list)  # block table, one reference held on each
    registered: int = 0  # leading blocks that the prefix cache knows
    prefix: int | str = ""  # identity of the registered prefix (BlockPool.register)
    computing: tuple[int | str, bytes] | None = None  # key of the full block that it computes next
    cached_tokens: int = 0  # prompt tokens taken from the prefix cache at the first admission
    started: bool = False  # was admitted once
    preemptions: int = 0
    finish: Finish | None = None
    matcher: Matcher | None = None  # where it stands in its grammar, as of the newest commit; kept over preemptions

    @property
    def order(self) -> tuple[int, int]:
        """Who comes first; the victim of a preemption is the running request with the greatest order."""
        return (self.priority, self.sequence)
