"""Which parser reads which model's answers: by name, or found from its chat template and vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Collection

from engines.native.serve.ids import new_id
from engines.native.serve.parsers.json_calls import JsonCalls, Opener
from engines.native.serve.parsers.mistral import ARGS, CALL_ID, TAG, MistralCalls
from engines.native.serve.parsers.pieces import ToolParser
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
    return new_id("call")


TOOL_PARSERS: dict[str, Callable[[Collection[str]], ToolParser]] = {
    "hermes": lambda names: JsonCalls(_HERMES, names, _call_id),
    "llama3": lambda names: JsonCalls(_LLAMA3, names, _call_id),
    "mistral": MistralCalls,
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


def find_tool_parser(template: str, has_token: Callable[[str], bool]) -> str | None:
    """Name of the parser for a model, None where nothing tells. Its template says it best: it shows old calls."""
    if "<tool_call>" in template and "<function=" not in template:  # not the XML of Qwen3-Coder
        return "hermes"
    if "[TOOL_CALLS]" in template:
        return "mistral"
    if "<|python_tag|>" in template or ("tools" in template and "<|start_header_id|>" in template):
        return "llama3"
    if "tools" not in template or "<function=" in template:
        return None
    for name, tags in TOOL_TAGS.items():
        if has_token(tags[0]):
            return name
    return None


def find_reasoning(template: str, has_token: Callable[[str], bool]) -> ReasoningTags | None:
    for tags in REASONING_TAGS.values():
        if tags.end in template or (has_token(tags.begin) and has_token(tags.end)):
            return tags
    return None
