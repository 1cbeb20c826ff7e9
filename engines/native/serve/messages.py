"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's API, asked of the chat endpoint.
(https://docs.anthropic.com/en/api/messages; what a stream looks like is in message_events.py.)"""

from __future__ import annotations

from typing import Any

import orjson

from engines.native.serve import validate
from engines.native.serve.chat import ChatEndpoint, chat_prompt
from engines.native.serve.errors import ApiError, invalid, unsupported
from engines.native.serve.generate import Delta, Generation, Generator, Usage
from engines.native.serve.ids import new_id
from engines.native.serve.model import ServedModel
from engines.native.serve.said import Piece, carried, pieces, renamed

_NAMES = {"stop": "stop_sequences", "response_format": "output_config", "enable_thinking": "thinking"}
_UNSUPPORTED = ("container", "context_management", "mcp_servers")
_OWN = (
    "model",
    "messages",
    "system",
    "max_tokens",
    "stop_sequences",
    "stream",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "metadata",
    "service_tier",
    *_UNSUPPORTED,
)
"""Fields that are not the chat's, or are written in another way there."""
_ROLES = ("user", "assistant", "system")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class MessagesEndpoint:
    """Reads one request and writes its answer."""

    def __init__(self, model: ServedModel, body: validate.Body, max_len: int) -> None:
        self.id, self.model_name = new_id("msg"), model.name
        if body.get("max_tokens") is None:
            raise invalid("max_tokens", "max_tokens is required: the most tokens to generate", "missing")
        self._max_tokens = validate.integer(body, "max_tokens", 0, 1, 2**63 - 1)
        self.chat = ChatEndpoint(model, {**chat_body(model, body), "max_tokens": self._max_tokens}, max_len)

    async def generation(self) -> Generation:
        try:
            return await self.chat.generation()
        except ApiError as error:
            raise renamed(error, _NAMES) from error

    def whole(self, answers: list[Delta], usage: Usage, generator: Generator) -> dict[str, Any]:
        choice = self.chat.whole(answers, usage, generator)["choices"][0]
        content: list[dict[str, Any]] = []
        for piece in pieces(choice["message"]):
            if piece.kind == "arguments":
                content[-1]["input"] = _input(piece.text)
            else:
                content.append(block(piece))
        ending = self.ending(choice["finish_reason"], answers[0].stopped_by, usage)
        return {**self.message(usage), "content": content, **ending}

    def message(self, usage: Usage) -> dict[str, Any]:
        """The answer before its first word."""
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model_name,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_body(usage),
        }

    def ending(self, finish: str, stopped_by: str | int | None, usage: Usage) -> dict[str, Any]:
        """stop_reason and stop_sequence. `finish` is the chat's."""
        if isinstance(stopped_by, str):
            return {"stop_reason": "stop_sequence", "stop_sequence": stopped_by}
        reason = {"tool_calls": "tool_use", "length": "max_tokens"}.get(finish, "end_turn")
        if reason == "max_tokens" and usage.completion_tokens < self._max_tokens:
            reason = "model_context_window_exceeded"
        return {"stop_reason": reason, "stop_sequence": None}


async def count_tokens(model: ServedModel, body: validate.Body) -> dict[str, Any]:
    try:
        return {"input_tokens": len(await chat_prompt(model, chat_body(model, body)))}
    except ApiError as error:
        raise renamed(error, _NAMES) from error


def usage_body(usage: Usage) -> dict[str, Any]:
    """Tokens that came from the cache are not among the input tokens."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def block(piece: Piece) -> dict[str, Any]:
    """A content block with what the piece says; a call's input follows."""
    if piece.kind == "thinking":
        return {"type": "thinking", "thinking": piece.text, "signature": ""}
    if piece.kind == "call":
        return {"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}}
    return {"type": "text", "text": piece.text}


def error_body(error: ApiError) -> dict[str, Any]:
    """Anthropic's shape. The field at fault stands in the message there."""
    kinds = {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
        504: "timeout_error",
    }
    kind = kinds.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    message = error.message
    if error.param is not None and error.param not in message:
        message = f"{error.param}: {message}"
    return {"type": "error", "error": {"type": kind, "message": message}}


def _input(arguments: str) -> dict[str, Any]:
    """A call that max_tokens cut off is no JSON; its text is passed on as it is."""
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {"partial_json": arguments}


# The request, in the chat's words


def chat_body(model: ServedModel, body: validate.Body) -> validate.Body:
    """Raises ApiError 400 naming the field as Anthropic calls it."""
    for name in _UNSUPPORTED:
        if body.get(name):
            raise unsupported(name, f"{name} is not supported by this engine")
    chat = {**carried(body, _OWN), "model": body.get("model"), "stream": body.get("stream")}
    chat["messages"] = [*_system(body.get("system")), *_messages(body.get("messages"))]
    if body.get("stop_sequences") is not None:
        if not isinstance(body["stop_sequences"], list):
            raise invalid("stop_sequences", "stop_sequences must be an array of strings", "invalid_type")
        chat["stop"] = body["stop_sequences"]
    last = chat["messages"][-1]
    if last["role"] == "assistant" and "tool_calls" not in last:  # the beginning of the answer is given
        chat["continue_final_message"] = True
    _read_tools(body, chat)
    _read_thinking(model, body, chat)
    _read_format(body, chat)
    return chat


def _system(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    return [{"role": "system", "content": _text(value, "system")}]


def _messages(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise invalid("messages", "messages must be an array of at least one message", "invalid_type")
    found: list[dict[str, Any]] = []
    for index, message in enumerate(value):
        param = f"messages[{index}]"
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise invalid(f"{param}.role", f"{param} must be an object with role {', '.join(_ROLES)}")
        found += _turn(message["role"], message.get("content"), f"{param}.content")
    return found


def _turn(role: str, content: Any, param: str) -> list[dict[str, Any]]:
    """The chat's messages for one of Anthropic's: results of tools are messages of their own there."""
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if not isinstance(content, list) or not content:
        raise invalid(param, f"{param} must be a string or an array of content blocks", "invalid_type")
    found: list[dict[str, Any]] = []
    texts: list[str] = []
    said: dict[str, Any] = {}
    for index, part in enumerate(content):
        here = f"{param}[{index}]"
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "thinking", "thinking": str(text)} if role == "assistant":
                said["reasoning_content"] = said.get("reasoning_content", "") + text
            case {"type": "tool_use", "id": str(call), "name": str(name)} if role == "assistant":
                arguments = orjson.dumps(part.get("input") or {}).decode()
                function = {"name": name, "arguments": arguments}
                said.setdefault("tool_calls", []).append({"id": call, "type": "function", "function": function})
            case {"type": "tool_result", "tool_use_id": str(call)} if role == "user":
                if texts:
                    found.append({"role": role, "content": "".join(texts)})
                    texts = []
                text = _text(part.get("content") or "", f"{here}.content")
                text = f"Error: {text}" if validate.boolean(part, "is_error") else text
                found.append({"role": "tool", "tool_call_id": call, "content": text})
            case _:
                kind = part.get("type") if isinstance(part, dict) else type(part).__name__
                message = f"{here} is {str(kind)[:40]!r}, or lacks a field; a {role} message may hold " + (
                    "text, thinking and tool_use" if role == "assistant" else "text and tool_result"
                )
                raise invalid(here, message, "unsupported_value")
    if texts or said or not found:
        found.append({"role": role, "content": "".join(texts), **said})
    return found


def _text(value: Any, param: str) -> str:
    """A string, or text blocks, which are joined."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise invalid(param, f"{param} must be a string or an array of text blocks", "invalid_type")
    texts = []
    for index, part in enumerate(value):
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            here = f"{param}[{index}]"
            raise invalid(here, f"{here} must be a text block; this model takes text only", "unsupported_value")
        texts.append(part["text"])
    return "".join(texts)


def _read_tools(body: validate.Body, chat: validate.Body) -> None:
    tools, choice = body.get("tools"), body.get("tool_choice")
    if tools:
        if not isinstance(tools, list):
            raise invalid("tools", "tools must be an array of objects", "invalid_type")
        chat["tools"] = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "tool" and isinstance(choice.get("name"), str):
        chat["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
    elif isinstance(kind, str) and kind in _CHOICES:
        chat["tool_choice"] = _CHOICES[kind]
    else:
        raise invalid("tool_choice", "tool_choice.type must be auto, any, none, or tool with a name")
    if validate.boolean(choice, "disable_parallel_tool_use"):
        chat["parallel_tool_calls"] = False


def _tool(tool: Any, param: str) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") not in (None, "custom"):
        raise invalid(param, f"{param} must be a tool of the client's own: name, description, input_schema")
    if not isinstance(tool.get("name"), str) or not isinstance(tool.get("input_schema"), dict):
        raise invalid(param, f"{param} must have a name and an input_schema", "invalid_type")
    function = {"name": tool["name"], "parameters": tool["input_schema"]}
    function |= {name: tool[name] for name in ("description", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": function}


def _read_thinking(model: ServedModel, body: validate.Body, chat: validate.Body) -> None:
    """Whether the template opens a thinking part. Its length is bounded by max_tokens, not by budget_tokens."""
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind not in ("enabled", "disabled", "adaptive"):
        raise invalid("thinking", "thinking.type must be enabled, disabled or adaptive")
    if kind == "enabled" and model.reasoning is None:
        raise unsupported("thinking", f"the model {model.name} does not think")
    extra = chat.get("chat_template_kwargs") or {}
    if kind != "adaptive" and isinstance(extra, dict):
        chat["chat_template_kwargs"] = {"enable_thinking": kind == "enabled", **extra}


def _read_format(body: validate.Body, chat: validate.Body) -> None:
    config = body.get("output_config")
    if not config:
        return
    if not isinstance(config, dict) or set(config) - {"format"}:
        raise unsupported("output_config", "output_config must be an object; of its fields, format is supported")
    match config.get("format"):
        case {"type": "json_schema", "schema": dict(schema)}:
            chat["response_format"] = {"type": "json_schema", "json_schema": {"name": "output", "schema": schema}}
        case None:
            return
        case _:
            raise invalid("output_config", "output_config.format must be {type: json_schema, schema: …}")
