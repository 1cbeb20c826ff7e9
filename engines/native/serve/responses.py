"""POST /v1/responses: the text part of OpenAI's Responses API, asked of the chat endpoint. Nothing is stored here, so a
response can't be referred to later: that is refused by name. (What a stream looks like is in response_events.py.)"""

from __future__ import annotations

import time
from typing import Any

from engines.native.serve import validate
from engines.native.serve.chat import ChatEndpoint
from engines.native.serve.errors import ApiError, invalid, unsupported
from engines.native.serve.generate import Delta, Generation, Generator, Usage
from engines.native.serve.ids import new_id
from engines.native.serve.model import ServedModel
from engines.native.serve.response_input import chat_messages
from engines.native.serve.said import Piece, carried, pieces, renamed

_NAMES = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "messages": "input",
    "response_format": "text.format",
}
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
    "background": (False,),
    "store": (False,),
    "truncation": ("disabled",),
    "max_tool_calls": (),
    "context_management": (),
    "moderation": (),
}
"""Fields that this engine can't do, with the values that ask for nothing."""
_OWN = (
    "model",
    "input",
    "instructions",
    "max_output_tokens",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "text",
    "reasoning",
    "include",
    "top_logprobs",
    "metadata",
    "service_tier",
    "user",
    *_NEUTRAL,
)
"""Fields that are not the chat's, or are written in another way there."""
_REASONS = {
    "store": "store must be false or left out: nothing is stored here",
    "previous_response_id": "previous_response_id is not supported: nothing is stored here; send the conversation",
    "truncation": "truncation must be disabled: an input that is too long is refused, never cut",
}
_LOGPROBS = "message.output_text.logprobs"


class ResponsesEndpoint:
    """Reads one request and writes its answer."""

    def __init__(self, model: ServedModel, body: validate.Body, max_len: int) -> None:
        self._id, self._created, self._body, self._model = new_id("resp"), int(time.time()), body, model
        for name, neutral in _NEUTRAL.items():
            if body.get(name) is not None and body[name] not in neutral:
                raise unsupported(name, _REASONS.get(name, f"{name} is not supported by this engine"))
        for name in ("reasoning", "metadata"):
            if body.get(name) is not None and not isinstance(body[name], dict):
                raise invalid(name, f"{name} must be an object", "invalid_type")
        self.chat = ChatEndpoint(model, self._chat_body(), max_len)

    async def generation(self) -> Generation:
        try:
            return await self.chat.generation()
        except ApiError as error:
            raise renamed(error, _NAMES) from error

    def whole(self, answers: list[Delta], usage: Usage, generator: Generator) -> dict[str, Any]:
        choice = self.chat.whole(answers, usage, generator)["choices"][0]
        output: list[dict[str, Any]] = []
        for piece in pieces(choice["message"]):
            if piece.kind == "arguments":
                output[-1]["arguments"] = piece.text
            else:
                output.append(item(piece, "completed"))
        scored = (choice["logprobs"] or {}).get("content")
        for each in output:
            if scored and each["type"] == "message":
                each["content"][0]["logprobs"] = scored
        return self.response(output, finish=choice["finish_reason"], usage=usage)

    def response(
        self, output: list[dict[str, Any]], *, finish: str | None = None, usage: Usage | None = None
    ) -> dict[str, Any]:
        """The response; in progress while `finish`, the chat's reason of the end, is None."""
        body, defaults = self._body, self._model.defaults
        cut = finish == "length"
        if cut and output:
            output[-1]["status"] = "incomplete"
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": "in_progress" if finish is None else "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "metadata": body.get("metadata") or {},
            "model": self._model.name,
            "output": output,
            "parallel_tool_calls": validate.boolean(body, "parallel_tool_calls", True),
            "previous_response_id": None,
            "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
            "store": False,
            "temperature": validate.number(body, "temperature", defaults.get("temperature", 1.0), 0.0, 2.0),
            "text": {"format": self._format or {"type": "text"}},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "top_p": validate.number(body, "top_p", defaults.get("top_p", 1.0), 0.0, 1.0),
            "truncation": "disabled",
            "usage": None if usage is None else _usage_body(usage),
            "user": body.get("user"),
        }

    def _chat_body(self) -> validate.Body:
        body = self._body
        chat = {**carried(body, _OWN), "model": body.get("model"), "stream": body.get("stream")}
        instructions = validate.string(body, "instructions")
        system = [{"role": "system", "content": instructions}] if instructions else []
        chat["messages"] = [*system, *chat_messages(body.get("input"))]
        if body.get("max_output_tokens") is not None:
            chat["max_tokens"] = validate.integer(body, "max_output_tokens", 0, 1, 2**63 - 1)
        self._read_logprobs(chat)
        self._read_tools(chat)
        self._format = self._read_format(chat)
        if (effort := (body.get("reasoning") or {}).get("effort")) is not None:
            chat["reasoning_effort"] = effort
        return chat

    def _read_logprobs(self, chat: validate.Body) -> None:
        include = self._body.get("include") or []
        if not isinstance(include, list) or any(name != _LOGPROBS for name in include):
            raise unsupported("include", f"include may hold {_LOGPROBS} only")
        top = validate.integer(self._body, "top_logprobs", 0, 0, validate.MAX_TOP_LOGPROBS)
        if include or top:
            chat |= {"logprobs": True, "top_logprobs": top}

    def _read_tools(self, chat: validate.Body) -> None:
        """Flat here, nested in the chat."""
        tools, choice = self._body.get("tools"), self._body.get("tool_choice")
        if tools:
            if not isinstance(tools, list):
                raise invalid("tools", "tools must be an array of objects", "invalid_type")
            chat["tools"] = []
            for index, tool in enumerate(tools):
                if not isinstance(tool, dict) or tool.get("type") != "function":
                    message = f"tools[{index}] must be of type function; built-in tools are not supported"
                    raise unsupported(f"tools[{index}]", message)
                function = {name: value for name, value in tool.items() if name != "type" and value is not None}
                chat["tools"].append({"type": "function", "function": function})
        if isinstance(choice, dict):
            chat["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
        elif choice is not None:
            chat["tool_choice"] = choice

    def _read_format(self, chat: validate.Body) -> dict[str, Any] | None:
        text = self._body.get("text")
        if text is None:
            return None
        wanted = text.get("format") or {"type": "text"} if isinstance(text, dict) else None
        if not isinstance(wanted, dict):
            raise invalid("text", "text must be an object with a format", "invalid_type")
        chat["verbosity"] = text.get("verbosity")
        match wanted.get("type"):
            case "text" | "json_object":
                chat["response_format"] = {"type": wanted["type"]}
            case "json_schema":
                schema = {name: value for name, value in wanted.items() if name != "type" and value is not None}
                chat["response_format"] = {"type": "json_schema", "json_schema": schema}
            case _:
                raise invalid("text.format", "text.format.type must be text, json_object or json_schema")
        return wanted


def item(piece: Piece, status: str) -> dict[str, Any]:
    """An output item with what the piece says; a call's arguments follow."""
    if piece.kind == "thinking":
        content = [{"type": "reasoning_text", "text": piece.text}] if piece.text else []
        return {"id": new_id("rs"), "type": "reasoning", "summary": [], "content": content, "status": status}
    if piece.kind == "call":
        return {
            "id": new_id("fc"),
            "type": "function_call",
            "call_id": piece.id,
            "name": piece.name,
            "arguments": "",
            "status": status,
        }
    content = [text_part(piece.text)] if piece.text else []
    return {"id": new_id("msg"), "type": "message", "role": "assistant", "content": content, "status": status}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage_body(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
