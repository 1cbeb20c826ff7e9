"""The events of a streamed message (https://docs.anthropic.com/en/api/messages-streaming):

message_start, ping, (content_block_start, content_block_delta …, content_block_stop) …, message_delta, message_stop
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from engines.native.serve import validate
from engines.native.serve.errors import ApiError
from engines.native.serve.generate import Delta, Generator, require_whole
from engines.native.serve.messages import MessagesEndpoint, block, error_body, usage_body
from engines.native.serve.said import Piece, pieces


class MessageEvents:
    """One block is open at a time: of the kind that the last piece was."""

    named: ClassVar[bool] = True
    tail: ClassVar[bytes] = b""

    def __init__(self, _: validate.Body, endpoint: MessagesEndpoint, generator: Generator) -> None:
        self._endpoint, self._generator = endpoint, generator
        self._begun = False
        self._index = -1  # of the block, from 0
        self._open = ""  # kind of the open block
        self._finish = ""
        self._stopped_by: str | int | None = None

    def of(self, delta: Delta) -> list[dict[str, Any]]:
        if self._open == "text" and self._endpoint.chat.is_content(delta):  # nearly all
            return self._said(Piece("text", delta.text))
        events: list[dict[str, Any]] = []
        if not self._begun:
            self._begun = True
            self._endpoint.chat.first(0, self._generator)
            message = self._endpoint.message(replace(self._generator.usage, completion_tokens=0))
            events += [{"type": "message_start", "message": message}, {"type": "ping"}]
        for chunk in self._endpoint.chat.chunks(delta) if delta.is_news else ():
            choice = chunk["choices"][0]
            for piece in pieces(choice["delta"]):
                events += self._said(piece)
            self._finish = choice["finish_reason"] or self._finish
        self._stopped_by = delta.stopped_by
        return events

    def _said(self, piece: Piece) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        if piece.kind == "call" or piece.kind not in (self._open, "arguments"):
            events += self._close()
            self._open = "arguments" if piece.kind == "call" else piece.kind
            self._index += 1
            empty = block(replace(piece, text=""))
            events.append({"type": "content_block_start", "index": self._index, "content_block": empty})
        if piece.text:
            events.append({"type": "content_block_delta", "index": self._index, "delta": _delta(piece)})
        return events

    def _close(self) -> list[dict[str, Any]]:
        if not self._open:
            return []
        self._open = ""
        return [{"type": "content_block_stop", "index": self._index}]

    def last(self) -> list[dict[str, Any]]:
        require_whole(self._finish)
        usage = self._generator.usage
        ending = self._endpoint.ending(self._finish, self._stopped_by, usage)
        return [
            *self._close(),
            {"type": "message_delta", "delta": ending, "usage": usage_body(usage)},
            {"type": "message_stop"},
        ]

    def error(self, error: ApiError) -> dict[str, Any]:
        return error_body(error)


def _delta(piece: Piece) -> dict[str, str]:
    if piece.kind == "thinking":
        return {"type": "thinking_delta", "thinking": piece.text}
    if piece.kind == "arguments":
        return {"type": "input_json_delta", "partial_json": piece.text}
    return {"type": "text_delta", "text": piece.text}
