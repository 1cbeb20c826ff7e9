"""Calibration rows: texts as the model will see them, tokenized, in rows of one length. No torch.

A file is JSONL (`text`; `messages`; `prompt` and `completion`) or plain text with a blank line between texts. Chats go
through the model's chat template. The texts follow each other in an order that the seed gives, cut into rows; where the
model wants a BOS, each row begins with it and holds it once.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from engines.native.loader.tokenizer import TokenizerFacts
from engines.native.serve.errors import ApiError
from engines.native.serve.template import ChatTemplate
from engines.protocol import ChildError
from plugins.quantization.spec import BUILT_IN

SHORTEST = 10
"""Tokens; a shorter text says nothing of a layer."""
LONGEST = 16
"""Rows that one text may fill, so that no single one is most of the data."""
CHARACTERS = 32
"""Of a text, for each token that it may give: what lies behind is not tokenized, which would take minutes and gigabytes
of a book in one line."""
LARGEST = 512 * 2**20
"""Bytes of a file that is read."""
BROKEN = 0.05
"""Share of broken rows from which a file is refused: it is of another kind then."""
LEAST = 0.5
"""Share of the rows asked for that must come together."""

Progress = Callable[[float], None]


@dataclass(slots=True)
class Facts:
    """What was used, for the report. texts: in the file; used: of them, until the rows were full."""

    source: str
    sha256: str
    texts: int = 0
    used: int = 0
    broken: int = 0
    duplicates: int = 0
    short: int = 0
    samples: int = 0
    tokens: int = 0
    total_tokens: int = 0
    seed: int = 0
    bos: str = "none"
    chat_template: bool = False
    rows_sha256: str = ""
    notes: list[str] = field(default_factory=list)

    def about(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Calibration:
    """rows: int32 [samples, tokens]. texts: int32 [samples, 2], the first and the last text that each row has a part
    of, by their number in the order of the rows."""

    rows: npt.NDArray[np.int32]
    texts: npt.NDArray[np.int32]
    facts: Facts


def load(
    path: Path | None,
    tokenizer: Tokenizer,
    model: TokenizerFacts,
    *,
    samples: int,
    tokens: int,
    seed: int,
    progress: Progress = lambda share: None,
) -> Calibration:
    """path: None = what ships with us. Raises ChildError("bad_calibration") with numbers."""
    file = path or BUILT_IN
    texts, facts = _read(file, "built-in" if path is None else "file")
    facts.seed = seed
    random.Random(seed).shuffle(texts)
    maker = _Rows(tokenizer, model, facts, samples, tokens)
    for text in texts:
        if maker.full:
            break
        maker.add(text)
        progress(len(maker.rows) / samples)
    return _finished(maker, facts, samples, tokens)


def _finished(maker: _Rows, facts: Facts, samples: int, tokens: int) -> Calibration:
    made = len(maker.rows)
    if made < max(1, round(LEAST * samples)):
        dropped = [(facts.broken, "broken"), (facts.duplicates, "double"), (facts.short, f"under {SHORTEST} tokens")]
        out = ", ".join(f"{count:,} {what}" for count, what in dropped if count) or "none left out"
        raise ChildError(
            "bad_calibration",
            f"calibration: {facts.texts:,} texts ({out}), {facts.used:,} usable with {maker.seen:,} tokens: that makes "
            f"{made:,} rows of {tokens:,}; {samples:,} were asked for, and half of them are needed",
            f"Give more texts (about {samples * tokens:,} tokens), or ask for at most {2 * made} rows"
            + (f" or for shorter ones than {tokens}." if made < samples else "."),
        )
    if made < samples:
        facts.notes.append(f"{made} rows instead of {samples}: the data has no more")
    rows = np.array(maker.rows, dtype=np.int32)
    facts.samples, facts.tokens, facts.total_tokens = made, tokens, made * tokens
    facts.rows_sha256 = hashlib.sha256(rows.astype("<i4").tobytes()).hexdigest()
    return Calibration(rows, np.array(maker.texts, dtype=np.int32), facts)


# -- the file -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Text:
    """One of both."""

    text: str = ""
    messages: tuple[dict[str, Any], ...] = ()


def _read(file: Path, source: str) -> tuple[list[_Text], Facts]:
    try:
        data = file.read_bytes() if file.stat().st_size <= LARGEST else None
    except OSError as error:
        raise ChildError("bad_calibration", f"calibration: the file can't be read: {error.strerror}") from error
    if data is None:
        raise ChildError("bad_calibration", f"calibration: the file is larger than {LARGEST:,} bytes", "Take a sample.")
    facts = Facts(source, hashlib.sha256(data).hexdigest())
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ChildError(
            "bad_calibration", f"calibration: line {line:,} is no UTF-8 text", "Save the file as UTF-8."
        ) from error
    begin = content.lstrip()[:1]
    if begin == "[":
        hint = "Write one JSON object on each line."
        raise ChildError("bad_calibration", "calibration: the file is one JSON list, not JSONL", hint)
    texts = list(_of_jsonl(content, facts) if begin == "{" else _of_text(content))
    facts.texts = len(texts) + facts.broken
    if not texts:
        raise ChildError("bad_calibration", "calibration: the file holds no text")
    return texts, facts


def _of_text(content: str) -> Iterator[_Text]:
    parts = content.split("\n\n") if "\n\n" in content else content.split("\n")
    return (_Text(part) for part in parts if part.strip())


def _of_jsonl(content: str, facts: Facts) -> Iterator[_Text]:
    lines = [(number, line) for number, line in enumerate(content.split("\n"), 1) if line.strip()]
    first = ""
    texts = []
    for number, line in lines:
        try:
            texts.append(_of_row(json.loads(line)))
        except (ValueError, RecursionError) as error:  # of lists in lists in lists
            facts.broken += 1
            first = first or f"line {number:,} {_why(error)}"
    if facts.broken > BROKEN * len(lines):
        raise ChildError(
            "bad_calibration",
            f"calibration: {facts.broken:,} of {len(lines):,} lines are broken; the first: {first}",
            'Write lines such as {"messages": [{"role": "user", "content": "…"}, …]}, {"text": "…"} or '
            '{"prompt": "…", "completion": "…"}.',
        )
    if facts.broken:
        facts.notes.append(f"left out: {facts.broken:,} broken lines; the first: {first}")
    return iter(texts)


def _why(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "is nested too deep"
    return f"is no JSON ({error.msg})" if isinstance(error, json.JSONDecodeError) else str(error)


def _of_row(row: Any) -> _Text:
    """Raises ValueError saying what is wrong."""
    if not isinstance(row, dict):
        raise ValueError("is no JSON object")
    if "messages" in row:
        return _Text(messages=tuple(_messages(row["messages"])))
    if "prompt" in row and "completion" in row:
        turns = [{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": row["completion"]}]
        return _Text(messages=tuple(_messages(turns)))
    if isinstance(row.get("text"), str):
        return _Text(row["text"])
    raise ValueError(f"has none of messages, text, prompt with completion (it has {', '.join(sorted(row)[:5])})")


def _messages(value: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise ValueError("has messages that are no list")
    for message in value:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ValueError("has a message without a role")
        content = message.get("content")
        if isinstance(content, list):
            parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
            content = "\n".join(part for part in parts if isinstance(part, str))
        if content is not None and not isinstance(content, str):
            raise ValueError("has a message whose content is no text")
        if not content and not message.get("tool_calls"):
            raise ValueError("has a message without content")
        yield {**message, "content": content}


# -- rows ---------------------------------------------------------------------------------------------------------


class _Rows:
    """Tokenizes texts and cuts what they make into rows."""

    def __init__(self, tokenizer: Tokenizer, model: TokenizerFacts, facts: Facts, samples: int, tokens: int) -> None:
        self._tokenizer, self._model, self._facts = tokenizer, model, facts
        self._samples, self._length = samples, tokens
        self._template = _template(tokenizer, model)
        self._known: set[bytes] = set()
        self._open: list[int] = []
        self._open_texts: list[int] = []
        self._bos = model.bos_id if model.add_bos or self._template_opens() else None
        self.rows: list[list[int]] = []
        self.texts: list[tuple[int, int]] = []
        self.seen = 0
        if self._bos is not None:
            facts.bos = "once, at the start of a row"

    @property
    def full(self) -> bool:
        return len(self.rows) >= self._samples

    def add(self, text: _Text) -> None:
        rendered = self._rendered(text)
        if rendered is None:
            return
        digest = hashlib.sha256(rendered.encode()).digest()
        if digest in self._known:
            self._facts.duplicates += 1
            return
        self._known.add(digest)
        rendered = rendered[: CHARACTERS * LONGEST * self._length]
        ids = self._plain(self._tokenizer.encode(rendered, add_special_tokens=False).ids)
        if len(ids) < SHORTEST:
            self._facts.short += 1
            return
        ids = ids[: LONGEST * self._length]
        self._facts.used += 1
        self.seen += len(ids)
        self._cut(ids)

    def _rendered(self, text: _Text) -> str | None:
        """None where the model's template refuses the chat, which counts as broken."""
        if not text.messages:
            return text.text.strip() + "\n\n"
        if self._template is None:
            return "\n\n".join(message["content"] or "" for message in text.messages) + "\n\n"
        self._facts.chat_template = True
        try:
            return self._template.render(list(text.messages), {"add_generation_prompt": False})
        except ApiError as error:
            self._facts.broken += 1
            if not any("template" in note for note in self._facts.notes):
                self._facts.notes.append(f"left out: chats that the model's chat template refuses: {error}")
            return None

    def _template_opens(self) -> bool:
        """Whether chats begin with a BOS though the tokenizer writes none. One that a chat holds more than once marks
        its turns (SmolLM2's is <|im_start|>) and is left where it is."""
        if self._template is None or self._model.bos_id is None:
            return False
        chat = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello"}]
        try:
            text = self._template.render(chat, {"add_generation_prompt": False})
        except ApiError:
            return False  # the chats of the file meet the same refusal, and are counted
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return bool(ids[:1] == [self._model.bos_id] and ids.count(self._model.bos_id) == 1)

    def _plain(self, ids: list[int]) -> list[int]:
        """Without a BOS at its start: the row has it."""
        while self._bos is not None and ids[:1] == [self._bos]:
            ids = ids[1:]
        return ids

    def _cut(self, ids: list[int]) -> None:
        self._open += ids
        self._open_texts += [self._facts.used] * len(ids)
        head = [] if self._bos is None else [self._bos]
        width = self._length - len(head)
        while len(self._open) >= width and not self.full:
            self.rows.append(head + self._open[:width])
            self.texts.append((self._open_texts[0], self._open_texts[width - 1]))
            self._open, self._open_texts = self._open[width:], self._open_texts[width:]


def _template(tokenizer: Tokenizer, model: TokenizerFacts) -> ChatTemplate | None:
    """None for a model without one, whose chats are their contents. Raises ChildError for one that doesn't compile."""
    if not model.chat_template:
        return None
    named = {"bos_token": model.bos_id, "eos_token": model.eos_ids[0] if model.eos_ids else None}
    special = {name: tokenizer.id_to_token(token) or "" for name, token in named.items() if token is not None}
    try:
        return ChatTemplate(model.chat_template, special)
    except ValueError as error:
        raise ChildError("bad_model", f"model: {error}") from error
