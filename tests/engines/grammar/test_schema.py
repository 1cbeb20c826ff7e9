"""What the JSON-Schema test suite says of the keywords that we claim, and of those that we don't."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.grammar import schema as json_schema
from engines.native.grammar.sources import from_schema
from engines.native.grammar.spec import BadGrammar
from tests.engines.grammar.tokens import accepts, attempt, compiled

SUITE = Path(__file__).parents[2] / "data" / "json_schema_test_suite"
FILES = {draft: json.loads((SUITE / f"{draft}.json").read_text()) for draft in ("draft2020-12", "draft7")}

NARROWER = {
    ("const", "float and integers are equal up to 64-bit representation limits"): "2⁵³ is written as an integer",
    ("ref", "ref overrides any sibling keywords"): "a keyword beside $ref counts, as in every draft after 7",
}
"""Valid instances that the grammar refuses, by (file, group): an answer can be said in another way."""
STRICTER = "only an annotation by default"
"""`format` is enforced: what OpenAI's structured outputs and vLLM do, and the standard allows."""


def texts(value: Any, most: int = 200) -> Iterator[str]:
    """JSON texts of `value`: every order of keys, since a grammar has one; whole numbers without a fraction."""
    return itertools.islice(_texts(value), most)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for items in itertools.permutations(value.items()):
            for inner in itertools.product(*[list(texts(one, 6)) for _, one in items]):
                pairs = zip((json.dumps(key, ensure_ascii=False) for key, _ in items), inner, strict=True)
                yield "{" + ", ".join(f"{key}: {text}" for key, text in pairs) + "}"
    elif isinstance(value, list):
        for inner in itertools.product(*[list(texts(one, 6)) for one in value]):
            yield "[" + ", ".join(inner) + "]"
    else:
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            yield str(int(value))
        yield json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize(("draft", "name"), [(draft, name) for draft, files in FILES.items() for name in files])
def test_suite(draft: str, name: str) -> None:
    """A schema that compiles accepts what is valid and refuses what isn't. One that doesn't is refused by name."""
    wrong, judged = [], 0
    for group in FILES[draft][name]:
        matcher, reason = attempt(from_schema, group["schema"])
        if matcher is None:
            assert len(reason) > 10
            continue
        source = from_schema(group["schema"])
        for test in group["tests"]:
            judged += 1
            if (name, group["description"]) in NARROWER or STRICTER in test["description"]:
                continue
            took = any(accepts(source, text) for text in texts(test["data"]))
            if took != test["valid"]:
                wrong.append((group["description"], test["description"], test["valid"]))
    assert wrong == []
    claims = name in json_schema.SUPPORTED and name != "definitions"  # whose file fetches
    assert judged > 0 or not claims, "a keyword that we claim must be tried"


def test_every_keyword_that_we_claim_is_in_the_suite() -> None:
    used: set[str] = set()
    for files in FILES.values():
        for groups in files.values():
            for group in groups:
                if attempt(from_schema, group["schema"])[0] is not None:
                    used |= set(_keywords(group["schema"]))
    assert set(json_schema.SUPPORTED) - used == {"definitions"} - used


def _keywords(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema
        for value in schema.values():
            yield from _keywords(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _keywords(value)


@pytest.mark.parametrize(
    ("schema", "place", "named"),
    [
        ({"type": "object", "properties": {"a": {"not": {}}}}, "#/properties/a/not", "'not'"),
        ({"anyOf": [{"type": "null"}, {"if": {}, "then": {}}]}, "#/anyOf/1/if", "'if'"),
        ({"items": {"uniqueItems": True}}, "#/items/uniqueItems", "'uniqueItems'"),
        ({"$defs": {"a/b~": {"contains": {}}}}, "#/$defs/a~1b~0/contains", "'contains'"),
        ({"minmum": 3}, "#/minmum", "'minmum'"),
        ({"x-guidance": {"lenient": True}}, "#/x-guidance", "'x-guidance'"),
        ({"$ref": "https://example.com/schema"}, "#/$ref", "nothing is fetched"),
        ({"$ref": "#name"}, "#/$ref", "anchors"),
        ({"type": "string", "format": "regex"}, "#/format", "uuid"),
        ({"properties": []}, "#/properties", "object of schemas"),
        ({"anyOf": {}}, "#/anyOf", "array of schemas"),
        ({"items": 3}, "#/items", "an object or a boolean"),
    ],
)
def test_what_is_refused_is_named_with_its_place(schema: Any, place: str, named: str) -> None:
    with pytest.raises(BadGrammar) as caught:
        from_schema(schema)
    assert str(caught.value).startswith(place)
    assert named in str(caught.value)


def test_an_unsupported_keyword_tells_what_is_supported() -> None:
    with pytest.raises(BadGrammar, match=r"supported: type, enum, const, .*patternProperties"):
        from_schema({"not": {}})


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"oneOf": [{"minimum": 1}, {"maximum": 3}]}, "exclude each other"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "string", "minLength": 4, "maxLength": 3}, "minLength"),
        ({"$ref": "#/$defs/a"}, "/\\$defs/a"),
        ({"type": "text"}, "text"),
        (False, "Unsatisfiable"),
        ({"enum": []}, "empty"),
        ({"$schema": "urn:mine"}, "urn:mine"),
    ],
)
def test_what_the_compiler_refuses_has_a_reason(schema: Any, reason: str) -> None:
    with pytest.raises(BadGrammar, match=reason):
        compiled(from_schema(schema))


def test_notes_change_nothing() -> None:
    schema = {"$id": "https://example.com/me", "title": "A", "type": "integer", "default": 3, "examples": [{"not": 1}]}
    assert accepts(from_schema(schema), "12")
    assert not accepts(from_schema(schema), '"a"')


@pytest.mark.parametrize("deep", [200, 990])
def test_depth_is_bounded(deep: int) -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(deep):
        schema = {"items": schema}
    with pytest.raises(BadGrammar, match="nested more than"):
        from_schema(schema)
    note: Any = 1
    for _ in range(deep):
        note = [note]
    with pytest.raises(BadGrammar, match="nested more than"):
        from_schema({"default": note})


def test_a_chain_of_references_is_bounded_and_the_longest_compiles() -> None:
    def chain(length: int) -> dict[str, Any]:
        defs = {f"a{index}": {"$ref": f"#/$defs/a{index + 1}"} for index in range(length - 1)}
        return {"$ref": "#/$defs/a0", "$defs": {**defs, f"a{length - 1}": {"type": "integer"}}}

    assert accepts(from_schema(chain(json_schema.MAX_REFS)), "7")
    with pytest.raises(BadGrammar, match="uses of"):
        from_schema(chain(json_schema.MAX_REFS + 2))


names = st.sampled_from(["a", "b", "$ref", "", "é", "x" * 70])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
keywords = st.sampled_from([*json_schema.SUPPORTED, "not", "title"])
refs = st.sampled_from(["#", "#/$defs/a", "#/properties/b", "#/x", "other"])
types = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null", ["string", "null"]])
sizes = st.integers(-1, 12) | st.sampled_from([10**9, 2**40, 1.5, -0.0, 1e300])
patterns = st.sampled_from(["^a+$", "[a-z]{2,9}", "(a|b)*", "\\d", "(", "a{1000}", "(x{1,99}){1,99}", "\\u0061", "."])


def _plausible(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some, named = st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": types, "enum": st.lists(values, max_size=3), "const": values, "minimum": sizes, "maximum": sizes,
            "exclusiveMinimum": sizes, "multipleOf": sizes, "minLength": sizes, "maxLength": sizes,
            "pattern": patterns, "format": st.sampled_from([*json_schema.FORMATS, "regex"]), "minItems": sizes,
            "maxItems": sizes, "required": st.lists(names, max_size=3), "minProperties": sizes, "items": inner,
            "maxProperties": sizes, "$ref": refs, "additionalProperties": inner, "prefixItems": some, "anyOf": some,
            "allOf": some, "oneOf": some, "properties": named, "$defs": named,
            "patternProperties": st.dictionaries(patterns, inner, max_size=2),
        },
    )  # fmt: skip


schemas = st.recursive(st.booleans() | _plausible(st.booleans()), _plausible, max_leaves=4)


@settings(max_examples=150, deadline=None)
@given(schemas | st.dictionaries(keywords, values, max_size=4) | values)
def test_any_schema_gives_a_grammar_or_a_reason(schema: Any) -> None:
    matcher, reason = attempt(from_schema, schema)
    if matcher is None:
        assert reason
        return
    assert not matcher.is_error()
    matcher.compute_bitmask()
    assert not matcher.is_error(), matcher.get_error()
