"""Elements whose text is escaped unless it is an element itself: prompts and errors come from outside."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_BIDI = re.compile(r"[\u202a-\u202e\u2066-\u2069]")  # would reorder what stands after it
_VOID = {"meta", "input", "br", "hr", "col"}

Child = object  # str, number, Markup, None, or an iterable of them


class Markup(str):
    """A finished piece of HTML or SVG."""

    __slots__ = ()


def escape(value: object) -> Markup:
    """Text as text: markup, control characters and bidirectional overrides are shown, never obeyed."""
    if isinstance(value, Markup):
        return value
    text = _CONTROL.sub("\ufffd", str(value))
    text = _BIDI.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)
    return Markup(html.escape(text))


def join(children: Iterable[Child]) -> Markup:
    return Markup("".join(_flat(child) for child in children))


def h(tag: str, *children: Child, **attributes: object) -> Markup:
    """`<tag …>children</tag>`. Attributes: `class_` is class, `_` is `-`; None and False leave one out. There are no
    style attributes: the page's policy forbids them."""
    names = ((name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items())
    written = "".join(
        f" {name}" if value is True else f' {name}="{escape(value)}"'
        for name, value in names
        if value is not None and value is not False
    )
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{join(children)}</{tag}>")


def _flat(child: Child) -> str:
    if child is None or child is False:
        return ""
    if isinstance(child, str):
        return escape(child)
    if isinstance(child, Iterable):
        return join(child)
    return escape(child)
