"""Which JSON Schemas are taken. Every keyword is enforced, is by its standard only a note, or is refused by name: none
is passed over in silence.

Semantics are draft 2020-12's (draft 7's where `$schema` says so). One thing is narrower than the standard: properties
come in the order of the schema, as OpenAI's structured outputs have it, since a grammar with every order would be huge.
"""

from __future__ import annotations

from typing import Any

from engines.native.grammar.spec import BadGrammar

MAX_DEPTH = 100  # of objects and arrays in a schema, notes and all
MAX_REFS = 1000  # a chain of them is followed by recursion

_VALUE, _SCHEMA, _SCHEMAS, _NAMED = "value", "schema", "schemas", "named"
_ENFORCED = {
    "type": _VALUE,
    "enum": _VALUE,
    "const": _VALUE,
    "minimum": _VALUE,
    "maximum": _VALUE,
    "exclusiveMinimum": _VALUE,
    "exclusiveMaximum": _VALUE,
    "multipleOf": _VALUE,
    "minLength": _VALUE,
    "maxLength": _VALUE,
    "pattern": _VALUE,
    "format": _VALUE,
    "minItems": _VALUE,
    "maxItems": _VALUE,
    "required": _VALUE,
    "minProperties": _VALUE,
    "maxProperties": _VALUE,
    "$ref": _VALUE,
    "$schema": _VALUE,
    "items": _SCHEMA,
    "additionalItems": _SCHEMA,
    "additionalProperties": _SCHEMA,
    "prefixItems": _SCHEMAS,
    "anyOf": _SCHEMAS,
    "allOf": _SCHEMAS,
    "oneOf": _SCHEMAS,
    "properties": _NAMED,
    "patternProperties": _NAMED,
    "$defs": _NAMED,
    "definitions": _NAMED,
}
_NOTES = frozenset(
    [
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "discriminator",
    ]
)
"""By the standard (and OpenAPI's for `discriminator`) these say nothing about which values are valid."""
SUPPORTED = tuple(_ENFORCED)
FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")


def check(schema: Any) -> None:
    """Raises BadGrammar, naming the keyword and its place as a JSON pointer."""
    _check_depth(schema)
    refs = _schema(schema, "#")
    if refs > MAX_REFS:
        raise BadGrammar(f"the schema has {refs} uses of $ref; at most {MAX_REFS} are taken")


def _check_depth(schema: Any) -> None:
    """A level at a time, since it may be as deep as a body can be."""
    level = [schema]
    for _ in range(MAX_DEPTH):
        nested = [one for one in level if isinstance(one, dict | list)]
        level = [inner for one in nested for inner in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return
    raise BadGrammar(f"the schema is nested more than {MAX_DEPTH} deep")


def _schema(schema: Any, at: str) -> int:
    """Returns the number of $ref in what it walked."""
    if isinstance(schema, bool):
        return 0
    if not isinstance(schema, dict):
        raise BadGrammar(f"{at} is no schema; a schema is an object or a boolean")
    return sum(_keyword(keyword, value, at) for keyword, value in schema.items() if keyword not in _NOTES)


def _keyword(keyword: str, value: Any, at: str) -> int:
    kind, place = _ENFORCED.get(keyword), f"{at}/{_escaped(keyword)}"
    if kind is None:
        if (keyword, at) == ("$id", "#"):  # a name; references by name are refused
            return 0
        raise BadGrammar(f"{place}: the keyword {keyword[:60]!r} is not supported; supported: {', '.join(SUPPORTED)}")
    if keyword == "$ref":
        _check_ref(value, place)
        return 1
    if keyword == "format" and value not in FORMATS:
        raise BadGrammar(f"{place} is {str(value)[:60]!r}, which is not supported; supported: {', '.join(FORMATS)}")
    if kind == _SCHEMAS or (keyword == "items" and isinstance(value, list)):  # draft 7's tuples
        if not isinstance(value, list):
            raise BadGrammar(f"{place} must be an array of schemas")
        return sum(_schema(one, f"{place}/{index}") for index, one in enumerate(value))
    if kind == _SCHEMA:
        return _schema(value, place)
    if kind == _NAMED:
        if not isinstance(value, dict):
            raise BadGrammar(f"{place} must be an object of schemas")
        return sum(_schema(one, f"{place}/{_escaped(name)}") for name, one in value.items())
    return 0


def _check_ref(value: Any, place: str) -> None:
    if not isinstance(value, str) or not value.startswith("#"):
        reason = "a reference must lead into the schema itself (#/$defs/…): nothing is fetched"
        raise BadGrammar(f"{place} is {str(value)[:60]!r}; {reason}")
    if value != "#" and not value.startswith("#/"):
        raise BadGrammar(f"{place} is {value[:60]!r}; anchors are not supported, give a path (#/$defs/…)")


def _escaped(name: str) -> str:
    return name[:60].replace("~", "~0").replace("/", "~1")
