"""The tools of a request, and whether the model may, must or must not call one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engines.native.grammar.tools import FORMATS, tools_grammar
from engines.native.serve import validate
from engines.native.serve.errors import invalid, unsupported
from engines.native.serve.model import ServedModel

MAX_NAME_LENGTH = 128  # characters; OpenAI allows 64


@dataclass(frozen=True, slots=True)
class Tools:
    """given: as the template gets them. choice: "auto", "required", or "named", which is `named` alone.
    parallel: more than one call may come."""

    given: list[dict[str, Any]]
    choice: str
    named: str
    parallel: bool

    @property
    def names(self) -> frozenset[str]:
        return frozenset(tool["function"]["name"] for tool in self.given)


def read_tools(body: validate.Body, model: ServedModel) -> Tools | None:
    """None where the request has no tools or forbids their use; then the prompt does not show them. Raises ApiError
    400 naming the field, also where this model or this engine can't do what is asked."""
    given = _given(body.get("tools"))
    choice, named = _choice(body.get("tool_choice"), given)
    parallel = validate.boolean(body, "parallel_tool_calls", True)
    if choice == "none":
        return None
    if model.template is None or not model.template.takes_tools:
        raise unsupported("tools", f"the chat template of {model.name} shows no tools; leave tools out")
    if model.tool_parser is None:
        message = f"the form of {model.name}'s tool calls is not known; set the engine option tool_parser"
        raise unsupported("tools", message)
    if choice != "auto" and model.tool_parser not in FORMATS:
        message = f"calls in the form {model.tool_parser} can't be forced; set tool_choice to auto or none"
        raise unsupported("tool_choice", message)
    return Tools(given, choice, named, parallel)


def forced(tools: Tools | None, model: ServedModel) -> tuple[str, Callable[[], str]] | None:
    """What makes the grammar of a call that must come (`structured.constrained`); None where none must."""
    if tools is None or tools.choice == "auto" or model.tool_parser is None:
        return None
    parser = model.tool_parser
    choice: str | dict[str, Any] = "required" if tools.choice == "required" else {"function": {"name": tools.named}}

    def special_id(tag: str) -> int | None:
        token = model.tokenizer.token_to_id(tag)
        return token if token in model.facts.special_ids else None

    def source() -> str:
        return tools_grammar(tools.given, choice, parser, special_id=special_id, parallel=tools.parallel)

    return "tool_choice", source


def _given(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise invalid("tools", "tools must be an array of objects", "invalid_type")
    for index, tool in enumerate(value):
        _check_tool(tool, f"tools[{index}]")
    return value


def _check_tool(tool: Any, param: str) -> None:
    if not isinstance(tool, dict):
        raise invalid(param, f"{param} must be an object", "invalid_type")
    if tool.get("type") != "function":
        kind = str(tool.get("type"))[:40]
        raise invalid(f"{param}.type", f"{param}.type is {kind!r}; it must be 'function'", "unsupported_value")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise invalid(f"{param}.function", f"{param}.function must be an object", "invalid_type")
    name = function.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        message = f"{param}.function.name must be a string of 1 to {MAX_NAME_LENGTH} printable characters"
        raise invalid(f"{param}.function.name", message)
    fields: tuple[tuple[str, type, str], ...] = (
        ("description", str, "a string"),
        ("parameters", dict, "an object, a JSON schema"),
    )
    for key, python_type, wanted in fields:
        if function.get(key) is not None and not isinstance(function[key], python_type):
            raise invalid(f"{param}.function.{key}", f"{param}.function.{key} must be {wanted}", "invalid_type")


def _choice(value: Any, given: list[dict[str, Any]]) -> tuple[str, str]:
    """(none, auto, required or named; the name)."""
    if value is None:
        return ("auto" if given else "none"), ""
    if isinstance(value, dict):
        function = value.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if value.get("type") != "function" or not isinstance(name, str):
            message = "tool_choice as an object must be of type function and have function.name"
            raise invalid("tool_choice", message)
        if name not in (tool["function"]["name"] for tool in given):
            raise invalid("tool_choice", f"tool_choice names {name[:MAX_NAME_LENGTH]!r}, which is none of the tools")
        return "named", name
    if value not in ("none", "auto", "required"):
        raise invalid("tool_choice", "tool_choice must be none, auto, required, or an object that names a function")
    if value == "required" and not given:
        raise invalid("tool_choice", "tool_choice is required, but the request has no tools")
    return (value if given else "none"), ""
