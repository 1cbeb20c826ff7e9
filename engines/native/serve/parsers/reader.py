"""One answer's text as pieces: what every endpoint that speaks of reasoning and calls is built on."""

from __future__ import annotations

from engines.native.serve.parsers.pieces import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Piece,
    Reasoning,
    ToolParser,
    joined,
)


class AnswerReader:
    """Takes `Delta.reasoning` and `Delta.text` of one answer as they come. Reasoning is always over when content or a
    call begins. `parser` None: the request has no tools, all text is content.

    parallel: False keeps the first call alone. reasoning: False leaves it out of the answer (it is still drawn).
    """

    def __init__(self, parser: ToolParser | None, *, parallel: bool = True, reasoning: bool = True) -> None:
        self._parser, self._parallel, self._reasoning = parser, parallel, reasoning
        self.called = False  # a call came: the answer ends with `tool_calls` where it would have ended with `stop`

    def read(self, reasoning: str, text: str, *, last: bool) -> list[Piece]:
        """The next pieces; `last` with what ends the answer."""
        pieces: list[Piece] = [Reasoning(reasoning)] if reasoning and self._reasoning else []
        if self._parser is None:
            return [*pieces, Content(text)] if text else pieces
        found = self._parser.push(text) if text else []
        if last:
            found += self._parser.finish()
        for piece in found:
            if isinstance(piece, CallBegin | CallArguments | CallEnd):
                if piece.index and not self._parallel:
                    continue
                self.called = True
            pieces.append(piece)
        return joined(pieces) if len(pieces) > 1 else pieces

    def finish_reason(self, finish: str) -> str:
        return "tool_calls" if self.called and finish == "stop" else finish
