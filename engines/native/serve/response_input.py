"""The `input` of a response in the chat's words."""

from __future__ import annotations

from typing import Any

from engines.native.serve.errors import invalid, unsupported

_ROLES = ("user", "assistant", "system", "developer")
_TEXTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")


def chat_messages(value: Any) -> list[dict[str, Any]]:
    """A text, or items: messages, function calls, their outputs, reasoning. What the assistant thought, said and called
    in a row is one message in a chat. Raises ApiError 400 naming the item."""
    if isinstance(value, str):
        if not value:
            raise invalid("input", "input is empty; give at least one character", "empty_prompt")
        return [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise invalid("input", "input must be a string or an array of at least one item", "invalid_type")
    messages: list[dict[str, Any]] = []
    for index, item in enumerate(value):
        param = f"input[{index}]"
        if not isinstance(item, dict):
            raise invalid(param, f"{param} must be an object", "invalid_type")
        match item:
            case {"type": "function_call", "call_id": str(call), "name": str(name), "arguments": str(arguments)}:
                function = {"name": name, "arguments": arguments}
                _assistant(messages).setdefault("tool_calls", []).append(
                    {"id": call, "type": "function", "function": function}
                )
            case {"type": "function_call_output", "call_id": str(call)}:
                text = _text(item.get("output"), f"{param}.output")
                messages.append({"role": "tool", "tool_call_id": call, "content": text})
            case {"type": "reasoning"}:
                field = "content" if item.get("content") else "summary"
                text = _text(item.get(field) or "", f"{param}.{field}")
                messages.append({"role": "assistant", "content": "", "reasoning_content": text})
            case {"role": role} if item.get("type", "message") == "message":
                if role not in _ROLES:
                    raise invalid(f"{param}.role", f"{param}.role must be one of {', '.join(_ROLES)}")
                text = _text(item.get("content"), f"{param}.content")
                if role == "assistant" and messages and _is_thought(messages[-1]):
                    messages[-1]["content"] = text
                else:
                    messages.append({"role": role, "content": text})
            case _:
                kind = str(item.get("type"))[:40]
                known = "message, function_call, function_call_output and reasoning, each with its fields"
                raise unsupported(param, f"{param} is of type {kind!r} or lacks a field; supported: {known}")
    return messages


def _is_thought(message: dict[str, Any]) -> bool:
    return message["role"] == "assistant" and "reasoning_content" in message and not message["content"]


def _assistant(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message at the end, begun if there is none."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def _text(value: Any, param: str) -> str:
    """A string, or text parts, which are joined."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise invalid(param, f"{param} must be a string or an array of text parts", "invalid_type")
    texts = []
    for index, part in enumerate(value):
        if not isinstance(part, dict) or part.get("type") not in _TEXTS or not isinstance(part.get("text"), str):
            here = f"{param}[{index}]"
            raise invalid(here, f"{here} must be a text part; this model takes text only", "unsupported_value")
        texts.append(part["text"])
    return "".join(texts)
