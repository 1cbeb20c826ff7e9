"""POST /v1/completions: plain prompts, as text or as token ids, one or many."""

from __future__ import annotations

import time
from typing import Any

from engines.native.serve import structured, validate
from engines.native.serve.errors import invalid
from engines.native.serve.generate import Delta, Generation, Generator, TokenLogprob, Usage
from engines.native.serve.ids import new_id
from engines.native.serve.model import ServedModel
from engines.native.serve.openai import (
    LOWEST_LOGPROB,
    MAX_N,
    PromptEntry,
    generation_of,
    prompt_entries,
    prompt_logprobs_asked,
    prompt_logprobs_body,
    truncated,
    usage_body,
)
from engines.native.serve.sourced import Piece, merged, pieces_body

MAX_PROMPTS = 256
MAX_SCORED = 1_000_000
"""Log-probabilities of prompts in one answer to a client, some 100 bytes each."""
_DEFAULT_MAX_TOKENS = 16
_MAX_LOGPROBS = 20


class CompletionEndpoint:
    """Reads one request and writes its answers."""

    def __init__(self, model: ServedModel, body: validate.Body, max_len: int) -> None:
        self._model, self._body, self._max_len = model, body, max_len
        self._id, self._created = new_id("cmpl"), int(time.time())
        self._echo = False
        self._nothing_new = False  # echo with max_tokens 0: only the prompt is asked for
        self._logprobs = self._prompt_logprobs = -1  # as asked: −1 = none
        self._token_ids = False  # to be returned
        self._sources = False  # as the ids
        self._prompts: list[list[int]] = []
        self._offsets: dict[int, int] = {}  # characters written so far, per answer

    async def generation(self) -> Generation:
        body, model = self._body, self._model
        validate.refuse_unsupported(body, but=("echo",))
        self._echo = validate.boolean(body, "echo")
        names = ("max_tokens",)
        self._prompts = [
            truncated(body, prompt, names, _DEFAULT_MAX_TOKENS, self._max_len)
            for prompt in await self._read_prompts(body.get("prompt"))
        ]
        for prompt in self._prompts:
            validate.check_prompt(prompt, "prompt", self._max_len, model.vocab_size)
        longest = max(map(len, self._prompts))
        limit = validate.max_tokens(body, names, longest, self._max_len, _DEFAULT_MAX_TOKENS)
        self._nothing_new = limit == 0
        self._logprobs = validate.integer(body, "logprobs", -1, 0, _MAX_LOGPROBS)
        self._prompt_logprobs = prompt_logprobs_asked(body)
        ranked = validate.integer(body, "best_of", 1, 1, 2**63) > 1  # answers are compared by their log-probabilities
        self._check_size(body)
        params = validate.sampling(
            body,
            model,
            max_tokens=limit,
            logprobs=max(self._logprobs, 0) if ranked else self._logprobs,
            prompt_logprobs=max(self._prompt_logprobs, self._logprobs if self._echo else -1),
        )
        params = await structured.constrained(body, params, model, thinks=False)
        generation = generation_of(body, self._prompts, params)
        self._token_ids, self._sources = generation.wants_token_ids, generation.wants_sources
        return generation

    def _check_size(self, body: validate.Body) -> None:
        """An answer repeats what was found of its prompt: so much of it that it would fill the memory is refused."""
        values = max(self._prompt_logprobs, self._logprobs if self._echo else -1) + 1
        count = values * sum(map(len, self._prompts)) * validate.integer(body, "n", 1, 1, MAX_N)
        if count > MAX_SCORED:
            name = "prompt_logprobs" if self._prompt_logprobs >= 0 else "logprobs"
            asked = f"{count} log-probabilities of prompts are asked for, over all n answers"
            raise invalid(name, f"{asked}; at most {MAX_SCORED} are given")

    async def _read_prompts(self, value: Any) -> list[list[int]]:
        """A string, an array of strings, an array of token ids, or an array of arrays of token ids."""
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            raise invalid("prompt", "prompt must be a string, an array of strings, or token ids", "invalid_type")
        if not value:
            raise invalid("prompt", "prompt is empty; give at least one token", "empty_prompt")
        if all(type(item) is int for item in value):
            value = [value]
        if len(value) > MAX_PROMPTS:
            raise invalid("prompt", f"prompt has {len(value)} prompts; at most {MAX_PROMPTS} are allowed")
        if all(isinstance(item, str) for item in value):
            bos = validate.boolean(self._body, "add_special_tokens", True)
            return [await self._model.encode(text, add_bos=bos) for text in value]
        return [validate.token_ids(item, "prompt", self._model.vocab_size) for item in value]

    def whole(self, answers: list[Delta], usage: Usage, generator: Generator) -> dict[str, Any]:
        choices = []
        for answer in answers:
            if self._nothing_new:
                self._empty(answer)
            prompt = self._prompts[generator.prompt_of(answer.index)]
            scored = generator.prompt_logprobs(answer.index)
            entries = prompt_entries(prompt, scored, self._logprobs) if self._scores_echo else []
            text = self._model.detokenizer.text(prompt) + answer.text if self._echo else answer.text
            choice = self._choice(answer, text, self._scored(answer.index, entries, answer.logprobs))
            if self._token_ids:
                choice["prompt_token_ids"] = prompt
            if self._prompt_logprobs >= 0:
                asked = prompt_entries(prompt, scored, self._prompt_logprobs)
                choice["prompt_logprobs"] = prompt_logprobs_body(asked, self._model.detokenizer)
            choices.append(choice)
        return {**self._frame(choices), "usage": self._usage(usage)}

    def first(self, index: int, generator: Generator) -> list[dict[str, Any]]:
        """The chunk that opens an answer: its prompt, where asked for. By now it is scored."""
        if not self._echo and not self._token_ids:
            return []
        prompt = self._prompts[generator.prompt_of(index)]
        scored = None
        if self._scores_echo:
            scored = self._scored(index, prompt_entries(prompt, generator.prompt_logprobs(index), self._logprobs), [])
        choice = self._choice(Delta(index, ""), self._model.detokenizer.text(prompt) if self._echo else "", scored)
        if self._token_ids:
            choice["prompt_token_ids"] = prompt
        return [self._frame([choice])]

    def chunks(self, delta: Delta) -> list[dict[str, Any]]:
        if self._nothing_new:
            self._empty(delta)
        return [self._frame([self._choice(delta, delta.text, self._scored(delta.index, [], delta.logprobs))])]

    def text_chunk(self, index: int, text: str) -> dict[str, Any] | None:
        if self._nothing_new or self._token_ids or self._sources:
            return None
        return self._frame([self._choice(Delta(index, text), text, None)])

    def last(self, usage: Usage) -> dict[str, Any]:
        return {**self._frame([]), "usage": self._usage(usage)}

    @property
    def _scores_echo(self) -> bool:
        return self._echo and self._logprobs >= 0

    def _empty(self, delta: Delta) -> None:
        """One token is always drawn; nobody asked for it."""
        delta.text, delta.logprobs, delta.token_ids, delta.stopped_by, delta.pieces = "", [], [], None, None

    def _usage(self, usage: Usage) -> dict[str, Any]:
        if self._nothing_new:
            usage.completion_tokens, usage.accepted_tokens, usage.rejected_tokens = 0, None, None
        return usage_body(usage)

    def _frame(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": self._model.name,
            "choices": choices,
        }

    def _choice(self, delta: Delta, text: str, logprobs: Any) -> dict[str, Any]:
        choice = {"index": delta.index, "text": text, "logprobs": logprobs, "finish_reason": delta.finish}
        if delta.finish is not None:
            choice["stop_reason"] = delta.stopped_by
        if self._token_ids:
            choice["token_ids"] = delta.token_ids
        if self._sources:
            prompt = (text.removesuffix(delta.text), None)  # echoed
            choice["tursiops"] = {"pieces": pieces_body(merged([prompt, *_pieces(delta)]))}
        return choice

    def _scored(
        self, index: int, prompt: list[PromptEntry], logprobs: list[TokenLogprob]
    ) -> dict[str, list[Any]] | None:
        if self._logprobs < 0 or not (prompt or logprobs):
            return None
        entries = [*prompt, *((entry.token, entry.logprob, entry.top) for entry in logprobs)]
        names = [self._name(token) for token, _, _ in entries]
        offsets = []
        for name in names:
            offsets.append(self._offsets.get(index, 0))
            self._offsets[index] = offsets[-1] + len(name)
        return {
            "tokens": names,
            "token_logprobs": [_finite(logprob) for _, logprob, _ in entries],
            "top_logprobs": [self._top(entry) for entry in entries],
            "text_offset": offsets,
        }

    def _top(self, entry: PromptEntry) -> dict[str, float] | None:
        """By text. Where two tokens have the same, the higher value stands: an evaluator takes a token whose value is
        the maximum of its entry, as the very same number, for the greedy choice."""
        token, logprob, top = entry
        if logprob is None:
            return None
        ids, values = top or ([], [])
        ranked: dict[str, float] = {}
        for each, value in [(token, logprob), *zip(ids, values, strict=True)]:
            name = self._name(each)
            ranked[name] = max(ranked.get(name, LOWEST_LOGPROB), value)
        return ranked

    def _name(self, token: int) -> str:
        """As OpenAI names it: bytes that are no text of their own are written as bytes:\\x…"""
        raw = self._model.detokenizer.token_bytes(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _finite(logprob: float | None) -> float | None:
    return None if logprob is None else max(logprob, LOWEST_LOGPROB)


def _pieces(delta: Delta) -> list[Piece]:
    """Of an answer whose tokens nobody counted, as a beam's, it is one."""
    if delta.pieces is None:
        return [(delta.text, None)] if delta.text else []
    return list(delta.pieces)
