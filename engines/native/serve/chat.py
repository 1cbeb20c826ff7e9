"""POST /v1/chat/completions."""

from __future__ import annotations

import time
from typing import Any

from engines.native.serve import validate
from engines.native.serve.detokenize import Detokenizer
from engines.native.serve.errors import ApiError, invalid
from engines.native.serve.generate import Delta, Generation, Generator, TokenLogprob, Usage
from engines.native.serve.ids import new_id
from engines.native.serve.model import ServedModel
from engines.native.serve.openai import (
    LOWEST_LOGPROB,
    generation_of,
    prompt_entries,
    prompt_logprobs_asked,
    prompt_logprobs_body,
    truncated,
    usage_body,
)

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class ChatEndpoint:
    """Reads one request and writes its answers."""

    def __init__(self, model: ServedModel, body: validate.Body, max_len: int) -> None:
        self._model, self._body, self._max_len = model, body, max_len
        self._id, self._created = new_id("chatcmpl"), int(time.time())
        self._prompt: list[int] = []
        self._token_ids = False  # to be returned
        self._prompt_logprobs = -1

    async def generation(self) -> Generation:
        body, model = self._body, self._model
        validate.refuse_unsupported(body)
        names = ("max_completion_tokens", "max_tokens")
        prompt = truncated(body, await chat_prompt(model, body), names, None, self._max_len)
        validate.check_prompt(prompt, "messages", self._max_len)
        limit = validate.max_tokens(body, names, len(prompt), self._max_len, None)
        self._prompt, self._prompt_logprobs = prompt, prompt_logprobs_asked(body)
        params = validate.sampling(
            body,
            vocab_size=model.vocab_size,
            eos_token_ids=list(model.facts.eos_ids),
            max_tokens=limit,
            logprobs=_logprobs(body),
            prompt_logprobs=self._prompt_logprobs,
        )
        generation = generation_of(body, [prompt], params, model.think)
        self._token_ids = generation.wants_token_ids
        return generation

    def _frame(self, object: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": object,
            "created": self._created,
            "model": self._model.name,
            "choices": choices,
        }

    def whole(self, answers: list[Delta], usage: Usage, generator: Generator) -> dict[str, Any]:
        choices = [
            {
                "index": answer.index,
                "message": {"role": "assistant", "content": answer.text, "refusal": None},
                "logprobs": self._scored(answer.logprobs),
                "finish_reason": answer.finish,
                **self._beside(answer),
            }
            for answer in answers
        ]
        whole = {**self._frame("chat.completion", choices), "usage": usage_body(usage)}
        if self._token_ids:
            whole["prompt_token_ids"] = self._prompt
        if self._prompt_logprobs >= 0:
            entries = prompt_entries(self._prompt, generator.prompt_logprobs(0), self._prompt_logprobs)
            whole["prompt_logprobs"] = prompt_logprobs_body(entries, self._model.detokenizer)
        return whole

    def first(self, index: int, generator: Generator) -> list[dict[str, Any]]:
        """The chunk that opens answer `index`."""
        chunk = self._chunk(index, {"role": "assistant", "content": ""})
        if self._token_ids and index == 0:
            chunk["prompt_token_ids"] = self._prompt
        return [chunk]

    def chunk(self, delta: Delta) -> dict[str, Any]:
        content = {"content": delta.text} if delta.text or delta.finish is None else {}
        chunk = self._chunk(delta.index, content, self._scored(delta.logprobs), delta.finish)
        chunk["choices"][0] |= self._beside(delta)
        return chunk

    def _beside(self, delta: Delta) -> dict[str, Any]:
        """vLLM's fields of a choice: what stopped it, and its ids where asked for."""
        beside: dict[str, Any] = {} if delta.finish is None else {"stop_reason": delta.stopped_by}
        if self._token_ids:
            beside["token_ids"] = delta.token_ids
        return beside

    def last(self, usage: Usage) -> dict[str, Any]:
        return {**self._frame("chat.completion.chunk", []), "usage": usage_body(usage)}

    def _chunk(self, index: int, delta: dict[str, Any], logprobs: Any = None, finish: Any = None) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return self._frame("chat.completion.chunk", [choice])

    def _scored(self, logprobs: list[TokenLogprob]) -> dict[str, Any] | None:
        if not logprobs:
            return None
        return {"content": [_scored_token(self._model.detokenizer, entry) for entry in logprobs], "refusal": None}


def _scored_token(detokenizer: Detokenizer, entry: TokenLogprob) -> dict[str, Any]:
    def one(token: int, logprob: float) -> dict[str, Any]:
        raw = detokenizer.token_bytes(token)
        return {"token": raw.decode("utf-8", "replace"), "logprob": max(logprob, LOWEST_LOGPROB), "bytes": list(raw)}

    top = [one(token, logprob) for token, logprob in zip(*entry.top, strict=True)] if entry.top else []
    return {**one(entry.token, entry.logprob), "top_logprobs": top}


def _logprobs(body: validate.Body) -> int:
    top = validate.integer(body, "top_logprobs", 0, 0, validate.MAX_TOP_LOGPROBS)
    asked = validate.boolean(body, "logprobs")
    if top and not asked:
        raise invalid("top_logprobs", "top_logprobs is only allowed with logprobs set to true")
    return top if asked else -1


async def chat_prompt(model: ServedModel, body: validate.Body) -> list[int]:
    """Messages to prompt ids by the model's own template. Raises ApiError 400 naming the part at fault."""
    if model.template is None:
        raise ApiError(
            400, f"the model {model.name} has no chat template; use /v1/completions", code="no_chat_template"
        )
    extra = body.get("chat_template_kwargs")
    if extra is not None and not isinstance(extra, dict):
        raise invalid("chat_template_kwargs", "chat_template_kwargs must be an object", "invalid_type")
    names = {name: value for name, value in (extra or {}).items() if name not in ("messages", "tools")}
    goes_on = validate.boolean(body, "continue_final_message")
    opens = validate.boolean(body, "add_generation_prompt", not goes_on)
    if goes_on and opens:
        raise invalid("add_generation_prompt", "add_generation_prompt and continue_final_message exclude each other")
    if goes_on or not opens:
        names["add_generation_prompt"] = opens
    text = model.template.render(_messages(body.get("messages")), names, goes_on=goes_on)
    return await model.encode(text, add_bos=False)


def _messages(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise invalid("messages", "messages must be an array of objects", "invalid_type")
    if not value:
        raise invalid("messages", "messages is empty; give at least one message", "empty_prompt")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(value)]


def _message(value: Any, param: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise invalid(param, f"{param} must be an object", "invalid_type")
    role = value.get("role")
    if role not in _ROLES:
        raise invalid(f"{param}.role", f"{param}.role is {str(role)[:40]!r}; it must be one of {', '.join(_ROLES)}")
    if value.get("tool_calls"):
        raise invalid(f"{param}.tool_calls", "tool calls are not supported by this engine yet", "unsupported_value")
    message = {"role": "system" if role == "developer" else role, "content": _content(value, param, role)}
    if isinstance(value.get("name"), str):
        message["name"] = value["name"]
    return message


def _content(message: dict[str, Any], param: str, role: str) -> str:
    """A string, or an array of text parts, which are joined."""
    content = message.get("content")
    param = f"{param}.content"
    if isinstance(content, str):
        return content
    if content is None and role == "assistant":
        return ""
    if not isinstance(content, list):
        raise invalid(param, f"{param} must be a string or an array of text parts", "invalid_type")
    texts = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            message_text = f"{param}[{index}] must be a text part; this model takes text only"
            raise invalid(f"{param}[{index}]", message_text, "unsupported_value")
        texts.append(part["text"])
    return "".join(texts)
