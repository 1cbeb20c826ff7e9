"""What the OpenAI endpoints share: how many answers are asked for, usage, the prompt's log-probabilities, the chunks of
a stream. Names and shapes are OpenAI's, and vLLM's where OpenAI has none (vllm/entrypoints/openai/*/protocol.py)."""

from __future__ import annotations

import secrets
from typing import Any, ClassVar, Protocol

import orjson

from engines.native.ipc import PromptLogprobs, TopTokens
from engines.native.request import SamplingParams
from engines.native.serve import beam_options, endings, validate
from engines.native.serve.conversation import Chat
from engines.native.serve.detokenize import Detokenizer
from engines.native.serve.errors import ApiError, invalid, unsupported
from engines.native.serve.generate import Delta, Generation, Generator, Usage

MAX_N = 128
"""Answers to one prompt."""
LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON can't say; as vLLM."""

_MARK = secrets.token_hex(16)
"""Text that is in no chunk."""

PromptEntry = tuple[int, float | None, TopTokens | None]
"""A token of the prompt, its log-probability (None: not scored, as the first), the most likely ones in its place."""


class OpenAiEndpoint(Protocol):
    """One request to an endpoint of OpenAI's shape, as a stream sees it."""

    def first(self, index: int, generator: Generator) -> list[dict[str, Any]]:
        """The chunks that open answer `index`."""
        ...

    def chunks(self, delta: Delta) -> list[dict[str, Any]]: ...

    def text_chunk(self, index: int, text: str) -> dict[str, Any] | None:
        """The chunk of a piece of answer `index` that is `text` and nothing else (`Delta.only_text`); None where such
        pieces are not all alike."""
        ...

    def last(self, usage: Usage) -> dict[str, Any]:
        """The chunk with no choices that carries the usage."""
        ...


def generation_of(
    body: validate.Body, prompts: list[list[int]], params: SamplingParams, chat: Chat | None = None
) -> Generation:
    """Prompts and parameters, with the fields that are neither."""
    n = validate.integer(body, "n", 1, 1, MAX_N)
    best_of = validate.integer(body, "best_of", n, 1, MAX_N)
    if chat is not None and best_of != n:
        raise unsupported("best_of", "best_of is an option of /v1/completions; ask a chat for n answers")
    if best_of < n:
        raise invalid("best_of", f"best_of is {best_of}; it must be at least n, which is {n}")
    if best_of > n and validate.boolean(body, "stream"):
        raise unsupported("best_of", "best_of above n can't be streamed: which answers are best shows at their end")
    return Generation(
        prompts,
        params,
        validate.stop_strings(body),
        validate.integer(body, "priority", 0, -validate.MAX_PRIORITY, validate.MAX_PRIORITY),
        validate.string(body, "cache_salt", max_length=validate.MAX_SALT_LENGTH),
        n=n,
        best_of=best_of,
        named_stop_ids=frozenset(body.get("stop_token_ids") or ()),
        wants_token_ids=validate.boolean(body, "return_token_ids"),
        wants_sources=validate.boolean(body, "return_draft_sources"),
        reasoning=chat.model.reasoning if chat else None,
        thinking=chat.thinking if chat else False,
        detokenizer=chat.detokenizer if chat else None,
        endings=endings.read(body),
        beams=beam_options.read(body, n),
    )


def truncated(
    body: validate.Body, prompt: list[int], names: tuple[str, ...], default: int | None, max_len: int
) -> list[int]:
    """The last `truncate_prompt_tokens` ids of a prompt. −1: as many as fit beside the tokens to generate, which the
    first given field of `names` says. Only on request: a prompt that is too long is refused otherwise."""
    keep = validate.integer(body, "truncate_prompt_tokens", 0, -1, 2**63 - 1)
    if body.get("truncate_prompt_tokens") is None:
        return prompt
    if keep == 0:
        raise invalid("truncate_prompt_tokens", "truncate_prompt_tokens is 0; it must be 1 or more, or -1")
    if keep < 0:
        wanted = next(
            (validate.integer(body, name, 0, 0, max_len - 1) for name in names if body.get(name) is not None), default
        )
        keep = max_len - max(1, wanted or 1)
    return prompt[-keep:]


def prompt_logprobs_asked(body: validate.Body) -> int:
    """`prompt_logprobs`: −1 = none, k = the prompt's own tokens and the k most likely in each place."""
    asked = validate.integer(body, "prompt_logprobs", -1, 0, validate.MAX_TOP_LOGPROBS)
    if asked >= 0 and validate.boolean(body, "stream"):
        raise unsupported("prompt_logprobs", "prompt_logprobs can't be streamed; ask without stream")
    return asked


def prompt_entries(prompt: list[int], scored: list[PromptLogprobs], top: int) -> list[PromptEntry]:
    """One entry per token of the prompt, from the spans that its chunks were scored in. The first has no score:
    nothing comes before it."""
    values: dict[int, tuple[float, TopTokens | None]] = {}
    for part in scored:
        for offset, value in enumerate(part.values):
            ids, logprobs = part.top[offset] if part.top else ([], [])
            values[part.first + offset] = (value, (ids[:top], logprobs[:top]))
    return [(token, *values.get(position, (None, None))) for position, token in enumerate(prompt)]


def prompt_logprobs_body(entries: list[PromptEntry], detokenizer: Detokenizer) -> list[dict[str, Any] | None]:
    """vLLM's `prompt_logprobs`: per position, by token id. `rank` is null for a prompt token that is none of the most
    likely: its place among all tokens isn't computed."""

    def one(token: int, logprob: float, rank: int | None) -> dict[str, Any]:
        decoded = detokenizer.token_bytes(token).decode("utf-8", "replace")
        return {"logprob": max(logprob, LOWEST_LOGPROB), "rank": rank, "decoded_token": decoded}

    body: list[dict[str, Any] | None] = []
    for token, logprob, top in entries:
        if logprob is None:
            body.append(None)
            continue
        ids, logprobs = top or ([], [])
        ranks = {ranked: place for place, ranked in enumerate(ids, 1)}
        position = {str(token): one(token, logprob, ranks.get(token))}
        position |= {
            str(ranked): one(ranked, value, ranks[ranked]) for ranked, value in zip(ids, logprobs, strict=True)
        }
        body.append(position)
    return body


def usage_body(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            **({} if usage.accepted_tokens is None else {"accepted_prediction_tokens": usage.accepted_tokens}),
            **({} if usage.rejected_tokens is None else {"rejected_prediction_tokens": usage.rejected_tokens}),
        },
    }


class ChunkEvents:
    """The events of a stream in OpenAI's shape: what opens each answer, its pieces, the usage at the end.

    include_usage: a last chunk carries the usage, and all others `usage: null`; with continuous_usage_stats each
    carries the usage of the whole request so far.
    """

    named: ClassVar[bool] = False
    tail: ClassVar[bytes] = b"data: [DONE]\n\n"

    def __init__(self, body: validate.Body, endpoint: OpenAiEndpoint, generator: Generator) -> None:
        self._endpoint, self._generator = endpoint, generator
        self._opened: set[int] = set()
        self._forms: dict[int, tuple[bytes, bytes]] = {}  # of a chunk with only text: its JSON before and after it
        options = _stream_options(body)
        self._include_usage = validate.boolean(options, "include_usage")
        self._continuous = self._include_usage and validate.boolean(options, "continuous_usage_stats")

    def of(self, delta: Delta) -> list[dict[str, Any] | bytes]:
        form = self._forms.get(delta.index)
        if form is not None and delta.only_text:  # nearly all: nothing but the text differs between them
            return [form[0] + orjson.dumps(delta.text) + form[1]]
        chunks: list[dict[str, Any]] = []
        if delta.index not in self._opened:
            self._open(delta.index)
            chunks = self._endpoint.first(delta.index, self._generator)
        if delta.is_news:
            chunks += self._endpoint.chunks(delta)
        if self._include_usage:
            usage = usage_body(self._generator.usage) if self._continuous else None
            for chunk in chunks:
                chunk["usage"] = usage
        return [*chunks]

    def _open(self, index: int) -> None:
        self._opened.add(index)
        chunk = None if self._continuous else self._endpoint.text_chunk(index, _MARK)
        if chunk is not None:
            if self._include_usage:
                chunk["usage"] = None
            before, _, after = orjson.dumps(chunk).partition(orjson.dumps(_MARK))
            self._forms[index] = (before, after)

    def last(self) -> list[dict[str, Any]]:
        return [self._endpoint.last(self._generator.usage)] if self._include_usage else []

    def error(self, error: ApiError) -> dict[str, Any]:
        return error.body()


def _stream_options(body: validate.Body) -> validate.Body:
    options = body.get("stream_options")
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise invalid("stream_options", "stream_options must be an object", "invalid_type")
    if not validate.boolean(body, "stream"):
        raise invalid("stream_options", "stream_options is only allowed with stream set to true")
    return options
