"""One answer while it grows: what comes of tokens, stops and endings. Names carry the case of cases/engine.md."""

from __future__ import annotations

import asyncio
import time

import pytest

from engines.native.ipc import Ending
from engines.native.loader.model_files import open_model
from engines.native.request import Finish, SamplingParams
from engines.native.serve.errors import ApiError
from engines.native.serve.generate import Answer, Generation, ThinkTokens
from engines.native.serve.model import ServedModel, load
from engines.native.serve.stream import Stream
from tests.engines.weights import smollm2

THINK = ThinkTokens(begin=5, end=6)  # stand-ins: SmolLM2 has no thinking tokens


@pytest.fixture(scope="module")
def model() -> ServedModel:
    path = smollm2()
    return load("m", open_model("gguf", {path.name: str(path)}))


def answer(model: ServedModel, prompt: list[int], **options: object) -> tuple[Answer, Stream]:
    params = SamplingParams(max_tokens=50, stop_token_ids=[2])
    stream = Stream(1, prompt, params, asyncio.Event())
    generation = Generation([prompt], params, **{"stops": [], **options})  # type: ignore[arg-type]
    return Answer(0, stream, generation, model.detokenizer), stream


def feed(stream: Stream, tokens: list[int]) -> None:
    for token in tokens:
        stream.feed(token, None, None, time.monotonic())


def encode(model: ServedModel, text: str) -> list[int]:
    return list(model.tokenizer.encode(text).ids)


def test_b5_stop_in_the_thinking_is_not_met_and_in_the_answer_is(model: ServedModel) -> None:
    growing, stream = answer(model, [9], stops=["END"], think=THINK)
    feed(stream, [THINK.begin, *encode(model, "first END of thought"), THINK.end, *encode(model, "so END here")])
    delta = growing.advance()
    assert delta is not None
    assert delta.text == "first END of thoughtso "
    assert delta.finish is Finish.STOP


def test_b5_thinking_that_the_prompt_opened_counts_too(model: ServedModel) -> None:
    growing, stream = answer(model, [9, THINK.begin, 10], stops=["END"], think=THINK)
    feed(stream, encode(model, "a END b"))
    delta = growing.advance()
    assert delta is not None
    assert (delta.text, delta.finish) == ("a END b", None)
    closed, stream = answer(model, [THINK.begin, 10, THINK.end], stops=["END"], think=THINK)
    feed(stream, encode(model, "a END b"))
    delta = closed.advance()
    assert delta is not None
    assert (delta.text, delta.finish) == ("a ", Finish.STOP)


def test_tokens_after_a_stop_string_count_for_nothing(model: ServedModel) -> None:
    growing, stream = answer(model, [9], stops=["two"])
    tokens = encode(model, "one two three four")
    feed(stream, tokens)
    delta = growing.advance()
    assert delta is not None
    assert delta.text == "one "
    assert growing.tokens == 2


def test_a_burst_after_a_slow_reader_is_one_piece(model: ServedModel) -> None:
    growing, stream = answer(model, [9])
    feed(stream, encode(model, "many words in one go"))
    stream.end(Ending(1, Finish.LENGTH))
    delta = growing.advance()
    assert delta is not None
    assert (delta.text, delta.finish) == ("many words in one go", Finish.LENGTH)
    assert stream.tokens == []


def test_the_stop_token_is_no_text_even_if_it_could_be(model: ServedModel) -> None:
    word = encode(model, " word")[0]
    params = SamplingParams(max_tokens=50, stop_token_ids=[word])
    stream = Stream(1, [9], params, asyncio.Event())
    growing = Answer(0, stream, Generation([[9]], params, []), model.detokenizer)
    feed(stream, [*encode(model, "a"), word])
    stream.end(Ending(1, Finish.STOP))
    delta = growing.advance()
    assert delta is not None
    assert (delta.text, delta.finish) == ("a", Finish.STOP)


@pytest.mark.parametrize(
    ("finish", "status", "code"),
    [(Finish.TIMEOUT, 504, "timeout"), (Finish.ERROR, 500, "engine_error"), (Finish.ABORT, 503, "aborted")],
)
def test_endings_that_are_no_success_are_errors(model: ServedModel, finish: Finish, status: int, code: str) -> None:
    growing, stream = answer(model, [9])
    feed(stream, encode(model, "begun"))
    stream.end(Ending(1, finish, "why"))
    stream.end(Ending(1, Finish.LENGTH))  # the first ending counts
    with pytest.raises(ApiError) as raised:
        growing.advance()
    assert (raised.value.status, raised.value.code, raised.value.message) == (status, code, "why")
