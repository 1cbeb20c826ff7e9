"""Loaded by schemathesis (SCHEMATHESIS_HOOKS), in its own environment. Notes every answer, a line of JSON each, in the
file that FUZZ_CALLS names. And thins out most bodies that are meant to be right: with all seventy fields at once two of
them always exclude each other, and the request would never get past the door."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import schemathesis

_CALLS = open(os.environ["FUZZ_CALLS"], "a", encoding="utf-8")  # noqa: SIM115 - lives as long as the process
_NEEDED = {"model", "prompt", "messages", "input", "text_1", "text_2", "query", "documents", "tokens"}
_WITH: dict[str, dict[str, Any]] = {
    "stream_options": {"stream": True},
    "top_logprobs": {"logprobs": True},
    "beam_width": {"use_beam_search": True},
    "length_penalty": {"use_beam_search": True},
    "early_stopping": {"use_beam_search": True},
    "search_budget_ms": {"use_beam_search": True},
    "continue_final_message": {"add_generation_prompt": False},
}
"""Fields that mean something only beside others."""
_SMALL = {"n": 4, "best_of": 4, "min_tokens": 8, "max_tokens": 48, "max_completion_tokens": 48, "max_output_tokens": 48}
KEPT = 4
"""Optional fields of a thinned body, at most."""


@schemathesis.hook  # type: ignore[misc, untyped-decorator, unused-ignore] # untyped, or not there
def before_call(_: Any, case: Any, __: Any) -> None:
    body, mode = case.body, getattr(getattr(case.meta, "generation", None), "mode", None)
    if getattr(mode, "name", "") == "POSITIVE" and isinstance(body, dict):
        chosen = random.Random(json.dumps(body, sort_keys=True, default=str))
        if chosen.random() < 0.9:  # the same body is thinned in the same way, so that a failure comes again
            case.body = thinned(body, chosen, said="responses" in case.path)


def thinned(body: dict[str, Any], chosen: random.Random, *, said: bool) -> dict[str, Any]:
    """`said`: of /v1/responses, where logprobs have no field of their own."""
    optional = sorted(name for name, value in body.items() if name not in _NEEDED and value is not None)
    kept = chosen.sample(optional, min(len(optional), chosen.randint(0, KEPT)))
    needed = _NEEDED | ({"max_tokens"} if "messages" in body else set())
    made = {name: value for name, value in body.items() if name in needed or name in kept}
    for name in kept:
        if not (said and name == "top_logprobs"):
            made |= _WITH.get(name, {})
        if name == "stream_options" and chosen.random() < 0.5:
            made[name] = {"include_usage": True, "continuous_usage_stats": True}
    limit = "max_output_tokens" if said else "max_tokens"
    if ("messages" in made or said) and limit not in made and chosen.random() < 0.8:
        made[limit] = 16  # without a limit an answer fills the context
    for name, most in _SMALL.items():
        if isinstance(made.get(name), int):
            made[name] = min(made[name], most)
    return made


@schemathesis.hook  # type: ignore[misc, untyped-decorator, unused-ignore] # untyped, or not there
def after_call(_: Any, case: Any, response: Any) -> None:
    body = response.request.body
    sent = body if isinstance(body, str) else (body or b"").decode("utf-8", "replace")
    call = {"path": case.path, "method": case.method, "status": response.status_code, "seconds": response.elapsed}
    if response.status_code >= 500:
        call |= {"sent": sent[:20_000], "answer": response.text[:2_000]}
    elif response.status_code == 400 and os.environ.get("FUZZ_WHY"):
        call["answer"] = response.text[:200]
    _CALLS.write(json.dumps(call) + "\n")
    _CALLS.flush()
