"""Which piece of an answer's text was guessed, and by whom: whatever is held back, cut or left out on the way."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.ipc import Ending, PromptLogprobs
from engines.native.loader.model_files import open_model
from engines.native.request import Finish, SamplingParams
from engines.native.serve.chat import ChatEndpoint
from engines.native.serve.completions import CompletionEndpoint
from engines.native.serve.generate import Answer, Delta, Generation, Usage
from engines.native.serve.model import ServedModel, load
from engines.native.serve.openai import ChunkEvents, usage_body
from engines.native.serve.parsers.reasoning import ReasoningTags
from engines.native.serve.sourced import Piece, merged
from engines.native.serve.stream import Stream
from tests.engines.talking_model import write_talking_model
from tests.engines.weights import smollm2

pytestmark = pytest.mark.speculation
NAMES = ("lookahead", "draft")
THINK = ReasoningTags("<think>", "</think>")  # each of several tokens in SmolLM2's vocabulary


@pytest.fixture(scope="module")
def model() -> ServedModel:
    path = smollm2()
    return load("m", open_model("gguf", {path.name: str(path)}))


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    folder = write_talking_model(tmp_path_factory.mktemp("talking") / "model")
    return load("m", open_model("safetensors", {path.name: str(path) for path in folder.iterdir()}))


def deltas(
    model: ServedModel,
    tokens: list[int],
    sources: list[int],
    cuts: list[int],
    finish: Finish = Finish.LENGTH,
    **asked: Any,
) -> list[Delta]:
    """An answer of `tokens`, which come in groups that end at `cuts`."""
    params = SamplingParams(max_tokens=len(tokens), stop_token_ids=[2])
    stream = Stream(1, [9], params, asyncio.Event())
    generation = Generation([[9]], params, **{"stops": [], "wants_sources": True, **asked})
    growing = Answer(0, stream, generation, model.detokenizer, NAMES)
    found = []
    for place, (token, source) in enumerate(zip(tokens, sources, strict=True), 1):
        stream.feed(token, None, None, time.monotonic(), source)
        if place == len(tokens):
            stream.end(Ending(1, finish))
        if (place in cuts or place == len(tokens)) and growing.finish is None:
            found.append(growing.advance())
    return [delta for delta in found if delta is not None]


def text_of(pieces: list[Piece] | None) -> str:
    assert pieces is not None
    return "".join(text for text, _ in pieces)


cut = st.lists(st.integers(1, 12), max_size=6)
TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["a 🔥🔥 ď b", "<think> so 🔥 it is</think>\n\nEND of it", "the END", "<think>never closed", "EN then ENDED"]
    ),
)


@given(text=TEXTS, data=st.data(), cuts=cut)
@settings(max_examples=150, deadline=None)
def test_pieces_joined_are_the_text_of_each_delta(model: ServedModel, text: str, data: Any, cuts: list[int]) -> None:
    tokens = model.tokenizer.encode(text).ids or [9]
    sources = data.draw(st.lists(st.integers(-1, 1), min_size=len(tokens), max_size=len(tokens)))
    options = data.draw(
        st.sampled_from([{}, {"stops": ["END"]}, {"reasoning": THINK}, {"reasoning": THINK, "stops": ["END"]}])
    )
    asked = deltas(model, tokens, sources, cuts, **options)
    plain = deltas(model, tokens, sources, cuts, **options, wants_sources=False)
    assert "".join(delta.text for delta in asked) == "".join(delta.text for delta in plain)
    assert [delta.finish for delta in asked] == [delta.finish for delta in plain]
    for delta in asked:
        assert text_of(delta.pieces) == delta.text
        assert text_of(delta.reasoning_pieces) == delta.reasoning
        assert {source for _, source in delta.pieces or ()} <= {None, *NAMES}
    assert all(delta.pieces is None for delta in plain)


@given(data=st.data(), cuts=cut)
@settings(max_examples=50, deadline=None)
def test_each_character_has_the_source_of_the_token_that_completes_it(
    model: ServedModel, data: Any, cuts: list[int]
) -> None:
    tokens = model.tokenizer.encode("aa 🔥 aa aa ď aa 👩‍👩‍👧 aa").ids
    sources = data.draw(st.lists(st.integers(-1, 1), min_size=len(tokens), max_size=len(tokens)))
    stream = model.detokenizer.stream()
    names = (*NAMES, None)
    want = merged((stream.push(token), names[source]) for token, source in zip(tokens, sources, strict=True))
    got = deltas(model, tokens, sources, cuts)
    assert merged(piece for delta in got for piece in delta.pieces or ()) == want
    held = deltas(model, tokens, sources, cuts, stops=["aa zz", "👩‍👩‍👦"])  # a stop string that always may come
    assert merged(piece for delta in held for piece in delta.pieces or ()) == want


def test_reasoning_and_answer_each_have_their_own_and_tags_have_none(model: ServedModel) -> None:
    parts = [("<think>", -1), ("I see", 0), ("</think>\n\n", 1), ("So END", 1), ("less", -1)]
    coded = [(token, source) for text, source in parts for token in model.tokenizer.encode(text).ids]
    tokens, sources = [token for token, _ in coded], [source for _, source in coded]
    for cuts in ([], list(range(len(tokens)))):
        got = deltas(model, tokens, sources, cuts, reasoning=THINK, stops=["ENDED"])
        assert merged(piece for delta in got for piece in delta.reasoning_pieces or ()) == [("I see", "lookahead")]
        assert merged(piece for delta in got for piece in delta.pieces or ()) == [("So END", "draft"), ("less", None)]


def test_accepted_tokens_are_counted_as_far_as_the_client_gets_them(model: ServedModel) -> None:
    tokens = model.tokenizer.encode("one two three four").ids
    stream = Stream(1, [9], SamplingParams(), asyncio.Event())
    growing = Answer(0, stream, Generation([[9]], SamplingParams(), [" three"]), model.detokenizer)
    for token in tokens:
        stream.feed(token, None, None, time.monotonic(), 0)
    growing.advance()
    assert (growing.tokens, growing.accepted_tokens) == (3, 3)
    plain = Answer(0, stream, Generation([[9]], SamplingParams(), []), model.detokenizer)
    for token, source in zip(tokens, (-1, 0, 1, -1), strict=True):
        stream.feed(token, None, None, time.monotonic(), source)
    assert plain.advance().is_news  # type: ignore[union-attr]
    assert (plain.tokens, plain.accepted_tokens) == (4, 2)


def test_usage_tells_them_as_openai_names_them_and_only_where_they_are_known() -> None:
    details = usage_body(Usage(1, 9, accepted_tokens=4, rejected_tokens=3))["completion_tokens_details"]
    assert details == {"reasoning_tokens": 0, "accepted_prediction_tokens": 4, "rejected_prediction_tokens": 3}
    assert usage_body(Usage(1, 9))["completion_tokens_details"] == {"reasoning_tokens": 0}


class Asked:
    """What events ask a generator for."""

    usage = Usage()

    def prompt_of(self, index: int) -> int:
        return index

    def prompt_logprobs(self, index: int) -> list[PromptLogprobs]:
        return []


def streamed(endpoint: Any, body: dict[str, Any], found: list[Delta]) -> list[dict[str, Any]]:
    events = ChunkEvents(body, endpoint, Asked())  # type: ignore[arg-type]
    chunks = [said for delta in found for said in events.of(delta)]
    return [orjson.loads(said)["choices"][0] if isinstance(said, bytes) else said["choices"][0] for said in chunks]


def test_chunks_and_whole_answers_carry_the_pieces_beside_their_text(model: ServedModel) -> None:
    tokens = model.tokenizer.encode("one two three").ids
    found = deltas(model, tokens, [-1, 0, 0], [1, 2])
    body = {"prompt": "x", "max_tokens": 3, "stream": True, "return_draft_sources": True}
    endpoint = CompletionEndpoint(model, body, 2048)
    assert asyncio.run(endpoint.generation()).wants_sources
    choices = streamed(endpoint, body, found)
    assert [choice["tursiops"]["pieces"] for choice in choices if choice["text"]] == [
        [{"text": "one", "source": None}],
        [{"text": " two", "source": "lookahead"}],
        [{"text": " three", "source": "lookahead"}],
    ]
    whole = Delta(0, "one two three", finish=Finish.LENGTH, pieces=[("one", None), (" two three", "lookahead")])
    echoing = CompletionEndpoint(model, {**body, "stream": False, "echo": True}, 2048)
    asyncio.run(echoing.generation())
    (choice,) = echoing.whole([whole], Usage(), Asked())["choices"]  # type: ignore[arg-type]
    assert choice["text"] == "xone two three"
    assert choice["tursiops"]["pieces"] == [
        {"text": "xone", "source": None},
        {"text": " two three", "source": "lookahead"},
    ]


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("tools", [None, [TOOL]], ids=["plain", "tools"])
@given(cuts=cut, data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_chats_contents_have_pieces_and_calls_have_none(
    talking: ServedModel, tools: Any, cuts: list[int], data: Any
) -> None:
    text = 'look <b>🔥 <tool_call>\n{"name": "look", "arguments": {"at": "look"}}\n</tool_call>'
    tokens = talking.tokenizer.encode(text).ids
    sources = data.draw(st.lists(st.integers(-1, 1), min_size=len(tokens), max_size=len(tokens)))
    body = {"messages": [{"role": "user", "content": "x"}], "return_draft_sources": True, "stream": True}
    if tools:
        body["tools"] = tools
    endpoint = ChatEndpoint(talking, body, 2048)
    generation = asyncio.run(endpoint.generation())
    shown = {"detokenizer": generation.detokenizer, "reasoning": generation.reasoning}
    choices = streamed(endpoint, body, deltas(talking, tokens, sources, cuts, Finish.STOP, **shown))
    called = [choice for choice in choices if "tool_calls" in choice["delta"]]
    assert bool(called) == bool(tools)
    assert not any("tursiops" in choice for choice in called)
    said = [choice for choice in choices if choice["delta"].get("content")]
    assert said
    for choice in said:
        pieces = choice["tursiops"]["pieces"]
        assert "".join(piece["text"] for piece in pieces) == choice["delta"]["content"]
