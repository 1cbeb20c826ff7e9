"""The three ways in which /v1 is spoken: OpenAI's completions, OpenAI's responses, Anthropic's messages.

A dialect knows where an answer tells its usage, its reason to end and its last event, which events say nothing yet, and
how a refusal is written. The text itself passes through unread.
"""

from __future__ import annotations

from typing import Annotated, Any, Protocol, TypeVar

import msgspec
import orjson

from tursiops.gateway.errors import GatewayError
from tursiops.gateway.events import Reader, Seen


class Dialect(Reader, Protocol):
    asks_for_usage: bool  # a stream tells it only where `stream_options.include_usage` is set
    ending: str  # what the last event of a whole stream is called

    def says_nothing(self, data: bytes) -> bool:
        """Whether one event's data has no content yet: an error right after it can still fail over."""
        ...

    def read_whole(self, body: bytes, seen: Seen) -> None:
        """Write into `seen` what an answer that was not streamed tells."""
        ...

    def refusal(self, error: GatewayError) -> bytes: ...

    def error_event(self, error: GatewayError) -> bytes:
        """A refusal as the last event of a stream that has begun."""
        ...


Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
"""Tokens. An engine that says anything else is not believed: what has passed is counted instead."""
T = TypeVar("T")


def _decoded(decoder: msgspec.json.Decoder[T], data: bytes) -> T | None:
    """None for what is no JSON, of another form, or nested so deep that nobody reads it."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: Count | None = 0


class _Usage(msgspec.Struct, frozen=True):
    """All dialects' spellings: one answer uses one of them."""

    prompt_tokens: Count | None = 0
    completion_tokens: Count | None = 0
    total_tokens: Count | None = 0  # all that some engines tell of a rerank
    prompt_tokens_details: _Details | None = None
    input_tokens: Count | None = 0
    output_tokens: Count | None = 0
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: Count | None = 0
    cache_creation_input_tokens: Count | None = 0


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: msgspec.Raw | None = None


class _Choice(msgspec.Struct, frozen=True):
    finish_reason: str | None = None
    delta: _Delta | None = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...] | None = None
    usage: _Usage | None = None
    error: dict[str, Any] | str | None = None


_chunks = msgspec.json.Decoder(_Chunk)


def _error_of(error: dict[str, Any] | str) -> dict[str, Any]:
    return error if isinstance(error, dict) else {"message": error}


class OpenAI:
    """/v1/chat/completions, /v1/completions and all that is not streamed."""

    asks_for_usage = True
    ending = "[DONE]"

    def tells(self, data: bytes) -> bool:
        find = data.find  # `in` first tries whether the pattern is a number, and makes an error of it each time
        return (
            find(b'"usage":{') >= 0
            or find(b"[DONE]") >= 0
            or find(b'"error"') >= 0
            or find(b'"usage": {') >= 0
            or find(b'"finish_reason":"') >= 0
            or find(b'"finish_reason": "') >= 0
        )

    def text_events(self, data: bytes) -> int:
        ends = data.count(b"\n\n") or data.count(b"\n\r\n")  # line ends inside JSON are escaped
        comments = data.count(b"\n:") + data.startswith(b":")  # they keep connections alive, and say nothing
        return max(0, ends - comments) if comments else ends

    def account(self, data: bytes, seen: Seen, keep_usage: bool) -> bool:
        if data == b"[DONE]":
            seen.done = True
            return True
        chunk = self._decode(data)
        if chunk is None:
            seen.events += 1
            return True
        if chunk.error is not None:
            seen.error = _error_of(chunk.error)
            return True
        self._count(chunk, seen)
        if not chunk.choices:
            return keep_usage or chunk.usage is None
        seen.events += 1
        return True

    def says_nothing(self, data: bytes) -> bool:
        chunk = self._decode(data)
        if chunk is None or chunk.error is not None or not chunk.choices or chunk.usage is not None:
            return False
        return all(
            choice.finish_reason is None
            and choice.delta is not None
            and not choice.delta.content
            and not choice.delta.reasoning_content
            and choice.delta.tool_calls is None
            for choice in chunk.choices
        )

    def read_whole(self, body: bytes, seen: Seen) -> None:
        chunk = self._decode(body)
        if chunk is not None:
            self._count(chunk, seen)

    def refusal(self, error: GatewayError) -> bytes:
        return error.json()

    def error_event(self, error: GatewayError) -> bytes:
        return b"data: " + error.json() + b"\n\n"

    def _decode(self, data: bytes) -> _Chunk | None:
        return _decoded(_chunks, data)

    def _count(self, chunk: _Chunk, seen: Seen) -> None:
        if chunk.usage is not None:
            usage, details = chunk.usage, chunk.usage.prompt_tokens_details
            seen.has_usage, seen.completion_tokens = True, usage.completion_tokens or 0
            seen.prompt_tokens = usage.prompt_tokens or max(0, (usage.total_tokens or 0) - seen.completion_tokens)
            seen.cached_tokens = (details.cached_tokens or 0) if details else 0
        for choice in chunk.choices or ():
            seen.finish_reason = choice.finish_reason or seen.finish_reason


class _Incomplete(msgspec.Struct, frozen=True):
    reason: str | None = None


class _Response(msgspec.Struct, frozen=True):
    status: str | None = None
    usage: _Usage | None = None
    error: dict[str, Any] | None = None
    incomplete_details: _Incomplete | None = None


class _ResponseEvent(msgspec.Struct, frozen=True):
    type: str = ""
    response: _Response | None = None
    code: str | None = None
    message: str | None = None


_response_events = msgspec.json.Decoder(_ResponseEvent)
_responses = msgspec.json.Decoder(_Response)
_OPENING = frozenset(
    ("response.created", "response.in_progress", "response.output_item.added", "response.content_part.added")
)
_FINAL = frozenset(("response.completed", "response.incomplete", "response.failed"))


class Responses:
    """/v1/responses."""

    asks_for_usage = False
    ending = "response.completed"

    def tells(self, data: bytes) -> bool:
        return data.count(b"event: ") != data.count(b"event: response.output_text.delta")

    def text_events(self, data: bytes) -> int:
        return data.count(b"event: response.output_text.delta")

    def account(self, data: bytes, seen: Seen, keep_usage: bool) -> bool:
        event = self._decode(data)
        if event is None:
            return True
        if event.type.endswith(".delta"):
            seen.events += 1
        elif event.type == "error":
            seen.error = {"code": event.code, "message": event.message or ""}
        elif event.type in _FINAL and event.response is not None:
            seen.done = True
            self._count(event.response, seen)
        return True

    def says_nothing(self, data: bytes) -> bool:
        event = self._decode(data)
        return event is not None and event.type in _OPENING

    def read_whole(self, body: bytes, seen: Seen) -> None:
        response = _decoded(_responses, body)
        if response is not None:
            self._count(response, seen)

    def refusal(self, error: GatewayError) -> bytes:
        return error.json()

    def error_event(self, error: GatewayError) -> bytes:
        said = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        return b"event: error\ndata: " + orjson.dumps(said) + b"\n\n"

    def _decode(self, data: bytes) -> _ResponseEvent | None:
        return _decoded(_response_events, data)

    def _count(self, response: _Response, seen: Seen) -> None:
        if response.usage is not None:
            details = response.usage.input_tokens_details
            seen.has_usage = True
            seen.prompt_tokens = response.usage.input_tokens or 0
            seen.completion_tokens = response.usage.output_tokens or 0
            seen.cached_tokens = (details.cached_tokens or 0) if details else 0
        if response.status == "failed":
            seen.error = response.error or {"message": "the response failed"}
        seen.finish_reason = {"completed": "stop", "incomplete": "length"}.get(response.status or "", "")


class _Stop(msgspec.Struct, frozen=True):
    stop_reason: str | None = None
    usage: _Usage | None = None


class _MessageEvent(msgspec.Struct, frozen=True):
    type: str = ""
    message: _Stop | None = None
    delta: _Stop | None = None
    usage: _Usage | None = None
    error: dict[str, Any] | str | None = None


_message_events = msgspec.json.Decoder(_MessageEvent)
_stops = msgspec.json.Decoder(_Stop)
_FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class Anthropic:
    """/v1/messages (https://docs.anthropic.com/en/api/messages-streaming, /errors)."""

    asks_for_usage = False
    ending = "message_stop"

    def tells(self, data: bytes) -> bool:
        return data.count(b"event: ") != data.count(b"event: content_block_delta")

    def text_events(self, data: bytes) -> int:
        return data.count(b"event: content_block_delta")

    def account(self, data: bytes, seen: Seen, keep_usage: bool) -> bool:
        event = self._decode(data)
        if event is None:
            return True
        if event.type == "content_block_delta":
            seen.events += 1
        elif event.type == "message_start" and event.message is not None:
            self._count(event.message.usage, seen)
            seen.has_usage = False  # its output tokens are still to come
        elif event.type == "message_delta":
            self._count(event.usage, seen)
            if event.delta is not None:
                seen.finish_reason = _FINISH.get(event.delta.stop_reason or "", event.delta.stop_reason or "")
        elif event.type == "message_stop":
            seen.done = True
        elif event.type == "error":
            seen.error = _error_of(event.error or {})
        return True

    def says_nothing(self, data: bytes) -> bool:
        event = self._decode(data)
        return event is not None and event.type in ("message_start", "content_block_start", "ping")

    def read_whole(self, body: bytes, seen: Seen) -> None:
        message = _decoded(_stops, body)
        if message is None:
            return
        self._count(message.usage, seen)
        seen.finish_reason = _FINISH.get(message.stop_reason or "", message.stop_reason or "")

    def refusal(self, error: GatewayError) -> bytes:
        kind = _ANTHROPIC_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
        return orjson.dumps({"type": "error", "error": {"type": kind, "message": error.message}})

    def error_event(self, error: GatewayError) -> bytes:
        return b"event: error\ndata: " + self.refusal(error) + b"\n\n"

    def _decode(self, data: bytes) -> _MessageEvent | None:
        return _decoded(_message_events, data)

    def _count(self, usage: _Usage | None, seen: Seen) -> None:
        """Input tokens come first, output tokens last; a field that an event leaves out keeps its value."""
        if usage is None:
            return
        cached = usage.cache_read_input_tokens or 0
        prompt = (usage.input_tokens or 0) + cached + (usage.cache_creation_input_tokens or 0)
        seen.has_usage = True
        seen.prompt_tokens = min(prompt, 2**31 - 1) or seen.prompt_tokens
        seen.cached_tokens = cached or seen.cached_tokens
        seen.completion_tokens = usage.output_tokens or 0


OPENAI = OpenAI()
RESPONSES = Responses()
ANTHROPIC = Anthropic()
