"""One answer while it grows: what comes of tokens, stops and endings. Names carry the case of cases/engine.md."""

from __future__ import annotations

import asyncio
import time

import pytest

from engines.native.grammar.spec import INVALID_GRAMMAR, Grammar
from engines.native.ipc import Ending
from engines.native.loader.model_files import open_model
from engines.native.request import Finish, SamplingParams
from engines.native.serve.errors import ApiError
from engines.native.serve.generate import Answer, Generation, failure
from engines.native.serve.model import ServedModel, load
from engines.native.serve.parsers.reasoning import ReasoningTags
from engines.native.serve.stream import Stream
from tests.engines.weights import smollm2

THINK = ReasoningTags("<think>", "</think>")  # each of several tokens in SmolLM2's vocabulary


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
    growing, stream = answer(model, [9], stops=["END"], reasoning=THINK)
    feed(stream, encode(model, "<think>first END of thought</think>so END here"))
    delta = growing.advance()
    assert delta is not None
    assert (delta.reasoning, delta.text) == ("first END of thought", "so ")
    assert delta.finish is Finish.STOP


def test_b5_thinking_that_the_prompt_opened_counts_too(model: ServedModel) -> None:
    growing, stream = answer(model, [9], stops=["END"], reasoning=THINK, thinking=True)
    feed(stream, encode(model, "a END b"))
    delta = growing.advance()
    assert delta is not None
    assert (delta.reasoning, delta.text, delta.finish) == ("a END b", "", None)
    assert growing.reasoning_tokens == len(encode(model, "a END b"))
    closed, stream = answer(model, [9], stops=["END"], reasoning=THINK)
    feed(stream, encode(model, "a END b"))
    delta = closed.advance()
    assert delta is not None
    assert (delta.text, delta.finish) == ("a ", Finish.STOP)


SEVERAL_TOKENS = ["🔥", "思考", "👩‍👩‍👧", "ď→"]  # each of several tokens, some of which end inside a character


def grown(model: ServedModel, tokens: list[int], step: int, **options: object) -> tuple[str, Finish | None]:
    """What an answer says whose tokens come `step` at a time: reasoning and answer one after the other."""
    growing, stream = answer(model, [9], **options)
    thought = text = ""
    for place in range(0, len(tokens), step):
        feed(stream, tokens[place : place + step])
        delta = growing.advance()
        assert delta is not None
        assert not (delta.reasoning and text[len(thought) :])  # reasoning comes first
        thought += delta.reasoning
        text += delta.reasoning + delta.text
        if delta.finish is not None:
            break
    return text, growing.finish


@pytest.mark.parametrize("step", [1, 2, 100])
@pytest.mark.parametrize("stop", SEVERAL_TOKENS)
def test_b5_stops_of_several_tokens(model: ServedModel, stop: str, step: int) -> None:
    assert len(encode(model, stop)) > 1
    for thought in (f"is {stop} it?", f"it is {stop}"):  # the second ends where the thinking does
        tokens = encode(model, f"<think>{thought}</think>So: {stop} and more")
        assert grown(model, tokens, step, stops=[stop], reasoning=THINK) == (f"{thought}So: ", Finish.STOP)


@pytest.mark.parametrize("step", [1, 2, 100])
@pytest.mark.parametrize("stop", SEVERAL_TOKENS)
def test_b5_a_stop_is_not_put_together_of_thinking_and_answer(model: ServedModel, stop: str, step: int) -> None:
    for cut in range(1, len(stop)):
        first, rest = stop[:cut], stop[cut:]
        tokens = encode(model, f"<think>a{first}</think>{rest}b and so on, long enough not to be held back")
        found, finish = grown(model, tokens, step, stops=[stop], reasoning=THINK)
        assert found.startswith(f"a{first}{rest}b")
        assert finish is None


def test_b5_the_tags_own_text_is_no_answer(model: ServedModel) -> None:
    tokens = encode(model, "<think>a</think>b c and more")
    assert grown(model, tokens, 1, stops=["/think", "think>"], reasoning=THINK)[0] == "ab c and more"


def test_reasoning_tokens_are_those_between_the_tags(model: ServedModel) -> None:
    growing, stream = answer(model, [9], reasoning=THINK)
    thought = encode(model, "one two three")
    for text in ("<think>", None, "</think>", " four"):
        feed(stream, encode(model, text) if text else thought)
        growing.advance()
    # The end tag is several tokens here, of which all but the last may still be reasoning.
    assert growing.reasoning_tokens == len(thought) + len(encode(model, "</think>")) - 1


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
    if finish is not Finish.TIMEOUT:
        feed(stream, encode(model, "begun"))
    stream.end(Ending(1, finish, "why", code if finish is Finish.TIMEOUT else ""))
    stream.end(Ending(1, Finish.LENGTH))  # the first ending counts
    with pytest.raises(ApiError) as raised:
        growing.advance()
    assert (raised.value.status, raised.value.code, raised.value.message) == (status, code, "why")


def test_a_grammar_that_could_not_be_followed_is_its_clients_mistake() -> None:
    params = SamplingParams(grammar=Grammar("a", field="guided_regex"))
    error = failure(Ending(1, Finish.ERROR, "too complex", INVALID_GRAMMAR), params)
    assert (error.status, error.code, error.param) == (400, "invalid_grammar", "guided_regex")
    assert str(error) == "guided_regex cannot be used: too complex"
    assert failure(Ending(1, Finish.ERROR, "why"), params).status == 500, "the engine's own"


def test_a_time_out_after_the_first_token_keeps_what_came(model: ServedModel) -> None:
    growing, stream = answer(model, [9])
    feed(stream, encode(model, "begun"))
    stream.end(Ending(1, Finish.TIMEOUT, "why"))
    delta = growing.advance()
    assert delta is not None
    assert (delta.text, delta.finish) == ("begun", Finish.TIMEOUT)
