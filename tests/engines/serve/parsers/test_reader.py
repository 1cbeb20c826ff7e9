"""One answer read as pieces."""

from __future__ import annotations

from engines.native.serve.parsers.pieces import (
    Call,
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Message,
    Reasoning,
    joined,
    message,
)
from engines.native.serve.parsers.reader import AnswerReader
from engines.native.serve.parsers.registry import TOOL_PARSERS

TWO = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call><tool_call>{"name": "g"}</tool_call>'


def reader(**options: bool) -> AnswerReader:
    return AnswerReader(TOOL_PARSERS["hermes"](frozenset("fg")), **options)


def test_reasoning_comes_before_content_and_calls() -> None:
    reading = reader()
    pieces = reading.read("why", f"so {TWO}", last=True)
    assert pieces[:2] == [Reasoning("why"), Content("so")]
    assert reading.called
    assert [type(piece) for piece in pieces[2:]] == [CallBegin, CallArguments, CallEnd] * 2
    whole = message(pieces)
    assert (whole.content, whole.reasoning) == ("so", "why")
    assert [(call.name, call.arguments) for call in whole.calls] == [("f", '{"a": 1}'), ("g", "{}")]
    assert len({call.id for call in whole.calls}) == 2


def test_finish_reason_is_tool_calls_only_for_an_answer_that_ended_by_itself() -> None:
    reading = reader()
    assert reading.finish_reason("stop") == "stop"
    reading.read("", TWO, last=True)
    assert reading.finish_reason("stop") == "tool_calls"
    assert reading.finish_reason("length") == "length"


def test_one_call_alone_and_reasoning_left_out() -> None:
    pieces = reader(parallel=False, reasoning=False).read("why", f"{TWO} end", last=True)
    assert [piece.index for piece in pieces if isinstance(piece, CallBegin | CallArguments | CallEnd)] == [0, 0, 0]
    assert Content(" end") in pieces
    assert not any(isinstance(piece, Reasoning) for piece in pieces)


def test_without_a_parser_text_is_content() -> None:
    reading = AnswerReader(None)
    assert reading.read("", TWO, last=True) == [Content(TWO)]
    assert reading.read("", "", last=True) == []
    assert not reading.called


def test_message_of_nothing_has_empty_content_and_of_reasoning_alone_none() -> None:
    assert message([]) == Message(content="")
    assert message([Reasoning("a"), Reasoning("b")]) == Message(reasoning="ab")
    begin = CallBegin(0, "x", "f")
    assert message([begin, CallEnd(0)]) == Message(calls=[Call("x", "f")])


def test_joined_keeps_apart_what_is_not_one() -> None:
    apart = [Content("a"), Reasoning("b"), CallArguments(0, "c"), CallArguments(1, "d"), Content("e")]
    assert joined(apart) == apart
    assert joined([Content("a"), Content("b"), CallArguments(0, "c"), CallArguments(0, "d")]) == [
        Content("ab"),
        CallArguments(0, "cd"),
    ]
