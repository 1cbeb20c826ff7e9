"""Whether tool calls are right, by the possible answers of the Berkeley Function-Calling Leaderboard (BFCL v4).

The rules are those of its AST check (ShishirPatil/gorilla, berkeley-function-call-leaderboard, bfcl_eval/eval_checker/
ast_eval): the function named, no parameter that the schema lacks, every required one there, each value of the schema's
type and among those listed ("" lists an optional parameter as one that may be left out). Strings are compared without
case, blanks and ,./-_*^ and with one kind of quote. Parallel calls may come in any order.
"""

from __future__ import annotations

import re
from typing import Any

Call = tuple[str, dict[str, Any]]
"""(name, arguments)"""

_IGNORED = re.compile(r"[ ,./\-_*^]")
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None}
_PYTHON: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "float": (float, int),
    "number": (float, int),
    "boolean": (bool,),
    "array": (list,),
    "tuple": (list,),
    "dict": (dict,),
    "object": (dict,),
}


def tool(function: dict[str, Any]) -> dict[str, Any]:
    """A BFCL function as OpenAI's `tools` have it: its types are Python's there, JSON Schema's here."""
    return {"type": "function", "function": _schema(function)}


def _schema(value: Any) -> Any:
    if isinstance(value, list):
        return [_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {key: _schema(item) for key, item in value.items()}
    kind = value.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        if _TYPES[kind] is None:
            del result["type"]
        else:
            result["type"] = _TYPES[kind]
    return result


def fault(calls: list[Call], functions: list[dict[str, Any]], possible: list[dict[str, Any]]) -> str:
    """What is wrong with a row's calls; "" where they are right."""
    if len(calls) != len(possible):
        return f"{len(calls)} calls instead of {len(possible)}"
    schemas = {function["name"]: function["parameters"] for function in functions}
    left = list(calls)
    for answer in possible:
        faults = [_call_fault(call, schemas, answer) for call in left]
        if "" not in faults:
            return faults[0]
        left.pop(faults.index(""))
    return ""


def _call_fault(call: Call, schemas: dict[str, dict[str, Any]], answer: dict[str, Any]) -> str:
    name, arguments = call
    ((wanted, allowed),) = answer.items()
    if name != wanted:
        return f"{name} called instead of {wanted}"
    schema = schemas[wanted]
    for parameter in schema.get("required", []):
        if parameter not in arguments:
            return f"{name}: {parameter} is missing"
    for parameter, value in arguments.items():
        if parameter not in schema["properties"] or parameter not in allowed:
            return f"{name}: {parameter} is no parameter"
        expected = _PYTHON.get(schema["properties"][parameter]["type"])
        if expected is not None and not _is_a(value, expected) and not _listed_as_is(value, allowed[parameter]):
            return f"{name}: {parameter} is {value!r}, which is of another type"
        if not any(_equal(value, one) for one in allowed[parameter]):
            return f"{name}: {parameter} is {value!r}, not one of {allowed[parameter]!r}"
    for parameter, values in allowed.items():
        if parameter not in arguments and "" not in values:
            return f"{name}: {parameter} is missing"
    return ""


def _is_a(value: Any, types: tuple[type, ...]) -> bool:
    """In Python a boolean is an integer; here it is not."""
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def _listed_as_is(value: Any, allowed: list[Any]) -> bool:
    """Some answers are variables' names, or of another type than the schema says."""
    return any(type(value) is type(one) and one != "" for one in allowed)


def _equal(value: Any, wanted: Any) -> bool:
    if isinstance(value, str) and isinstance(wanted, str):
        return _plain(value) == _plain(wanted)
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(_equal(*pair) for pair in zip(value, wanted, strict=True))
    if isinstance(value, dict) and isinstance(wanted, dict):  # in it, each key lists its values
        return all(
            key in wanted and any(_equal(item, one) for one in _listed(wanted[key])) for key, item in value.items()
        ) and all(key in value or "" in _listed(values) for key, values in wanted.items())
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    return bool(value == wanted)


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]


def _plain(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')
