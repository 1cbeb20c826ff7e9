"""Fields that say how tokens are drawn and where answers end: what each becomes, and what is refused by name."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.loader.model_files import open_model
from engines.native.request import SamplingParams
from engines.native.serve import endings, validate
from engines.native.serve.endings import Endings, LoopRule
from engines.native.serve.errors import ApiError
from engines.native.serve.model import ServedModel, load
from tests.engines.weights import smollm2

VOCAB = 49152


@pytest.fixture(scope="module")
def model() -> ServedModel:
    path = smollm2()
    return load("m", open_model("gguf", {path.name: str(path)}))


def read_all(model: ServedModel, body: dict[str, Any]) -> tuple[SamplingParams, Endings]:
    return read(model, **body), endings.read(body)


def read(model: ServedModel, **body: Any) -> SamplingParams:
    return validate.sampling(body, model, max_tokens=16, logprobs=-1)


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"typical_p": 0}, "typical_p", "above 0"),
    ({"typical_p": 1.1}, "typical_p", "at most 1"),
    ({"typical_p": "1"}, "typical_p", "not a string"),
    ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size", "from 0 to 100"),
    ({"no_repeat_ngram_size": 101}, "no_repeat_ngram_size", "from 0 to 100"),
    ({"no_repeat_ngram_size": True}, "no_repeat_ngram_size", "not a boolean"),
    ({"dry_multiplier": -1}, "dry_multiplier", "from 0 to 100"),
    ({"dry_base": 0.9}, "dry_base", "from 1 to 4"),
    ({"dry_allowed_length": 0}, "dry_allowed_length", "from 1 to 50"),
    ({"dry_range": -1}, "dry_range", "0 or more"),
    ({"dry_sequence_breakers": "\n"}, "dry_sequence_breakers", "array of strings"),
    ({"dry_sequence_breakers": [1]}, "dry_sequence_breakers", "array of strings"),
    ({"dry_sequence_breakers": [""]}, "dry_sequence_breakers[0]", "1 to 256"),
    ({"dry_sequence_breakers": ["a"] * 65}, "dry_sequence_breakers", "at most 64"),
    ({"bad_words": "no"}, "bad_words", "array of strings"),
    ({"bad_words": ["ok", ""]}, "bad_words[1]", "1 to 256"),
    ({"bad_words": ["ok", " "]}, "bad_words[1]", "blank"),
    ({"bad_words": ["a"] * 129}, "bad_words", "at most 128"),
    ({"allowed_token_ids": []}, "allowed_token_ids", "empty"),
    ({"allowed_token_ids": [VOCAB]}, "allowed_token_ids", f"0 to {VOCAB - 1}"),
    ({"allowed_token_ids": [True]}, "allowed_token_ids", "array of integers"),
    ({"allowed_token_ids": 3}, "allowed_token_ids", "array of integers"),
    ({"include_stop_str_in_output": 1}, "include_stop_str_in_output", "boolean"),
    ({"skip_special_tokens": "no"}, "skip_special_tokens", "boolean"),
    ({"spaces_between_special_tokens": 0}, "spaces_between_special_tokens", "boolean"),
    ({"stop_on": "word"}, "stop_on", "sentence, paragraph, json"),
    ({"stop_on": ""}, "stop_on", "must be one of"),
    ({"stop_on": ["json"]}, "stop_on", "must be a string"),
    ({"loop_detection": True}, "loop_detection", "must be an object"),
    ({"loop_detection": {"repeats": 3}}, "loop_detection.repeats", "it has min_repeats, max_period, min_tokens"),
    ({"loop_detection": {"min_repeats": 1}}, "loop_detection.min_repeats", "from 2 to 100"),
    ({"loop_detection": {"max_period": 513}}, "loop_detection.max_period", "from 1 to 512"),
    ({"loop_detection": {"min_tokens": -1}}, "loop_detection.min_tokens", "0 or more"),
    ({"loop_detection": {"min_tokens": 1.5}}, "loop_detection.min_tokens", "must be an integer"),
]


@pytest.mark.parametrize(("body", "param", "part"), REFUSED, ids=range(len(REFUSED)))
def test_a_wrong_value_is_refused_by_name(model: ServedModel, body: dict[str, Any], param: str, part: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_all(model, body)
    assert (refused.value.status, refused.value.param) == (400, param)
    assert part in str(refused.value)


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5),
    st.lists(st.one_of(st.integers(-5, VOCAB + 5), st.text(max_size=3), st.none()), max_size=4),
    st.dictionaries(st.sampled_from(["min_repeats", "max_period", "5", "x"]), st.integers(-5, 600) | st.floats()),
)  # fmt: skip
FIELDS = [
    "temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_range", "dry_sequence_breakers",
    "no_repeat_ngram_size", "logit_bias", "bad_words", "allowed_token_ids", "min_tokens", "stop_token_ids",
    "ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "stop_on", "loop_detection",
]  # fmt: skip


@given(st.dictionaries(st.sampled_from(FIELDS), values, max_size=4))
@settings(max_examples=150, deadline=None)
def test_any_body_is_read_or_refused_by_name(model: ServedModel, body: dict[str, Any]) -> None:
    refused, params = None, SamplingParams()
    try:
        params, _ = read_all(model, body)
    except ApiError as error:
        refused = error
    if refused is not None:
        assert refused.status == 400
        assert refused.param is not None
        assert refused.param.partition(".")[0].partition("[")[0] in body
    for value in dataclasses.asdict(params).values():
        assert not isinstance(value, float) or math.isfinite(value)
    assert all(0 <= token < VOCAB for ids in (params.allowed_token_ids, *params.bad_words) for token in ids)


def test_what_is_left_out_is_off(model: ServedModel) -> None:
    params = read(model, seed=1)
    assert params == SamplingParams(seed=1, stop_token_ids=list(model.facts.eos_ids))
    assert endings.read({}) == Endings() == endings.PLAIN
    assert endings.read({"loop_detection": {}, "spaces_between_special_tokens": False}) == Endings(loop=LoopRule())


def test_the_models_defaults_hold_until_a_field_is_given(model: ServedModel) -> None:
    served = dataclasses.replace(model, defaults={"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.05})
    params = read(served)
    assert (params.temperature, params.top_k, params.top_p, params.repetition_penalty) == (0.6, 20, 1.0, 1.05)
    params = read(served, temperature=1.0, top_k=-1, repetition_penalty=1)
    assert (params.temperature, params.top_k, params.repetition_penalty) == (1.0, 0, 1.0)
    assert read(served, temperature=None).temperature == 0.6


def vllm_bad_words(model: ServedModel, words: list[str]) -> list[list[int]]:
    """vLLM's SamplingParams.update_from_tokenizer in plain words."""
    found: list[list[int]] = []
    for word in words:
        if not model.tokenizer.encode(word.lstrip(), add_special_tokens=False).ids:
            continue  # vLLM would fail: nothing can be drawn that is this word
        for prefix in ("", " "):
            ids = model.tokenizer.encode(prefix + word.lstrip(), add_special_tokens=False).ids
            if not prefix or (ids[0] != found[-1][0] and len(ids) == len(found[-1])):
                found.append(ids)
    return found


@given(st.lists(st.text(min_size=1, max_size=8).filter(lambda word: word.strip()), max_size=4))
@settings(max_examples=40, deadline=None)
def test_bad_words_are_taken_apart_as_by_vllm(model: ServedModel, words: list[str]) -> None:
    assert read(model, bad_words=words).bad_words == vllm_bad_words(model, words)
    (hello, blank_hello) = read(model, bad_words=["hello"]).bad_words
    assert (model.detokenizer.text(hello), model.detokenizer.text(blank_hello)) == ("hello", " hello")


def test_breakers_are_the_last_tokens_of_their_strings(model: ServedModel) -> None:
    default = [model.token_ids(text)[-1] for text in ("a\n", "a:", 'a"', "a*")]
    assert read(model, dry_multiplier=0.8).dry_breakers == default
    assert read(model, dry_multiplier=0.8, dry_sequence_breakers=["\n", "\n"]).dry_breakers == default[:1]
    assert read(model, dry_multiplier=0.8, dry_sequence_breakers=[]).dry_breakers == []
    assert read(model, dry_sequence_breakers=["\n"]).dry_breakers == []  # DRY is off
