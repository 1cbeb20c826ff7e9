"""The API process's side of a pooling model: texts to ids, requests to the core, numbers back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from engines.native.ipc import Ending, FromCore
from engines.native.pooling.config import Head
from engines.native.pooling.files import PoolingFiles
from engines.native.pooling.messages import Pool, PoolUpdate
from engines.native.request import Finish, SamplingParams, Timeouts
from engines.native.serve.engine import Engine
from engines.native.serve.errors import ApiError, invalid
from engines.native.serve.stream import Stream

LONG_TEXT = 8192
"""Characters from which tokenizing goes to a thread, so that the loop goes on (the library drops the GIL)."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tokens:
    """One text, or two as a pair. second: index of the second segment's first token, the length where there is none."""

    ids: list[int]
    second: int


@dataclass(frozen=True, slots=True)
class PoolingText:
    """Texts to ids as the model was trained. Lives as long as the process."""

    tokenizer: Tokenizer
    head: Head
    vocab_size: int
    width: int  # numbers of one text
    max_tokens: int  # of one text, special tokens included; as the model was trained

    async def encode(self, texts: Sequence[str], names: Sequence[str], keep: int) -> list[Tokens]:
        """keep: tokens of each that stay, its first and the special ones; 0 = all, and one that is too long is refused.
        names: what an error calls each text. Raises ApiError 400."""
        for text, name in zip(texts, names, strict=True):
            if not text:
                raise invalid(name, f"{name} is empty; give at least one character", "empty_input")
        lowered = [text.lower() for text in texts] if self.head.lower else list(texts)
        encodings = await _where_it_is_short(
            sum(map(len, texts)), lambda: self.tokenizer.encode_batch(lowered, add_special_tokens=not keep)
        )
        if keep:
            encodings = [self._cut(encoding, keep) for encoding in encodings]
        return [self._checked(encoding, name) for encoding, name in zip(encodings, names, strict=True)]

    async def encode_pairs(
        self, pairs: Sequence[tuple[str, str]], names: Sequence[str], keep: int, first_name: str
    ) -> list[Tokens]:
        """The same for pairs, each one input of a cross-encoder. first_name: the field that the first texts are in."""
        firsts = {first: None for first, _ in pairs}  # a query stands in many pairs, and is taken apart once

        def work() -> list[Encoding]:
            for first in firsts:
                encoding = self.tokenizer.encode(first, add_special_tokens=False)
                if not keep:
                    self._limited(encoding.ids, len(encoding.ids), first_name)
                known[first] = encoding
            return [self._pair(known[first], second, keep) for first, second in pairs]

        known: dict[str, Encoding] = {}
        encodings = await _where_it_is_short(sum(map(len, firsts)) + sum(len(second) for _, second in pairs), work)
        return [self._checked(encoding, name) for encoding, name in zip(encodings, names, strict=True)]

    def whole(self, text: str) -> list[int]:
        """Ids of a text with its special tokens, however many."""
        ids: list[int] = self.tokenizer.encode(text.lower() if self.head.lower else text).ids
        return ids

    def checked_ids(self, ids: list[int], name: str, keep: int) -> Tokens:
        """Ids that a client made itself; special tokens are its own affair. Raises ApiError 400."""
        if not ids:
            raise invalid(name, f"{name} is empty; give at least one token", "empty_input")
        return self._limited(ids[:keep] if keep else ids, len(ids), name)

    def _cut(self, encoding: Encoding, keep: int) -> Encoding:
        encoding.truncate(max(0, keep - self._special(pair=False)))
        return self.tokenizer.post_process(encoding)

    def _pair(self, known: Encoding, text: str, keep: int) -> Encoding:
        """The longer text of a pair is cut first."""
        first = copy(known) if keep else known  # it is cut in place
        second = self.tokenizer.encode(text, add_special_tokens=False)
        if keep:
            room = max(0, keep - self._special(pair=True))
            long, short = (first, second) if len(first) >= len(second) else (second, first)
            short.truncate(max(room // 2, room - len(long)))
            long.truncate(room - len(short))
        return self.tokenizer.post_process(first, second)

    def _special(self, *, pair: bool) -> int:
        return self.tokenizer.num_special_tokens_to_add(pair)

    def _checked(self, encoding: Encoding, name: str) -> Tokens:
        types = encoding.type_ids
        second = types.index(1) if 1 in types else len(types)
        tokens = self._limited(encoding.ids, len(types), name)
        return Tokens(tokens.ids, second)

    def _limited(self, ids: list[int], length: int, name: str) -> Tokens:
        if len(ids) > self.max_tokens:
            message = (
                f"{name} has {length} tokens and the model takes {self.max_tokens} at most; shorten it, or set "
                "truncate_prompt_tokens to -1 to use its beginning"
            )
            raise invalid(name, message, "context_length_exceeded")
        if max(ids, default=0) >= self.vocab_size:
            raise invalid(name, f"{name} holds a special token (id {max(ids)}) that this model does not know")
        return Tokens(ids, len(ids))


def pooling_text(files: PoolingFiles, tokenizer: Tokenizer) -> PoolingText:
    return PoolingText(
        tokenizer=tokenizer,
        head=files.head,
        vocab_size=files.config.vocab,
        width=files.head.labels or files.config.hidden,
        max_tokens=files.max_tokens,
    )


async def _where_it_is_short(characters: int, work: Callable[[], T]) -> T:
    return work() if characters < LONG_TEXT else await asyncio.to_thread(work)


@dataclass(slots=True, eq=False)
class PoolStream(Stream):
    """One request's way through the core. prompt_ids: of all its texts."""

    vectors: bytes = b""


class PoolingEngine(Engine):
    """An engine whose core is `engines.native.pooling.core`."""

    async def pool(
        self,
        texts: Sequence[Tokens],
        *,
        priority: int = 0,
        timeouts: Timeouts = Timeouts(),
        tenant: str = "",
    ) -> NDArray[np.float32]:
        """float32 [len(texts), width]. Raises ApiError; a caller that is cancelled ends its request in the core."""
        self.require_ready()
        assert self.core is not None
        ids = [token for text in texts for token in text.ids]
        stream = PoolStream(next(self._ids), ids, SamplingParams(), asyncio.Event())
        self._door.enter(stream.id, tenant)
        if not self._streams:
            self._heard_at = time.monotonic()
        self._streams[stream.id] = stream
        limits = timeouts.over(self._limits.timeouts)
        try:
            self.core.send(
                Pool(
                    stream.id,
                    np.array(ids, np.int32).tobytes(),
                    np.array([len(text.ids) for text in texts], np.int32).tobytes(),
                    np.array([text.second for text in texts], np.int32).tobytes(),
                    priority,
                    limits.queue or 0.0,
                    limits.total or 0.0,
                )
            )
            await stream.arrived.wait()
            assert stream.ending is not None
            if stream.ending.finish is not Finish.STOP:
                raise _failure(stream.ending)
            return np.frombuffer(stream.vectors, np.float32).reshape(len(texts), -1)
        finally:
            self.close(stream)

    def _take(self, message: FromCore) -> None:
        if not isinstance(message, PoolUpdate):
            super()._take(message)
            return
        self._heard_at = time.monotonic()
        self.metrics.running.set(message.running)
        self.metrics.waiting.set(message.waiting)
        for request_id in message.started:
            if (stream := self._streams.get(request_id)) is not None:
                self.metrics.started(stream, 0)
        for end in message.ends:
            stream = self._streams.get(end.id)
            if isinstance(stream, PoolStream):
                stream.vectors = end.vectors
                stream.end(Ending(end.id, end.finish, end.message, end.code))


def _failure(ending: Ending) -> ApiError:
    match ending.finish:
        case Finish.TIMEOUT:
            return ApiError(504, ending.message, code=ending.code or "timeout")
        case Finish.ABORT:
            return ApiError(503, ending.message or "the request was aborted", code="aborted")
        case _:
            return ApiError(500, ending.message, code="engine_error")
