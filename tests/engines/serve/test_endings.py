"""Loops, complete answers, and how stops and special tokens are shown, in answers as they grow."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.ipc import Ending
from engines.native.loader.model_files import open_model
from engines.native.request import Finish, SamplingParams
from engines.native.serve.endings import Endings, LoopDetector, LoopRule, TextEnd
from engines.native.serve.generate import Answer, Generation
from engines.native.serve.model import ServedModel, load
from engines.native.serve.stream import Stream
from tests.engines.instances import Running
from tests.engines.weights import smollm2

IM_START, IM_END = 1, 2  # of SmolLM2, both special


def loops(tokens: list[int], rule: LoopRule) -> bool:
    """By definition, from the whole list."""
    count = len(tokens)
    if count < rule.min_tokens:
        return False
    for period in range(1, rule.max_period + 1):
        copies = period * rule.min_repeats
        if copies <= count and all(tokens[-1 - j] == tokens[-1 - j - period] for j in range(copies - period)):
            return True
    return False


a_loop = st.builds(
    lambda head, unit, times, rest: head + unit * times + rest,
    st.lists(st.integers(0, 2), max_size=12),
    st.lists(st.integers(0, 2), min_size=1, max_size=6),
    st.integers(1, 8),
    st.lists(st.integers(0, 2), max_size=12),
)


@given(
    st.lists(st.integers(0, 1), max_size=60)
    | a_loop
    | st.lists(a_loop, max_size=4).map(lambda parts: [*itertools.chain(*parts)]),
    st.builds(LoopRule, st.integers(2, 5), st.integers(1, 7), st.integers(0, 30)),
)
@settings(max_examples=200, deadline=None)
def test_a_loop_is_found_with_the_token_that_makes_it(tokens: list[int], rule: LoopRule) -> None:
    detector = LoopDetector(rule)
    for count in range(1, len(tokens) + 1):
        found = detector.push(tokens[count - 1])
        assert found == loops(tokens[:count], rule)
        if found:
            return


def test_a_detector_compares_little_where_nothing_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    mismatch = LoopDetector._mismatch

    def counted(self: LoopDetector, period: int, count: int) -> int:
        looked.append(period)
        return mismatch(self, period, count)

    monkeypatch.setattr(LoopDetector, "_mismatch", counted)
    detector = LoopDetector(LoopRule(min_repeats=4, max_period=64))
    for token in range(4000):
        assert not detector.push(token)
    assert len(looked) < 2 * 4000  # (ln 64 + 0.58) / 3 = 1.6 per token


@pytest.fixture(scope="module")
def model() -> ServedModel:
    path = smollm2()
    return load("m", open_model("gguf", {path.name: str(path)}))


def grown(
    model: ServedModel,
    tokens: list[int],
    endings: Endings,
    *,
    step: int = 1,
    stops: tuple[str, ...] = (),
    min_tokens: int = 0,
    end: Finish | None = None,
) -> tuple[str, Finish | None, int]:
    """Text, reason and token count of an answer whose tokens come `step` at a time."""
    params = SamplingParams(max_tokens=500, stop_token_ids=[IM_END], min_tokens=min_tokens)
    stream = Stream(1, [9], params, asyncio.Event())
    growing = Answer(0, stream, Generation([[9]], params, list(stops), endings=endings), model.detokenizer)
    text = ""
    for place in range(0, len(tokens), step):
        for token in tokens[place : place + step]:
            stream.feed(token, None, None, time.monotonic())
        if end is not None and place + step >= len(tokens):
            stream.end(Ending(1, end))
        delta = growing.advance()
        assert delta is not None
        text += delta.text
        if delta.finish is not None:
            break
    return text, growing.finish, growing.tokens


@pytest.mark.parametrize("step", [1, 3, 100])
def test_an_answer_ends_with_its_sentence(model: ServedModel, step: int) -> None:
    tokens = model.token_ids("It costs $3.14, e.g. in May. Then more. And more.")
    text, finish, count = grown(model, tokens, Endings(complete="sentence"), step=step)
    assert (text, finish) == ("It costs $3.14, e.g. in May.", Finish.STOP)
    assert count < len(tokens)


def test_a_sentence_counts_after_min_tokens(model: ServedModel) -> None:
    first = model.token_ids("One is. Two")
    tokens = model.token_ids("One is. Two is. Three is. Four")
    assert tokens[: len(first)] == first
    text, finish, _ = grown(model, tokens, Endings(complete="sentence"), min_tokens=len(first) + 1)
    assert (text, finish) == ("One is. Two is.", Finish.STOP)


@pytest.mark.parametrize("step", [1, 4])
def test_an_answer_ends_with_its_json_or_at_a_stop_string_before(model: ServedModel, step: int) -> None:
    tokens = model.token_ids('So: {"a": [1, {"b": "}"}]}\n\nThat is all.')
    assert grown(model, tokens, Endings(complete="json"), step=step)[:2] == ('So: {"a": [1, {"b": "}"}]}', Finish.STOP)
    stopped = grown(model, tokens, Endings(complete="json"), step=step, stops=('"b"',))
    assert stopped[:2] == ('So: {"a": [1, {', Finish.STOP)


def test_held_back_line_breaks_come_at_the_end(model: ServedModel) -> None:
    tokens = model.token_ids("one\n")
    assert grown(model, tokens, Endings(complete="paragraph"), end=Finish.LENGTH)[:2] == ("one\n", Finish.LENGTH)
    tokens = model.token_ids("one\n\ntwo")
    assert grown(model, tokens, Endings(complete="paragraph"), stops=("\n\n\n",))[:2] == ("one", Finish.STOP)


@pytest.mark.parametrize("step", [1, 5, 100])
def test_a_loop_ends_with_its_own_reason_and_what_was_held_back_is_shown(model: ServedModel, step: int) -> None:
    unit = model.token_ids(" go on")
    start = model.token_ids("Now")
    rule = LoopRule(min_repeats=3, max_period=4)
    text, finish, count = grown(model, start + unit * 10, Endings(loop=rule), step=step, stops=("on go on!",))
    assert (text, finish) == ("Now go on go on go on", Finish.REPETITION)
    assert count == len(start) + 3 * len(unit)
    late = LoopRule(min_repeats=3, max_period=4, min_tokens=20)
    assert grown(model, start + unit * 30, Endings(loop=late), step=step)[2] == 20


def test_special_tokens_are_shown_where_asked_and_stop_strings_see_them(model: ServedModel) -> None:
    tokens = [*model.token_ids("a"), IM_START, *model.token_ids("b c")]
    assert grown(model, tokens, Endings())[0] == "ab c"
    assert grown(model, tokens, Endings(special=True))[0] == "a<|im_start|>b c"
    assert model.tokenizer.decode(tokens, skip_special_tokens=False) == "a<|im_start|>b c"
    stopped = grown(model, tokens, Endings(special=True), stops=("<|im_start|>b",))
    assert stopped[:2] == ("a", Finish.STOP)
    kept = grown(model, tokens, Endings(special=True, include_stop=True), stops=("<|im_start|>b",))
    assert kept[:2] == ("a<|im_start|>b", Finish.STOP)


def test_the_stop_token_is_shown_only_with_both(model: ServedModel) -> None:
    """As vLLM: include_stop_str_in_output shows its text, and a special token has text where those are shown."""
    tokens = [*model.token_ids("a"), IM_END]
    shown = {
        (include, special): grown(model, tokens, Endings(include, special), step=9, end=Finish.STOP)[0]
        for include in (False, True)
        for special in (False, True)
    }
    assert shown == {(False, False): "a", (False, True): "a", (True, False): "a", (True, True): "a<|im_end|>"}


@given(
    st.lists(st.text("ab", max_size=4), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=5), max_size=3),
    st.booleans(),
)
def test_any_split_is_cut_where_the_first_stop_is_complete(pieces: list[str], stops: list[str], include: bool) -> None:
    def cut(pieces: list[str]) -> tuple[str, str | None]:
        end = TextEnd(stops, Endings(include_stop=include))
        sent = ""
        for piece in pieces:
            text, met = end.push(piece)
            sent += text
            if met:
                return sent, end.met
        return sent + end.flush(), None

    whole = "".join(pieces)
    ends = [end for end in range(len(whole) + 1) if any(whole[:end].endswith(stop) for stop in stops)]
    if not ends:
        assert cut(pieces) == (whole, None)
        return
    longest = max((stop for stop in stops if whole[: ends[0]].endswith(stop)), key=len)
    kept = whole[: ends[0]] if include else whole[: ends[0] - len(longest)]
    assert cut(pieces) == (kept, longest)


def test_over_http_a_loop_ends_the_request_in_the_core(instance: Running) -> None:
    """The engine answers with its prompt."""
    prompt = instance.post("/tokenize", {"prompt": "on and on and on and on and on and on and on and on"}).json()[
        "tokens"
    ]
    rule = {"min_repeats": 3, "max_period": 8}
    before = instance.metric('requests_finished_total{reason="repetition"}')
    body = {"prompt": prompt, "max_tokens": 500, "loop_detection": rule}
    choice = instance.complete(**body)["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("on and on and on and on", "repetition")
    events = instance.events("/v1/completions", body)
    assert events[-1] == "[DONE]"
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == choice["text"]
    assert instance.metric('requests_finished_total{reason="repetition"}') == before + 2
    instance.eventually(lambda: instance.metric("requests_running") == 0)


def test_over_http_an_answer_ends_with_its_sentence(instance: Running) -> None:
    body = {"prompt": "今天很好（真的。）是。明天见。", "max_tokens": 500, "stop_on": "sentence"}
    choice = instance.complete(**body)["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("今天很好（真的。）是。", "stop")
    body |= {"prompt": "One is. Two is.", "stop": ["Two"], "include_stop_str_in_output": True}
    assert instance.complete(**body)["choices"][0]["text"] == "One is."
    del body["stop_on"]
    assert instance.complete(**body)["choices"][0]["text"] == "One is. Two"
