"""Pieces that are text and nothing else take a short way, from tokens to bytes; what a client gets is the same."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.ipc import Ending
from engines.native.loader.model_files import open_model
from engines.native.request import Finish, SamplingParams
from engines.native.serve.chat import ChatEndpoint
from engines.native.serve.completions import CompletionEndpoint
from engines.native.serve.generate import Answer, Delta, Generation, Generator, Usage
from engines.native.serve.model import ServedModel, load
from engines.native.serve.openai import ChunkEvents
from engines.native.serve.stream import Stream
from tests.engines.weights import smollm2

ASKED: dict[type[Any], dict[str, Any]] = {
    CompletionEndpoint: {"prompt": "x"},
    ChatEndpoint: {"messages": [{"role": "user", "content": "x"}]},
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"stream_options": {"include_usage": True}},
    {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    {"return_token_ids": True},
]


@pytest.fixture(scope="module")
def model() -> ServedModel:
    path = smollm2()
    return load('a "model" of ours', open_model("gguf", {path.name: str(path)}))


class Silent:
    """What events ask a generator for."""

    usage = Usage()

    def prompt_of(self, index: int) -> int:
        return index


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("make", ASKED)
@given(texts=st.lists(st.text(min_size=1), min_size=1, max_size=4))
@settings(max_examples=20, deadline=None)
def test_events_of_plain_text_are_the_chunks_of_the_endpoint(
    model: ServedModel, make: type[Any], options: dict[str, Any], texts: list[str]
) -> None:
    body = {"stream": True, **ASKED[make], **options}
    endpoint = make(model, body, 2048)
    asyncio.run(endpoint.generation())
    events = ChunkEvents(body, endpoint, cast(Generator, Silent()))
    events.of(Delta(0, "opens"))
    for text in texts:
        delta = Delta(0, text, token_ids=[1])
        (said,) = events.of(delta)
        (chunk,) = endpoint.chunks(delta)
        if "stream_options" in options:
            usage = None if len(options["stream_options"]) == 1 else said["usage"]  # type: ignore[call-overload] # a dict of any
            chunk["usage"] = usage
        assert orjson.loads(said if isinstance(said, bytes) else orjson.dumps(said)) == orjson.loads(
            orjson.dumps(chunk)
        )
        assert isinstance(said, bytes) is (options in OPTIONS[:2])


@given(tokens=st.lists(st.integers(0, 49151), min_size=1, max_size=30), step=st.integers(1, 5), data=st.data())
@settings(max_examples=60, deadline=None)
def test_answer_that_only_the_core_ends_says_what_one_with_stops_says(
    model: ServedModel, tokens: list[int], step: int, data: st.DataObject
) -> None:
    finish = data.draw(st.sampled_from([Finish.STOP, Finish.LENGTH]))
    said = []
    for stops in ([], ["\0 no such text"]):
        params = SamplingParams(max_tokens=50, stop_token_ids=[2])
        stream = Stream(1, [9], params, asyncio.Event())
        growing = Answer(0, stream, Generation([[9]], params, stops), model.detokenizer)
        text, ids = "", list[int]()
        for place in range(0, len(tokens), step):
            for token in tokens[place : place + step]:
                stream.feed(token, None, None, 1.0)
            if place + step >= len(tokens):
                stream.end(Ending(1, finish))
            delta = growing.advance()
            assert delta is not None
            text, ids = text + delta.text, ids + delta.token_ids
        said.append((text, ids, growing.finish, growing.tokens))
    assert said[0] == said[1]
