"""What a chat answer says, piece by piece, for the APIs that are other spellings of a chat (messages, responses).

They ask the chat endpoint, in its own words, and read its answers, so that templates, tool calls and reasoning are
known in one place only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from engines.native.serve import validate
from engines.native.serve.errors import ApiError, unsupported

_CHATS_OWN = (
    "n",
    "best_of",
    "stop",
    "functions",
    "max_completion_tokens",
    "prompt_logprobs",
    "response_format",
    "return_draft_sources",
    "return_token_ids",
    "stream_options",
    "truncate_prompt_tokens",
)
"""Fields of the chat endpoint that these APIs say in another way, or whose results they have no place for."""


def carried(body: validate.Body, own: Collection[str]) -> validate.Body:
    """The fields that mean to the chat endpoint what they mean here: all but the API's `own`. Raises ApiError 400 for
    one that would change the answer and has no place here."""
    for name in _CHATS_OWN:
        if name not in own and body.get(name) is not None:
            raise unsupported(name, f"{name} is an option of /v1/chat/completions; this endpoint has none of that name")
    return {name: value for name, value in body.items() if name not in own}


@dataclass(frozen=True, slots=True)
class Piece:
    """kind `call` begins a tool call (its id and name); `arguments` belong to the last one."""

    kind: Literal["thinking", "text", "call", "arguments"]
    text: str = ""
    id: str = ""
    name: str = ""


def pieces(message: dict[str, Any]) -> Iterator[Piece]:
    """Of a chat's message, or of the delta of one chunk."""
    if thinking := message.get("reasoning_content") or message.get("reasoning"):
        yield Piece("thinking", thinking)
    if text := message.get("content"):
        yield Piece("text", text)
    for call in message.get("tool_calls") or ():
        function = call["function"]
        if call.get("id"):
            yield Piece("call", id=call["id"], name=function["name"])
        if function.get("arguments"):
            yield Piece("arguments", function["arguments"])


def renamed(error: ApiError, names: dict[str, str]) -> ApiError:
    """An error of the chat endpoint, naming the field as the client wrote it."""
    param = error.param
    if param is None:
        return error
    head = re.split(r"[.\[]", param)[0]
    if head not in names and head != "messages":  # whose parts the client numbers in another way
        return error
    named = names.get(head, head)
    message = error.message.replace(param, named)
    return ApiError(error.status, message, param=named, code=error.code, retry_after=error.retry_after)
