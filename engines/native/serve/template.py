"""Chat templates: a model's own Jinja program, run in a sandbox with the names that transformers gives it."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engines.native.serve.errors import invalid

_REFUSALS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""What a template raises on messages or names that it was not written for."""


_ASKS_FOR_NONE = re.compile(r"""\bcontent['"]?\]? is (not )?none""")


_HERE = "\ue0f1here\ue0f1"
"""Marks the end of a message that is to be continued; private characters, so that no message holds it."""


class _Generation(jinja2.ext.Extension):
    """{% generation %} … {% endgeneration %} marks an answer for training; here it is only its content."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML, which is wrong for a prompt."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class ChatTemplate:
    """Compiled once. Raises ValueError for a template that is no valid Jinja.

    takes_tools: it shows tools. no_content: how it knows a message of calls alone, by content that is None (DeepSeek)
    or by calls beside an empty one, which is all that most can take.
    """

    def __init__(self, source: str, special_tokens: dict[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
        self._special_tokens = special_tokens
        try:
            self._template = environment.from_string(source)
            self.no_content = None if _ASKS_FOR_NONE.search(source) else ""
            self.takes_tools = "tools" in jinja2.meta.find_undeclared_variables(environment.parse(source))
        except jinja2.TemplateError as error:
            raise ValueError(f"the model's chat template does not compile: {error}") from error

    def render(
        self, messages: list[dict[str, Any]], extra: dict[str, Any] | None = None, *, goes_on: bool = False
    ) -> str:
        """The prompt, ready for the answer. Raises ApiError 400 where the template refuses the messages.

        `extra`: more names that the template sees, as the client chose them. `goes_on`: the last message is the
        beginning of the answer, and the prompt ends where it does.
        """
        names = {"add_generation_prompt": True, "tools": None, "documents": None, **(extra or {})}
        if goes_on:
            *before, last = messages
            messages = [*before, {**last, "content": (last["content"] or "") + _HERE}]
        try:
            text = self._template.render({**self._special_tokens, **names, "messages": messages})
        except _REFUSALS as error:
            raise invalid("messages", f"the model's chat template refuses these messages: {error}") from error
        return _up_to_here(text) if goes_on else text


def _up_to_here(text: str) -> str:
    """The prompt up to the end of its last message, without what the template closes it with."""
    kept, found, _ = text.rpartition(_HERE)
    if not found:
        message = "the model's chat template does not show the last message as it is, so it can't be continued"
        raise invalid("continue_final_message", message)
    return kept
