"""Guesses and grammars: what is guessed is asked about first, each node has the mask that its path leads to, and the
answers are those without guesses (cases G2 and G6)."""

from __future__ import annotations

import json
import random

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.config import EngineConfig
from engines.native.grammar import sources
from engines.native.grammar.compiler import Compiler
from engines.native.grammar.constraints import Constraints
from engines.native.grammar.matcher import Matcher, fill
from engines.native.grammar.spec import Think
from engines.native.offline import Generated, Offline
from engines.native.request import Finish
from engines.native.speculation.tree import Tree
from tests.engines.grammar.test_constraints import PROMPTS, SCHEMAS, engine, params, text
from tests.engines.grammar.test_matcher import EXECUTOR, SCHEMA, matcher
from tests.engines.grammar.tokens import END, END_OF_TURN, SIZE, THINK, UNTHINK, VOCABULARY
from tests.engines.speculation.test_losslessness import Oracle, every_guess_is_tried, sure

pytestmark = pytest.mark.speculation
PLAIN = EngineConfig(format="safetensors", paths={}, device="cpu", dtype="float32", speculation="off")


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6), think=st.sampled_from([None, Think(THINK, UNTHINK)]))
def test_each_node_has_the_mask_of_its_path_and_what_is_refused_goes(seed: int, think: Think | None) -> None:
    chance = random.Random(seed)
    source = sources.from_schema(SCHEMA)
    made, said = matcher(source, think=think), []
    for _ in range(chance.randint(0, 4)):
        said.append(_next(made, chance))
        made.advance(said[-1])
        fill([made], EXECUTOR)
    tokens, parents = [], []
    for node in range(chance.randint(1, 8)):
        parents.append(chance.randint(0, node))
        before = _after(source, think, [*said, *_path(tokens, parents, parents[-1])])
        right = before is not None and chance.random() < 0.7
        tokens.append(_next(before, chance) if right and before is not None else chance.randrange(SIZE))
    count = len(tokens)
    tree = Tree(np.array(tokens, np.int32), np.array(parents, np.int32), *sure(count))
    standing = made.bits.copy()
    kept, bits = Constraints(Compiler(lambda: VOCABULARY)).followed(made, tree)
    np.testing.assert_array_equal(bits[0], standing)
    np.testing.assert_array_equal(made.bits, standing)
    paths = {tuple(_path(kept.tokens.tolist(), kept.parents.tolist(), node)) for node in range(1, len(kept) + 1)}
    for node in range(1, len(kept) + 1):
        alone = _after(source, think, [*said, *_path(kept.tokens.tolist(), kept.parents.tolist(), node)])
        assert alone is not None
        np.testing.assert_array_equal(bits[node], alone.bits)
    for node in range(1, count + 1):
        path = _path(tokens, parents, node)
        assert (tuple(path) in paths) == (_after(source, think, [*said, *path]) is not None)
    if (token := _next(made, chance)) is not None:  # it goes on from where it stood
        made.advance(token)
        assert not made.error


def _path(tokens: list[int], parents: list[int], node: int) -> list[int]:
    path: list[int] = []
    while node:
        path.insert(0, tokens[node - 1])
        node = parents[node - 1]
    return path


def _after(source: str, think: Think | None, tokens: list[int]) -> Matcher | None:
    """None where a token is refused, ends the answer, or comes after the grammar's end."""
    made = matcher(source, think=think)
    for token in tokens:
        if made.complete or token in (END, END_OF_TURN) or not made.bits[token >> 5] >> (token & 31) & 1:
            return None
        made.advance(token)
        fill([made], EXECUTOR)
        if made.error:
            return None
    return made


def _next(made: Matcher, chance: random.Random) -> int:
    allowed = np.flatnonzero(np.unpackbits(made.bits.view(np.uint8), bitorder="little")[:SIZE])
    return int(chance.choice(allowed.tolist())) if len(allowed) else 0


@pytest.mark.parametrize("right", [0.5, 0.95])
def test_answers_in_a_grammar_are_those_without_guesses(monkeypatch, right: float) -> None:
    every_guess_is_tried(monkeypatch)
    asked = [params(sources.from_schema(SCHEMAS[i]), seed=i, temperature=(i % 3) / 2) for i in range(5)]
    plain = engine(speculation="off").generate(PROMPTS, asked)
    made = guessing(engine(), dict(zip(map(tuple, PROMPTS), plain, strict=True)), right)
    found = made.generate(PROMPTS, asked)
    assert [each.token_ids for each in found] == [each.token_ids for each in plain]
    for schema, each in zip(SCHEMAS, found, strict=True):
        assert each.finish is Finish.STOP
        jsonschema.validate(json.loads(text(each)), schema)
    assert made.scheduler.speculator is not None
    assert made.scheduler.speculator.counts.accepted > 10
    assert made.scheduler.check() == []


def test_masks_keep_step_through_preemptions_with_guesses_g6(monkeypatch) -> None:
    every_guess_is_tried(monkeypatch)
    prompts = [[first, 2, 3] for first in range(1, 5)]
    asked = [params(sources.from_regex("([a-c][x-z]){20}"), seed=seed) for seed in range(4)]
    plain = engine(speculation="off").generate(prompts, asked)
    known = {**dict(zip(map(tuple, prompts), plain, strict=True)), (9,): plain[0]}
    made = guessing(engine(kv_cache_bytes=3 << 13), known, 0.9)
    made.generate([[9]] * 8, params(sources.from_choice(["ab"])))  # so that outputs seem short
    found = made.generate(prompts, asked)
    assert made.scheduler.preemptions > 0
    assert [each.token_ids for each in found] == [each.token_ids for each in plain]
    assert made.scheduler.speculator is not None
    assert made.scheduler.speculator.counts.accepted > 0
    assert made.scheduler.check() == []


def guessing(base: Offline, answers: dict[tuple[int, ...], Generated], right: float) -> Offline:
    known = {prompt: each.token_ids for prompt, each in answers.items()}
    made = Offline(PLAIN, base.runner, {"oracle": lambda settings: Oracle(settings, known, right)})
    made.scheduler.constraints = Constraints(Compiler(lambda: VOCABULARY))
    return made
