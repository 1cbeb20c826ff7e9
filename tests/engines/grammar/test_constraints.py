"""Grammars in a running engine: a small random model, real masks, every depth of the pipeline."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest

from engines.native.config import EngineConfig
from engines.native.grammar import constraints as module
from engines.native.grammar import sources
from engines.native.grammar.compiler import Compiler
from engines.native.grammar.constraints import Constraints, closes, opens
from engines.native.grammar.spec import INVALID_GRAMMAR, Grammar, Think
from engines.native.offline import Generated, Offline
from engines.native.request import Finish, Request, SamplingParams
from evaluation.benchmarks.random_model import TINY, random_runner
from tests.engines.grammar.tokens import END, SIZE, THINK, TOKENS, UNTHINK, VOCABULARY

SCHEMAS: list[dict[str, Any]] = [
    {"type": "string", "maxLength": 6},
    {"enum": ["red", "green", {"mix": [1, 2]}]},
    {"type": "array", "items": {"type": "integer", "minimum": 10, "maximum": 30}, "minItems": 1, "maxItems": 2},
    {"type": "string", "pattern": "^[a-c]{4,8}$"},
    {"type": "object", "properties": {"d": {"type": "string", "format": "date"}}, "required": ["d"],
     "additionalProperties": False},
]  # fmt: skip
PROMPTS = [[1, 2, 3], [7] * 9, [4, 4, 9, 30, 200], [250, 3], [11] * 17]


def engine(*, depth: int = 1, kv_cache_bytes: int = 1 << 21, **sizes: Any) -> Offline:
    config = EngineConfig(
        format="safetensors", paths={}, device="cpu", dtype="float32", block_size=8, threads=1,
        kv_cache_bytes=kv_cache_bytes, **{"max_model_len": 400, "max_num_seqs": 8, "max_batched_tokens": 64, **sizes},
    )  # fmt: skip
    runner = random_runner(replace(TINY, vocab=SIZE, context_length=512), config, seed=5)
    runner.depth = depth
    made = Offline(config, runner)
    made.scheduler.constraints = Constraints(Compiler(lambda: VOCABULARY))
    return made


def params(source: str | None, think: Think | None = None, **asks: Any) -> SamplingParams:
    grammar = None if source is None else Grammar(source, think)
    return SamplingParams(**{"temperature": 1.0, "max_tokens": 370, "stop_token_ids": [END], **asks}, grammar=grammar)


def text(result: Generated) -> str:
    return b"".join(TOKENS[token] for token in result.token_ids if token < END).decode()


MIXED = [
    params(sources.from_schema(SCHEMAS[index % 5]), seed=index, temperature=index % 4 / 2)
    if index % 3 < 2
    else params(None, seed=index, max_tokens=40)
    for index in range(9)
]


@pytest.fixture(scope="module")
def alone() -> list[Generated]:
    made = engine()
    return [made.generate([PROMPTS[index % 5]], asked)[0] for index, asked in enumerate(MIXED)]


def test_answers_are_valid_and_end_with_stop(alone: list[Generated]) -> None:
    for index, result in enumerate(alone):
        if MIXED[index].grammar is not None:
            assert result.finish is Finish.STOP, result.message
            jsonschema.validate(json.loads(text(result)), SCHEMAS[index % 5])


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_neither_batch_nor_depth_changes_a_token(alone: list[Generated], depth: int) -> None:
    made = engine(depth=depth)
    together = made.generate([PROMPTS[index % 5] for index in range(9)], MIXED)
    assert [result.token_ids for result in together] == [result.token_ids for result in alone]
    assert [result.finish for result in together] == [result.finish for result in alone]
    assert made.scheduler.check() == []


@pytest.mark.parametrize("depth", [1, 2])
def test_a_preempted_request_goes_on_in_its_grammar(depth: int) -> None:
    asked = [params(sources.from_regex("([a-c][x-z]){20}"), seed=seed) for seed in range(4)]
    made = engine()
    alone = [made.generate([PROMPTS[0]], each)[0].token_ids for each in asked]
    small = engine(depth=depth, kv_cache_bytes=3 << 13)
    small.generate([[1]] * 8, params(sources.from_choice(["ab"])))  # so that short outputs are expected
    together = small.generate([PROMPTS[0]] * 4, asked)
    assert small.scheduler.preemptions > 0
    assert [result.token_ids for result in together] == alone
    assert {result.finish for result in together} == {Finish.STOP}
    assert small.scheduler.check() == []


def test_min_tokens_and_ignore_eos_give_way_to_the_end_of_the_grammar() -> None:
    made = engine()
    source = sources.from_choice(["ab"])
    early, endless, barred = made.generate(
        [[1, 2]] * 3,
        [
            params(source, min_tokens=20),
            params(source, stop_token_ids=[]),
            params(sources.from_regex("a{1,9}"), min_tokens=5, temperature=0.0),
        ],
    )
    assert (text(early), early.finish) == ("ab", Finish.STOP)
    assert (text(endless), endless.finish) == ("ab", Finish.STOP)
    assert len(barred.token_ids) >= 5


def test_bias_cannot_bring_in_what_the_grammar_refuses_and_log_probabilities_are_of_the_raw_logits() -> None:
    made = engine()
    source = sources.from_choice(["yes", "no"])
    (free,) = made.generate([[1, 2, 3]], SamplingParams(temperature=0.0, max_tokens=1, logprobs=3))
    (bound,) = made.generate(
        [[1, 2, 3]], params(source, temperature=0.0, logprobs=3, logit_bias={ord("z"): 100.0}, stop_token_ids=[END])
    )
    assert text(bound) in ("yes", "no")
    assert bound.top[0] == free.top[0]


def test_the_grammar_begins_behind_the_thinking() -> None:
    made = engine()
    think = Think(THINK, UNTHINK)
    source = sources.from_choice(["yes", "no"])
    toward = {"logit_bias": {UNTHINK: 3.0}}
    inside, before, closed = made.generate(
        [[1, THINK, 5], [1, 5], [1, THINK, UNTHINK, 10]], params(source, think, max_tokens=120, seed=3, **toward)
    )
    assert UNTHINK in inside.token_ids
    thought, answer = _split(inside.token_ids)
    assert len(thought) > 1
    assert answer in ("yes", "no")
    assert before.token_ids[0] == THINK or text(before) in ("yes", "no")
    assert text(closed) in ("yes", "no")
    assert closed.finish is Finish.STOP


def _split(tokens: list[int]) -> tuple[list[int], str]:
    at = tokens.index(UNTHINK)
    return tokens[: at + 1], b"".join(TOKENS[token] for token in tokens[at + 1 :] if token < END).decode()


def test_where_a_prompt_leaves_the_thinking() -> None:
    def at(*tokens: int) -> tuple[bool, bool]:
        prompt = np.array(tokens, np.int32)
        return opens(prompt, Think(THINK, UNTHINK)), closes(prompt, Think(THINK, UNTHINK))

    assert at(1, THINK, 10) == (True, False)
    assert at(1, THINK, 10, UNTHINK, 10) == (False, True)
    assert at(THINK, UNTHINK, *[5] * 9) == (False, False), "that was an earlier turn's"
    assert at(1, 2) == (False, False)


def test_a_grammar_that_does_not_compile_ends_its_request_alone() -> None:
    made = engine()
    bad, good = made.generate([[1, 2]] * 2, [params(sources.from_regex("(")), params(sources.from_choice(["a"]))])
    assert bad.finish is Finish.ERROR
    assert "unclosed group" in bad.message
    assert (text(good), good.finish) == ("a", Finish.STOP)


def test_whose_fault_it_is_that_a_grammar_cannot_be_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own where it allows nothing or goes over a limit, however late that shows; the engine's where that fails."""
    made = engine()
    codes = codes_by_message(made, monkeypatch)
    nothing, late = sources.from_schema({"$ref": "#"}), sources.from_grammar('root ::= "a" root')
    empty, deep, fine = made.generate(
        [[1, 2]] * 3, [params(each) for each in (nothing, late, sources.from_choice(["a"]))]
    )
    assert (text(fine), fine.finish) == ("a", Finish.STOP)
    assert "no text can follow it" in empty.message
    assert "became too complex: parser error: Too many items" in deep.message
    assert "<state>" not in empty.message + deep.message
    assert [codes[each.message] for each in (empty, deep, fine)] == [INVALID_GRAMMAR, INVALID_GRAMMAR, ""]

    monkeypatch.setattr(module.Matcher, "advance", _fails)
    (broken,) = made.generate([[1, 2]], params(sources.from_choice(["ab"])))
    assert "the engine could not follow the grammar" in broken.message
    assert codes[broken.message] == ""
    assert made.scheduler.check() == []


def codes_by_message(made: Offline, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of each ending from now on."""
    codes: dict[str, str] = {}
    settle = made.scheduler.settle

    def recorded(request: Request, finish: Finish | None, message: str = "", code: str = "") -> None:
        if finish is not None:
            codes[message] = code
        settle(request, finish, message, code)

    monkeypatch.setattr(made.scheduler, "settle", recorded)
    return codes


def _fails(*_: object) -> None:
    raise RuntimeError("broken")


def test_one_that_takes_too_long_ends_with_a_time_out_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPILE_TIMEOUT_S", 0.2)
    made = engine()

    def slow() -> Any:
        time.sleep(1.0)
        return VOCABULARY

    made.scheduler.constraints = Constraints(Compiler(slow))
    late, free = made.generate([[1, 2]] * 2, [params(sources.from_choice(["a"])), params(None, max_tokens=3)])
    assert late.finish is Finish.ERROR
    assert "not compiled within" in late.message
    assert free.finish in (Finish.LENGTH, Finish.STOP)
    assert made.scheduler.check() == []


def test_an_engine_without_grammars_says_so() -> None:
    made = engine()
    made.scheduler.constraints = None
    (result,) = made.generate([[1, 2]], params(sources.from_choice(["a"])))
    assert (result.finish, result.message) == (Finish.ERROR, "this engine was started without grammars")
