"""The events of a streamed response (https://platform.openai.com/docs/api-reference/responses-streaming):

response.created, response.in_progress,
per item: output_item.added, (content_part.added), deltas, done, (content_part.done), output_item.done,
response.completed or response.incomplete; no [DONE]
"""

from __future__ import annotations

from typing import Any, ClassVar

from engines.native.serve import validate
from engines.native.serve.errors import ApiError
from engines.native.serve.generate import Delta, Generator, require_whole
from engines.native.serve.responses import ResponsesEndpoint, item, text_part
from engines.native.serve.said import Piece, pieces

_STREAMS = {
    "message": "response.output_text",
    "reasoning": "response.reasoning_text",
    "function_call": "response.function_call_arguments",
}
_KINDS = {"text": "message", "thinking": "reasoning", "arguments": "function_call"}


class ResponseEvents:
    """One output item is open at a time; `_texts` is what it has said so far."""

    named: ClassVar[bool] = True
    tail: ClassVar[bytes] = b""

    def __init__(self, _: validate.Body, endpoint: ResponsesEndpoint, generator: Generator) -> None:
        self._endpoint, self._generator = endpoint, generator
        self._sequence = 0
        self._output: list[dict[str, Any]] = []
        self._is_open = False
        self._texts: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self._finish = "stop"

    def of(self, delta: Delta) -> list[dict[str, Any]]:
        if self._is_open and self._endpoint.chat.is_content(delta):  # nearly all
            return self._said(Piece("text", delta.text), [])
        events: list[dict[str, Any]] = []
        if not self._sequence:
            self._endpoint.chat.first(0, self._generator)
            for kind in ("response.created", "response.in_progress"):
                events.append(self._event(kind, response=self._endpoint.response([])))
        for chunk in self._endpoint.chat.chunks(delta) if delta.is_news else ():
            choice = chunk["choices"][0]
            scored = (choice.get("logprobs") or {}).get("content") or []
            for piece in pieces(choice["delta"]):
                events += self._said(piece, scored)
                scored = []
            self._finish = choice["finish_reason"] or self._finish
        return events

    def _said(self, piece: Piece, scored: list[dict[str, Any]]) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        if piece.kind == "call" or not self._is_open or self._output[-1]["type"] != _KINDS[piece.kind]:
            events += [*self._close(), *self._begin(piece)]
        if piece.text:
            self._texts.append(piece.text)
            extra = {}
            if piece.kind == "text":
                self._logprobs += scored
                extra["logprobs"] = scored
            events.append(self._of_item("delta", delta=piece.text, **extra))
        return events

    def _begin(self, piece: Piece) -> list[dict[str, Any]]:
        begun = item(Piece(piece.kind, id=piece.id, name=piece.name), "in_progress")
        self._output.append(begun)
        self._is_open, self._texts, self._logprobs = True, [], []
        events = [self._event("response.output_item.added", output_index=self._place, item=dict(begun))]
        if begun["type"] != "function_call":
            events.append(self._of_part("added", self._part("")))
        return events

    def _close(self) -> list[dict[str, Any]]:
        if not self._is_open:
            return []
        self._is_open, ended, text = False, self._output[-1], "".join(self._texts)
        ended["status"] = "completed"
        if ended["type"] == "function_call":
            ended["arguments"] = text
            events = [self._of_item("done", arguments=text, name=ended["name"])]
        else:
            ended["content"] = [self._part(text)]
            extra = {"logprobs": self._logprobs} if ended["type"] == "message" else {}
            events = [self._of_item("done", text=text, **extra), self._of_part("done", ended["content"][0])]
        events.append(self._event("response.output_item.done", output_index=self._place, item=dict(ended)))
        return events

    def last(self) -> list[dict[str, Any]]:
        require_whole(self._finish)
        events = self._close()
        response = self._endpoint.response(self._output, finish=self._finish, usage=self._generator.usage)
        return [*events, self._event(f"response.{response['status']}", response=response)]

    def error(self, error: ApiError) -> dict[str, Any]:
        return self._event("error", code=error.code, message=error.message, param=error.param)

    @property
    def _place(self) -> int:
        return len(self._output) - 1

    def _part(self, text: str) -> dict[str, Any]:
        if self._output[-1]["type"] == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {**text_part(text), "logprobs": list(self._logprobs)}

    def _of_item(self, what: str, **fields: Any) -> dict[str, Any]:
        """An event about the text of the open item."""
        current = self._output[-1]
        place = {} if current["type"] == "function_call" else {"content_index": 0}
        kind = f"{_STREAMS[current['type']]}.{what}"
        return self._event(kind, item_id=current["id"], output_index=self._place, **place, **fields)

    def _of_part(self, what: str, part: dict[str, Any]) -> dict[str, Any]:
        kind, current = f"response.content_part.{what}", self._output[-1]
        return self._event(kind, item_id=current["id"], output_index=self._place, content_index=0, part=part)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return event
