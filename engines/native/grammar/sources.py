"""What a client may give as a grammar → the source that the compiler reads. The compiler's notation is llguidance's: a
JSON object that holds a JSON Schema, or a grammar in Lark's syntax.

Sizes are bounded here, since the compiler follows rules by recursion; its own limits bound time and memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from engines.native.grammar import schema as json_schema
from engines.native.grammar.spec import BadGrammar

MAX_SOURCE = 256 * 1024
"""Characters of a schema, a regex, or a grammar."""
MAX_CHOICES = 1024
MAX_RULES = 1000
WHITESPACE = r"(\r?\n(\t{0,8}| {0,24})| ?)"
"""Between the tokens of JSON: a line break with its indentation, or a blank. Without a bound a weak model can write
blanks until its tokens are spent."""

ANY_OBJECT: dict[str, Any] = {"type": "object"}


def from_schema(schema: Any) -> str:
    """schema: a JSON Schema as a Python value. Raises BadGrammar naming the keyword and its place."""
    json_schema.check(schema)
    text = json.dumps(_with_blanks(schema), ensure_ascii=False)
    _bound(text, "the schema")
    return f'{{"grammars": [{{"json_schema": {text}}}]}}'


def lark_schema(schema: Any) -> str:
    """A checked JSON Schema as an expression inside a Lark grammar."""
    return "%json " + json.dumps(_with_blanks(schema))


def _with_blanks(schema: Any) -> Any:
    """The schema with our blanks as the compiler's option; false has no place for it, and compiles to nothing."""
    if schema is False:
        return False
    named = {} if schema is True else {keyword: value for keyword, value in schema.items() if keyword != "$id"}
    return {**named, "x-guidance": {"whitespace_pattern": WHITESPACE}}


def from_regex(pattern: str) -> str:
    """The whole answer matches `pattern`, in the syntax of Rust's regex crate: no look-around, no back-references."""
    from llguidance import LLMatcher

    _bound(pattern, "the regex")
    if not pattern:
        raise BadGrammar("the regex is empty")
    source: str = LLMatcher.grammar_from_regex(pattern)
    return source


def from_choice(choices: Sequence[str]) -> str:
    """The answer is one of `choices`, to the letter."""
    if not choices:
        raise BadGrammar("there is nothing to choose from; give at least one string")
    if len(choices) > MAX_CHOICES:
        raise BadGrammar(f"there are {len(choices)} choices; at most {MAX_CHOICES} are taken")
    for index, choice in enumerate(choices):
        if not choice:
            raise BadGrammar(f"choice {index} is empty; an answer has at least one character")
    _bound("".join(choices), "all choices together")
    return from_lark("start: " + " | ".join(map(json.dumps, dict.fromkeys(choices))))


def from_grammar(text: str) -> str:
    """A context-free grammar: Lark's syntax, or EBNF as llama.cpp and vLLM have it (`root ::= …`)."""
    from llguidance.gbnf_to_lark import any_to_lark

    _bound(text, "the grammar")
    text = "\n".join(line for line in text.splitlines() if line.strip())  # blank lines cost expressions their square
    if not text:
        raise BadGrammar("the grammar is empty")
    if (rules := len(re.findall(r"(?m)^[^\"/\n]*?:", text))) > MAX_RULES:
        raise BadGrammar(f"the grammar has about {rules} rules; at most {MAX_RULES} are taken")
    try:
        lark = any_to_lark(text)
    except Exception as error:  # the library raises bare ones for what it can't read
        raise BadGrammar(f"the EBNF grammar cannot be read: {str(error)[:300]}") from error
    for schema in _schemas_in(lark):
        json_schema.check(schema)
    return from_lark(lark)


def _schemas_in(lark: str) -> Iterator[Any]:
    """Of `%json {…}`: the compiler would pass over keywords that it doesn't know."""
    for found in re.finditer(r"%json\s*(?=\{)", lark):
        try:
            schema, _ = json.JSONDecoder().raw_decode(lark, found.end())
        except (ValueError, RecursionError):  # the compiler says what is wrong, with line and column
            continue
        yield schema


def from_lark(text: str) -> str:
    return json.dumps({"grammars": [{"lark_grammar": text}]})


def _bound(text: str, what: str) -> None:
    if len(text) > MAX_SOURCE:
        raise BadGrammar(f"{what} has {len(text)} characters; at most {MAX_SOURCE} are taken")
