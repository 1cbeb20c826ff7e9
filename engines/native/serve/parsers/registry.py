"""Which parser reads which model's answers: by name, or found from its chat template and vocabulary."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection

from engines.native.serve.parsers.json_calls import JsonCalls, Opener
from engines.native.serve.parsers.mistral import ARGS, CALL_ID, TAG, MistralCalls
from engines.native.serve.parsers.pieces import ToolParser
from engines.native.serve.parsers.pythonic import PythonicCalls
from engines.native.serve.parsers.reasoning import ReasoningTags

_BARE = Opener("", sure=False)
# Qwen2.5-Coder writes its calls in a fence, in <tools>, or bare, though its template asks for <tool_call>.
_HERMES = (
    Opener("<tool_call>", "</tool_call>"),
    Opener("<tools>", "</tools>", sure=False),
    Opener("```json", "```", sure=False),
    _BARE,
)
_LLAMA3 = (Opener("<|python_tag|>", separator=";"), Opener("", sure=False, separator=";"))


def _call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


TOOL_PARSERS: dict[str, Callable[[Collection[str]], ToolParser]] = {
    "hermes": lambda names: JsonCalls(_HERMES, names, _call_id),
    "llama3": lambda names: JsonCalls(_LLAMA3, names, _call_id),
    "mistral": MistralCalls,
    "pythonic": lambda names: PythonicCalls(names, _call_id),
}
"""Name → parser of one answer, given the names of the request's tools."""

TOOL_TAGS: dict[str, tuple[str, ...]] = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "llama3": ("<|python_tag|>",),
    "mistral": (TAG, CALL_ID, ARGS),
}
"""Tags that may be special tokens, which are no text by themselves; who parses must see them."""

REASONING_TAGS: dict[str, ReasoningTags] = {
    "think": ReasoningTags("<think>", "</think>"),
    "mistral": ReasoningTags("[THINK]", "[/THINK]"),
    "seed": ReasoningTags("<seed:think>", "</seed:think>"),
}


TokenId = Callable[[str], int | None]


def tool_parser(asked: str, template: str, token_id: TokenId) -> str | None:
    """Name of a model's parser; `asked` is the option's value. None: its calls can't be told from text."""
    if asked != "auto":
        return None if asked == "none" else asked
    # The template says it best: it shows the calls of earlier turns.
    if "<tool_call>" in template and "<function=" not in template:  # not the XML of Qwen3-Coder
        return "hermes"
    if "[TOOL_CALLS]" in template:
        return "mistral"
    if "<|python_tag|>" in template or ("tools" in template and "<|start_header_id|>" in template):
        return "llama3"
    if "tools" not in template or "<function=" in template:
        return None
    for name, tags in TOOL_TAGS.items():
        if token_id(tags[0]) is not None:
            return name
    return None


def reasoning_tags(asked: str, template: str, token_id: TokenId) -> ReasoningTags | None:
    """Tags of a model's reasoning. None: whatever it writes is the answer."""
    if asked != "auto":
        return REASONING_TAGS.get(asked)
    for tags in REASONING_TAGS.values():
        if (
            tags.begin in template
            or tags.end in template
            or (token_id(tags.begin) is not None and token_id(tags.end) is not None)
        ):
            return tags
    return None


def tags_of(parser: str | None, reasoning: ReasoningTags | None) -> tuple[str, ...]:
    """All tags that a model's parsers look for."""
    return TOOL_TAGS.get(parser or "", ()) + ((reasoning.begin, reasoning.end) if reasoning else ())
