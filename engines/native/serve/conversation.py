"""What a chat request says: messages, tools, how the model's template makes a prompt of them, who reads the answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from engines.native.serve import validate
from engines.native.serve.detokenize import Detokenizer
from engines.native.serve.errors import ApiError, invalid
from engines.native.serve.model import ServedModel
from engines.native.serve.parsers.reader import AnswerReader
from engines.native.serve.parsers.registry import TOOL_PARSERS
from engines.native.serve.template import ChatTemplate
from engines.native.serve.tools import Tools, read_tools

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat request, read. thinking: the prompt has begun the reasoning. tools: None where no call may come."""

    model: ServedModel
    prompt: list[int]
    thinking: bool
    tools: Tools | None
    include_reasoning: bool

    @property
    def detokenizer(self) -> Detokenizer | None:
        """To read the answer with; None for the model's own."""
        return self.model.tagged if self.tools is not None or self.model.reasoning is not None else None

    def reader(self) -> AnswerReader:
        """For one answer."""
        if self.tools is None or self.model.tool_parser is None:
            return AnswerReader(None, reasoning=self.include_reasoning)
        parser = TOOL_PARSERS[self.model.tool_parser](self.tools.names)
        return AnswerReader(parser, parallel=self.tools.parallel, reasoning=self.include_reasoning)


async def read_chat(model: ServedModel, body: validate.Body) -> Chat:
    """Messages to prompt ids by the model's own template. Raises ApiError 400 naming the part at fault."""
    template = model.template
    if template is None:
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
    messages = read_messages(body.get("messages"), template.no_content)
    tools = read_tools(body, model)
    if tools is not None:
        names["tools"] = tools.given
    if effort := validate.string(body, "reasoning_effort"):
        names.setdefault("reasoning_effort", effort)  # templates that know it say it in their own way
    text = _render(template, messages, names, goes_on)
    return Chat(
        model=model,
        prompt=await model.encode(text, add_bos=validate.boolean(body, "add_special_tokens")),
        thinking=model.reasoning is not None and model.reasoning.opened_by(text, messages[-1] if goes_on else None),
        tools=tools,
        include_reasoning=validate.boolean(body, "include_reasoning", True),
    )


def _render(template: ChatTemplate, messages: list[dict[str, Any]], names: dict[str, Any], goes_on: bool) -> str:
    """Most templates want the arguments of earlier calls as objects; some (DeepSeek) join them as text."""
    try:
        return template.render(messages, names, goes_on=goes_on)
    except ApiError:
        functions = [call["function"] for message in messages for call in message.get("tool_calls", ())]
        if not functions:
            raise
        for function in functions:
            if not isinstance(function["arguments"], str):
                function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
        return template.render(messages, names, goes_on=goes_on)


def read_messages(value: Any, no_content: str | None = "") -> list[dict[str, Any]]:
    """Messages as templates know them; `no_content` beside calls alone. Raises ApiError 400 naming the field."""
    if not isinstance(value, list):
        raise invalid("messages", "messages must be an array of objects", "invalid_type")
    if not value:
        raise invalid("messages", "messages is empty; give at least one message", "empty_prompt")
    return [_message(message, f"messages[{index}]", no_content) for index, message in enumerate(value)]


def _message(value: Any, param: str, no_content: str | None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise invalid(param, f"{param} must be an object", "invalid_type")
    role = value.get("role")
    if role not in _ROLES:
        said = "missing" if role is None else repr(str(role)[:40])
        raise invalid(f"{param}.role", f"{param}.role is {said}; it must be one of {', '.join(_ROLES)}")
    if value.get("function_call"):
        refusal = f"{param}.function_call is the form before tool calls; send the call as tool_calls"
        raise invalid(f"{param}.function_call", refusal, "unsupported_value")
    calls = _tool_calls(value.get("tool_calls"), f"{param}.tool_calls", role)
    content = _content(value, param, role, no_content if calls else "")
    message: dict[str, Any] = {"role": "system" if role == "developer" else role, "content": content}
    if calls:
        message["tool_calls"] = calls
    for name in ("name", "tool_call_id"):
        if isinstance(value.get(name), str):
            message[name] = value[name]
    if role == "assistant":
        reasoning = value.get("reasoning_content", value.get("reasoning"))
        if isinstance(reasoning, str):
            message["reasoning_content"] = reasoning  # the name that templates know
    return message


def _content(message: dict[str, Any], param: str, role: str, absent: str | None) -> str | None:
    """A string, or an array of text parts, which are joined. `absent`: what an assistant without content said."""
    content = message.get("content")
    param = f"{param}.content"
    if isinstance(content, str):
        return content
    if content is None and role == "assistant":
        return absent
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


def _tool_calls(value: Any, param: str, role: str) -> list[dict[str, Any]]:
    if not value:
        return []
    if role != "assistant":
        raise invalid(param, f"{param}: only an assistant's message calls tools; this one's role is {role}")
    if not isinstance(value, list):
        raise invalid(param, f"{param} must be an array of objects", "invalid_type")
    return [_tool_call(call, f"{param}[{index}]") for index, call in enumerate(value)]


def _tool_call(value: Any, param: str) -> dict[str, Any]:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        message = f"{param} must be an object with function.name and function.arguments"
        raise invalid(param, message, "invalid_type")
    call: dict[str, Any] = {"id": value["id"]} if isinstance(value.get("id"), str) else {}
    arguments = _arguments(function.get("arguments"), param)
    return {**call, "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def _arguments(value: Any, param: str) -> Any:
    """Templates want the object. What is no JSON stays text: a model that wrote it must be told so in the next turn,
    and the conversation must be able to go on."""
    if value is None or value == "":
        return {}
    if isinstance(value, dict):
        return value
    param = f"{param}.function.arguments"
    if not isinstance(value, str):
        raise invalid(param, f"{param} must be a JSON object written as a string", "invalid_type")
    try:
        parsed = json.loads(value)
        json.dumps(parsed, ensure_ascii=False).encode()  # half a surrogate, or too deep: no template could print it
    except (ValueError, RecursionError):
        return value
    return parsed
