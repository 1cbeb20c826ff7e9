"""However a stream is cut, the same comes out; what is no stream is named."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.client.framing import Chunked, FramingError, Head, body_of
from evaluation.client.http import share_out
from evaluation.client.sse import SseError, SseParser, read_chunk

STREAM = (
    '\ufeffdata: {"a": "海豚 🐬"}\n\n: a comment\nevent: message\nid: 7\ndata:no space\n\n'
    "data: two\ndata: lines\r\n\r\n:ping\n\n\n\ndata: last\r\rdata: [DONE]\n\n"
).encode()
EVENTS = ['{"a": "海豚 🐬"}'.encode(), b"no space", b"two\nlines", b"last", b"[DONE]"]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_any_cutting_gives_the_same_events(places):
    parser = SseParser()
    assert [event for piece in cut(STREAM, places) for event in parser.feed(piece)] == EVENTS
    assert not parser.pending


def test_byte_by_byte():
    parser = SseParser()
    assert [event for byte in STREAM for event in parser.feed(bytes([byte]))] == EVENTS


def test_an_event_that_does_not_end_is_pending():
    parser = SseParser()
    assert parser.feed(b"data: half") == []
    assert parser.pending


def test_a_line_that_is_no_field_is_named():
    with pytest.raises(SseError, match="no field of an event: '<html>"):
        SseParser().feed(b"<html>\n\n")


def test_an_event_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("evaluation.client.sse.LONGEST_EVENT", 100)
    parser = SseParser()
    parser.feed(b"data: " + 90 * b"x")
    with pytest.raises(SseError, match="longer than 100 bytes"):
        parser.feed(b"xxxxx")


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (b'{"choices": [{"delta": {"content": "a", "role": "assistant"}}]}', "a"),
        (b'{"choices": [{"delta": {"reasoning": "r", "reasoning_content": "r"}}]}', "r"),
        (b'{"choices": [{"delta": {"tool_calls": [{"function": {"name": "f", "arguments": "{\\"x"}}]}}]}', '{"x'),
        (b'{"choices": [{"delta": {"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}}]}', ""),
        (b'{"choices": [{"text": "t", "finish_reason": null}]}', "t"),
        (b'{"choices": [{"delta": {"role": "assistant", "content": ""}}]}', ""),
        (b'{"choices": [{"delta": {}, "finish_reason": "stop"}]}', ""),
    ],
)
def test_what_counts_as_generated(event, text):
    assert read_chunk(event).choices[0].generated() == text


def test_usage_tells_what_was_cached_and_guessed():
    told = (
        b'{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": '
        b'{"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 0, "accepted_prediction_tokens": 3, '
        b'"rejected_prediction_tokens": 2}}}'
    )
    usage = read_chunk(told).usage
    assert usage is not None
    assert (usage.cached_tokens, usage.accepted_tokens, usage.rejected_tokens) == (4, 3, 2)
    silent = read_chunk(b'{"usage": {"prompt_tokens": 9, "completion_tokens": 5}}').usage
    assert silent is not None
    assert (silent.cached_tokens, silent.accepted_tokens, silent.rejected_tokens) == (None, None, None)


@pytest.mark.parametrize(
    "event", [b"{", b"[]", b'{"choices": [{"delta": {"content": 7}}]}', b'"x"', b'{"choices": [{"text": "\xff"}]}']
)
def test_an_event_that_is_no_chunk_is_named(event):
    with pytest.raises(SseError, match="no chunk of a stream"):
        read_chunk(event)


def chunks(*contents: bytes) -> bytes:
    return b"".join(b"%x;ext=1\r\n%b\r\n" % (len(content), content) for content in contents) + b"0\r\nX-T: 1\r\n\r\n"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_cutting_of_chunked_content_gives_the_same(contents, places):
    body, got, ended = Chunked(), b"", False
    for piece in cut(chunks(*contents), places):
        content, ended = body.feed(piece)
        got += content
        assert not ended or piece  # only the last bytes end it
        if ended:
            break
    assert (got, ended) == (b"".join(contents), True)


@pytest.mark.parametrize("data", [b"zz\r\n", b"-5\r\nabc", b"\r\n"])
def test_a_chunk_without_a_size_is_named(data):
    with pytest.raises(FramingError, match="chunk begins with no size"):
        Chunked().feed(data)


def test_heads():
    head = Head(b"HTTP/1.1 503 Busy\r\nContent-Length: 5\r\nX-Tursiops-Queue-Ms: 12.5\r\nRetry-After: soon")
    assert (head.status, head.keeps, head.number(b"x-tursiops-queue-ms")) == (503, True, 12.5)
    assert head.number(b"retry-after") is None
    assert body_of(head).feed(b"12345678") == (b"12345", True)
    assert not Head(b"HTTP/1.1 200 OK\r\nConnection: close").keeps
    assert not Head(b"HTTP/1.0 200 OK").keeps
    for bad in (b"SSH-2.0-OpenSSH", b"HTTP/1.1 abc"):
        with pytest.raises(FramingError, match="status line"):
            Head(bad)
    with pytest.raises(FramingError, match="Content-Length"):
        body_of(Head(b"HTTP/1.1 200 OK\r\nContent-Length: -1"))


@given(st.integers(1, 200), st.lists(st.integers(1, 50), min_size=1, max_size=40))
def test_tokens_are_shared_out_whole(total, sizes):
    parts = share_out(total, sizes)
    assert sum(parts) == total
    assert min(parts) >= (1 if total >= len(sizes) else 0)
    assert share_out(6, [1, 1, 4]) == [1, 2, 3] or share_out(6, [1, 1, 4])[2] == 3
