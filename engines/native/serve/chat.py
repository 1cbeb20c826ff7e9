"""POST /v1/chat/completions."""

from __future__ import annotations

import time
from typing import Any

from engines.native.serve import structured, validate
from engines.native.serve.conversation import Chat, read_chat
from engines.native.serve.detokenize import Detokenizer
from engines.native.serve.errors import invalid
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
from engines.native.serve.parsers.pieces import CallArguments, CallBegin, Content, Message, Piece, Reasoning, message
from engines.native.serve.parsers.reader import AnswerReader
from engines.native.serve.sourced import Sourced, pieces_body
from engines.native.serve.tools import forced


class ChatEndpoint:
    """Reads one request and writes its answers."""

    def __init__(self, model: ServedModel, body: validate.Body, max_len: int) -> None:
        self._model, self._body, self._max_len = model, body, max_len
        self._id, self._created = new_id("chatcmpl"), int(time.time())
        self._prompt: list[int] = []
        self._chat: Chat | None = None
        self._readers: dict[int, AnswerReader] = {}
        self._token_ids = False  # to be returned
        self._sources = False  # as the ids
        self._contents: dict[int, Sourced] = {}  # of each answer, text that its reader holds
        self._prompt_logprobs = -1

    async def generation(self) -> Generation:
        body, model = self._body, self._model
        validate.refuse_unsupported(body, but=("tools", "tool_choice"))
        names = ("max_completion_tokens", "max_tokens")
        self._chat = await read_chat(model, body)
        prompt = truncated(body, self._chat.prompt, names, None, self._max_len)
        validate.check_prompt(prompt, "messages", self._max_len, model.vocab_size)
        limit = validate.max_tokens(body, names, len(prompt), self._max_len, None)
        self._prompt, self._prompt_logprobs = prompt, prompt_logprobs_asked(body)
        params = validate.sampling(
            body,
            model,
            max_tokens=limit,
            logprobs=_logprobs(body),
            prompt_logprobs=self._prompt_logprobs,
        )
        params = await structured.constrained(body, params, model, thinks=True, call=forced(self._chat.tools, model))
        generation = generation_of(body, [prompt], params, self._chat)
        self._token_ids, self._sources = generation.wants_token_ids, generation.wants_sources
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
        choices = [self._choice(answer) for answer in answers]
        whole = {**self._frame("chat.completion", choices), "usage": usage_body(usage)}
        if self._token_ids:
            whole["prompt_token_ids"] = self._prompt
        if self._prompt_logprobs >= 0:
            entries = prompt_entries(self._prompt, generator.prompt_logprobs(0), self._prompt_logprobs)
            whole["prompt_logprobs"] = prompt_logprobs_body(entries, self._model.detokenizer)
        return whole

    def _choice(self, answer: Delta) -> dict[str, Any]:
        reader = self._reader(answer.index)
        pieces = reader.read(answer.reasoning, answer.text, last=True)
        guessed: dict[str, Any] = {}
        self._hold(answer)
        if self._sources:
            whole = [self._guessed(answer, piece) for piece in pieces]
            names = ("pieces", "reasoning_pieces")
            guessed = {name: [each for part in whole for each in part.get(name, ())] for name in names}
        return {
            "index": answer.index,
            "message": _message_body(message(pieces)),
            "logprobs": self._scored(answer.logprobs),
            "finish_reason": reader.finish_reason(answer.finish or ""),
            "stop_reason": answer.stopped_by,
            **self._beside(answer),
            **({"tursiops": guessed} if self._sources else {}),
        }

    def _reader(self, index: int) -> AnswerReader:
        assert self._chat is not None
        reader = self._readers.get(index)
        if reader is None:
            reader = self._readers[index] = self._chat.reader()
        return reader

    def first(self, index: int, generator: Generator) -> list[dict[str, Any]]:
        """The chunk that opens answer `index`."""
        chunk = self._chunk(index, {"role": "assistant", "content": ""})
        if self._token_ids and index == 0:
            chunk["prompt_token_ids"] = self._prompt
        return [chunk]

    def is_content(self, delta: Delta) -> bool:
        """Whether it is content and nothing else, without a look at the text: no call may come."""
        return delta.only_text and self._chat is not None and self._chat.tools is None

    def text_chunk(self, index: int, text: str) -> dict[str, Any] | None:
        if self._token_ids or self._sources or (self._chat is not None and self._chat.tools is not None):
            return None
        return self._chunk(index, {"content": text})

    def chunks(self, delta: Delta) -> list[dict[str, Any]]:
        """One chunk for each piece: reasoning, content and calls are never in one. The first carries the tokens, the
        last the end."""
        reader = self._reader(delta.index)
        pieces = reader.read(delta.reasoning, delta.text, last=delta.finish is not None)
        self._hold(delta)
        chunks = [
            self._chunk(delta.index, body, self._guessed(delta, piece))
            for piece in pieces
            if (body := _delta_body(piece)) is not None
        ]
        if delta.finish is not None and (reader.called or not chunks):
            chunks.append(self._chunk(delta.index, {}))
        elif not chunks and (delta.logprobs or self._token_ids):
            chunks = [self._chunk(delta.index, {"content": ""})]
        if chunks:
            chunks[0]["choices"][0] |= {"logprobs": self._scored(delta.logprobs), **self._beside(delta)}
        if delta.finish is not None:
            ending = {"finish_reason": reader.finish_reason(delta.finish), "stop_reason": delta.stopped_by}
            chunks[-1]["choices"][0] |= ending
        return chunks

    def _beside(self, delta: Delta) -> dict[str, Any]:
        """vLLM's field of a choice: its ids, where asked for."""
        return {"token_ids": delta.token_ids} if self._token_ids else {}

    def _hold(self, delta: Delta) -> None:
        """Text goes to the reader, which may give it back later, or as a call."""
        for piece in delta.pieces or ():
            self._contents.setdefault(delta.index, Sourced()).push(*piece)

    def _guessed(self, delta: Delta, piece: Piece) -> dict[str, Any]:
        """Who guessed a piece of content or reasoning; of calls nothing is told."""
        match piece:
            case Content(text) if self._sources:
                return {"pieces": pieces_body(self._contents.setdefault(delta.index, Sourced()).take(text))}
            case Reasoning() if self._sources:
                return {"reasoning_pieces": pieces_body(delta.reasoning_pieces or ())}
        return {}

    def last(self, usage: Usage) -> dict[str, Any]:
        return {**self._frame("chat.completion.chunk", []), "usage": usage_body(usage)}

    def _chunk(self, index: int, delta: dict[str, Any], guessed: dict[str, Any] | None = None) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        if guessed:
            choice["tursiops"] = guessed
        return self._frame("chat.completion.chunk", [choice])

    def _scored(self, logprobs: list[TokenLogprob]) -> dict[str, Any] | None:
        if not logprobs:
            return None
        return {"content": [_scored_token(self._model.detokenizer, entry) for entry in logprobs], "refusal": None}


def _message_body(whole: Message) -> dict[str, Any]:
    """`reasoning` is vLLM's name, `reasoning_content` DeepSeek's and vLLM's old one; clients ask for either."""
    body: dict[str, Any] = {"role": "assistant", "content": whole.content, "refusal": None}
    if whole.reasoning is not None:
        body |= {"reasoning_content": whole.reasoning, "reasoning": whole.reasoning}
    if whole.calls:
        body["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in whole.calls
        ]
    return body


def _delta_body(piece: Piece) -> dict[str, Any] | None:
    """As OpenAI streams it: of a call first index, id, type and name, then its arguments by index."""
    match piece:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text, "reasoning": text}
        case CallBegin(index, call_id, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
    return None  # the end of a call says nothing that its client doesn't see


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
    """Messages and tools to prompt ids. Raises ApiError 400 naming the part at fault."""
    return (await read_chat(model, body)).prompt
