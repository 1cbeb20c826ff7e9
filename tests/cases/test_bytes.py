"""The targets of byte_targets.py on drawn bytes, and on what was found once."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tursiops.gateway.dialects import ANTHROPIC, OPENAI, RESPONSES
from tursiops.gateway.events import EventScanner, Seen, data_of, split

from tests.cases.byte_targets import TARGETS, gateway_scanner

WORDS = [
    *(b"data: ", b"event: ", b"\n\n", b"\r\n\r\n", b"\n", b"\r", b":", b"[DONE]", b'{"choices":[{"delta":{}}]}'),
    *(b'{"choices":[],"usage":{"prompt_tokens":7}}', b'"error"', b"event: message_delta\n", b"content_block_delta"),
    *(b'{"type":"response.completed","response":{"usage":{"input_tokens":3}}}', b"<think>", b"</think>", b"\x00"),
    *(b"<tool_call>", b"</tool_call>", b'{"name": "f", "arguments": {"a": 1}}', b"[TOOL_CALLS]", b"[f(a=1)]", b"```"),
    *(
        b'{"type":"object"}',
        b'{"type":"string","pattern":"^a+$"}',
        b"start: ",
        b"root ::= ",
        b'"a" b\nb: "c"',
        b"(a|b)*",
    ),
    *(b"Mr. X. ", "。".encode(), "🔥".encode(), b"\xf0\x9f", b"\\p{L}", b"[", b"]", b"{", b"}", b'"'),
]
drawn = st.builds(
    lambda head, parts: head + b"".join(parts),
    st.binary(min_size=3, max_size=3),
    st.lists(st.sampled_from(WORDS) | st.binary(max_size=5), max_size=12),
)


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes(name: str) -> None:
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(drawn)
    def check(data: bytes) -> None:
        TARGETS[name](data)

    check()


DEEP = b'{"type":"error","error":{"a":' + b"[" * 1500 + b"]" * 1500 + b"}}"
MANY = b'{"type":"message_delta","choices":[],"usage":{"prompt_tokens":%d,"input_tokens":%d,"output_tokens":%d}}'


@pytest.mark.parametrize("dialect", [OPENAI, RESPONSES, ANTHROPIC], ids=["openai", "responses", "anthropic"])
@pytest.mark.parametrize("number", [-1, 2**31, 10**40])
def test_counts_that_nobody_can_have_used_are_not_believed(dialect: object, number: int) -> None:
    """They were billed, and a limit's account of them would be wrong for good."""
    seen = Seen()
    body = MANY % (number, number, number)
    dialect.account(body, seen, True)  # type: ignore[attr-defined] # every dialect has it
    dialect.read_whole(body, seen)  # type: ignore[attr-defined] # every dialect has it
    assert (seen.has_usage, seen.prompt_tokens, seen.completion_tokens) == (False, 0, 0)


@pytest.mark.parametrize("dialect", [OPENAI, RESPONSES, ANTHROPIC], ids=["openai", "responses", "anthropic"])
def test_an_event_nested_without_end_breaks_no_stream(dialect: object) -> None:
    scanner = EventScanner(dialect, keep_usage=True, limit=10_000)  # type: ignore[arg-type] # a dialect
    event = b"event: x\ndata: " + DEEP + b"\n\n"
    assert scanner.feed(event) == event
    dialect.read_whole(DEEP, scanner.seen)  # type: ignore[attr-defined] # every dialect has it
    assert dialect.says_nothing(DEEP) is False  # type: ignore[attr-defined] # every dialect has it


def test_events_that_end_in_different_ways_go_through_as_they_came() -> None:
    """A proxy's comments end with LF where the engine's events end with CRLF."""
    mixed = b': proxy\n\ndata: {"choices":[{"finish_reason":"stop"}]}\r\n\r\n: proxy\n\ndata: [DONE]\r\n\r\n'
    scanner = EventScanner(OPENAI, keep_usage=True, limit=1000)
    assert scanner.feed(mixed) == mixed
    assert [data_of(event)[:8] for event in split(mixed)] == [b"", b'{"choice', b"", b"[DONE]"]
    assert (scanner.seen.done, scanner.seen.events, scanner.seen.finish_reason) == (True, 1, "stop")


def test_comments_are_no_tokens() -> None:
    scanner = EventScanner(OPENAI, keep_usage=True, limit=1000)
    scanner.feed(b": waiting\n\n: waiting\n\n")
    scanner.feed(b": of two\n: lines\n\n")
    scanner.feed(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n: waiting\n\n')
    assert scanner.seen.events == 1


@pytest.mark.parametrize("data", [b"\x00\x00" + DEEP, b"\x00\x49II\x03\r\n\r\n\n\n\xf8]"])
def test_found_before(data: bytes) -> None:
    gateway_scanner(data)
