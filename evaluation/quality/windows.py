"""A text or a file of texts as windows of token ids, by the endpoint's own tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evaluation.quality import sets
from evaluation.quality.endpoint import Connection, EndpointError
from evaluation.quality.measure import Item
from evaluation.quality.sets import SetError, Source, TextRow

CHARACTERS = 16
"""Per token, of a text that is more than enough for so many windows: no language has longer tokens on average."""


@dataclass(frozen=True, slots=True)
class Text:
    id: str
    text: str


def read_texts(found: Source, window: int, windows: int | None) -> list[Text]:
    """Each `text` of a JSONL file, or the whole file. Raises SetError."""
    if found.path.suffix.lower() in (".jsonl", ".csv"):
        rows = sets.read_rows(found, TextRow)
        return [Text(sets.named(row.id, line), row.text) for line, row in rows]
    text = sets.read_text(found)
    if not text.strip():
        raise SetError(found.name, 0, "", "it has no text")
    if windows is not None and len(text) > (most := windows * window * CHARACTERS):
        text = text[: text.rfind("\n", 0, most) + 1] or text[:most]
    return [Text("text", text)]


async def bos_ids(asked: Connection) -> list[int]:
    """What the tokenizer puts before a text of its own accord: [] or the BOS."""
    with_special = await asked.tokenize("a", special=True)
    without = await asked.tokenize("a")
    return with_special[: len(with_special) - len(without)]


async def cut(asked: Connection, texts: list[Text], window: int, windows: int | None, first: list[int]) -> list[Item]:
    """Windows that don't overlap, each after `first` (the BOS, or nothing). The last of a text may be shorter; one of a
    single token is left out, and a short rest of a long text, too, so that all places have the same context."""
    found: list[Item] = []
    room = window - len(first)
    for text in texts:
        ids = await asked.tokenize(text.text)
        pieces = [ids[at : at + room] for at in range(0, len(ids), room)]
        for place, piece in enumerate(pieces):
            whole = [*first, *piece]
            if len(whole) < 2 or (place > 0 and len(whole) < window):
                continue
            found.append(Item(f"{text.id}:{place}", {"ids": whole}, group=_group(texts, text, place)))
            if windows is not None and len(found) == windows:
                return found
    if not found:
        raise EndpointError("no_tokens", "the text has fewer than two tokens", "Give more text", fatal=True)
    return found


def _group(texts: list[Text], text: Text, place: int) -> str:
    """What is drawn together in a bootstrap: a document; of one long text, each window."""
    return text.id if len(texts) > 1 else f"{text.id}:{place}"


def bos_policy(wanted: str, first: list[int]) -> dict[str, Any]:
    """For the result: a wrong BOS costs some models all they know (lm-evaluation-harness #2676)."""
    return {"bos": wanted, "bos_ids": first}
