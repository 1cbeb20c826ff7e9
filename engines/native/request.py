"""A request as the core knows it: what was asked, how far it is, how it ended.

Plain dataclasses, so that the offline path needs no msgspec; msgspec encodes them as they are.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


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
