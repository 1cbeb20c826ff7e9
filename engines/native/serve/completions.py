"""POST /v1/completions: plain prompts, as text or as token ids, one or many."""

from __future__ import annotations

import time
from typing import Any

from engines.native.ipc import PromptLogprobs, TopTokens
from engines.native.serve import validate
from engines.native.serve.chat import usage_body
from engines.native.serve.errors import invalid, unsupported
from engines.native.serve.generate import Delta, Generation, Generator, TokenLogprob, Usage
from engines.native.serve.ids import new_id
from engines.native.serve.model import ServedModel

MAX_PROMPTS = 256
_MAX_LOGPROBS = 20


class CompletionEndpoint:
    """Reads one request and writes its answers."""

    def __init__(self, model: ServedModel, body: validate.Body, max_len: int) -> None:
        self._model, self._body, self._max_len = model, body, max_len
        self._id, self._created = new_id("cmpl"), int(time.time())
        self._echo = False
        self._nothing_new = False  # echo with max_tokens 0: only the prompt is asked for
        self._prompts: list[list[int]] = []
        self._offsets: list[int] = []  # characters written so far, per answer

    async def generation(self) -> Generation:
        body, model = self._body, self._model
        validate.refuse_unsupported(body)
        self._echo = validate.boolean(body, "echo")
        self._prompts = await self._read_prompts(body.get("prompt"))
        self._offsets = [0] * len(self._prompts)
        for prompt in self._prompts:
            validate.check_prompt(prompt, "prompt", self._max_len)
        longest = max(map(len, self._prompts))
        limit = validate.max_tokens(body, ("max_tokens",), longest, self._max_len, 16)
        self._nothing_new = limit == 0
        logprobs = validate.integer(body, "logprobs", -1, 0, _MAX_LOGPROBS)
        if self._echo and logprobs >= 0 and validate.boolean(body, "stream"):
            raise unsupported("echo", "echo with logprobs is not supported in a stream")
        params = validate.sampling(
            body,
            vocab_size=model.vocab_size,
            eos_token_ids=list(model.facts.eos_ids),
            max_tokens=limit,
            logprobs=logprobs,
            prompt_logprobs=logprobs if self._echo else -1,
        )
        return Generation(
            self._prompts,
            params,
            validate.stop_strings(body),
            validate.integer(body, "priority", 0, -validate.MAX_PRIORITY, validate.MAX_PRIORITY),
            validate.string(body, "cache_salt", max_length=validate.MAX_SALT_LENGTH),
        )

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
            return [await self._model.encode(text, add_bos=True) for text in value]
        return [validate.token_ids(item, "prompt", self._model.vocab_size) for item in value]

    def whole(self, answers: list[Delta], usage: Usage, generator: Generator) -> dict[str, Any]:
        choices = []
        for answer in answers:
            if self._nothing_new:
                answer.text, answer.logprobs = "", []
            scored = self._scored(answer.index, answer.logprobs, generator.prompt_logprobs(answer.index))
            text = self._prompt_text(answer.index) + answer.text if self._echo else answer.text
            choices.append(self._choice(answer.index, text, scored, answer.finish))
        if self._nothing_new:
            usage.completion_tokens = 0
        return {**self._frame(choices), "usage": usage_body(usage)}

    def first(self) -> list[dict[str, Any]]:
        """The chunks that open a stream: the prompts, where asked for."""
        if not self._echo:
            return []
        return [self._frame([self._choice(i, self._prompt_text(i), None, None)]) for i in range(len(self._prompts))]

    def chunk(self, delta: Delta) -> dict[str, Any]:
        if self._nothing_new:
            delta.text = ""
        scored = self._scored(delta.index, delta.logprobs, [])
        return self._frame([self._choice(delta.index, delta.text, scored, delta.finish)])

    def last(self, usage: Usage) -> dict[str, Any]:
        if self._nothing_new:
            usage.completion_tokens = 0
        return {**self._frame([]), "usage": usage_body(usage)}

    def _frame(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": self._model.name,
            "choices": choices,
        }

    def _choice(self, index: int, text: str, logprobs: Any, finish: Any) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def _prompt_text(self, index: int) -> str:
        return self._model.detokenizer.text(self._prompts[index])

    def _scored(
        self, index: int, logprobs: list[TokenLogprob], prompt: list[PromptLogprobs]
    ) -> dict[str, list[Any]] | None:
        entries: list[tuple[int, float | None, TopTokens | None]] = []
        if prompt:
            entries += _prompt_entries(self._prompts[index], prompt)
        entries += [(entry.token, entry.logprob, entry.top) for entry in logprobs]
        if not entries:
            return None
        names = [self._name(token) for token, _, _ in entries]
        offsets = []
        for name in names:
            offsets.append(self._offsets[index])
            self._offsets[index] += len(name)
        return {
            "tokens": names,
            "token_logprobs": [logprob for _, logprob, _ in entries],
            "top_logprobs": [self._top(token, logprob, top) for token, logprob, top in entries],
            "text_offset": offsets,
        }

    def _top(self, token: int, logprob: float | None, top: TopTokens | None) -> dict[str, float] | None:
        if logprob is None:
            return None
        ranked = {self._name(token): value for token, value in zip(*top, strict=True)} if top else {}
        return {**ranked, self._name(token): logprob}

    def _name(self, token: int) -> str:
        """As OpenAI names it: bytes that are no text of their own are written as bytes:\\x…"""
        raw = self._model.detokenizer.token_bytes(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _prompt_entries(
    prompt: list[int], scored: list[PromptLogprobs]
) -> list[tuple[int, float | None, TopTokens | None]]:
    """Nothing comes before the first token, so it has no logprob."""
    values: dict[int, tuple[float, TopTokens | None]] = {}
    for part in scored:
        for offset, value in enumerate(part.values):
            values[part.first + offset] = (value, part.top[offset] if part.top else None)
    return [(token, *values.get(position, (None, None))) for position, token in enumerate(prompt)]
