"""What a data set yields and a schedule places in time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct


class Turn(Struct, kw_only=True, omit_defaults=True):
    """One request. Of `messages` (chat) and `prompt` (completions) the one of the endpoint's api is set.

    In a session `messages` are those that this turn adds; what was said before, the answers included, is put before
    them when it is sent.
    """

    messages: list[dict[str, Any]] = []
    prompt: str | list[int] | None = None
    max_tokens: int | None = None  # asked for; null: the server's default
    prompt_tokens: int | None = None  # planned, of this turn alone in a session
    think_s: float = 0.0  # after the answer before
    extra: dict[str, Any] = {}  # further fields of the body, over `Endpoint.extra_body`


class Item(Struct, kw_only=True, omit_defaults=True):
    """One arrival: a request, or a session of several, whose later turns follow the answers."""

    turns: list[Turn]
    session: int | None = None
    after_template: bool = True  # `prompt_tokens` counts the chat template, too


class Planned(Struct, kw_only=True):
    """`offset_ns`: intended start after the schedule's start; null in closed loop, where a free slot decides."""

    index: int
    item: Item
    offset_ns: int | None = None
    warm_up: bool = False  # marked so in its record


def plan(items: Iterable[Item], offsets_ns: Iterable[int] | None = None, first_index: int = 0) -> Iterator[Planned]:
    """Items at their times, as far as the shorter of both goes. Without offsets: for a closed loop."""
    if offsets_ns is None:
        for index, item in enumerate(items, first_index):
            yield Planned(index=index, item=item)
        return
    for index, (item, offset) in enumerate(zip(items, offsets_ns, strict=False), first_index):
        yield Planned(index=index, item=item, offset_ns=offset)
