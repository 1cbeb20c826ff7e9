"""Log-probabilities of token ids that are given, by /v1/completions: the contract that lm-eval relies on, too.

Asked is {prompt: [[ids]], echo, logprobs, max_tokens: 1, temperature: 0}, which gives exactly one entry per token of
the prompt and one more, the first null; or vLLM's `prompt_logprobs`, whose keys are ids and not texts that collide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evaluation.quality.endpoint import Connection, EndpointError

LEGACY_MOST = 20
"""Most `logprobs` that /v1/completions of common servers gives."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Of ids[1:]: `own` are log-probabilities in nats after what precedes; `keys` name the tokens in `top`, the
    most likely of each place with theirs (token id as text, or the token's text where the endpoint tells no ids)."""

    own: list[float]
    keys: list[str]
    top: list[dict[str, float]]
    text: str


def wrong(asked: Connection, reason: str) -> EndpointError:
    hint = "Quality needs the legacy arrays of /v1/completions with echo (docs/quality.md)"
    return EndpointError("wrong_logprobs", f"{asked.url}: {reason}", hint, fatal=True)


async def scores(asked: Connection, prompts: list[list[int]]) -> list[Scored]:
    """One per prompt (of two tokens or more), each with the likeliest token of every place. Raises EndpointError."""
    body = {"prompt": prompts, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    choices = await _choices(asked, body, len(prompts))
    return [_legacy(asked, choice, ids) for choice, ids in zip(choices, prompts, strict=True)]


async def top_scores(asked: Connection, ids: list[int], top: int) -> tuple[Scored, bool]:
    """With the `top` likeliest tokens of each place (-1: all, or as many as the endpoint gives); and whether these are
    told by id. Raises EndpointError."""
    body: dict[str, Any] = {"prompt": [ids], "max_tokens": 1, "temperature": 0, "prompt_logprobs": top}
    try:
        (choice,) = await _choices(asked, body, 1)
    except EndpointError as error:
        if error.code != "endpoint_refused":
            raise
        choice = {}
        if top < 0 or top > LEGACY_MOST:
            return await top_scores(asked, ids, LEGACY_MOST)
    told = choice.get("prompt_logprobs")
    if isinstance(told, list):
        return _by_id(asked, told, ids), True
    body = {"prompt": [ids], "echo": True, "logprobs": min(top, LEGACY_MOST) if top > 0 else LEGACY_MOST}
    (choice,) = await _choices(asked, {**body, "max_tokens": 1, "temperature": 0}, 1)
    return _legacy(asked, choice, ids), False


async def _choices(asked: Connection, body: dict[str, Any], count: int) -> list[dict[str, Any]]:
    found = await asked.post("/v1/completions", body)
    choices = found.get("choices")
    if not isinstance(choices, list) or len(choices) != count:
        raise wrong(asked, f"{count} prompts were asked and `choices` is {str(choices)[:100]}")
    return sorted(choices, key=lambda choice: int(choice.get("index", 0)))


def _legacy(asked: Connection, choice: dict[str, Any], ids: list[int]) -> Scored:
    told = choice.get("logprobs")
    if not isinstance(told, dict):
        raise wrong(asked, f"`logprobs` is {told!r}: echo gave no log-probabilities")
    if "content" in told:
        raise wrong(asked, "`logprobs.content` is the chat form; token_logprobs and top_logprobs were asked for")
    own, top, names = (told.get(name) for name in ("token_logprobs", "top_logprobs", "tokens"))
    lists = (own, top, names)
    if not all(isinstance(each, list) and len(each) == len(ids) + 1 for each in lists):
        found = [len(each) if isinstance(each, list) else None for each in lists]
        raise wrong(asked, f"{len(ids)} tokens give {len(ids) + 1} entries, not {found} (is a BOS put before ids?)")
    assert isinstance(own, list)
    assert isinstance(top, list)
    assert isinstance(names, list)
    if own[0] is not None or any(not isinstance(value, int | float) for value in own[1:-1]):
        raise wrong(asked, "token_logprobs must be null for the first token and a number for each after it")
    if any(not isinstance(each, dict) or not each for each in top[1:-1]):
        raise wrong(asked, "top_logprobs must be an object for each token after the first")
    return Scored(
        [float(value) for value in own[1:-1]],
        [str(name) for name in names[1:-1]],
        [{str(name): float(value) for name, value in each.items()} for each in top[1:-1]],
        "".join(str(name) for name in names[:-1]),
    )


def _by_id(asked: Connection, told: list[Any], ids: list[int]) -> Scored:
    if len(told) != len(ids) or any(not isinstance(each, dict) for each in told[1:]):
        raise wrong(asked, f"prompt_logprobs has {len(told)} entries for {len(ids)} tokens")
    own, top, text = [], [], ""
    for token, entry in zip(ids[1:], told[1:], strict=True):
        if str(token) not in entry:
            raise wrong(asked, f"prompt_logprobs lacks the prompt's own token {token}")
        own.append(float(entry[str(token)]["logprob"]))
        top.append({name: float(each["logprob"]) for name, each in entry.items()})
        text += str(entry[str(token)].get("decoded_token") or "")
    return Scored(own, [str(token) for token in ids[1:]], top, text)
