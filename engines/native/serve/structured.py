"""What a request says about the form of its answer: `response_format`, vLLM's `guided_*` and `structured_outputs`.

The grammar is compiled here once to tell whether it can be, on a thread of its own; the core compiles it again for the
model's whole vocabulary while the request waits. A bad one is a 400 that names what is wrong.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engines.native.grammar import sources
from engines.native.grammar.spec import BadGrammar, Grammar, Think
from engines.native.request import SamplingParams
from engines.native.serve.errors import invalid, unsupported
from engines.native.serve.model import ServedModel

COMPILE_TIMEOUT_S = 10.0
KINDS = ("json", "regex", "choice", "grammar")
"""Of `structured_outputs`, and of `guided_…`."""
FORMATS = ("text", "json_object", "json_schema")
"""Types of `response_format`."""
_EXCLUDES = {
    "allowed_token_ids": "a grammar's tokens are those that it allows",
    "use_beam_search": "beams follow no grammar",
    "suffix": "what stands between two texts follows no grammar",
}

Body = dict[str, Any]


Asked = tuple[str, Callable[[], str]]
"""(the field that says it, what makes the source of its grammar)"""


async def constrained(
    body: Body, params: SamplingParams, model: ServedModel, *, thinks: bool, call: Asked | None = None
) -> SamplingParams:
    """`params` with the grammar that the request asks for, if it does. `call`: that of a call that must come."""
    grammar = await grammar_of(body, model, thinks=thinks, call=call)
    return params if grammar is None else replace(params, grammar=grammar)


async def grammar_of(body: Body, model: ServedModel, *, thinks: bool, call: Asked | None = None) -> Grammar | None:
    """The grammar of the answer; None where the request asks for none. thinks: the model's own thinking, if it has any,
    comes before it. Raises ApiError 400 naming the field, the part of it at fault, and what is supported."""
    read = asked(body)
    if call is not None and read is not None:
        raise invalid(read[0], f"{read[0]} can't be used with a {call[0]} that makes the answer a call")
    read = call or read
    if read is None:
        return None
    param, make = read
    for name, reason in _EXCLUDES.items():
        if body.get(name):
            raise invalid(name, f"{name} can't be used with {param}: {reason}")
    _check_stops(body, model, param)
    try:
        source = await asyncio.to_thread(make)
    except BadGrammar as error:
        raise invalid(param, f"{param}: {error}", "invalid_grammar") from error
    return await compiled(source, param, model, thinks=thinks)


async def compiled(source: str, param: str, model: ServedModel, *, thinks: bool) -> Grammar:
    """`source`, once it is known that it compiles. Raises ApiError 400 for `param`."""
    try:
        await asyncio.wait_for(asyncio.wrap_future(model.grammars.submit(source)), COMPILE_TIMEOUT_S)
    except TimeoutError as error:
        message = f"{param} was not compiled within {COMPILE_TIMEOUT_S:.0f} s; make it simpler"
        raise invalid(param, message, "invalid_grammar") from error
    except BadGrammar as error:
        raise invalid(param, f"{param} cannot be used: {error}", "invalid_grammar") from error
    think = Think(model.think.begin, model.think.end) if thinks and model.think is not None else None
    return Grammar(source, think, param)


def asked(body: Body) -> Asked | None:
    """None for no grammar. Raises ApiError 400 for a field of the wrong shape, or two that say different things."""
    found: list[Asked] = []
    if (format := _response_format(body)) is not None:
        found.append(format)
    for kind in KINDS:
        if body.get(f"guided_{kind}") is not None:
            found.append(_guided(kind, body[f"guided_{kind}"], f"guided_{kind}"))
    if (structured := _structured_outputs(body)) is not None:
        found.append(structured)
    if len(found) > 1:
        names = " and ".join(param for param, _ in found)
        raise invalid(found[1][0], f"{names} both say what the answer looks like; give one of them")
    return found[0] if found else None


def _response_format(body: Body) -> tuple[str, Callable[[], str]] | None:
    value = body.get("response_format")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise invalid("response_format", "response_format must be an object", "invalid_type")
    kind = value.get("type")
    if kind not in FORMATS:
        message = f"response_format.type is {str(kind)[:40]!r}; it must be one of {', '.join(FORMATS)}"
        raise unsupported("response_format.type", message)
    if kind == "text":
        return None
    if kind == "json_object":
        return "response_format", lambda: sources.from_schema(sources.ANY_OBJECT)
    named = value.get("json_schema")
    if not isinstance(named, dict):
        raise invalid("response_format.json_schema", "response_format.json_schema must be an object", "invalid_type")
    param = "response_format.json_schema"
    for name, kinds, text in (("name", str, "a string"), ("description", str, "a string"), ("strict", bool, "boolean")):
        if named.get(name) is not None and not isinstance(named[name], kinds):
            raise invalid(f"{param}.{name}", f"{param}.{name} must be {text}", "invalid_type")
    if "schema" not in named:
        raise invalid(f"{param}.schema", f"{param}.schema is missing; give the JSON Schema of the answer")
    return f"{param}.schema", lambda: sources.from_schema(named["schema"])


def _structured_outputs(body: Body) -> tuple[str, Callable[[], str]] | None:
    value = body.get("structured_outputs")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise invalid("structured_outputs", "structured_outputs must be an object", "invalid_type")
    given = {name: one for name, one in value.items() if one is not None and one is not False}
    for name in given:
        if name not in (*KINDS, "json_object"):
            message = f"structured_outputs.{name[:40]} is not supported; supported: {', '.join(KINDS)}, json_object"
            raise unsupported(f"structured_outputs.{name[:40]}", message)
    if len(given) != 1:
        raise invalid("structured_outputs", f"structured_outputs must have one of {', '.join(KINDS)}, json_object")
    ((kind, one),) = given.items()
    if kind == "json_object":
        return "structured_outputs.json_object", lambda: sources.from_schema(sources.ANY_OBJECT)
    return _guided(kind, one, f"structured_outputs.{kind}")


def _guided(kind: str, value: Any, param: str) -> tuple[str, Callable[[], str]]:
    if kind == "json":
        return param, lambda: sources.from_schema(_schema(value, param))
    if kind == "choice":
        if not isinstance(value, list) or not all(isinstance(choice, str) for choice in value):
            raise invalid(param, f"{param} must be an array of strings", "invalid_type")
        return param, lambda: sources.from_choice(value)
    if not isinstance(value, str):
        raise invalid(param, f"{param} must be a string", "invalid_type")
    return param, lambda: sources.from_regex(value) if kind == "regex" else sources.from_grammar(value)


def _schema(value: Any, param: str) -> Any:
    """A schema, or the text of one."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise invalid(param, f"{param} is a string that is no JSON: {error}") from error


def _check_stops(body: Body, model: ServedModel, param: str) -> None:
    """A stop token ends the answer where the grammar lets it end: one that is text would be both."""
    ends = model.facts.special_ids | frozenset(model.facts.eos_ids)
    for token in body.get("stop_token_ids") or []:
        if token not in ends:
            message = f"stop_token_ids holds {token}, a token of text; with {param} only special tokens end an answer"
            raise invalid("stop_token_ids", message)
