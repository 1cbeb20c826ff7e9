"""The options of beam search: `use_beam_search` and what goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engines.native.serve import validate
from engines.native.serve.errors import invalid, unsupported

MAX_WIDTH = 16
DEFAULT_WIDTH = 4
FIRST_TURN = "first_turn"
_WITH = ("beam_width", "length_penalty", "early_stopping", "search_budget_ms")
_NEUTRAL: dict[str, Any] = {
    "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1, "dry_multiplier": 0, "typical_p": 1,
    "no_repeat_ngram_size": 0, "logit_bias": {}, "bad_words": [], "allowed_token_ids": [], "best_of": None,
    "response_format": {"type": "text"}, "guided_json": None, "guided_regex": None, "guided_choice": None,
    "guided_grammar": None, "structured_outputs": None, "stop_on": None, "loop_detection": None,
}  # fmt: skip
"""Options that change what is drawn, and beam search does not know, with the value that asks for nothing."""


@dataclass(frozen=True, slots=True)
class BeamOptions:
    """width: beams kept. length_penalty: answers are compared by their log-probability over length ** length_penalty.
    early_stopping: end with the first `width` complete answers, where a better one could still come.
    budget_s: after so long the best so far are the answers; 0 = no limit."""

    width: int
    length_penalty: float = 1.0
    early_stopping: bool = False
    budget_s: float = 0.0


def read(body: validate.Body, n: int) -> BeamOptions | None:
    """None for a request that draws its answers. Raises ApiError 400.

    `use_beam_search`: true, false, or "first_turn": where no assistant has spoken yet in `messages`; later turns draw.
    """
    asked = body.get("use_beam_search")
    if asked is None or asked is False:
        for name in _WITH:
            if body.get(name) is not None:
                raise invalid(name, f"{name} is an option of beam search; set use_beam_search to true")
        return None
    if asked is not True and asked != FIRST_TURN:
        raise invalid("use_beam_search", f"use_beam_search must be true, false or {FIRST_TURN!r}", "invalid_type")
    width = validate.integer(body, "beam_width", max(n, DEFAULT_WIDTH), 1, MAX_WIDTH)
    options = BeamOptions(
        width,
        validate.number(body, "length_penalty", 1.0, -10.0, 10.0),
        validate.boolean(body, "early_stopping"),
        validate.number(body, "search_budget_ms", 0.0, 0.0, 3_600_000.0) / 1000,
    )
    if width < n:
        raise invalid("beam_width", f"beam_width is {width}; it must be at least n, which is {n}")
    if asked == FIRST_TURN and not _first_turn(body):
        return None
    for name, neutral in _NEUTRAL.items():
        if body.get(name) not in (None, neutral):
            raise unsupported(name, f"{name} can't be combined with use_beam_search, which draws nothing")
    return options


def _first_turn(body: validate.Body) -> bool:
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise invalid("use_beam_search", f"use_beam_search can be {FIRST_TURN!r} in a chat only")
    return not any(isinstance(message, dict) and message.get("role") == "assistant" for message in messages)
