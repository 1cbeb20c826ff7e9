"""The grammar that forces a tool call, in the format that a model's parser reads (`engines.native.serve.parsers`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engines.native.grammar import schema as json_schema
from engines.native.grammar.sources import MAX_SOURCE, from_lark, lark_schema
from engines.native.grammar.spec import BadGrammar

MAX_CALLS = 16
"""In one answer. A model that goes on for ever would otherwise only end with its tokens."""
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}

SpecialId = Callable[[str], int | None]
"""Id of a tag that is a special token; None for one that is text."""


@dataclass(frozen=True, slots=True)
class _Format:
    """begin, end: around all calls; before, after: around each; arguments: the key that they stand behind. Tags are
    written `<|…|>` for what may be a special token."""

    arguments: str
    begin: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    between: str = ""


FORMATS = {
    "hermes": _Format("arguments", before=("<tool_call>", "\n"), after=("\n", "</tool_call>"), between="\n"),
    "llama3": _Format("parameters", between="; "),
    "mistral": _Format("arguments", begin=("[TOOL_CALLS]", "["), end=("]",), between=", "),
}


def tools_grammar(
    tools: Sequence[dict[str, Any]],
    choice: str | dict[str, Any],
    parser_format: str,
    *,
    special_id: SpecialId = lambda tag: None,
    parallel: bool = True,
) -> str:
    """tools: OpenAI's, {"type": "function", "function": {"name", "parameters"}}. choice: "required", or OpenAI's object
    that names one function. parser_format: a name of FORMATS. parallel: more than one call may come.

    Returns the source for `spec.Grammar`. Raises BadGrammar, naming the function, the keyword and its place.
    """
    form = FORMATS.get(parser_format)
    if form is None:
        raise BadGrammar(f"a call can't be forced in the format {parser_format!r}; it can in {', '.join(FORMATS)}")
    functions = [tool["function"] for tool in tools]
    if choice != "required":
        named = choice["function"]["name"] if isinstance(choice, dict) else choice
        functions = [function for function in functions if function["name"] == named][:1]
        if not functions:
            raise BadGrammar(f"the tool {named!r} that is chosen is none of the tools")
    if not functions:
        raise BadGrammar("a call is required, and there are no tools")

    def literal(texts: tuple[str, ...]) -> str:
        ids = [special_id(text) for text in texts]
        return " ".join(
            json.dumps(text) if token is None else f"<[{token}]>" for text, token in zip(texts, ids, strict=True)
        )

    more = f" ({json.dumps(form.between)} call){{0,{MAX_CALLS - 1}}}" if parallel and choice == "required" else ""
    lines = [
        f"start: {literal(form.begin)} call{more} {literal(form.end)}",
        f"call: {literal(form.before)} object {literal(form.after)}",
        "object: " + " | ".join(f"f{index}" for index in range(len(functions))),
    ]
    for index, function in enumerate(functions):
        head = f'{{"name": {json.dumps(function["name"], ensure_ascii=False)}, "{form.arguments}": '
        lines.append(f'f{index}: {json.dumps(head)} a{index} "}}"')
        lines.append(f"a{index}: {lark_schema(_parameters(function))}")
    text = "\n".join(lines) + "\n"
    if len(text) > MAX_SOURCE:
        raise BadGrammar(f"the tools' schemas have {len(text)} characters together; at most {MAX_SOURCE} are taken")
    return from_lark(text)


def _parameters(function: dict[str, Any]) -> Any:
    schema = function.get("parameters")
    if not schema:
        return NO_ARGUMENTS
    try:
        json_schema.check(schema)
    except BadGrammar as error:
        raise BadGrammar(f"the parameters of {function['name']!r}: {error}") from error
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise BadGrammar(f"the parameters of {function['name']!r} must be the schema of an object")
    return {"type": "object", **schema}
